"""The figures of a run, read from its records, and their summary as JSON types."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas
from numpy.typing import NDArray

from ..errors import SealError, UsageError, unknown
from ..files import json_digest
from ..records.answers import Checked, Contested
from ..records.attack import NORMS, AttackRecord
from ..records.manifest import attack_records
from ..records.store import Run
from ..sealed import Hdf5
from .deployments import DEPLOYED_MARGIN, compare_deployments, describe_deployments, judge_control
from .figures import Distances, ExactPixel, Trainings, root_mean_std
from .followups import Conditioning, as_dataset, average_blocks
from .indicator import IndicatorRange, find_published_rates, indicator_ranges, robustness_indicator
from .outcomes import Outcomes, split_variance
from .planning import plan
from .significance import ALPHA, Level, has_framework_level, of_distances, run_tests, select_deciding
from .statistics import NO_EVIDENCE, POWER, Interval, bootstrap_interval, wilson_interval
from .twins import Key, Twins, read_key
from .verdicts import Verdict, decide, tabulate_equivalence

if TYPE_CHECKING:
    import xarray

LACK = ("not_applicable", "failed")  # what the manifest has of a model, why it did not run an attack

COST_COLUMNS = ("model", "training_seed", "attack", "repeats", "images", "seconds", "queries", "peak_memory", "worker")


class Results:
    """The outcomes of a comparison and the figures that are read from them.

    Three accessors group the figures of one kind of attack or question: `exact_pixel`, `distances`, `trainings`.

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
        deployed = {read_key(entry["model"]) for entry in self.manifest.get("deployments", [])}
        return list(dict.fromkeys(key[0] for key in self.keys if key not in deployed))

    @cached_property
    def labels(self) -> list[str]:
        """The trained models: ``torch``, or ``torch/3`` where there are several trainings."""
        return [f"{name}/{seed}" if self.has_several_trainings else name for name, seed in self.keys]

    @cached_property
    def keys(self) -> list[Key]:
        """The trained models' names and training seeds, in the order of the labels."""
        return [read_key((model["name"], model["training_seed"])) for model in self.manifest["models"]]

    @cached_property
    def twins(self) -> list[Twins]:
        """The pairs of trained models that began from the same weights."""
        pairs = self.manifest.get("twins", [])
        return [Twins(read_key(pair["a"]), read_key(pair["b"]), pair["correlation"]) for pair in pairs]

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
        seeds = self.dataset.training_seed.values[self._arrays["ran"][i, :, k]]
        return [int(seed) for seed in seeds]

    @property
    def single_trainings(self) -> list[str]:
        """The sources with only one training."""
        counts = Counter(name for name, _ in self.keys)
        return [name for name in self.sources if counts[name] == 1]

    @property
    def is_uneven(self) -> bool:
        """Whether some sources have several trainings and others only one: no test covers that."""
        return 0 < len(self.single_trainings) < len(self.sources)

    def first_seed(self, model: str) -> int:
        """Return the smallest training seed that a model has."""
        return min(seed for name, seed in self.keys if name == model)

    @cached_property
    def attacks(self) -> list[str]:
        """The attacks' names, in the order of the suite."""
        return [str(attack) for attack in self.dataset.attack.values]

    @cached_property
    def attack_records(self) -> dict[str, AttackRecord]:
        """The record of each attack, by its name."""
        return attack_records(self.manifest)

    def deterministic(self, attack: str) -> bool:
        """Whether all repeats of an attack are identical."""
        return self.attack_records[attack].deterministic

    def repeats(self, attack: str) -> int:
        """How many repeats an attack has; those of a deterministic one are all the same."""
        return int(self._arrays["repeats"][self.attacks.index(attack)])

    @property
    def is_spread(self) -> bool:
        """Whether the repeats are spread over the trainings: each training has its own draws."""
        return bool(self.manifest.get("spread", False))

    @property
    def own_repeats(self) -> dict[str, int]:
        """The attacks that have fewer repeats than others, and how many."""
        counts = {attack: self.repeats(attack) for attack in self.attacks}
        return {attack: count for attack, count in counts.items() if count < self.manifest["repeats"]}

    @property
    def not_applicable(self) -> dict[str, dict[str, str]]:
        """Why an attack cannot run on a trained model, by the model's label and the attack; only where it cannot."""
        return self._reasons("not_applicable")

    @property
    def failed(self) -> dict[str, dict[str, str]]:
        """Why an attack failed on a trained model, by the model's label and the attack; only where one did."""
        return self._reasons("failed")

    def _reasons(self, lack: str) -> dict[str, dict[str, str]]:
        pairs = zip(self.labels, self.manifest["models"], strict=True)
        return {label: model[lack] for label, model in pairs if model.get(lack)}

    def values(self, model: str, attack: str, name: str = "success") -> NDArray[Any]:
        """Return a variable of one model and attack, (training seeds that ran, repeats of the attack, images)."""
        i, k = self._place(model, attack)
        if name in self.attack_records[attack].extras and name not in self._arrays:
            name = "success"  # no model ran the attack, so nothing is left of this one either
        return np.asarray(self._arrays[name][i, self._arrays["ran"][i, :, k], k, : self.repeats(attack)])

    def _place(self, model: str, attack: str) -> tuple[int, int]:
        """Return where a model and an attack stand on the axes, or raise `UsageError` for what the run has not."""
        if model not in self.models:
            raise unknown("model", model, self.models)
        if attack not in self.attacks:
            raise unknown("attack", attack, self.attacks)
        return self.models.index(model), self.attacks.index(attack)

    @cached_property
    def _arrays(self) -> dict[str, NDArray[Any]]:
        """The variables as arrays; xarray takes a tenth of a millisecond to find one by its labels."""
        return {str(name): variable.values for name, variable in self.dataset.data_vars.items()}

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
        cells = [
            (int(cell["repeat"]), str(cell["key"]))
            for cell in self.manifest["cells"]
            if (cell["model"], cell["training_seed"], cell["attack"]) == (model, seed, attack)
        ]
        position = 0 if self.deterministic(attack) else repeat
        if 0 <= position < len(cells):
            return sorted(cells)[position][1]
        seeds = ", ".join(map(str, self.seeds(model, attack))) or "none"
        raise UsageError(
            f"the run has no repeat {repeat} of {attack} on {model}, training seed {seed}: it has the training seeds "
            f"{seeds} and {self.repeats(attack)} repeats"
        )

    def costs(self) -> pandas.DataFrame:
        """Return what each task of the run cost, one row per model, attack and session; see `Evaluation.costs`."""
        keys = {cell["key"] for cell in self.manifest["cells"]}
        rows = [
            {
                "model": cost.model,
                "training_seed": cost.training_seed,
                "attack": cost.attack,
                "repeats": len(cost.cells),
                "images": cost.images,
                "seconds": cost.seconds,
                "queries": math.nan if cost.queries is None else cost.queries,
                "peak_memory": math.nan if cost.peak_memory is None else cost.peak_memory,
                "worker": cost.worker or "",
            }
            for cost in self.run.costs()
            if keys.intersection(cost.cells)
        ]
        return pandas.DataFrame(rows, columns=list(COST_COLUMNS))

    # figures of one kind ----------------------------------------------------------------------------------------

    @cached_property
    def exact_pixel(self) -> ExactPixel:
        """Expected results of exact single pixel, over all draws of positions."""
        return ExactPixel(self)

    @cached_property
    def distances(self) -> Distances:
        """Distances between adversarial and clean images."""
        return Distances(self)

    @cached_property
    def trainings(self) -> Trainings:
        """Variation between trainings of one framework."""
        return Trainings(self)

    @property
    def failed_starts(self) -> list[str]:
        """The attacks that had no starting point on some images, where failure says nothing about robustness."""
        return [
            attack
            for attack, record in self.attack_records.items()
            if record.start and any((self.values(model, attack, record.start) < 1).any() for model in self.models)
        ]

    # rates -----------------------------------------------------------------------------------------------------

    @property
    def clean_accuracy(self) -> dict[str, float]:
        """Each model's accuracy on all images that were passed, the mean over its training seeds."""
        return {
            name: float(np.mean([m["clean_accuracy"] for m in self.manifest["models"] if m["name"] == name]))
            for name in self.models
        }

    @property
    def correct_by_all(self) -> float:
        """The share of all images that were passed that every model classifies correctly."""
        return float(self.manifest["images"]["correct_by_all"])

    @cached_property
    def success_rate(self) -> xarray.DataArray:
        """The share of images fooled, over (model, training_seed, attack, repeat); NaN if none were attacked."""
        has_run = self.dataset.ran & (self.dataset.repeat < self.dataset.repeats)
        rate: xarray.DataArray = self.dataset.success.mean("image").where(has_run)
        return rate.rename("success_rate")

    @property
    def epsilon_curve(self) -> xarray.DataArray:
        """The success rate at each ε, over (model, training_seed, attack, epsilon); NaN for attacks without ε."""
        curve: xarray.DataArray = self.dataset.epsilon_curve
        return curve

    def interval(self, model: str, attack: str, *, training_seed: int | None = None) -> Interval:
        """Return the 95 % interval of a model's mean success rate, over images."""
        success = self.values(model, attack)
        if training_seed is not None:
            self.cell_key(model, attack, training_seed)  # or there is none
            success = success[[self.seeds(model, attack).index(training_seed)]]
        if not success.size:
            return NO_EVIDENCE
        if self.deterministic(attack) and len(success) == 1:
            return wilson_interval(int(np.count_nonzero(success[0, 0])), success.shape[-1])
        cell = model, attack, training_seed
        if cell not in self._intervals:
            self._intervals[cell] = bootstrap_interval(success.mean(axis=(0, 1)))
        return self._intervals[cell]

    @cached_property
    def _intervals(self) -> dict[tuple[str, str, int | None], Interval]:
        """Return the intervals that were computed: every report shows them, and resampling takes its time."""
        return {}

    def repeat_std(self, model: str, attack: str) -> float:
        """Return the standard deviation of the success rate over repeats, within a training (root mean square)."""
        return 0.0 if self.deterministic(attack) else root_mean_std(self.values(model, attack).mean(axis=2))

    def rounded_rate(self, model: str, attack: str) -> float:
        """Return a model's success rate once adversarial images are saved in 8 bits, NaN if it was not measured."""
        entries = [entry.get("rounded", {}) for entry in self.manifest["models"] if entry["name"] == model]
        rates = [entry[attack] for entry in entries if attack in entry]
        return float(np.mean(rates)) if rates else math.nan

    @cached_property
    def same_weights(self) -> dict[str, Any] | None:
        """How closely frameworks agree on the same weights, None if the models are not from `same_weights`."""
        return judge_control(self)

    @cached_property
    def paper(self) -> dict[str, dict[str, float]]:
        """The success rates that Guo et al. published for this network, by framework and attack."""
        return find_published_rates(self.manifest)

    # R -----------------------------------------------------------------------------------------------------------

    @property
    def indicator(self) -> dict[str, float]:
        """R(m) by model, from the means over training seeds and repeats; see `robustcmp.robustness_indicator`."""
        if self.same_weights or not self.has_indicator:
            return {}
        if not self.indicator_attacks:
            return dict.fromkeys(self.models, math.nan)
        return robustness_indicator(self.indicator_rates())

    @cached_property
    def indicator_ranges(self) -> dict[str, IndicatorRange]:
        """The bootstrap range of R over images and trainings, and the rank shares, by model."""
        counted = [self._outcomes(attack, self.models) for attack in self.indicator_attacks]
        return indicator_ranges(counted) if counted else {}

    # is it real? -------------------------------------------------------------------------------------------------

    @cached_property
    def outcomes(self) -> list[Outcomes]:
        """The outcomes of each attack that every source ran, for `robustcmp.analysis.significance`; of the sources."""
        return [self._outcomes(attack, self.sources) for attack in self.source_attacks]

    def _outcomes(self, attack: str, models: Sequence[str]) -> Outcomes:
        def of_models(name: str) -> dict[str, NDArray[Any]]:
            return {model: self.values(model, attack, name) for model in models}

        record = self.attack_records[attack]
        expected = self.exact_pixel.probabilities(attack)
        return Outcomes(
            attack,
            record.deterministic,
            of_models("success"),
            {model: self.seeds(model, attack) for model in models},
            expected and {model: expected[model] for model in models},
            of_models(record.norm) if record.compares_distances else {},
            NORMS[record.norm] if record.compares_distances else "",
            self.distances.not_compared(attack, models),
            self.twins,
        )

    @cached_property
    def _tests(self) -> dict[Level | None, pandas.DataFrame]:
        return {}

    def tests(self, level: Level | None = None) -> pandas.DataFrame:
        """Test every attack, for all `sources` jointly and for every pair, on two levels that are never mixed."""
        if level not in self._tests:
            self._tests[level] = run_tests(self.outcomes, level)
        return self._tests[level].copy()

    @property
    def level(self) -> Level:
        """The level of a report: ``"frameworks"`` if there are several `sources`, each with several trainings."""
        return "frameworks" if has_framework_level(self.outcomes) else "models"

    @cached_property
    def within_noise(self) -> list[str]:
        """The attacks whose joint test is not significant, so that P may rank chance differences of the sources."""
        if self.is_uneven or not self.compares_sources:
            return []
        joint = select_deciding(self.tests(self.level))
        joint = joint[~of_distances(joint)]
        return [str(attack) for attack in joint.attack[~(joint.p_adjusted < ALPHA)]]

    def equivalence(self, margin: float, level: Level | None = None) -> pandas.DataFrame:
        """Test whether sources differ by less than a margin: two one-sided tests (Schuirmann 1987)."""
        return tabulate_equivalence(self.outcomes, level or self.level, margin)

    @property
    def has_deployments(self) -> bool:
        """Whether deployed networks stand beside the trained models that they were converted from."""
        return bool(self.manifest.get("deployments"))

    @property
    def compares_sources(self) -> bool:
        """Whether the sources are what is compared; not where one of them alone stands beside its deployed networks."""
        return len(self.sources) > 1 or not self.has_deployments

    def deployments(self, margin: float = DEPLOYED_MARGIN) -> pandas.DataFrame:
        """Return how much easier each deployed network is to fool than the model that it was converted from."""
        return compare_deployments(self, margin)

    @property
    def deployed_networks(self) -> pandas.DataFrame:
        """What each deployed network is, beside its source; see `analysis.deployments.describe_deployments`."""
        return describe_deployments(self)

    def variance(self) -> pandas.DataFrame:
        """Return the variance components of a trained model's success rate, one row per attack."""
        return split_variance(self.outcomes)

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """The answer for each attack, about the `sources`; see `robustcmp.analysis.verdicts.Verdict`."""
        return decide(self)

    # the next comparison -----------------------------------------------------------------------------------------

    def plan(
        self,
        difference: float,
        *,
        power: float = POWER,
        attack: str | None = None,
        training_seconds: float = math.nan,
    ) -> pandas.DataFrame:
        """Plan the comparison that detects a difference between frameworks, with this run as the pilot."""
        return plan(self, difference, power, attack, training_seconds)

    # checks, transfer, images --------------------------------------------------------------------------------------

    @cached_property
    def checked(self) -> Checked | None:
        """The health checks and PGD's success, None if they have not been run."""
        stored = self.run.read_answer("checks", self.question, Checked.from_json)
        return None if stored is None else self.note_expected(stored)

    def note_expected(self, checked: Checked) -> Checked:
        """Return checks with those only noted that fail by the nature of an attack's settings."""
        return checked.note_expected(
            {check for record in self.attack_records.values() for check in record.expected_failures}
        )

    @cached_property
    def transferred(self) -> xarray.Dataset | None:
        """The result of `Evaluation.transfer`, None if it has not been run."""

        def read(stored: dict[str, Any]) -> xarray.Dataset:
            counts = np.array(stored["counts"])
            attacks = stored["attacks"]
            shape = (len(self.labels), len(self.labels), len(attacks), 3)
            if counts.dtype != np.int64 or counts.shape != shape or (counts < 0).any():
                raise SealError(f"counts should be int64 {shape}, received {counts.dtype} {counts.shape}")
            self._check_attacks(attacks)
            return as_dataset(counts, self.labels, attacks)

        return self.run.read_answer("transfer", self.question, read)

    @property
    def transfer_blocks(self) -> pandas.DataFrame:
        """The mean transfer between trainings of one framework and between frameworks, of the sources."""
        if self.transferred is None:
            raise not_stored("transfer")
        return average_blocks(self, self.transferred)

    @cached_property
    def conditioned(self) -> Conditioning | None:
        """Rates on the subsets of fewer models, None if `Evaluation.run_conditioning` has not been run."""

        stored = self.read_contested()
        return None if stored is None else Conditioning(self, stored)

    def read_contested(self) -> Contested | None:
        """Return what is stored of contested images, None if there is nothing of this question."""

        def read(file: Hdf5) -> Contested:
            contested = Contested.from_file(file, *sizes)
            self._check_attacks(contested.attacks)
            return contested

        sizes = len(self.labels), len(self.attacks), self.manifest["images"]["of"]
        return self.run.read_arrays("contested", self.question, read, Contested.most_bytes(*sizes))

    def _check_attacks(self, attacks: list[str]) -> None:
        """Raise `SealError` for attacks that the run has not, or twice."""
        if len({*attacks}) < len(attacks) or not {*attacks} <= {*self.attacks}:
            raise SealError(f"expected attacks among {', '.join(self.attacks)}, received {attacks}")

    def conditioning(self) -> pandas.DataFrame:
        """Return the success rates against the number of models whose correct images are attacked."""
        if self.conditioned is None:
            raise not_stored("conditioning")
        return self.conditioned.curve()

    def adversarials(
        self, model: str, attack: str, *, training_seed: int | None = None, repeat: int = 0
    ) -> NDArray[np.float32]:
        """Return the adversarial images (N, H, W, C) of one cell, the clean images where the attack failed."""
        return self.run.adversarials(self.cell_key(model, attack, training_seed, repeat))

    @cached_property
    def clean(self) -> NDArray[np.float32] | None:
        """The clean images (N, H, W, C) that were attacked, in [0, 1]; None if the run has no images."""
        return self.run.read_clean(self.question)

    def has_adversarials(self, model: str, attack: str) -> bool:
        """Whether the first cell of a model and an attack was stored with its adversarial images."""
        if self.first_seed(model) not in self.seeds(model, attack):
            return False
        return self.run.has_images(self.cell_key(model, attack))


def open_results(directory: str | os.PathLike[str]) -> Results:
    """Read the results of a finished run."""
    run = Run.open(directory)
    return Results(run, *run.read_results())


def not_stored(what: str) -> UsageError:
    """Return the error for what an opened run does not have and its models would be needed for."""
    return UsageError(
        f"this run was stored without {what}, and its models are not loaded. Call robustcmp.evaluate with the same "
        f"models and out, then run_{what}() on the result."
    )
