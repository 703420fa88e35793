"""The host of CNTK, on its CPU, beside Debian's Open MPI."""

import os
import sys
import warnings
from pathlib import Path
from typing import Any, Dict

import numpy as np
from layers import ChannelsFirst, channels_first, channels_last
from protocol import Array, serve

SYSTEM = Path("/usr/lib/x86_64-linux-gnu")
LIBRARIES = {"libmpi.so.12": "libmpi.so.40", "libmpi_cxx.so.1": "libmpi_cxx.so.40"}


def _link_libraries() -> None:
    """Put links to Open MPI 4 beside CNTK's libraries, with the names by which they look for it."""
    [folder] = Path(sys.prefix).glob("lib/python*/site-packages/cntk/libs")
    for old, current in LIBRARIES.items():
        library = SYSTEM / current
        if not library.exists():
            raise SystemExit(f"CNTK needs Open MPI 4, and {library} is not installed: apt-get install libopenmpi3")
        link = folder / old
        if not link.exists():
            link.symlink_to(library)


_link_libraries()
os.environ.setdefault("KMP_BLOCKTIME", "0")  # threads that spin between calls took a quarter of all processor time
warnings.simplefilter("ignore")  # CNTK warns about every Python and every library that is younger
import cntk as C

C.try_set_default_device(C.cpu())
EPSILON = 1e-5


class _BatchNorm:
    """A batch norm whose running statistics move by a tenth, whatever the size of the batch."""

    def __init__(self, inputs: int, images: bool) -> None:
        self.images = images
        self.gamma = C.parameter((inputs,), init=1)
        self.beta = C.parameter((inputs,), init=0)
        self.mean = C.constant(0, (inputs,))
        self.variance = C.constant(1, (inputs,))
        self.batch = 0
        """How many images it is trained on at once; 0 for answers."""

    def __call__(self, x: Any) -> Any:
        if self.batch:
            return C.batch_normalization(
                x,
                self.gamma,
                self.beta,
                self.mean,
                self.variance,
                spatial=self.images,
                normalization_time_constant=-self.batch / np.log(0.9),
                epsilon=EPSILON,
                running_count=C.constant(1),  # with 0 the first batch would replace the statistics
            )
        shape = (-1, 1, 1) if self.images else (-1,)
        mean, variance, gamma, beta = [
            C.reshape(weight, shape) for weight in (self.mean, self.variance, self.gamma, self.beta)
        ]
        return (x - mean) / C.sqrt(variance + EPSILON) * gamma + beta


class _CntkNetwork(ChannelsFirst):  # type: ignore[misc]
    """A network of CNTK's layers: one graph for answers, and one for each size of a batch that it is trained on."""

    framework = "cntk"
    version = C.__version__
    attributes = {"kernel": "W", "bias": "b"}
    differences = {
        "initialisation": "kernels Glorot uniform, biases zero (cntk.layers)",
        "batch norm": "the variance moves towards that of n - 1 values",
    }

    relu = staticmethod(C.relu)

    def __init__(self, architecture: Dict[str, Any], seed: int) -> None:
        C.cntk_py.set_fixed_random_seed(seed + 1)  # 0 stands for any
        super().__init__(architecture, seed)
        height, width, channels = architecture["input_shape"]
        self._images = C.input_variable((channels, height, width), needs_gradient=True)
        self._logits = self.apply(self._images)
        self._v = C.input_variable(self._logits.shape)
        self._product = C.reduce_sum(self._logits * self._v)
        self._losses: Dict[int, Any] = {}

    @staticmethod
    def threads(count: int) -> None:
        C.cntk_py.set_max_num_cputhreads(count)

    def conv(self, inputs: int, layer: Dict[str, Any]) -> Any:
        kernel = (layer["kernel"], layer["kernel"])
        return C.layers.Convolution2D(kernel, layer["channels"], None, strides=layer["stride"], pad=False)

    def dense(self, inputs: int, layer: Dict[str, Any]) -> Any:
        return C.layers.Dense(layer["units"])

    def batch_norm(self, inputs: int, images: bool) -> Any:
        return _BatchNorm(inputs, images)

    def pad(self, x: Any, padding: int) -> Any:
        return C.pad(x, [(0, 0), (padding, padding), (padding, padding)]) if padding else x

    def max_pool(self, x: Any, size: int) -> Any:
        return C.pooling(x, C.MAX_POOLING, (size, size), strides=(size, size), auto_padding=[False])

    def global_average_pool(self, x: Any) -> Any:
        return C.reshape(C.reduce_mean(x, axis=(1, 2)), (-1,))

    def make_flat(self, x: Any) -> Any:
        return C.reshape(x, (-1,))

    def read(self, holder: Any) -> Array:
        array = holder.value
        if array.ndim == 2:  # dense kernels are (in, out)
            return array.T.copy()
        return array.ravel() if array.ndim == 3 else array  # biases of convolutions are (out, 1, 1)

    def write(self, holder: Any, array: Array) -> None:
        if array.ndim == 2:
            array = array.T
        holder.value = np.ascontiguousarray(array.reshape(holder.shape))

    def zeros(self, holder: Any) -> Any:
        return C.constant(0, holder.shape)

    def logits(self, images: Array) -> Array:
        return self._logits.eval({self._images: channels_first(images)})

    def vjp(self, images: Array, v: Array) -> Array:
        gradient = self._product.grad({self._images: channels_first(images), self._v: v}, wrt=[self._images])
        return channels_last(gradient)

    def step(self, images: Array, labels: Array, learning_rate: float) -> float:
        n = len(images)
        if n not in self._losses:
            self._losses[n] = self._make_loss(n)
        weights = self.trainable()
        one_hot = np.eye(self._v.shape[0], dtype=np.float32)[labels]
        loss = self._losses[n]
        gradients, losses = loss.grad(
            {self._images: channels_first(images), self._v: one_hot}, wrt=list(weights.values()), outputs=[loss]
        )
        for name, weight in weights.items():
            gradient = gradients[weight] / n
            velocity = self.momentum * self.velocities[name].value + gradient + self.weight_decay * weight.value
            self.velocities[name].value = velocity
            weight.value = weight.value - learning_rate * velocity
        return float(losses.mean())

    def _make_loss(self, n: int) -> Any:
        norms = [part for part in self.parts.values() if isinstance(part, _BatchNorm)]
        for norm in norms:
            norm.batch = n
        loss = C.cross_entropy_with_softmax(self.apply(self._images), self._v)
        for norm in norms:
            norm.batch = 0
        return loss


serve(_CntkNetwork)
