"""The host of Theano, as Keras 2.2.5 drives it, and of TensorFlow 1.15, as its own Keras does.

Its arguments are the backend and, if not float32, the dtype. It runs on CPython 3.6 and later.
"""

import os
import sys
from typing import Any, Dict

import numpy as np
from keras_layers import KerasLayers
from protocol import Array, Arrays, Host, serve

BACKEND = sys.argv[1]
DTYPE = (sys.argv[2:-1] or ["float32"])[0]

# Not the user's, whose settings may be others.
os.environ["KERAS_HOME"], os.environ["THEANORC"] = os.path.join(sys.prefix, "keras"), os.devnull

if BACKEND == "theano":
    os.environ["KERAS_BACKEND"] = "theano"
    # What Theano compiles is kept in the environment.
    flags = f"floatX={DTYPE},base_compiledir={os.path.join(sys.prefix, 'compiled')}"
    os.environ["THEANO_FLAGS"] = flags
    import keras
    import theano as framework
else:
    # A TensorFlow 2 in the parent leaves it behind for its children, and 1.15 then executes eagerly.
    os.environ.pop("TF2_BEHAVIOR", None)
    import tensorflow as framework
    from tensorflow import keras

K = keras.backend
K.set_floatx(DTYPE)
if BACKEND == "theano":
    framework.config.floatX = DTYPE  # Keras has set it to its own default

DIFFERENCES = {
    "theano": {
        "batch norm": "the variance moves towards that of n - 1 values, plus ε",
        "max pool": "where the largest values of a window are equal, each gets the whole gradient",
    },
    "tensorflow": {"batch norm": "of images the variance moves towards that of n - 1 values"},
}
# TensorFlow's fused batch norm, its default, has no float64.
UNFUSED = {"fused": False} if (BACKEND, DTYPE) == ("tensorflow", "float64") else {}
EVALUATING, TRAINING = 0, 1


class KerasNetwork(KerasLayers):  # type: ignore[misc]
    """A Keras model with what is asked of it, compiled when it is first asked."""

    def __init__(self, architecture: Dict[str, Any], seed: int) -> None:
        super().__init__(keras, architecture, seed, **UNFUSED)
        images, logits = self.model.inputs[0], self.model.outputs[0]
        v = K.placeholder(ndim=2)
        [gradient] = K.gradients(K.sum(logits * v), [images])
        self.logits = K.function([images, K.learning_phase()], [logits])
        self.vjp = K.function([images, v, K.learning_phase()], [gradient])


class Trainer:
    """Stochastic gradient descent on a network, as one compiled function."""

    def __init__(self, network: KerasNetwork, momentum: float, weight_decay: float) -> None:
        trained = network.fitted()
        self.velocity = {name: K.zeros(K.int_shape(variable)) for name, variable in trained.items()}
        images, z = network.model.inputs[0], network.model.outputs[0]
        self.classes = K.int_shape(z)[1]
        labels, rate = K.placeholder(ndim=2), K.placeholder(ndim=0)
        z = z - K.max(z, axis=1, keepdims=True)
        loss = K.mean(K.log(K.sum(K.exp(z), axis=1)) - K.sum(z * labels, axis=1))
        updates = list(network.model.updates)
        for (name, weight), gradient in zip(trained.items(), K.gradients(loss, list(trained.values()))):
            moved = momentum * self.velocity[name] + gradient + weight_decay * weight
            updates += [K.update(self.velocity[name], moved), K.update(weight, weight - rate * moved)]
        self.step = K.function([images, labels, rate, K.learning_phase()], [loss], updates=updates)


def values(variables: Dict[str, Any]) -> Arrays:
    """Return what variables hold, in the canonical layout."""
    return {name: turned(array) for name, array in zip(variables, K.batch_get_value(list(variables.values())))}


def set_values(variables: Dict[str, Any], arrays: Arrays) -> None:
    """Put arrays in the canonical layout into variables."""
    K.batch_set_value([(variables[name], turned(array)) for name, array in arrays.items()])


def turned(array: Array) -> Array:
    """Return an array, kernels turned for Theano, whose convolutions turn them: those of the others correlate."""
    return array[::-1, ::-1] if array.ndim == 4 and BACKEND == "theano" else array


class KerasHost(Host):  # type: ignore[misc]
    framework = BACKEND
    differences = {"initialisation": "kernels Glorot uniform, biases zero (Keras)", **DIFFERENCES[BACKEND]}

    def version(self) -> str:
        return f"{framework.__version__} with Keras {keras.__version__}"

    def build(self, architecture: Dict[str, Any], seed: int) -> KerasNetwork:
        return KerasNetwork(architecture, seed)

    def get_weights(self, network: KerasNetwork) -> Arrays:
        return values(network.weights())

    def set_weights(self, network: KerasNetwork, weights: Arrays) -> None:
        set_values(network.weights(), weights)

    def logits(self, network: KerasNetwork, images: Array) -> Array:
        return network.logits([images, EVALUATING])[0]

    def vjp(self, network: KerasNetwork, images: Array, v: Array) -> Array:
        return network.vjp([images, v, EVALUATING])[0]

    def trainer(self, network: KerasNetwork, momentum: float, weight_decay: float) -> Trainer:
        return Trainer(network, momentum, weight_decay)

    def step(self, trainer: Trainer, images: Array, labels: Array, learning_rate: float) -> float:
        one_hot = np.eye(trainer.classes, dtype=DTYPE)[labels]
        return float(trainer.step([images, one_hot, learning_rate, TRAINING])[0])

    def velocity(self, trainer: Trainer) -> Arrays:
        return values(trainer.velocity)

    def set_velocity(self, trainer: Trainer, velocity: Arrays) -> None:
        set_values(trainer.velocity, velocity)

    def threads(self, count: int) -> None:
        if BACKEND == "tensorflow":  # Theano takes OMP_NUM_THREADS
            config = framework.ConfigProto(intra_op_parallelism_threads=count, inter_op_parallelism_threads=1)
            K.set_session(framework.Session(config=config))


serve(KerasHost)
