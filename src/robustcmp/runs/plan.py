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
from ..models.classifier import Classifier, unwrapped
from ..records.cell import Cell, Extras
from ..zoo.origins import Origin
from .blame import blaming
from .identity import Identity, identify, stored_identity


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
        info: dict[str, Any] = getattr(unwrapped(self.classifier.model), "info", {})
        return info

    @property
    def trained_weights(self) -> str | None:
        """The digest that its weights file has, where the network was built here from this file."""
        known = getattr(unwrapped(self.classifier.model), "architecture", None) is not None
        return self.info.get("sha256") if known else None


class CellStore(Protocol):
    """Where finished cells are kept; `robustcmp.records.store.Run` is one."""

    def __contains__(self, key: str, /) -> bool: ...
    def extras(self, key: str) -> Extras: ...


@dataclass(frozen=True)
class Task:
    """One model under one attack in the repeats that are missing: what is handed to an executor.

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
    """

    model: tuple[str, int]
    attack: str
    cells: list[Cell]
    batch_size: int
    finished: Extras = field(default_factory=dict)


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
    former : dict of str to str
        The key that a cell had while keys named nothing but the logits, by its key of today; only where the stored
        model of these logits is the only one, and has the same weights.
    elsewhere : dict of str to str
        The key of the cell that the same model has by a stored manifest with other last bits, by its key of today.
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
    former: dict[str, str] = field(default_factory=dict)
    elsewhere: dict[str, str] = field(default_factory=dict)
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

    def adoptable(self, store: CellStore) -> dict[str, str]:
        """Return the keys of missing cells with the former keys under which a store has them."""
        return {key: other for key, other in self.former.items() if key not in store and other in store}

    def from_elsewhere(self, store: CellStore) -> dict[str, str]:
        """Return the keys of missing cells with those under which a store has them, with other last bits."""
        found = self.adoptable(store)
        return {
            key: other
            for key, other in self.elsewhere.items()
            if key not in store and key not in found and other in store
        }

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
    the run's last question, some of whose cells may have other keys.
    """
    images_digest = digest({"images": images, "labels": labels})
    not_applicable = applicability(models, suite)
    identities, margins, cells = {}, {}, []
    former: dict[str, str] = {}
    elsewhere: dict[str, str] = {}
    trainings: Counter[str] = Counter()
    for model in models:
        runs = {name: attack for name, attack in suite.attacks.items() if name not in not_applicable[model.key]}
        needs_gradient = any(attack.needs_gradient for attack in runs.values())
        what = f"asking {model.label} about the subset"
        identity, logits = blaming(what, identify, model.classifier, images, labels, needs_gradient)
        there = _Stored.of(model, stored or {})
        identity = identities[model.key] = identity.steadied(there.identities)
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
                if there.has_weights_of(identity.logits):
                    former[key] = cell_key(cell, identity.logits)
                for other in there.with_other_bits(identity, attack.needs_gradient):
                    elsewhere[key] = cell_key(cell, other)
    claimed = Counter(former.values())
    former = {key: other for key, other in former.items() if claimed[other] == 1}
    return Plan(
        suite, images, labels, seed, list(models), identities, margins, not_applicable, cells, former, elsewhere
    )


def cell_key(cell: Mapping[str, Any], model: str | Mapping[str, Any]) -> str:
    """Return the key of a cell: a digest of all that determines its content.

    Parameters
    ----------
    cell : dict
        Framework and version, images, batch size, attack, seed and repeat.
    model : dict or str
        What of a model's identity has a part in the cell. It was a digest of the logits alone once: models that differ
        in nothing but their gradient shared cells.
    """
    return json_digest({**cell, "model": model})[:32]


@dataclass(frozen=True)
class _Stored:
    """What an earlier manifest says of models that may be one of today's: in the same version of the same framework.

    Attributes
    ----------
    model : TrainedModel
        Today's.
    entries : list of dict
        The earlier ones.
    """

    model: TrainedModel
    entries: list[Mapping[str, Any]]

    @classmethod
    def of(cls, model: TrainedModel, manifest: Mapping[str, Any]) -> _Stored:
        framework = model.classifier.framework
        return cls(
            model,
            [
                entry
                for entry in manifest.get("models", ())
                if (entry["framework"], entry["framework_version"]) == (framework.name, framework.version())
            ],
        )

    @property
    def identities(self) -> list[Identity]:
        """Those that are stored."""
        return [identity for entry in self.entries if (identity := stored_identity(entry))]

    def has_weights_of(self, logits: str) -> bool:
        """Say whether the one model with these logits, of before identities were stored, had the weights of today's."""
        alike = [entry for entry in self.entries if entry["logits"] == logits]
        return len(alike) == 1 and self._same_weights(alike[0])

    def with_other_bits(self, identity: Identity, needs_gradient: bool) -> Iterator[str | dict[str, str | None]]:
        """Yield what keys have of models that differ from today's in nothing but their last bits."""
        for entry in self.entries:
            stored = stored_identity(entry)
            if stored is None:
                if entry["logits"] != identity.logits and self.has_weights_of(entry["logits"]):
                    yield entry["logits"]
            elif stored.is_like(identity) and stored.in_key(needs_gradient) != identity.in_key(needs_gradient):
                yield stored.in_key(needs_gradient)

    def _same_weights(self, entry: Mapping[str, Any]) -> bool:
        trained = self.model.trained_weights
        return trained is not None and "identity" not in entry and entry["info"].get("sha256") == trained


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
