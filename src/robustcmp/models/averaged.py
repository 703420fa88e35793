"""A model that draws at random, as the mean over draws that are always the same."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, cast

import eagerpy as ep

from ..errors import ModelError, UsageError, check_count, check_seed
from ..frameworks import Framework
from ..frameworks.keras_networks import KerasModel, is_keras
from .classifier import Classifier
from .model import Model

SEEDED = ("torch", "tensorflow")  # where a pass draws from global generators, which can be seeded


def averaged(model: Model, *, passes: int = 16, seed: int = 0) -> Model:
    """Return a model that answers with the mean of a random model over several passes.

    It is the expectation over transformations of Athalye et al. (2018, arXiv:1802.00420), estimated with draws that are
    the same in every query: an ensemble of `passes` deterministic networks. Its logits are a function of the seed and
    the image, whatever the batch is, and its gradient is that of the mean, over the same draws. So every attack sees
    one smooth, deterministic model. Probabilities are averaged, and logits are the logarithm of their mean, as in
    attacks on smoothed classifiers (Salman et al. 2019, arXiv:1906.04584).

    Parameters
    ----------
    model : Model
        From `wrap` with a network of torch or TensorFlow. It draws from the global generators of its framework, NumPy
        or Python, or by layers of Keras. They are seeded for each pass and restored after it.
    passes : int, default 16
        How many passes an answer is the mean of.
    seed : int, default 0
        The draws of every pass are a function of it and of the number of the pass.

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
    >>> import numpy as np, torch, robustcmp as rc
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
            f"random numbers of {model.framework} cannot be seeded from here. Average a network of torch or "
            "TensorFlow, or average inside the network."
        )
    other = copy.copy(model)
    other._model = _MeanOfPasses(model, passes, seed)
    other.outputs = "logits"
    other.info = model.info | {"averaged": {"passes": passes, "seed": seed}}
    return other


@contextmanager
def _fork(framework: Framework, native: Any, seed: int, number: int) -> Iterator[None]:
    """Seed what a pass draws from: the global generators, and those of layers of Keras."""
    network = getattr(native, "keras", native)
    with (
        framework.fork_generators("averaged", seed, number),
        KerasModel(network).fork_layers() if is_keras(network) else nullcontext(),
    ):
        yield


class _MeanOfPasses:
    """The logits of a model's passes as one answer, for tensors of images that were preprocessed."""

    def __init__(self, model: Model, passes: int, seed: int):
        framework = Classifier(model).framework
        draws = [partial(_fork, framework, model.native, seed, number) for number in range(passes)]
        self._passes = [framework.alone(model.without_preprocessing, each) for each in draws]

    def __call__(self, images: Any) -> Any:
        """Return the logits (N, K) of images; the others of a batch have no part in an image's draws."""
        x, restore = ep.astensor_(images)
        logs = self._logits_of_passes(x).log_softmax()
        largest = logs.max(axis=0)  # so that no mean is 0 where all probabilities are tiny
        return restore((logs - largest).exp().mean(axis=0).log() + largest)

    def _logits_of_passes(self, x: ep.Tensor) -> ep.Tensor:
        """Return logits (passes, N, K) of images."""
        answers = []
        for ask in self._passes:
            answer = ep.astensor(ask(x.raw))
            if answer.ndim != 2 or len(answer) != len(x):
                raise ModelError(
                    f"the model should return logits ({len(x)}, classes) for {len(x)} images, received the shape "
                    f"{tuple(answer.shape)}"
                )
            answers.append(answer)
        return cast(ep.Tensor, ep.stack(answers))
