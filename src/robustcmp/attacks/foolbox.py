"""Foolbox's own attacks, run like those of robustcmp."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import foolbox as fb
import numpy as np
from foolbox.attacks.base import AttackWithDistance
from numpy.typing import NDArray

from .. import frameworks
from ..errors import HostError, ModelError
from ..frameworks.base import seed_generators
from ..models.classifier import Classifier, unwrap
from ..models.model import FunctionsModel
from ..records.answers import Check
from ..records.attack import AttackRecord, AttackResult, Extra, Extras
from .base import Images, Labels, Perturbed, empty_like, fill, judge

if TYPE_CHECKING:
    import xarray

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


class FoolboxAttack:
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

    semantics = 1
    deterministic = False
    takes_misclassified = False
    check_names: tuple[str, ...] = ()

    def __init__(self, attack: fb.attacks.base.Attack, settings: dict[str, Any], epsilons: list[float] | None):
        self.attack = attack
        self.settings = settings | {
            "class": type(attack).__name__,
            "epsilons": epsilons,
            "foolbox": fb.__version__,
        }
        self.takes_source_gradient = False
        self.needs_gradient = type(attack).__module__.rpartition(".")[2] not in GRADIENT_FREE
        self.grid = epsilons or []

    @property
    def record(self) -> AttackRecord:
        """What a reader of its outcomes has to know of it."""
        epsilon_success = Extra(dims=("epsilon",), in_results=False)
        return AttackRecord(
            class_name=type(self).__name__,
            settings=self.settings,
            semantics=self.semantics,
            deterministic=self.deterministic,
            extras={"epsilon_success": epsilon_success} if self.grid else {},
            grid=self.grid,
            at_epsilon="epsilon_success" if self.grid else "",
            notes=["success at the largest epsilon; the draws of Foolbox depend on the batch size and the framework."],
        )

    def not_applicable(self, classifier: Classifier) -> str:
        """Return why the attack cannot run on a model, or "" if it can."""
        if not self.needs_gradient:
            return ""
        if isinstance(unwrap(classifier.model), FunctionsModel) and "torch" not in frameworks.installed():
            return "Foolbox's gradient attacks reach functions of NumPy arrays through torch, which is not installed."
        return classifier.no_gradient

    def health_checks(self, name: str, outcomes: xarray.Dataset) -> Iterator[Check]:
        """Yield nothing: of its outcomes nothing more is known."""
        return iter(())

    def usual_queries(self, pixels: int, repeats: int) -> int:
        """Return one query a step: Foolbox does not say how many there are."""
        return repeats * max(len(self.grid), 1) * int(getattr(self.attack, "steps", 1))

    def with_finished_repeat(self, extras: Extras) -> FoolboxAttack:
        """Return itself: its repeats have nothing in common."""
        return self

    def only_draws(self) -> FoolboxAttack:
        """Return itself."""
        return self

    def outcomes(
        self, classifier: Classifier, images: Images, labels: Labels, seed: int, repeats: Sequence[int]
    ) -> Iterator[AttackResult]:
        """Yield the result of each of the repeats; ``extras["epsilon_success"]`` is (N, epsilons), at each ε."""
        attacked = classifier
        if isinstance(classifier.model, FunctionsModel) and (self.needs_gradient or "torch" in frameworks.installed()):
            attacked = Classifier(classifier.model.in_torch(), classifier.batch_size)
        for repeat in repeats:
            whole, done = None, 0
            with seed_generators(attacked.framework, self.settings["class"], seed, repeat):
                for perturbed in attacked.in_batches(partial(self._perturb, attacked), images, labels):
                    part = slice(done, done + len(perturbed.fooled))
                    result = judge(classifier, images[part], labels[part], perturbed)
                    whole, done = whole or empty_like(result, len(images)), part.stop
                    fill(whole, part, result)
            assert whole is not None  # there is at least one image
            yield whole

    def _perturb(self, classifier: Classifier, images: Images, labels: Labels) -> Perturbed:
        """Return what fools the model at the largest ε, and success (N, epsilons) at each."""
        epsilons: list[float | None] = [*self.grid] or [None]
        try:
            with classifier.full_precision():
                x, criterion = classifier.tensor(images), fb.criteria.Misclassification(classifier.tensor(labels))
                if isinstance(self.attack, AttackWithDistance):
                    _, clipped, fooled = self.attack(classifier.model, x, criterion, epsilons=epsilons)
                else:  # SpatialAttack, which knows no ε
                    spatial: Any = self.attack
                    _, *clipped, fooled = spatial(classifier.model, x, criterion)
        except HostError:
            raise
        except Exception as error:
            if classifier.framework.is_out_of_memory(error):
                raise
            # One that is targeted, or wants more than a suite can say, or fails in this framework.
            raise ModelError(
                f"Foolbox's {self.settings['class']} cannot attack a model of {classifier.framework.name}: "
                f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}. Leave it out; if it needs "
                'more than labels, call it in a function, robustcmp.attacks.FunctionAttack(function, takes="foolbox")'
            ) from error
        at_each: NDArray[np.bool_] = classifier.array(fooled).reshape(-1, len(images)).T
        found = classifier.array(clipped[-1])
        if not np.isfinite(found).all():
            raise ModelError(
                f"Foolbox's {self.settings['class']} made images of NaN, as of a gradient that vanishes: change its "
                "parameters, such as xi, or leave it out"
            )
        return Perturbed(
            at_each[:, -1],
            found,
            np.full(len(images), -1, np.int64),
            {"epsilon_success": at_each} if self.grid else {},
        )
