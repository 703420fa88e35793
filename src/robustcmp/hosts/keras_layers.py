"""The layers of networks in Keras, 2 and 3, with images (N, H, W, C): what its hosts share.

It runs on CPython 3.6 and later. Keras keeps its weights in the canonical layout.
"""

from typing import Any, Dict

import numpy as np
from layers import Layers

NAMES = {"mean": "moving_mean", "variance": "moving_variance"}
EPSILON = 1.0000001e-5  # of batch norms: Theano refuses 1e-5, which is a little less in float32


class Padded:
    """A convolution of images with a border of zeros."""

    def __init__(self, padding: Any, conv: Any) -> None:
        self._padding, self._conv = padding, conv

    def __call__(self, x: Any) -> Any:
        return self._conv(self._padding(x) if self._padding else x)

    @property
    def kernel(self) -> Any:
        return self._conv.kernel

    @property
    def bias(self) -> Any:
        return self._conv.bias


class KerasLayers(Layers):  # type: ignore[misc]
    """A functional model of Keras.

    Parameters
    ----------
    keras : module
        Keras, or TensorFlow's.
    architecture : dict
        The design.
    seed : int
        Of its initial weights.
    **batch_norm : object
        Further arguments of batch norms.

    Attributes
    ----------
    model : keras.Model
        The network.
    """

    def __init__(self, keras: Any, architecture: Dict[str, Any], seed: int, **batch_norm: Any) -> None:
        self._keras, self._batch_norm = keras, batch_norm
        self._seeds = np.random.RandomState(seed)
        super().__init__(architecture)
        images = keras.layers.Input(shape=tuple(architecture["input_shape"]))
        self.model = keras.models.Model(images, self.applied(images))

    def conv(self, inputs: int, layer: Dict[str, Any]) -> Any:
        make, channels, kernel = self._keras.layers, layer["channels"], layer["kernel"]
        return Padded(
            make.ZeroPadding2D(layer["padding"]) if layer["padding"] else None,
            make.Conv2D(channels, kernel, strides=layer["stride"], kernel_initializer=self._initial()),
        )

    def dense(self, inputs: int, layer: Dict[str, Any]) -> Any:
        return self._keras.layers.Dense(layer["units"], kernel_initializer=self._initial())

    def batch_norm(self, inputs: int, images: bool) -> Any:
        return self._keras.layers.BatchNormalization(epsilon=EPSILON, momentum=0.9, **self._batch_norm)

    def relu(self, x: Any) -> Any:
        return self._keras.layers.Activation("relu")(x)

    def max_pool(self, x: Any, size: int) -> Any:
        return self._keras.layers.MaxPooling2D(size)(x)

    def global_average_pool(self, x: Any) -> Any:
        return self._keras.layers.GlobalAveragePooling2D()(x)

    def flatten(self, x: Any) -> Any:
        return self._keras.layers.Flatten()(x)

    def add(self, x: Any, y: Any) -> Any:
        return self._keras.layers.add([x, y])

    def weight(self, part: Any, kind: str) -> Any:
        return getattr(part, NAMES.get(kind, kind))

    def _initial(self) -> Any:
        return self._keras.initializers.glorot_uniform(seed=int(self._seeds.randint(1, 2**31 - 1)))
