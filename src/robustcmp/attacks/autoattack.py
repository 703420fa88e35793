"""AutoAttack: its four parts, one after the other on the images that are left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..models.classifier import Classifier
from ..records.answers import Check, judge
from ..records.attack import AttackTable, Column, Extra
from .apgd import APGD
from .ball import Ball, BallAttack, search_in_turn
from .base import Images, Labels, Perturbed
from .square import Square
from .targeted import APGDTargeted, FABTargeted

if TYPE_CHECKING:
    import xarray


class AutoAttack(BallAttack):
    """AutoAttack in L∞ or L2, the standard version (Croce and Hein 2020): APGD-CE, APGD-T, FAB-T and Square in turn.

    Each part attacks the images that are left by the parts before it, with the standard's budgets: 100 steps and one
    restart of APGD-CE, 100 steps towards each of 9 classes for APGD-T and for FAB-T, 5,000 squares. An image counts as
    robust if the model classifies it correctly and no part fools the model, so 1 − success rate is the robust accuracy
    as it is published.

    With fewer than four classes APGD-T falls back to a difference of two logits (see `APGDTargeted`). A model without a
    gradient is attacked by Square alone: an upper bound on its robust accuracy, which ``extras["parts"]`` tells apart.

    Parameters
    ----------
    epsilon : float
        The distance, as a share of max − min: in L∞ at most 1.
    epsilon_colour : float, optional
        The same for images with three channels (default: `epsilon`).
    norm : {"linf", "l2"}, default "linf"
        Which distance `epsilon` is.

    Notes
    -----
    ``extras["radius"]`` (N,) is the ε that was used. ``extras["fooled_by"]`` (N,) is 0 for an image that the model
    misclassifies without an attack, 1 to 4 for the part that fools it, and +inf for a robust one. ``extras["parts"]``
    (N,) is how many parts ran: 4, or 1 if Square ran alone.

    Examples
    --------
    >>> import robustcmp as rc
    >>> data = rc.load_dataset("digits")
    >>> model = rc.load_model("lenet5", framework="torch", dataset="digits")
    >>> result = AutoAttack(epsilon=0.3).attack(model, data.images[:4], data.labels[:4])
    >>> bool((np.isinf(result.extras["fooled_by"]) == ~result.success).all())
    True
    """

    needs_gradient = True
    takes_source_gradient = True
    check_names = ("AutoAttack ran whole, not Square alone",)
    cite = "\n\n".join((APGD.cite, FABTargeted.cite, Square.cite))
    table = AttackTable(
        "robust accuracy on all images attacked, after one part and another",
        (
            Column("ε", "radius"),
            Column("clean", "fooled_by", "beyond", 0, percent=True),
            Column("after APGD-CE", "fooled_by", "beyond", 1, percent=True),
            Column("and APGD-T", "fooled_by", "beyond", 2, percent=True),
            Column("and FAB-T", "fooled_by", "beyond", 3, percent=True),
            Column("and Square", "fooled_by", "beyond", 4, percent=True),
            Column("parts", "parts"),
        ),
    )

    @property
    def parts(self) -> tuple[BallAttack, ...]:
        """The attacks that it consists of, in their order."""
        ball: dict[str, Any] = {"epsilon": self.epsilon, "epsilon_colour": self.epsilon_colour, "norm": self.norm}
        return APGD(loss="ce", restarts=1, **ball), APGDTargeted(**ball), FABTargeted(**ball), Square(**ball)

    @property
    def extras(self) -> dict[str, Extra]:
        return super().extras | {"fooled_by": Extra(), "parts": Extra()}

    @property
    def notes(self) -> list[str]:
        return [
            "beside R, not in it. It knows no defence: against one, it can overestimate robustness, and only attacks "
            "adapted to it tell (Tramèr et al. 2020, Carlini et al. 2019). Where its table counts one part instead of "
            "four, the model has no gradient and Square ran alone."
        ]

    def health_checks(self, name: str, outcomes: xarray.Dataset) -> Iterator[Check]:
        parts = int(outcomes.parts.min())
        advice = "The model has no gradient. Do not compare its robust accuracy with that of models that have one."
        yield judge(self.check_names[0], parts > 1, f"{name}: {parts} of {len(self.parts)} parts ran", advice)

    def usual_queries(self, pixels: int, repeats: int) -> int:
        """Return a fifth of the most: nearly all images of a network without a defence fall to the first steps."""
        return sum(part.usual_queries(pixels, repeats) for part in self.parts) // 5

    def not_applicable(self, classifier: Classifier) -> str:
        return ""

    def perturb(
        self, classifier: Classifier, images: Images, labels: Labels, seed: int, repeats: Sequence[int]
    ) -> Iterator[Perturbed]:
        for perturbed in super().perturb(classifier, images, labels, seed, repeats):
            perturbed.extras["parts"][:] = self._count_parts(classifier)
            yield perturbed

    def search(self, classifier: Classifier, ball: Ball, labels: Labels, seed: int, repeat: int) -> Perturbed:
        parts = self.parts
        first = len(parts) - self._count_parts(classifier)

        def run_part(number: int, left: NDArray[np.int64]) -> Perturbed:
            return parts[first + number].search(classifier, ball.rows(left), labels[left], seed, repeat)

        whole, number = search_in_turn(ball, len(parts) - first, run_part)
        fooled_by = np.where(number < 0, np.inf, first + number + 1)
        return Perturbed(whole.fooled, whole.images, whole.queries, {"fooled_by": fooled_by})

    def _count_parts(self, classifier: Classifier) -> int:
        """Return how many parts run on a model: all, or the last where it has no gradient."""
        return 1 if super().not_applicable(classifier) else len(self.parts)
