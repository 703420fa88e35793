"""Foolbox's own attacks, run like those of robustcmp."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import foolbox as fb
import numpy as np
from foolbox.attacks.base import AttackWithDistance
from numpy.typing import NDArray

from .. import frameworks
from ..errors import HostError, ModelError, in_one_line
from ..models.classifier import Classifier, unwrap
from ..models.model import FunctionsModel
from ..records.attack import AttackResult, Extra
from .base import Attack, Images, Labels, Perturbed, concatenate

# The modules of foolbox.attacks whose attacks ask for nothing but the model's answers.
GRADIENT_FREE = {
    "additive_noise",
    "binarization",
    "blended_noise",
    "blur",
    "boundary_attack",
    "contrast",
    "contrast_min",
    "dataset_attack",
    "gen_attack",
    "hop_skip_jump",
    "inversion",
    "pointwise",
    "saltandpepper",
    "spatial_attack",
}


class FoolboxAttack(Attack):
    """An attack of Foolbox with the epsilons at which its success is counted.

    Parameters
    ----------
    attack : foolbox.attacks.base.Attack
        The attack.
    settings : dict
        Its constructor's arguments, JSON types.
    epsilons : list of float or None
        In the unit of the attack's distance. Success is counted at the largest; None counts every adversarial image
        that the attack finds, at any distance.

    Notes
    -----
    Foolbox draws from the global generators of Python, NumPy and the model's framework. They are seeded for each
    repeat and restored afterwards. The draws depend on the framework, the batch size and the order of the images.
    """

    norm = "l2"

    def __init__(self, attack: fb.attacks.base.Attack, settings: dict[str, Any], epsilons: list[float] | None):
        self._wrapped = attack
        self._settings = settings | {
            "class": type(attack).__name__,
            "epsilons": epsilons,
            "foolbox": fb.__version__,
        }
        self.needs_gradient = type(attack).__module__.rpartition(".")[2] not in GRADIENT_FREE
        self.at_epsilon = "epsilon_success" if epsilons else ""

    @property
    def settings(self) -> dict[str, Any]:
        return self._settings

    @property
    def grid(self) -> list[float]:
        return self._settings["epsilons"] or []

    @property
    def extras(self) -> dict[str, Extra]:
        return {"epsilon_success": Extra(dims=("epsilon",), in_results=False)} if self.grid else {}

    @property
    def notes(self) -> list[str]:
        return ["success at the largest epsilon; the draws of Foolbox depend on the batch size and the framework."]

    def not_applicable(self, classifier: Classifier) -> str:
        """Return why the attack cannot run on a model, or "" if it can."""
        is_function = isinstance(unwrap(classifier.model), FunctionsModel)
        if self.needs_gradient and is_function and "torch" not in frameworks.list_installed():
            return "Foolbox's gradient attacks reach functions of NumPy arrays through torch, which is not installed."
        return super().not_applicable(classifier)

    def usual_queries(self, pixels: int, repeats: int) -> int:
        """Return one query a step: Foolbox does not say how many there are."""
        return repeats * max(len(self.grid), 1) * int(getattr(self._wrapped, "steps", 1))

    def outcomes(
        self, classifier: Classifier, images: Images, labels: Labels, seed: int, repeats: Sequence[int]
    ) -> Iterator[AttackResult]:
        """Yield the result of each of the repeats; ``extras["epsilon_success"]`` is (N, epsilons), at each ε."""
        attacked = classifier
        if isinstance(classifier.model, FunctionsModel) and (
            self.needs_gradient or "torch" in frameworks.list_installed()
        ):
            attacked = Classifier(classifier.model.in_torch(), classifier.batch_size)

        def attack_batch(x: Images, y: Labels) -> AttackResult:
            [perturbed] = self.perturb(attacked, x, y, seed, [])
            return self.assess(classifier, x, y, perturbed)

        for repeat in repeats:
            with attacked.framework.fork_generators(self.settings["class"], seed, repeat):
                yield concatenate(list(attacked.in_batches(attack_batch, images, labels)))

    def perturb(
        self, classifier: Classifier, images: Images, labels: Labels, seed: int, repeats: Sequence[int]
    ) -> Iterator[Perturbed]:
        """Yield what fools the model at the largest ε, with success (N, epsilons) at each; generators are seeded."""
        epsilons: list[float | None] = [*self.grid] or [None]
        try:
            with classifier.full_precision():
                x, criterion = classifier.tensor(images), fb.criteria.Misclassification(classifier.tensor(labels))
                if isinstance(self._wrapped, AttackWithDistance):
                    _, clipped, fooled = self._wrapped(classifier.model, x, criterion, epsilons=epsilons)
                else:  # SpatialAttack, which knows no ε
                    spatial: Any = self._wrapped
                    _, *clipped, fooled = spatial(classifier.model, x, criterion)
        except HostError:
            raise
        except Exception as error:
            if classifier.framework.is_out_of_memory(error):
                raise
            # One that is targeted, or wants more than a suite can say, or fails in this framework.
            raise ModelError(
                f"Foolbox's {self.settings['class']} cannot attack a model of {classifier.framework.name}: "
                f"{type(error).__name__}: {in_one_line(error) or 'no message'}. Leave it out; if it needs "
                'more than labels, call it in a function, robustcmp.attacks.FunctionAttack(function, takes="foolbox")'
            ) from error
        at_each: NDArray[np.bool_] = classifier.array(fooled).reshape(-1, len(images)).T
        extras = {"epsilon_success": at_each} if self.grid else {}
        yield Perturbed(at_each[:, -1], classifier.array(clipped[-1]), np.full(len(images), -1, np.int64), extras)
