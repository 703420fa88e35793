"""The host of Theano, as Keras 2.2.5 drives it, and of TensorFlow 1.15, as its own Keras does.

Its argument is the backend. It runs on CPython 3.6 and later.
"""

import os
import sys
from typing import Any, Dict

import numpy as np
from keras_layers import KerasLayers
from protocol import Array, serve

BACKEND = sys.argv[1]

# Not the user's, whose settings may be others.
os.environ["KERAS_HOME"] = os.path.join(sys.prefix, "keras")
os.environ["THEANORC"] = os.devnull

if BACKEND == "theano":
    os.environ["KERAS_BACKEND"] = "theano"
    # What Theano compiles is kept in the environment.
    os.environ["THEANO_FLAGS"] = f"floatX=float32,base_compiledir={os.path.join(sys.prefix, 'compiled')}"
    import keras
    import theano as backend
else:
    # A TensorFlow 2 in the parent leaves it behind for its children, and 1.15 then executes eagerly.
    os.environ.pop("TF2_BEHAVIOR", None)
    import tensorflow as backend
    from tensorflow import keras

K = keras.backend

DIFFERENCES = {
    "theano": {
        "batch norm": "the variance moves towards that of n - 1 values, plus ε",
        "max pool": "where the largest values of a window are equal, each gets the whole gradient",
    },
    "tensorflow": {"batch norm": "of images the variance moves towards that of n - 1 values"},
}
EVALUATING = 0
TRAINING = 1


class _KerasNetwork(KerasLayers):  # type: ignore[misc]
    """A Keras model with what is asked of it, compiled when it is first asked."""

    framework = BACKEND
    version = f"{backend.__version__} with Keras {keras.__version__}"
    differences = {"initialisation": "kernels Glorot uniform, biases zero (Keras)", **DIFFERENCES[BACKEND]}
    keras = keras

    @staticmethod
    def threads(count: int) -> None:
        if BACKEND == "tensorflow":  # Theano takes OMP_NUM_THREADS
            config = backend.ConfigProto(intra_op_parallelism_threads=count, inter_op_parallelism_threads=1)
            K.set_session(backend.Session(config=config))

    def __init__(self, architecture: Dict[str, Any], seed: int) -> None:
        super().__init__(architecture, seed)
        images = self.model.inputs[0]
        logits = self.model.outputs[0]
        v = K.placeholder(ndim=2)
        [gradient] = K.gradients(K.sum(logits * v), [images])
        self._logits = K.function([images, K.learning_phase()], [logits])
        self._vjp = K.function([images, v, K.learning_phase()], [gradient])

    def read(self, holder: Any) -> Array:
        return _turn(K.get_value(holder))

    def write(self, holder: Any, array: Array) -> None:
        K.set_value(holder, _turn(array))

    def zeros(self, holder: Any) -> Any:
        return K.zeros(K.int_shape(holder))

    def logits(self, images: Array) -> Array:
        return self._logits([images, EVALUATING])[0]

    def vjp(self, images: Array, v: Array) -> Array:
        return self._vjp([images, v, EVALUATING])[0]

    def trainer(self, momentum: float, weight_decay: float) -> "_KerasNetwork":
        super().trainer(momentum, weight_decay)
        trained = self.trainable()
        images = self.model.inputs[0]
        z = self.model.outputs[0]
        labels = K.placeholder(ndim=2)
        rate = K.placeholder(ndim=0)
        z = z - K.max(z, axis=1, keepdims=True)
        loss = K.mean(K.log(K.sum(K.exp(z), axis=1)) - K.sum(z * labels, axis=1))
        updates = list(self.model.updates)
        for (name, weight), gradient in zip(trained.items(), K.gradients(loss, list(trained.values()))):
            velocity = momentum * self.velocities[name] + gradient + weight_decay * weight
            updates += [K.update(self.velocities[name], velocity), K.update(weight, weight - rate * velocity)]
        self._step = K.function([images, labels, rate, K.learning_phase()], [loss], updates=updates)
        return self

    def step(self, images: Array, labels: Array, learning_rate: float) -> float:
        one_hot = np.eye(K.int_shape(self.model.outputs[0])[1], dtype=np.float32)[labels]
        return float(self._step([images, one_hot, learning_rate, TRAINING])[0])


def _turn(array: Array) -> Array:
    """Return an array, kernels turned for Theano, whose convolutions turn them: those of the others correlate."""
    return array[::-1, ::-1] if array.ndim == 4 and BACKEND == "theano" else array


serve(_KerasNetwork)
