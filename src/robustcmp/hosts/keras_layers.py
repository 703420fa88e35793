"""The layers of networks in Keras, 2 and 3, with images (N, H, W, C): what its hosts share.

It runs on CPython 3.6 and later. Keras keeps its weights in the canonical layout.
"""

from abc import ABC
from typing import Any, Dict

import numpy as np
from layers import LayersNetwork

EPSILON = 1.0000001e-5  # of batch norms: Theano refuses 1e-5, which is a little less in float32


class KerasLayers(LayersNetwork, ABC):  # type: ignore[misc]
    """A functional model of Keras.

    Attributes
    ----------
    keras : module
        Keras, or TensorFlow's.
    model : keras.Model
        The network.
    """

    keras: Any = None
    attributes = {"mean": "moving_mean", "variance": "moving_variance"}

    def __init__(self, architecture: Dict[str, Any], seed: int) -> None:
        self._seeds = np.random.RandomState(seed)
        super().__init__(architecture, seed)
        images = self.keras.layers.Input(shape=tuple(architecture["input_shape"]))
        self.model = self.keras.models.Model(images, self.apply(images))

    def conv(self, inputs: int, layer: Dict[str, Any]) -> Any:
        make = self.keras.layers.Conv2D
        initial = self._initial()
        return make(layer["channels"], layer["kernel"], strides=layer["stride"], kernel_initializer=initial)

    def dense(self, inputs: int, layer: Dict[str, Any]) -> Any:
        return self.keras.layers.Dense(layer["units"], kernel_initializer=self._initial())

    def batch_norm(self, inputs: int, images: bool) -> Any:
        return self.keras.layers.BatchNormalization(epsilon=EPSILON, momentum=0.9)

    def relu(self, x: Any) -> Any:
        return self.keras.layers.Activation("relu")(x)

    def max_pool(self, x: Any, size: int) -> Any:
        return self.keras.layers.MaxPooling2D(size)(x)

    def global_average_pool(self, x: Any) -> Any:
        return self.keras.layers.GlobalAveragePooling2D()(x)

    def make_flat(self, x: Any) -> Any:
        return self.keras.layers.Flatten()(x)

    def pad(self, x: Any, padding: int) -> Any:
        return self.keras.layers.ZeroPadding2D(padding)(x) if padding else x

    def add(self, x: Any, y: Any) -> Any:
        return self.keras.layers.add([x, y])

    def _initial(self) -> Any:
        return self.keras.initializers.glorot_uniform(seed=int(self._seeds.randint(1, 2**31 - 1)))
