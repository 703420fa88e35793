"""The hosts of Keras 3 on TensorFlow, JAX and PyTorch.

Its arguments are the backend and, if not float32, the dtype. Layers and their gradients are Keras' and the backend's,
compiled where the backend compiles; the optimiser is the same few lines as in every other framework.
"""

import importlib.metadata
import os
import sys
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np
from keras_layers import KerasLayers
from protocol import Array, Arrays, Host, serve

BACKEND = sys.argv[1]
DTYPE = (sys.argv[2:-1] or ["float32"])[0]

# Not the user's, whose settings may be others.
os.environ["KERAS_HOME"], os.environ["KERAS_BACKEND"] = os.path.join(sys.prefix, "keras"), BACKEND
os.environ["JAX_ENABLE_X64"] = str(int(DTYPE == "float64"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras

keras.config.set_floatx(DTYPE)

PACKAGES = {"tensorflow": "tensorflow-cpu", "jax": "jax", "torch": "torch"}
Values = List[Any]  # of the variables that are fitted, or of the others, in the model's order


class Network(KerasLayers):  # type: ignore[misc]
    """A Keras model, and what the backend is asked about it.

    Attributes
    ----------
    fitted_variables, other_variables : list of keras.Variable
        Those that gradient descent moves, and the statistics of batch norms.
    """

    def __init__(self, architecture: Dict[str, Any], seed: int) -> None:
        super().__init__(keras, architecture, seed)
        self.fitted_variables = list(self.model.trainable_variables)
        self.other_variables = list(self.model.non_trainable_variables)
        self.logits, self.vjp = asked(self)


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Return the mean over the images."""
    return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True))


def moved(weights: Values, gradients: Values, velocity: Values, how: Sequence[Any]) -> Values:
    """Return all weights, then all of the velocity, after a step of a learning rate, a momentum and a weight decay."""
    rate, momentum, weight_decay = how
    velocity = [momentum * v + g + weight_decay * w for v, g, w in zip(velocity, gradients, weights)]
    return [w - rate * v for w, v in zip(weights, velocity)] + velocity


class Trainer:
    """Stochastic gradient descent on a network."""

    def __init__(self, network: Network, momentum: float, weight_decay: float) -> None:
        self.network, self._momentum, self._weight_decay = network, momentum, weight_decay
        # Variables, as a function that TensorFlow has compiled moves no others.
        self.velocity = [keras.Variable(np.zeros(v.shape, DTYPE), trainable=False) for v in network.fitted_variables]
        self._step = stepping(network, self.velocity)

    def step(self, images: Array, labels: Array, rate: float) -> float:
        how = [np.asarray(number, DTYPE) for number in (rate, self._momentum, self._weight_decay)]
        return float(self._step(images, labels, how))

    def named(self) -> Dict[str, Any]:
        """Return the velocity by the canonical name of its weight."""
        places = {id(variable): i for i, variable in enumerate(self.network.fitted_variables)}
        return {name: self.velocity[places[id(weight)]] for name, weight in self.network.fitted().items()}


Asked = Tuple[Callable[[Array], Array], Callable[[Array, Array], Array]]
Stepping = Callable[[Array, Array, Sequence[Array]], Any]

if BACKEND == "tensorflow":
    import tensorflow as tf

    def asked(network: Network) -> Asked:
        """Return the logits of images, and the gradient of Σ v·logits for them."""

        def answered(images: Any) -> Any:
            return network.model(images, training=False)

        def pulled_back(images: Any, v: Any) -> Any:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(images)
                answer = network.model(images, training=False)
            return tape.gradient(answer, images, output_gradients=v)

        logits, vjp = (tf.function(each, reduce_retracing=True) for each in (answered, pulled_back))
        tensor = tf.convert_to_tensor
        return lambda x: logits(tensor(x)).numpy(), lambda x, v: vjp(tensor(x), tensor(v)).numpy()

    def stepping(network: Network, velocity: List[Any]) -> Stepping:
        """Return what makes a step and returns the loss."""

        def stepped(images: Any, labels: Any, how: Sequence[Any]) -> Any:
            with tf.GradientTape() as tape:
                loss = cross_entropy(network.model(images, training=True), labels)
            weights = values_of(network.fitted_variables)
            gradients = tape.gradient(loss, weights)
            put_values([*network.fitted_variables, *velocity], moved(weights, gradients, values_of(velocity), how))
            return loss

        step, tensor = tf.function(stepped, reduce_retracing=True), tf.convert_to_tensor
        return lambda images, labels, how: step(tensor(images), tensor(labels), [tensor(number) for number in how])

elif BACKEND == "jax":
    import jax

    def asked(network: Network) -> Asked:
        """Return the logits of images, and the gradient of Σ v·logits for them."""

        def answered(fitted: Values, others: Values, images: Any) -> Any:
            return network.model.stateless_call(fitted, others, images, training=False)[0]

        def pulled_back(fitted: Values, others: Values, images: Any, v: Any) -> Any:
            return jax.vjp(lambda x: answered(fitted, others, x), images)[1](v)[0]

        logits, vjp = jax.jit(answered), jax.jit(pulled_back)

        def held() -> Tuple[Values, Values]:
            return values_of(network.fitted_variables), values_of(network.other_variables)

        return lambda x: np.array(logits(*held(), x)), lambda x, v: np.array(vjp(*held(), x, v))

    def stepping(network: Network, velocity: List[Any]) -> Stepping:
        """Return what makes a step and returns the loss."""

        def loss_of(fitted: Values, others: Values, images: Any, labels: Any) -> Any:
            logits, others = network.model.stateless_call(fitted, others, images, training=True)
            return cross_entropy(logits, labels), others

        def after(fitted: Values, others: Values, v: Values, images: Any, labels: Any, how: Sequence[Any]) -> Any:
            (loss, others), gradients = jax.value_and_grad(loss_of, has_aux=True)(fitted, others, images, labels)
            return loss, moved(fitted, gradients, v, how) + others

        step = jax.jit(after)

        def stepped(images: Array, labels: Array, how: Sequence[Array]) -> Any:
            fitted, others = network.fitted_variables, network.other_variables
            loss, now = step(*map(values_of, (fitted, others, velocity)), images, labels, how)
            put_values([*fitted, *velocity, *others], now)
            return loss

        return stepped

else:
    import torch

    def asked(network: Network) -> Asked:
        """Return the logits of images, and the gradient of Σ v·logits for them."""

        def logits(images: Array) -> Array:
            with torch.no_grad():
                answer: Array = network.model(torch.from_numpy(images), training=False).numpy()
                return answer

        def vjp(images: Array, v: Array) -> Array:
            x = torch.from_numpy(images).requires_grad_()
            (gradient,) = torch.autograd.grad(network.model(x, training=False), x, torch.from_numpy(v))
            return np.ascontiguousarray(gradient.numpy())

        return logits, vjp

    def stepping(network: Network, velocity: List[Any]) -> Stepping:
        """Return what makes a step and returns the loss."""

        def stepped(images: Array, labels: Array, how: Sequence[Array]) -> Any:
            loss = cross_entropy(network.model(torch.from_numpy(images), training=True), torch.from_numpy(labels))
            weights = values_of(network.fitted_variables)
            gradients = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                now = moved(weights, list(gradients), values_of(velocity), [float(number) for number in how])
                put_values([*network.fitted_variables, *velocity], now)
            return loss.detach()

        return stepped


def values_of(variables: Sequence[Any]) -> Values:
    """Return what variables hold, as the backend's tensors."""
    return [variable.value for variable in variables]


def put_values(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Put tensors of the backend into variables."""
    for variable, value in zip(variables, values):
        variable.assign(value)


class Keras3Host(Host):  # type: ignore[misc]
    framework = f"keras-{BACKEND}"
    differences = {
        "initialisation": "kernels Glorot uniform, biases zero (Keras)",
        "batch norm": "the variance moves towards that of n values",
    }

    def version(self) -> str:
        package = PACKAGES[BACKEND]
        return f"{keras.__version__} on {BACKEND} {importlib.metadata.version(package).partition('+')[0]}"

    def build(self, architecture: Dict[str, Any], seed: int) -> Network:
        return Network(architecture, seed)

    def get_weights(self, network: Network) -> Arrays:
        return arrays(network.weights())

    def set_weights(self, network: Network, weights: Arrays) -> None:
        put(network.weights(), weights)

    def logits(self, network: Network, images: Array) -> Array:
        return network.logits(images.astype(DTYPE, copy=False))

    def vjp(self, network: Network, images: Array, v: Array) -> Array:
        return network.vjp(images.astype(DTYPE, copy=False), v.astype(DTYPE, copy=False))

    def trainer(self, network: Network, momentum: float, weight_decay: float) -> Trainer:
        return Trainer(network, momentum, weight_decay)

    def step(self, trainer: Trainer, images: Array, labels: Array, learning_rate: float) -> float:
        return trainer.step(images.astype(DTYPE, copy=False), labels, learning_rate)

    def velocity(self, trainer: Trainer) -> Arrays:
        return arrays(trainer.named())

    def set_velocity(self, trainer: Trainer, velocity: Arrays) -> None:
        put(trainer.named(), velocity)

    def threads(self, count: int) -> None:
        if BACKEND == "torch":
            torch.set_num_threads(count)
        elif BACKEND == "tensorflow":
            tf.config.threading.set_intra_op_parallelism_threads(count)
            tf.config.threading.set_inter_op_parallelism_threads(1)


def arrays(variables: Dict[str, Any]) -> Arrays:
    """Return copies of what variables hold."""
    return {name: np.array(keras.ops.convert_to_numpy(variable.value)) for name, variable in variables.items()}


def put(variables: Dict[str, Any], given: Arrays) -> None:
    """Put arrays into variables."""
    for name, array in given.items():
        variables[name].assign(array)


serve(Keras3Host)
