"""What a comparison has to do: its cells, and the tasks that make those which are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..attacks.base import pixels
from ..attacks.suite import RunnableAttack, Suite
from ..errors import ModelError
from ..files import digest, json_digest
from ..frameworks import Device
from ..models.classifier import Classifier, unwrap
from ..records.cell import Cell, Extras
from ..sources.deployed import Origin
from .blame import blaming
from .identity import Identity, identify, stored_identity

TaskKey = tuple[str, int, str]


@dataclass(frozen=True)
class TrainedModel:
    """One trained model in a comparison.

    Attributes
    ----------
    name : str
        What the caller calls it, or its framework.
    training_seed : int
        Which of the trainings of that name it is.
    classifier : Classifier
        The model, with the batch size that it is asked with.
    origin : Origin, optional
        Where it comes from, so that another process can load it; None for a model that the caller made.
    depends_on_batch : bool
        Whether its answers depend on the other images of a batch, so that it is asked one image at a time.
    slope_error : float, optional
        How far off its gradient is, as a share of the slopes; None where it is not seen to be.
    cause : str
        What usual cause makes it less accurate than it could be, in a sentence; "" where none is seen.
    """

    name: str
    training_seed: int
    classifier: Classifier
    origin: Origin | None = None
    depends_on_batch: bool = False
    slope_error: float | None = None
    cause: str = ""

    @property
    def key(self) -> tuple[str, int]:
        """What tells it from the others."""
        return self.name, self.training_seed

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"{self.name}/{self.training_seed}"

    @property
    def info(self) -> dict[str, Any]:
        """What is known of its training."""
        info: dict[str, Any] = getattr(unwrap(self.classifier.model), "info", {})
        return info


class CellStore(Protocol):
    """Where finished cells are kept; `robustcmp.records.store.Run` is one."""

    def __contains__(self, key: str, /) -> bool: ...
    def extras(self, key: str) -> Extras: ...


@dataclass(frozen=True)
class Remote:
    """What another process needs to do a task; arrays and files go by their digests.

    Attributes
    ----------
    origin : Origin
        What the model is loaded from.
    files : dict of str to (str, str)
        Name and digest of each file that the origin is loaded from, by the origin's field.
    frameworks : tuple of str
        Those that it needs; the first is the one that it runs in.
    device : str
        Where it runs.
    identity : Identity
        What the model has to be there as well.
    attack : attack
        With its settings, and what is known of finished repeats.
    data : str
        The digest of the images, their labels, and those that the model is compiled with.
    seed : int
        The attacks' seed.
    parts : int
        In how many parts the images are worked on side by side.
    keep_images : bool
        Whether the adversarial images are wanted; they are most of what goes back.
    """

    origin: Origin
    files: dict[str, tuple[str, str]]
    frameworks: tuple[str, ...]
    device: Device
    identity: Identity
    attack: RunnableAttack
    data: str
    seed: int
    parts: int
    keep_images: bool


@dataclass(frozen=True)
class Task:
    """One model under one attack in the repeats that are missing: what an executor runs.

    Attributes
    ----------
    model : tuple of (str, int)
        The model's name and training seed.
    attack : str
        The attack's name in the suite.
    cells : list of Cell
        The repeats that are missing.
    batch_size : int
        How many candidates are asked at once.
    finished : dict of str to ndarray
        The extras of a repeat that is there, which may save queries and change nothing.
    remote : Remote, optional
        What another process needs; None for a task that stays in this one.
    """

    model: tuple[str, int]
    attack: str
    cells: list[Cell]
    batch_size: int
    finished: Extras = field(default_factory=dict)
    remote: Remote | None = None

    @property
    def key(self) -> TaskKey:
        """What tells it from other tasks: the model, the training seed and the attack."""
        return (*self.model, self.attack)

    @property
    def repeats(self) -> list[int]:
        """The numbers of its repeats."""
        return [cell.repeat for cell in self.cells]


@dataclass(frozen=True)
class Plan:
    """All cells of a comparison on a subset of images.

    Attributes
    ----------
    suite : Suite
        The attacks.
    images, labels : ndarray
        The subset, (N, H, W, C) float32 in [0, 1] and (N,).
    seed : int
        The attacks' seed.
    models : list of TrainedModel
        The models, each with its batch size.
    identities : dict
        What tells each model from the others, by its key.
    margins : dict
        Each model's clean margins, (N,): the true class's logit minus the largest other one.
    not_applicable : dict
        Why an attack cannot run on a model, by the model's key and the attack's name; such a pair has no cells.
    cells : list of Cell
        Models first, then attacks, then repeats; a deterministic attack has one.
    keep_images : bool
        Whether adversarial images are kept, so that they have to come back from other processes.
    """

    suite: Suite
    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    seed: int
    models: list[TrainedModel]
    identities: dict[tuple[str, int], Identity]
    margins: dict[tuple[str, int], NDArray[np.float64]]
    not_applicable: dict[tuple[str, int], dict[str, str]]
    cells: list[Cell]
    keep_images: bool = True

    @property
    def logits(self) -> dict[tuple[str, int], str]:
        """A digest of each model's clean logits, by its key."""
        return {key: identity.logits for key, identity in self.identities.items()}

    def model(self, key: tuple[str, int]) -> TrainedModel:
        """Return the model of a key."""
        return next(model for model in self.models if model.key == key)

    def attack(self, task: Task) -> RunnableAttack:
        """Return the attack of a task, with what is known from repeats that are there."""
        attack = self.suite.attacks[task.attack]
        return attack.with_finished_repeat(task.finished) if task.finished else attack

    def queries(self, store: CellStore) -> dict[Cell, int]:
        """Return about how many queries each cell takes that is missing in a store, and 0 for every other one."""
        taken = dict.fromkeys(self.cells, 0)
        for task in self.missing(store):
            usual = self.attack(task).usual_queries(pixels(self.images), len(task.cells)) * len(self.images)
            taken |= dict.fromkeys(task.cells, usual // len(task.cells))
        return taken

    def missing(self, store: CellStore) -> Iterator[Task]:
        """Yield what is missing in a store, a task a model and attack; what two models share is one's alone.

        Attack by attack over all models, so that each is answered early, and those with the fewest queries first.
        """
        claimed: set[str] = set()
        batch_sizes = {model.key: model.classifier.batch_size for model in self.models}
        order = self._cheapest_first
        in_order = sorted(self.cells, key=lambda cell: order.index(cell.attack))
        for (name, seed, attack), group in groupby(
            in_order, lambda cell: (cell.model, cell.training_seed, cell.attack)
        ):
            cells = list(group)
            missing = [cell for cell in cells if cell.key not in store and cell.key not in claimed]
            claimed.update(cell.key for cell in missing)
            done = next((cell for cell in cells if cell.key in store), None)
            if missing:
                finished = store.extras(done.key) if done else {}
                yield Task((name, seed), attack, missing, batch_sizes[name, seed], finished)

    @property
    def _cheapest_first(self) -> list[str]:
        repeats = Counter((cell.attack, cell.model, cell.training_seed) for cell in self.cells)
        most = {attack: max(n for (other, *_), n in repeats.items() if other == attack) for attack, *_ in repeats}
        size = pixels(self.images)
        return sorted(most, key=lambda attack: self.suite.attacks[attack].usual_queries(size, most[attack]))


def plan(
    models: Sequence[TrainedModel],
    suite: Suite,
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    repeats: Mapping[str, int],
    seed: int,
    spread: bool = False,
    stored: Mapping[str, Any] | None = None,
) -> Plan:
    """Return the cells of a comparison.

    `repeats` says for each attack how many each training has. With `spread` these are draws of its own: the n-th
    training of a name has the n-th share of them. Without it all trainings have the same. `stored` is the manifest of
    the run's last question: where a model's bits vary from pass to pass, those that it had there are taken.
    """
    images_digest = digest({"images": images, "labels": labels})
    not_applicable = applicability(models, suite)
    identities, margins, cells = {}, {}, []
    trainings: Counter[str] = Counter()
    for model in models:
        runs = {name: attack for name, attack in suite.attacks.items() if name not in not_applicable[model.key]}
        needs_gradient = any(attack.needs_gradient for attack in runs.values())
        what = f"asking {model.label} about the subset"
        identity, logits = blaming(what, identify, model.classifier, images, labels, needs_gradient)
        identity = identities[model.key] = identity.steadied(_stored_identities(model, stored or {}))
        margins[model.key] = clean_margins(logits, labels)
        share = trainings[model.name] if spread else 0
        trainings[model.name] += 1
        content = {
            "framework": [model.classifier.framework.name, model.classifier.framework.version()],
            "images": images_digest,
            "batch_size": model.classifier.batch_size,
            "seed": seed,
        }
        for name, attack in runs.items():
            described = content | {"attack": [type(attack).__name__, attack.semantics, attack.settings]}
            first = share * repeats[name]
            for repeat in range(1) if attack.deterministic else range(first, first + repeats[name]):
                cell = described | {"repeat": repeat}
                key = cell_key(cell, identity.in_key(attack.needs_gradient))
                cells.append(Cell(model.name, model.training_seed, name, repeat, key))
    return Plan(suite, images, labels, seed, list(models), identities, margins, not_applicable, cells)


def cell_key(cell: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """Return the key of a cell: a digest of all that determines its content.

    Parameters
    ----------
    cell : dict
        Framework and version, images, batch size, attack, seed and repeat.
    model : dict
        What of a model's identity has a part in the cell.
    """
    return json_digest({**cell, "model": model})[:32]


def _stored_identities(model: TrainedModel, manifest: Mapping[str, Any]) -> list[Identity]:
    """Return the identities in a manifest that may be a model's: of the same version of the same framework."""
    framework = model.classifier.framework
    entries = (
        entry
        for entry in manifest.get("models", ())
        if (entry["framework"], entry["framework_version"]) == (framework.name, framework.version())
    )
    return [identity for entry in entries if (identity := stored_identity(entry))]


def clean_margins(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the true class's logit minus the largest other one, (N,), of logits (N, K).

    >>> clean_margins(np.float32([[3, 1, 2], [0, 5, 4]]), np.array([0, 2]))
    array([ 1., -1.])
    """
    rows, others = np.arange(len(labels)), logits.astype(np.float64)
    true = others[rows, labels].copy()
    others[rows, labels] = -np.inf
    margins: NDArray[np.float64] = true - others.max(axis=1)
    return margins


def applicability(models: Sequence[TrainedModel], suite: Suite) -> dict[tuple[str, int], dict[str, str]]:
    """Return why attacks cannot run on models, by the model's key and the attack's name; only where they cannot.

    Raises
    ------
    ModelError
        No attack of the suite can run on any of the models.
    """
    reasons = {
        model.key: {
            name: reason
            for name, attack in suite.attacks.items()
            if (reason := attack.not_applicable(model.classifier))
        }
        for model in models
    }
    if all(len(of_model) == len(suite.attacks) for of_model in reasons.values()):
        reason = next(iter(next(iter(reasons.values())).values()))
        raise ModelError(f"no attack of the suite {suite.name} can run on any of the models: {reason}")
    return reasons
