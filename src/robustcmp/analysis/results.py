"""The figures of a run, read from its records, and their summary as JSON types."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import SealError, UsageError
from ..records.answers import Checked, Contested
from ..records.attack import NORMS
from ..records.store import Run
from ..sealed import Hdf5
from .deployments import DEPLOYED_MARGIN, compare_deployments, control, describe_deployments
from .distances import Distances, ExactPixel, Starts
from .followups import Conditioning, as_dataset, average_blocks
from .indicator import IndicatorRange, find_published_rates, indicator_ranges, relative, robustness_indicator, variants
from .outcomes import Outcomes, split_variance
from .planning import plan
from .recorded import Recorded, costs
from .significance import ALPHA, Level, has_framework_level, of_distances, run_tests, select_deciding
from .statistics import NO_EVIDENCE, Interval, bootstrap_interval, wilson_interval
from .statistics.power import POWER
from .trainings import Trainings, root_mean_std
from .verdicts import Verdict, decide, tabulate_equivalence

if TYPE_CHECKING:
    import pandas
    import xarray

DISTANCE_QUANTILES = (0.5, 0.25, 0.1)


class Results(Recorded):
    """The outcomes of a comparison and the figures that are read from them.

    Four accessors group the figures of one kind of attack or question: `exact_pixel`, `starts`, `distances`,
    `trainings`.
    """

    @cached_property
    def exact_pixel(self) -> ExactPixel:
        """Expected results of exact single pixel, over all draws of positions."""
        return ExactPixel(self)

    @cached_property
    def starts(self) -> Starts:
        """Attacks that need a starting point, such as boundary."""
        return Starts(self)

    @cached_property
    def distances(self) -> Distances:
        """Distances between adversarial and clean images."""
        return Distances(self)

    @cached_property
    def trainings(self) -> Trainings:
        """Variation between trainings of one framework."""
        return Trainings(self, self.exact_pixel)

    # rates -----------------------------------------------------------------------------------------------------

    @property
    def clean_accuracy(self) -> dict[str, float]:
        """Each model's accuracy on all images that were passed, the mean over its training seeds."""
        return {
            name: float(np.mean([m["clean_accuracy"] for m in self.manifest["models"] if m["name"] == name]))
            for name in self.models
        }

    @property
    def poor_models(self) -> dict[str, float]:
        """The accuracy of models that classify less than half as many images as the best one does."""
        accuracies = self.clean_accuracy
        return {name: accuracy for name, accuracy in accuracies.items() if accuracy < max(accuracies.values()) / 2}

    @property
    def at_chance(self) -> dict[str, float]:
        """The accuracy of models that do no better than who always answers with the most frequent class."""
        share, count = self.manifest["images"].get("most_frequent"), self.manifest["images"]["of"]
        if share is None:
            return {}
        most = min(share + 2 * math.sqrt(share * (1 - share) / count), 1 - 1 / count)
        return {name: accuracy for name, accuracy in self.clean_accuracy.items() if accuracy <= most}

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

    @cached_property
    def same_weights(self) -> dict[str, Any] | None:
        """How closely frameworks agree on the same weights, None if the models are not from `same_weights`."""
        return control(self)

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

    @cached_property
    def indicator_variants(self) -> dict[str, dict[str, float]]:
        """Variants of R: without each attack and each model in turn, and from distances, by variant and model."""
        indicators = variants(self.indicator_rates())
        for q in DISTANCE_QUANTILES:
            total, counted = np.zeros(len(self.models)), []
            for attack in self.indicator_attacks:
                norm = self.attack_records[attack].norm
                distances = np.array([self.distances.quantile(model, attack, norm, q) for model in self.models])
                if np.isfinite(distances).all():
                    total = total + relative(-distances)
                    counted.append(attack)
            if counted:
                name = f"from distances at {q:.0%} of the images ({', '.join(counted)})"
                indicators[name] = dict(zip(self.models, total.tolist(), strict=True))
        return indicators

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
        return bool(self.manifest.get("deployments")) or bool(self.not_asked)

    @cached_property
    def not_asked(self) -> dict[str, str]:
        """Why deployed networks were converted and neither asked nor attacked, by their names."""
        return {entry["model"][0]: entry["not_applicable"] for entry in self.manifest.get("not_asked", [])}

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

    def costs(self) -> pandas.DataFrame:
        """Return what each task of the run cost, one row per model, attack and session."""
        return costs(self)

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
            counts, attacks = np.array(stored["counts"]), stored["attacks"]
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

    def to_json(self) -> dict[str, Any]:
        """Return the summary that ``python -m robustcmp.eval --json`` prints; undefined values are None."""
        return as_json(self)


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


def as_json(results: Results) -> dict[str, Any]:
    """Return what `Results.to_json` promises."""
    about, images = results.manifest["about"], results.manifest["images"]
    rates = results.rates()
    summary = {
        "model": about.get("model"),
        "dataset": about.get("dataset"),
        "recipe": about.get("recipe"),
        "training_seeds": results.training_seeds,
        "suite": results.manifest["suite"]["name"],
        "images": images["used"],
        "repeats": results.manifest["repeats"],
        "seed": results.manifest["seed"],
        "frameworks": results.models,
        "success_rate": {m: {a: _null(rate) for a, rate in of_model.items()} for m, of_model in rates.items()},
        "success_std": {m: {a: _null(results.repeat_std(m, a)) for a in results.attacks} for m in results.models},
        "indicator": {model: _null(r) for model, r in results.indicator.items()} or None,
        "clean_accuracy": results.clean_accuracy,
        "correct_by_all": results.correct_by_all,
        "out": None if results.run.temporary else str(results.run.directory),
        **_uncertainty(results),
        "versions": results.manifest["environment"]["versions"]
        | {model["framework"]: model["framework_version"] for model in results.manifest["models"]},
    }
    parts = {
        "own_repeats": results.own_repeats,
        "not_applicable": results.not_applicable,
        "failed": results.failed,
        "same_weights": results.same_weights,
        "twins": [pair._asdict() for pair in results.twins],
    }
    summary |= {name: part for name, part in parts.items() if part}
    if results.on_all_images:
        summary["subset"] = "all"
    if results.checked:
        summary["checks"] = results.checked.to_json()["checks"]
    if results.has_deployments:
        summary["sources"] = results.sources
        summary["deployments"] = _deployments(results)
    return summary


def _deployments(results: Results) -> dict[str, Any]:
    """Return what is known of deployed networks as JSON types."""
    networks, differences = (
        [{name: None if value != value else value for name, value in row.items()} for row in frame.to_dict("records")]
        for frame in (results.deployed_networks, results.deployments())
    )
    return {"networks": networks, "differences": differences}


def _uncertainty(results: Results) -> dict[str, Any]:
    """Return verdicts, intervals, p values and ranges of R as JSON types."""
    tests = [] if results.same_weights or not results.outcomes else results.tests(results.level).to_dict("records")
    ranges = results.indicator_ranges if len(results.models) > 1 and not results.same_weights else {}
    uncertainty: dict[str, Any] = {
        "verdicts": [_finite(asdict(verdict)) for verdict in results.verdicts],
        "intervals": {m: {a: _ends(results.interval(m, a)) for a in results.attacks} for m in results.models},
        "tests": [_finite({str(name): value for name, value in test.items()}) for test in tests],
        "indicator_ranges": {m: {"low": r.low, "high": r.high, "ranks": list(r.ranks)} for m, r in ranges.items()},
    }
    if results.has_several_trainings:
        uncertainty["training_intervals"] = {
            model: {attack: _ends(results.trainings.interval(model, attack)) for attack in results.attacks}
            for model in results.models
        }
    return uncertainty


def _null(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _ends(interval: Interval) -> list[float | None]:
    return [_null(end) for end in interval]


def _finite(said: dict[str, Any]) -> dict[str, Any]:
    return {name: _null(value) if isinstance(value, float) else value for name, value in said.items()}
