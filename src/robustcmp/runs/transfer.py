"""Transfer: does what fools one trained model also fool another?

Do networks of one framework share weaknesses more than networks of different ones? After Papernot et al.,
"Transferability in Machine Learning", arXiv:1605.07277, 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..models.classifier import Classifier
from .blame import blaming
from .progress import Progress, Unseen


def run_transfer(
    targets: Sequence[Classifier | None],
    attacks: Sequence[str],
    labels: NDArray[np.int64],
    adversarials: Callable[[int, str], Iterable[tuple[NDArray[np.float32], NDArray[np.bool_]]]],
    progress: Progress | None = None,
) -> NDArray[np.int64]:
    """Count the adversarial images of every model that fool every other.

    Parameters
    ----------
    targets : sequence of Classifier
        The models, sources and targets alike. One that is None is asked nothing: it is a target of no other's images.
    attacks : sequence of str
        The attacks' names.
    labels : ndarray of int64, shape (N,)
        The true classes.
    adversarials : callable
        (place of the source, attack) to the images (N, H, W, C) and the successes (N,) of each repeat.
    progress : Progress, optional
        Is told of every source.

    Returns
    -------
    ndarray of int64, shape (sources, targets, attacks, 3)
        How many adversarial images fool the target, how many there are, and how many images were attacked, over all
        repeats.
    """
    counts = np.zeros((len(targets), len(targets), len(attacks), 3), np.int64)
    progress = progress or Unseen()
    progress.begin("transfer", len(targets))
    for source in range(len(targets)):
        for k, attack in enumerate(attacks):
            for images, success in adversarials(source, attack):
                for target, classifier in enumerate(targets):
                    if target == source:  # its own were judged when they were found
                        fooled = success[success]
                    elif classifier is None:
                        continue
                    else:
                        what = f"measuring transfer to model {target + 1} of {len(targets)}"
                        fooled = blaming(what, classifier.predict, images[success]) != labels[success]
                    counts[source, target, k] += [int(fooled.sum()), int(success.sum()), len(success)]
        progress.step()
    return counts
