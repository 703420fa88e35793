"""What a comparison has to do: its cells, and the tasks that make those which are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from time import perf_counter
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..attacks.base import pixels
from ..attacks.gradients import margin
from ..attacks.suite import Suite
from ..files import digest, json_digest
from ..models.batches import measure_rate
from ..records.attack import Cell, TaskKey
from ..records.store import Run
from .blame import blame
from .identity import Identity, identify
from .loading import TrainedModel
from .question import Question

ModelKey = tuple[str, int]
RATE_SECONDS = 0.3
CHECKED = 50  # images that health checks ask about
CHECK_QUERIES = 3 * 7 * 40  # about each: a gradient and a forward pass, for seven balls of PGD, in forty steps
TIMED = 32  # images for each worker on which attacks are timed
ATTACK_TO_FORWARD = 1.5  # attacks take 1.1 to 2.1 times as long as their forward passes: docs/performance.md


class Task(NamedTuple):
    """One model under one attack in the repeats that are missing: what an executor runs.

    Attributes
    ----------
    model : tuple of (str, int)
        The model's name and training seed.
    attack : str
        The attack's name in the suite.
    cells : list of Cell
        The repeats that are missing.
    """

    model: ModelKey
    attack: str
    cells: list[Cell]

    @property
    def key(self) -> TaskKey:
        """What tells it from other tasks: the model, the training seed and the attack."""
        return (*self.model, self.attack)


@dataclass
class Plan:
    """All cells of a comparison.

    Attributes
    ----------
    question : Question
        What is asked.
    indices : ndarray of int64, shape (N,)
        Where the images that are attacked stand among all that were passed, sorted.
    models : list of TrainedModel
        The models, each with its batch size.
    cells : list of Cell
        Models first, then attacks, then repeats; a deterministic attack has one.
    keep_images : bool
        Whether adversarial images are kept, so that they have to come back from other processes.
    """

    question: Question
    indices: NDArray[np.int64]
    models: list[TrainedModel]
    cells: list[Cell]
    keep_images: bool = True
    _rates: dict[str, float] = field(default_factory=dict)

    @property
    def suite(self) -> Suite:
        """The attacks."""
        return self.question.suite

    @cached_property
    def images(self) -> NDArray[np.float32]:
        """The images that are attacked, (N, H, W, C) in [0, 1]."""
        return self.question.images[self.indices]

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Their classes, (N,)."""
        return self.question.labels[self.indices]

    def model(self, key: ModelKey) -> TrainedModel:
        """Return the model of a key."""
        return next(model for model in self.models if model.key == key)

    def fail(self, cells: Sequence[Cell], reason: str) -> None:
        """Note why cells of one model and attack failed, and leave the attack out on that model."""
        for cell in cells:
            self.model((cell.model, cell.training_seed)).failed[cell.attack] = reason
        left_out = {cell.task for cell in cells}
        self.cells = [cell for cell in self.cells if cell.task not in left_out]

    def queries(self, store: Run) -> dict[Cell, int]:
        """Return about how many queries each cell takes that is missing in a store, and 0 for every other one."""
        taken = dict.fromkeys(self.cells, 0)
        for task in self.list_missing(store):
            usual = self.suite.attacks[task.attack].usual_queries(pixels(self.images), len(task.cells)) * len(
                self.images
            )
            taken |= dict.fromkeys(task.cells, usual // len(task.cells))
        return taken

    def seconds(self, store: Run) -> dict[str, float]:
        """Return about how long each attack takes for what is missing, by the forward rates of the models now."""
        seconds = dict.fromkeys(self.suite.attacks, 0.0)
        for cell, queries in self.queries(store).items():
            if queries:
                seconds[cell.attack] += ATTACK_TO_FORWARD * queries / self._rate(cell.model)
        return seconds

    def time_attacks(self, store: Run, longest: float) -> dict[str, float]:
        """Return about how long each attack takes for what is missing, by running it on a few images.

        Their number is such that this takes about `longest` seconds at most.
        """
        estimated = self.seconds(store)
        share = longest / max(sum(estimated.values()), longest)
        workers = max(model.classifier.workers for model in self.models)
        few = min(TIMED * workers, int(share * len(self.images)))
        if few < workers:
            return estimated
        seconds = dict.fromkeys(estimated, 0.0)
        for task in self.list_missing(store):
            classifier = self.model(task.model).classifier
            attack = self.suite.attacks[task.attack]
            repeats = [cell.repeat for cell in task.cells]
            started = perf_counter()
            for _ in attack.outcomes(classifier, self.images[:few], self.labels[:few], self.question.seed, repeats):
                pass
            seconds[task.attack] += (perf_counter() - started) * len(self.images) / few
        return seconds

    def check_seconds(self) -> float:
        """Return about how long the health checks of all models take; without a gradient they are a few passes."""
        queries = ATTACK_TO_FORWARD * CHECK_QUERIES * min(CHECKED, len(self.images))
        checked = [model for model in self.models if not model.classifier.no_gradient]
        return sum(queries / self._rate(model.name) for model in checked)

    def _rate(self, name: str) -> float:
        """Return how many images a second the models of a name answer, measured once."""
        if name not in self._rates:
            classifier = next(model.classifier for model in self.models if model.name == name)
            self._rates[name] = measure_rate(classifier, self.images, classifier.batch_size, RATE_SECONDS)
        return self._rates[name]

    def list_missing(self, store: Run) -> Iterator[Task]:
        """Yield what is missing in a store, a task a model and attack; what two models share is one's alone.

        Attack by attack over all models, so that each is answered early, and those with the fewest queries first.
        """
        claimed: set[str] = set()
        order = self._order_cheapest_first()
        in_order = sorted(self.cells, key=lambda cell: order.index(cell.attack))
        for (name, seed, attack), cells in groupby(in_order, lambda cell: cell.task):
            missing = [cell for cell in cells if cell.key not in store and cell.key not in claimed]
            claimed.update(cell.key for cell in missing)
            if missing:
                yield Task((name, seed), attack, missing)

    def _order_cheapest_first(self) -> list[str]:
        repeats = Counter((cell.attack, cell.model, cell.training_seed) for cell in self.cells)
        most = {attack: max(n for (other, *_), n in repeats.items() if other == attack) for attack, *_ in repeats}
        size = pixels(self.images)
        return sorted(most, key=lambda attack: self.suite.attacks[attack].usual_queries(size, most[attack]))


def make_plan(
    models: Sequence[TrainedModel],
    question: Question,
    indices: NDArray[np.int64],
    stored: Mapping[str, Any],
    keep_images: bool,
) -> Plan:
    """Return the cells of a comparison, and note what tells each model from the others.

    Where repeats are spread, the n-th training of a name has the n-th share of the draws. `stored` is the manifest of
    the run's last question: where a model's bits vary from pass to pass, those that it had there are taken.
    """
    plan = Plan(question, indices, [*models], [], keep_images)
    images_digest = digest({"images": plan.images, "labels": plan.labels})
    trainings: Counter[str] = Counter()
    for model in models:
        attacks = {name: attack for name, attack in plan.suite.attacks.items() if name not in model.not_applicable}
        needs_gradient = any(attack.needs_gradient for attack in attacks.values())
        activity = f"asking {model.label} about the subset"
        identity, logits = blame(activity, identify, model.classifier, plan.images, plan.labels, needs_gradient)
        model.identity = identity.steady(_find_stored(model, stored))
        model.margins = 0 - margin(logits, plan.labels)[0]  # 0 - x, as -x could be a negative zero
        share = trainings[model.name] if question.spread else 0
        trainings[model.name] += 1
        content = {
            "framework": [model.classifier.framework.name, model.classifier.framework.version()],
            "images": images_digest,
            "batch_size": model.classifier.batch_size,
            "seed": question.seed,
        }
        for name, attack in attacks.items():
            described = content | {
                "attack": [type(attack).__name__, attack.semantics, attack.settings],
                "model": model.identity.in_key(attack.needs_gradient),
            }
            first = share * question.repeats[name]
            repeats = range(1) if attack.deterministic else range(first, first + question.repeats[name])
            keys = {repeat: json_digest(described | {"repeat": repeat})[:32] for repeat in repeats}
            plan.cells += [Cell(*model.key, name, repeat, key) for repeat, key in keys.items()]
    return plan


def _find_stored(model: TrainedModel, manifest: Mapping[str, Any]) -> list[Identity]:
    """Return the identities in a manifest that may be a model's: of the same version of the same framework."""
    framework = model.classifier.framework
    return [
        msgspec.convert(entry["identity"], Identity)
        for entry in manifest.get("models", ())
        if "identity" in entry
        and (entry["framework"], entry["framework_version"]) == (framework.name, framework.version())
    ]
