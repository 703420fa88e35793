"""The hosts of Keras 3 on TensorFlow, JAX and PyTorch.

The argument is the backend. Layers and their gradients are Keras' and the backend's, compiled where the backend
compiles; the optimiser is the same few lines as in every other framework.
"""

import importlib.metadata
import os
import sys
from typing import Any, Dict

import numpy as np
from keras_layers import KerasLayers
from protocol import Array, serve

BACKEND = sys.argv[1]

# Not the user's, whose settings may be others.
os.environ["KERAS_HOME"] = os.path.join(sys.prefix, "keras")
os.environ["KERAS_BACKEND"] = BACKEND
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras

PACKAGES = {"tensorflow": "tensorflow-cpu", "jax": "jax", "torch": "torch"}


class _Momentum(keras.optimizers.Optimizer):  # type: ignore[misc]
    """v = momentum·v + g + decay·w, w = w − rate·v: Keras' own has the rate in v, and its decay beside it."""

    def __init__(self, momentum: float, decay: float) -> None:
        super().__init__(learning_rate=0.1, name="momentum")
        self._momentum = momentum
        self._decay = decay

    def build(self, variables: Any) -> None:
        super().build(variables)
        self.velocities = [self.add_variable_from_reference(variable, "velocity") for variable in variables]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        velocity = self.velocities[self._get_variable_index(variable)]
        self.assign(velocity, self._momentum * velocity + gradient + self._decay * variable)
        self.assign_sub(variable, learning_rate * velocity)


class _Keras3Network(KerasLayers):  # type: ignore[misc]
    """A Keras model, and what the backend is asked about it."""

    framework = f"keras-{BACKEND}"
    version = f"{keras.__version__} on {BACKEND} {importlib.metadata.version(PACKAGES[BACKEND]).partition('+')[0]}"
    differences = {
        "initialisation": "kernels Glorot uniform, biases zero (Keras)",
        "batch norm": "the variance moves towards that of n values",
    }
    keras = keras

    @staticmethod
    def threads(count: int) -> None:
        if BACKEND == "torch":
            torch.set_num_threads(count)
        elif BACKEND == "tensorflow":
            tf.config.threading.set_intra_op_parallelism_threads(count)
            tf.config.threading.set_inter_op_parallelism_threads(1)

    def __init__(self, architecture: Dict[str, Any], seed: int) -> None:
        super().__init__(architecture, seed)
        self.logits, self.vjp = compile_for(self.model)

    def read(self, holder: Any) -> Array:
        return np.array(keras.ops.convert_to_numpy(holder.value))

    def write(self, holder: Any, array: Array) -> None:
        holder.assign(array)

    def zeros(self, holder: Any) -> Any:
        velocities = self.model.optimizer.velocities
        return next(v for v, w in zip(velocities, self.model.trainable_variables) if w is holder)

    def trainer(self, momentum: float, weight_decay: float) -> "_Keras3Network":
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        optimizer = _Momentum(momentum, weight_decay)
        self.model.compile(optimizer, loss, jit_compile=BACKEND == "jax")
        optimizer.build(self.model.trainable_variables)
        super().trainer(momentum, weight_decay)
        return self

    def step(self, images: Array, labels: Array, learning_rate: float) -> float:
        self.model.optimizer.learning_rate = learning_rate
        self.model.reset_metrics()
        return float(self.model.train_on_batch(images, labels))


if BACKEND == "tensorflow":
    import tensorflow as tf

    def compile_for(model: Any) -> Any:
        """Return the logits of images, and the gradient of Σ v·logits for them."""

        def answer(images: Any) -> Any:
            return model(images, training=False)

        def pull_back(images: Any, v: Any) -> Any:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(images)
                logits = model(images, training=False)
            return tape.gradient(logits, images, output_gradients=v)

        logits, vjp = (tf.function(function, reduce_retracing=True) for function in (answer, pull_back))
        tensor = tf.convert_to_tensor
        return lambda x: logits(tensor(x)).numpy(), lambda x, v: vjp(tensor(x), tensor(v)).numpy()

elif BACKEND == "jax":
    import jax

    def compile_for(model: Any) -> Any:
        """Return the logits of images, and the gradient of Σ v·logits for them."""

        def answer(weights: Any, images: Any) -> Any:
            return model.stateless_call(*weights, images, training=False)[0]

        def pull_back(weights: Any, images: Any, v: Any) -> Any:
            return jax.vjp(lambda x: answer(weights, x), images)[1](v)[0]

        logits = jax.jit(answer)
        vjp = jax.jit(pull_back)

        def weights() -> Any:
            variables = model.trainable_variables, model.non_trainable_variables
            return [[variable.value for variable in group] for group in variables]

        return lambda x: np.array(logits(weights(), x)), lambda x, v: np.array(vjp(weights(), x, v))

else:
    import torch

    def compile_for(model: Any) -> Any:
        """Return the logits of images, and the gradient of Σ v·logits for them."""

        def logits(images: Array) -> Any:
            with torch.no_grad():
                return model(torch.from_numpy(images), training=False).numpy()

        def vjp(images: Array, v: Array) -> Any:
            x = torch.from_numpy(images).requires_grad_()
            (gradient,) = torch.autograd.grad(model(x, training=False), x, torch.from_numpy(v))
            return gradient.numpy()

        return logits, vjp


serve(_Keras3Network)
