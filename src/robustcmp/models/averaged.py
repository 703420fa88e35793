"""A model that draws at random, as the mean over draws that are always the same."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Literal

import eagerpy as ep
import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError, UsageError, check_count, check_seed, unknown
from ..frameworks import Framework
from ..frameworks.base import seed_generators
from ..frameworks.keras_networks import is_keras, seeded_layers
from .classifier import Classifier
from .functions import FiniteDifferences
from .model import FunctionsModel, Model
from .outputs import TINY, pull_back_outputs

MEANS = ("probabilities", "logits")
SEEDED = ("torch", "tensorflow", "numpy")  # where a pass draws from global generators, which can be seeded
Mean = Literal["probabilities", "logits"]


def averaged(model: Model, *, passes: int = 16, seed: int = 0, of: Mean = "probabilities") -> Model:
    """Return a model whose answer is the mean over passes of a randomised one, each with draws of its own.

    It is the expectation over transformations of Athalye et al. (2018, arXiv:1802.00420), estimated with draws that are
    the same in every query: an ensemble of `passes` deterministic networks. Its logits are a function of the seed and
    the image, whatever the batch is, and its gradient is that of the mean, over the same draws. So every attack sees
    one smooth, deterministic model.

    Parameters
    ----------
    model : Model
        From `wrap` with a network of torch or TensorFlow, or from `wrap_functions`. It draws from the global generators
        of its framework, NumPy or Python, or by layers of Keras. They are seeded for each pass and restored after it.
    passes : int, default 16
        How many passes an answer is the mean of.
    seed : int, default 0
        The draws of every pass are a function of it and of the number of the pass.
    of : str, default "probabilities"
        What is averaged. ``"probabilities"`` are those of the softmax, and logits the logarithm of their mean, as in
        attacks on smoothed classifiers (Salman et al. 2019, arXiv:1906.04584). ``"logits"`` is their plain mean.

    Returns
    -------
    Model
        It has the bounds, the preprocessing and the info of `model`; ``info["averaged"]`` says how it was averaged.

    Raises
    ------
    UsageError
        The model's framework is none whose draws can be seeded, its network is one of the zoo, which draws nothing, or
        an option is invalid.

    Notes
    -----
    A query costs `passes` passes with one image each, as a batch would share its draws; attacks count it as one query.
    A model that draws from a generator of its own cannot be averaged: `evaluate` notices that its answers vary.

    Attacks on the mean know that the defence draws, and nothing else of it. Attacks adapted to the defence may fool it
    more often (Tramèr et al. 2020, "On Adaptive Attacks to Adversarial Example Defenses").

    An adversarial image fools the mean over these draws. How often it fools the defence, which draws anew, a model with
    another seed shows; with few passes, it is seldom as often.

    Examples
    --------
    >>> import torch, robustcmp as rc
    >>> class Noisy(torch.nn.Module):
    ...     def forward(self, images):
    ...         return (images + 0.1 * torch.randn_like(images)).flatten(1)[:, :3]
    >>> model = averaged(rc.wrap(Noisy().eval()), passes=8)
    >>> images = np.full((2, 4, 4, 1), 0.5, np.float32)
    >>> logits = model(torch.tensor(images.transpose(0, 3, 1, 2)))
    >>> bool((logits[0] == logits[1]).all())
    True
    """
    if not isinstance(model, Model):
        raise UsageError(f"expected a model from robustcmp.wrap or wrap_functions, received {type(model).__name__}")
    check_count("passes", passes)
    check_seed(seed)
    if of not in MEANS:
        raise unknown("of", of, MEANS)
    if "averaged" in model.info:
        raise UsageError("the model is averaged already, so its draws are fixed: average the one that it was made from")
    if model.architecture is not None:
        raise UsageError("the model is one of the zoo, which draws nothing at random: compare it as it is")
    if model.framework == "jax":
        raise UsageError(
            "a function of JAX draws from keys that it is given, so average inside it: "
            "jax.vmap(lambda key: apply(parameters, images, key))(jax.random.split(jax.random.key(0), passes)).mean(0)"
        )
    if model.framework not in SEEDED:
        raise UsageError(
            f"the draws of {model.framework} cannot be seeded from here. Average a network of torch or TensorFlow, or "
            "average inside of what answers."
        )
    mean = _MeanOfPasses(model, passes, seed, of)
    other = copy.copy(model)
    other._model, other.outputs, other.traceable = mean, "logits", False
    other.info = model.info | {"averaged": {"passes": passes, "seed": seed, "of": of}}
    if isinstance(model, FunctionsModel) and isinstance(other, FunctionsModel) and model._vjp is not None:
        by_differences = isinstance(model._vjp, FiniteDifferences)
        other._vjp = FiniteDifferences(mean, *model.wrapped_as[0]) if by_differences else mean.vjp
    return other


@contextmanager
def _seed(framework: Framework, native: Any, seed: int, number: int) -> Iterator[None]:
    """Seed what a pass draws from: the global generators, and those of layers of Keras."""
    network = getattr(native, "keras", native)
    with (
        seed_generators(framework, "averaged", seed, number),
        seeded_layers(network) if is_keras(network) else nullcontext(),
    ):
        yield


class _MeanOfPasses:
    """The logits of a model's passes as one answer, for tensors or arrays of images that were preprocessed."""

    def __init__(self, model: Model, passes: int, seed: int, of: str):
        framework = Classifier(model).framework
        self._model, self._of = model, of
        self._draws = [partial(_seed, framework, model.native, seed, number) for number in range(passes)]
        self._passes = [framework.alone(model.without_preprocessing, draws) for draws in self._draws]

    def __call__(self, images: Any) -> Any:
        """Return the logits (N, K) of images; the others of a batch have no part in an image's draws."""
        x, restore = ep.astensor_(images)
        return restore(self._mean(self._logits_of_passes(x)))

    def _logits_of_passes(self, x: ep.Tensor) -> ep.Tensor:
        """Return logits (passes, N, K) of images."""
        answers = []
        for ask in self._passes:
            answer = ep.astensor(ask(x.raw))
            if answer.ndim != 2 or len(answer) != len(x):
                raise ModelError(
                    f"the model should return logits (1, classes) for one image; {len(x)} asked alone got "
                    f"{tuple(answer.shape)}"
                )
            answers.append(answer)
        logits: ep.Tensor = ep.stack(answers)
        return logits

    def _mean(self, logits: ep.Tensor) -> ep.Tensor:
        """Return the mean (N, K) over passes (passes, N, K)."""
        if self._of == "logits":
            mean: ep.Tensor = logits.mean(axis=0)
        else:
            logs = logits.log_softmax()
            largest = logs.max(axis=0)  # so that no mean is 0 where all probabilities are tiny
            mean = (logs - largest).exp().mean(axis=0).log() + largest
        return mean

    def vjp(self, images: NDArray[np.float32], v: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the gradient of Σ v·logits, from what the functions of a model of arrays answer in each pass."""
        model: Any = self._model  # a FunctionsModel
        of_passes = self._vjp_of_mean(self._logits_of_passes(ep.astensor(images)).numpy(), v)
        gradient = np.zeros_like(images)
        for draws, of_pass in zip(self._draws, of_passes, strict=True):
            for i in range(len(images)):
                image, v_of_answer = images[i : i + 1], of_pass[i : i + 1]
                if model.outputs != "logits":
                    with draws():
                        v_of_answer = pull_back_outputs(v_of_answer, np.asarray(model._model(image)), model.outputs)
                with draws():
                    gradient[i] += model._vjp(image, v_of_answer)[0]
        return gradient

    def _vjp_of_mean(self, logits: NDArray[np.float32], v: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the gradient (passes, N, K) of Σ v·mean with respect to the logits of passes; v is (N, K)."""
        if self._of == "logits":
            return np.broadcast_to(v / len(logits), logits.shape)
        softmax: NDArray[np.float32] = ep.astensor(logits).softmax().numpy()
        weighted = softmax / np.maximum(softmax.sum(axis=0), TINY) * v  # of ∂ log Σ_p s_pk
        gradient: NDArray[np.float32] = weighted - softmax * weighted.sum(axis=-1, keepdims=True)
        return gradient.astype(np.float32)
