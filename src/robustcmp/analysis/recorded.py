"""The records of a run as arrays: models, twins, attacks, every outcome, and what the tasks cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError, unknown
from ..files import json_digest
from ..records.attack import AttackRecord
from ..records.manifest import attack_records
from ..records.store import Run

if TYPE_CHECKING:
    import pandas
    import xarray


LACK = ("not_applicable", "failed")  # what the manifest has of a model, why it did not run an attack
ZOO_SOURCES = ("own", "zoo")  # what the manifest says of a model's weights that were trained here, or ship


class Recorded:
    """The records of a comparison.

    Attributes
    ----------
    run : Run
        Where they are kept.
    dataset : xarray.Dataset
        One value per image over (model, training_seed, attack, repeat, image): ``success``, ``l0``, ``l2``, ``linf``
        (+inf where the attack failed), ``adversarial_class`` and ``queries``, and what only some attacks have (NaN
        for the others): ``smallest_epsilon`` of FGSM, ``start``, ``source_step``, ``spherical_step`` and ``l2_half`` of
        boundary, ``vulnerable_pixels`` and ``pixels`` of exact single pixel, whose ``vulnerable_map`` has no repeats
        and bits for positions. ``repeats`` says how many repeats each attack has; where there are more, they are empty
        (no success, NaN). Repeats count from a training's first: where they are spread over trainings, each training
        has its own draws, and the manifest's cells say which. Distances are in [0, 1] images. The coordinate
        ``image`` says where an image stands in the data that was passed.
    manifest : dict
        What was requested and used: suite, models, versions, hardware, digests.
    """

    def __init__(self, run: Run, dataset: xarray.Dataset, manifest: dict[str, Any]):
        self.run = run
        self.dataset = dataset
        self.manifest = manifest

    @cached_property
    def models(self) -> list[str]:
        """The models' names, in the order in which they were passed."""
        return list(dict.fromkeys(model["name"] for model in self.manifest["models"]))

    @cached_property
    def sources(self) -> list[str]:
        """The models that are compared with each other: all but deployed networks beside their source."""
        deployed = {(name, int(seed)) for name, seed in (e["model"] for e in self.manifest.get("deployments", []))}
        return list(dict.fromkeys(name for name, seed in self.keys if (name, seed) not in deployed))

    @cached_property
    def labels(self) -> list[str]:
        """The trained models: ``torch``, or ``torch/3`` where there are several trainings."""
        return [f"{name}/{seed}" if self.has_several_trainings else name for name, seed in self.keys]

    @cached_property
    def keys(self) -> list[Key]:
        """The trained models' names and training seeds, in the order of the labels."""
        return [(model["name"], int(model["training_seed"])) for model in self.manifest["models"]]

    @cached_property
    def twins(self) -> list[Twins]:
        """The pairs of trained models that began from the same weights."""
        return read_twins(self.manifest)

    def match_twins(self, a: str, b: str, attack: str) -> list[int] | None:
        """Return where the twin of each training of a is among those of b, None unless twins pair all of them."""
        return match_twins(self.twins, a, b, self.seeds(a, attack), self.seeds(b, attack))

    @property
    def has_several_trainings(self) -> bool:
        """Whether a framework has two trainings or more."""
        return len(self.manifest["models"]) > len(self.models)

    @property
    def training_seeds(self) -> list[int]:
        """The training seeds that are compared."""
        return [int(seed) for seed in self.dataset.training_seed.values]

    def seeds(self, model: str, attack: str) -> list[int]:
        """Return the training seeds of a model that ran an attack."""
        i, k = self._place(model, attack)
        ran = self._array("ran")[i, :, k]
        return [int(seed) for seed in self.dataset.training_seed.values[ran]]

    @property
    def is_of_the_zoo(self) -> bool:
        """Whether every source was trained by a recipe of the zoo, where another training seed makes another of it."""
        infos = [model["info"] for model in self.manifest["models"] if model["name"] in self.sources]
        return all(info.get("source") in ZOO_SOURCES for info in infos)

    @property
    def single_trainings(self) -> list[str]:
        """The sources with only one training."""
        names = [model["name"] for model in self.manifest["models"]]
        return [name for name in self.sources if names.count(name) == 1]

    @property
    def is_uneven(self) -> bool:
        """Whether some sources have several trainings and others only one: no test covers that."""
        return 0 < len(self.single_trainings) < len(self.sources)

    def first_seed(self, model: str) -> int:
        """Return the smallest training seed that a model has."""
        return min(int(m["training_seed"]) for m in self.manifest["models"] if m["name"] == model)

    @property
    def attacks(self) -> list[str]:
        """The attacks' names, in the order of the suite."""
        return list(self._attacks)

    @cached_property
    def attack_records(self) -> dict[str, AttackRecord]:
        """The record of each attack, by its name."""
        return attack_records(self.manifest)

    def deterministic(self, attack: str) -> bool:
        """Whether all repeats of an attack are identical."""
        return self.attack_records[attack].deterministic

    def repeats(self, attack: str) -> int:
        """How many repeats an attack has; those of a deterministic one are all the same."""
        return int(self._array("repeats")[self._attacks.index(attack)])

    @property
    def is_spread(self) -> bool:
        """Whether the repeats are spread over the trainings: each training has its own draws."""
        return bool(self.manifest.get("spread", False))

    @property
    def own_repeats(self) -> dict[str, int]:
        """The attacks that have fewer repeats than others, and how many."""
        counts = {attack: self.repeats(attack) for attack in self.attacks}
        return {attack: count for attack, count in counts.items() if count < self.manifest["repeats"]}

    @cached_property
    def not_applicable(self) -> dict[str, dict[str, str]]:
        """Why an attack cannot run on a trained model, by the model's label and the attack; only where it cannot."""
        reasons = [model.get("not_applicable", {}) for model in self.manifest["models"]]
        return {label: reason for label, reason in zip(self.labels, reasons, strict=True) if reason}

    @property
    def failed(self) -> dict[str, dict[str, str]]:
        """Why an attack failed on a trained model, by the model's label and the attack; only where one did."""
        reasons = [model.get("failed", {}) for model in self.manifest["models"]]
        return {label: reason for label, reason in zip(self.labels, reasons, strict=True) if reason}

    def has_failed(self, model: str, attack: str) -> bool:
        """Whether an attack failed on a training of a model."""
        return any(attack in m.get("failed", {}) for m in self.manifest["models"] if m["name"] == model)

    def values(self, model: str, attack: str, name: str = "success") -> NDArray[Any]:
        """Return a variable of one model and attack, (training seeds that ran, repeats of the attack, images)."""
        i, k = self._place(model, attack)
        if name in self.attack_records[attack].extras and name not in self.dataset:
            name = "success"  # no model ran the attack, so nothing is left of this one either
        return np.asarray(self._array(name)[i, self._array("ran")[i, :, k], k, : self.repeats(attack)])

    def _place(self, model: str, attack: str) -> tuple[int, int]:
        """Return where a model and an attack stand on the axes, or raise `UsageError` for what the run has not."""
        if model not in self._models:
            raise unknown("model", model, self._models)
        if attack not in self._attacks:
            raise unknown("attack", attack, self._attacks)
        return self._models.index(model), self._attacks.index(attack)

    def _array(self, name: str) -> NDArray[Any]:
        """Return a variable as an array; xarray takes a tenth of a millisecond to find one by its labels."""
        if name not in self._arrays:
            self._arrays[name] = self.dataset[name].values
        return self._arrays[name]

    @cached_property
    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {}

    @cached_property
    def _models(self) -> list[str]:
        return [str(model) for model in self.dataset.model.values]

    @cached_property
    def _attacks(self) -> list[str]:
        return [str(attack) for attack in self.dataset.attack.values]

    def rate(self, model: str, attack: str) -> float:
        """Return the mean success rate over trainings and repeats, from whole counts; NaN where none were attacked."""
        success = self.values(model, attack)
        return float(np.count_nonzero(success)) / success.size if success.size else math.nan

    def rates(self) -> dict[str, dict[str, float]]:
        """Return the mean success rate over training seeds and repeats, by model and attack, from whole counts."""
        return {model: {attack: self.rate(model, attack) for attack in self.attacks} for model in self.models}

    @cached_property
    def common_attacks(self) -> list[str]:
        """The attacks that every trained model ran, deployed ones among them."""
        return self._run_by(self.models)

    @cached_property
    def source_attacks(self) -> list[str]:
        """The attacks that every training of the sources ran: what the tests are over."""
        return self._run_by(self.sources)

    def _run_by(self, names: Sequence[str]) -> list[str]:
        models = [model for model in self.manifest["models"] if model["name"] in names]
        missing = {attack for model in models for lack in LACK for attack in model.get(lack, {})}
        return [attack for attack in self.attacks if attack not in missing]

    @cached_property
    def indicator_attacks(self) -> list[str]:
        """The attacks that R sums over: those that every trained model ran, without references beside R."""
        return [attack for attack in self.common_attacks if self.attack_records[attack].in_indicator]

    @property
    def has_indicator(self) -> bool:
        """Whether the suite has an attack for R: one of references alone has none."""
        return any(record.in_indicator for record in self.attack_records.values())

    @property
    def on_all_images(self) -> bool:
        """Whether all images are attacked, and one that a model misclassifies has fallen."""
        return bool(self.manifest["images"].get("subset") == "all")

    def indicator_rates(self) -> dict[str, dict[str, float]]:
        """Return `rates` of the attacks that R sums over."""
        return {model: {attack: self.rate(model, attack) for attack in self.indicator_attacks} for model in self.models}

    @property
    def question(self) -> str:
        """What tells this run's outcomes from those of another question in the same directory."""
        return json_digest({"cells": self.manifest["cells"]})

    def cell_key(self, model: str, attack: str, training_seed: int | None = None, repeat: int = 0) -> str:
        """Return the key of a cell; without `training_seed` of the model's smallest one."""
        self._place(model, attack)
        seed = self.first_seed(model) if training_seed is None else training_seed
        wanted = (model, seed, attack)
        keys = {
            int(cell["repeat"]): str(cell["key"])
            for cell in self.manifest["cells"]
            if (cell["model"], cell["training_seed"], cell["attack"]) == wanted
        }
        counted = 0 if self.deterministic(attack) else repeat
        if 0 <= counted < len(keys):
            return keys[sorted(keys)[counted]]
        seeds = ", ".join(map(str, self.seeds(model, attack))) or "none"
        raise UsageError(
            f"the run has no repeat {repeat} of {attack} on {model}, training seed {seed}: it has the training seeds "
            f"{seeds} and {self.repeats(attack)} repeats"
        )


Key = tuple[str, int]
"""A model's name and training seed."""


class Twins(NamedTuple):
    """Two trained models that began from the same weights.

    Attributes
    ----------
    a, b : tuple of (str, int)
        The name and the training seed of each.
    correlation : float
        Of their trained weights.
    """

    a: Key
    b: Key
    correlation: float


def read_twins(manifest: dict[str, Any]) -> list[Twins]:
    """Return the twins that a manifest names; none for an older one, which does not say."""
    return [Twins(_key(pair["a"]), _key(pair["b"]), pair["correlation"]) for pair in manifest.get("twins", [])]


def _key(stored: Sequence[Any]) -> Key:
    name, seed = stored
    return str(name), int(seed)


def match_twins(
    twins: Sequence[Twins], a: str, b: str, seeds_a: Sequence[int], seeds_b: Sequence[int]
) -> list[int] | None:
    """Return where the twin of each of a's trainings is among b's.

    Parameters
    ----------
    twins : sequence of Twins
        Those of the run.
    a, b : str
        The names of two frameworks.
    seeds_a, seeds_b : sequence of int
        Their training seeds.

    Returns
    -------
    list of int or None
        A place in `seeds_b` for each of `seeds_a`; None unless each training of both has exactly one twin in the other.

    Examples
    --------
    >>> twins = [Twins(("x", 0), ("y", 5), 0.95), Twins(("y", 4), ("x", 1), 0.97)]
    >>> match_twins(twins, "x", "y", [0, 1], [4, 5])
    [1, 0]
    >>> match_twins(twins, "x", "y", [0, 1, 2], [4, 5, 6]) is None
    True
    """
    twin_pairs = {frozenset((pair.a, pair.b)) for pair in twins}
    each = [
        [position for position, other in enumerate(seeds_b) if {(a, seed), (b, other)} in twin_pairs]
        for seed in seeds_a
        if twin_pairs
    ]
    places = [partners[0] for partners in each if len(partners) == 1]
    return places if len(places) == len(seeds_a) and sorted(places) == list(range(len(seeds_b))) else None


def twin_mask(twins: Sequence[Twins], models: Sequence[Key]) -> NDArray[np.bool_]:
    """Return which pairs of models are twins, (models, models)."""
    mask = np.zeros((len(models), len(models)), np.bool_)
    for pair in twins:
        i, j = models.index(pair.a), models.index(pair.b)
        mask[i, j] = mask[j, i] = True
    return mask


COST_COLUMNS = ("model", "training_seed", "attack", "repeats", "images", "seconds", "queries", "peak_memory", "worker")


def costs(recorded: Recorded) -> pandas.DataFrame:
    """Return what each task that made cells of a run cost, one row per task and session, in the order of their ends.

    Returns
    -------
    pandas.DataFrame
        model, training_seed, attack, repeats (how many were finished), images (in each of them), seconds, queries (as
        the attack's definition counts them), peak_memory (of its process meanwhile, in bytes; on other systems than
        Linux since the process began), worker (empty for the process of the comparison itself). NaN for what is not
        known. Without rows if a run's costs were not logged.
    """
    import pandas

    keys = {cell["key"] for cell in recorded.manifest["cells"]}
    rows = [
        (
            *(cost.model, cost.training_seed, cost.attack, len(cost.cells), cost.images, cost.seconds),
            *(math.nan if value is None else value for value in (cost.queries, cost.peak_memory)),
            cost.worker or "",
        )
        for cost in recorded.run.costs()
        if keys.intersection(cost.cells)
    ]
    return pandas.DataFrame(rows, columns=list(COST_COLUMNS))
