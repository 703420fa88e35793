"""AutoAttack's parts, one after the other on the images that are left: robust accuracy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..models.classifier import Classifier
from ..records.attack import AttackTable, Column, Extra
from .apgd import APGD
from .ball import Ball, BallAttack, search_in_turn
from .base import Labels, Perturbed
from .gradients import DLR_CLASSES
from .square import Square

NO_PART = np.inf


class Ensemble(BallAttack):
    """APGD on the cross-entropy, APGD on the DLR loss and Square, in this order, each on the images left by the last.

    An image counts as robust if the model classifies it correctly and no part fools the model, as in AutoAttack (Croce
    and Hein 2020). So 1 − success rate is an upper bound on the robust accuracy. That of `AutoAttack` can be lower: its
    targeted parts are left out here. With two classes there is no DLR loss, and no APGD on it.

    Parameters
    ----------
    epsilon : float
        The L∞ distance, as a share of max − min.
    epsilon_colour : float, optional
        The same for images with three channels (default: `epsilon`).
    steps, restarts : int, default 100, 5
        Of both APGDs.
    iterations : int, default 5000
        Of Square.

    Notes
    -----
    ``extras["radius"]`` (N,) is the ε that was used. ``extras["fooled_by"]`` (N,) is 0 for an image that the model
    misclassifies without an attack, 1, 2 or 3 for the part that fools it, and +inf for a robust one.

    Examples
    --------
    >>> import robustcmp as rc
    >>> data = rc.load_dataset("digits")
    >>> model = rc.load_model("lenet5", framework="torch", dataset="digits")
    >>> attack = Ensemble(epsilon=0.05, steps=5, restarts=1, iterations=5)
    >>> result = attack.attack(model, data.images[:8], data.labels[:8])
    >>> bool((np.isinf(result.extras["fooled_by"]) == ~result.success).all())
    True
    """

    needs_gradient = True
    cite = f"{APGD.cite}\n\n{Square.cite}"
    table = AttackTable(
        "robust accuracy on all images attacked, after one part and another",
        (
            Column("ε", "radius"),
            Column("clean", "fooled_by", "beyond", 0, percent=True),
            Column("after APGD-CE", "fooled_by", "beyond", 1, percent=True),
            Column("and APGD-DLR", "fooled_by", "beyond", 2, percent=True),
            Column("and Square", "fooled_by", "beyond", 3, percent=True),
        ),
    )

    def __init__(
        self,
        *,
        epsilon: float,
        epsilon_colour: float | None = None,
        steps: int = 100,
        restarts: int = 5,
        iterations: int = 5000,
    ):
        super().__init__(epsilon, epsilon_colour)
        parts = self._parts_with(steps, restarts, iterations)
        self.steps, self.restarts, self.iterations = parts[0].steps, parts[0].restarts, parts[2].iterations

    def _parts_with(self, steps: int, restarts: int, iterations: int) -> tuple[APGD, APGD, Square]:
        ce, dlr = (
            APGD(loss=loss, steps=steps, restarts=restarts, epsilon=self.epsilon, epsilon_colour=self.epsilon_colour)
            for loss in ("ce", "dlr")
        )
        return ce, dlr, Square(epsilon=self.epsilon, epsilon_colour=self.epsilon_colour, iterations=iterations)

    @property
    def parts(self) -> tuple[APGD, APGD, Square]:
        """The attacks that it consists of, in their order."""
        return self._parts_with(self.steps, self.restarts, self.iterations)

    @property
    def extras(self) -> dict[str, Extra]:
        return super().extras | {"fooled_by": Extra()}

    @property
    def notes(self) -> list[str]:
        return [
            "a reference beside R, not in it. Its attacks know no defence: against one, they can overestimate "
            "robustness, and only attacks adapted to it tell (Tramèr et al. 2020, Carlini et al. 2019)."
        ]

    def usual_queries(self, pixels: int, repeats: int) -> int:
        """Return a fifth of the most: nearly all images of a network without a defence fall to the first steps."""
        return sum(part.usual_queries(pixels, repeats) for part in self.parts) // 5

    def search(self, classifier: Classifier, ball: Ball, labels: Labels, seed: int, repeat: int) -> Perturbed:
        two_classes = classifier.logits(ball.clean[:1]).shape[1] < DLR_CLASSES
        number = np.array([1, 3] if two_classes else [1, 2, 3])  # of the parts that run
        parts = [self.parts[i - 1] for i in number]

        def run_part(part: int, left: NDArray[np.int64]) -> Perturbed:
            return parts[part].search(classifier, ball.rows(left), labels[left], seed, repeat)

        whole, fooled_by = search_in_turn(ball, len(parts), run_part)
        part_of = np.where(fooled_by < 0, NO_PART, number[fooled_by])
        return Perturbed(whole.fooled, whole.images, whole.queries, {"fooled_by": part_of})
