"""What the common subset leaves out: attacks on images that some models classify correctly and others do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..attacks.suite import Suite
from ..errors import UsageError, unknown
from ..records.cell import Cell
from ..records.contested import Contested
from .blame import blaming_each
from .plan import TrainedModel
from .progress import Progress, Unseen
from .subset import chosen

Repeats = Mapping[tuple[str, int, str], Sequence[int]]
"""The repeats of each model, training seed and attack; none where the attack cannot run."""


def repeats_of(cells: Iterable[Cell]) -> Repeats:
    """Return the repeats of a comparison's cells."""
    repeats: dict[tuple[str, int, str], list[int]] = {}
    for cell in cells:
        repeats.setdefault((cell.model, cell.training_seed, cell.attack), []).append(cell.repeat)
    return repeats


def check_conditional(suite: Suite, attacks: Sequence[str] | None = None) -> list[str]:
    """Return the attacks of a suite that are to run on contested images, all if nothing is said.

    Raises
    ------
    UsageError
        The suite attacks all images, so that its rates are not conditional; or it has no such attack.
    """
    if suite.subset == "all":
        raise UsageError(
            f"the suite {suite.name} attacks all images, so its rates do not depend on which models are compared"
        )
    for name in attacks or ():
        if name not in suite.attacks:
            raise unknown("attack", name, suite.attacks)
    return list(suite.attacks if attacks is None else attacks)


def run_conditioning(
    models: Sequence[TrainedModel],
    suite: Suite,
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    correct: NDArray[np.bool_],
    repeats: Repeats,
    *,
    n: int,
    seed: int,
    attacks: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Contested:
    """Attack contested images, each with the models that classify it correctly.

    Together with the outcomes on the common subset, they give the rates on the subset of any of the models.

    Parameters
    ----------
    models : sequence of TrainedModel
        The models of a comparison.
    suite : Suite
        Its attacks. What is exact over all draws is sampled here, in the repeats of the comparison.
    images, labels : ndarray
        All images that were passed, (N, H, W, C) float32 in [0, 1], and their classes (N,).
    correct : ndarray of bool, shape (models, N)
        Which of them each model classifies correctly.
    repeats : dict
        The comparison's.
    n : int
        How many contested images are attacked at the most, chosen as the common subset is.
    seed : int
        The attacks' seed.
    attacks : sequence of str, optional
        The attacks to run; all of them if nothing is said.
    progress : Progress, optional
        Is told of every model.

    Raises
    ------
    UsageError
        The suite attacks all images, so that its rates are not conditional; or it has no such attack.
    """
    names = check_conditional(suite, attacks)
    draws, common = suite.only_draws(), np.all(correct, axis=0)
    contested: NDArray[np.bool_] = np.any(correct, axis=0) & ~common
    index = chosen(contested, images, n, seed)
    success = np.full((len(models), len(names), len(index)), np.nan)
    progress = progress or Unseen()
    progress.begin(f"attacks on {len(index)} images that some models misclassify", len(models))
    for model, right, of_model in zip(models, correct[:, index], success, strict=True):
        x, y = images[index[right]], labels[index[right]]
        for name, of_attack in zip(names, of_model, strict=True):
            numbers = repeats.get((*model.key, name), ())
            if len(x) and numbers:
                results = draws.attacks[name].outcomes(model.classifier, x, y, seed, numbers)
                what = f"attacking {model.label} with {name}"
                of_attack[right] = np.mean([result.success for result in blaming_each(what, results)], axis=0)
        progress.step()
    counts = np.array([common.sum(), contested.sum()], np.int64)
    return Contested(names, index, correct[:, index], success, counts)
