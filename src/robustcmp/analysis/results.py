"""The figures of a run, read from its records."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import SealError, UsageError
from ..records.checks import Checked
from ..records.contested import Contested
from ..sealed import Hdf5
from . import paper
from .as_json import as_json
from .conditioning import PICKS, Conditioning
from .control import control
from .costs import costs
from .deployments import DEPLOYED_MARGIN, compared, measured
from .distances import Distances
from .equivalence import Compared, equivalence
from .exact_pixel import ExactPixel
from .indicator import relative, robustness_indicator, variants
from .indicator_ranges import IndicatorRange, indicator_ranges
from .margins import Margins
from .outcomes import Outcomes
from .planning import plan
from .recorded import Recorded
from .significance import ALPHA, Level, deciding, has_framework_level, of_distances, run_tests
from .starts import Starts
from .statistics import NO_EVIDENCE, Interval, Prediction, bootstrap_interval, mantel, wilson_interval
from .statistics.power import POWER
from .trainings import Trainings, root_mean_std
from .transfer import as_dataset, blocks
from .twins import twin_mask
from .variance import variance
from .verdicts import Verdict, verdicts

if TYPE_CHECKING:
    import pandas
    import xarray

DISTANCE_QUANTILES = (0.5, 0.25, 0.1)
OLD_NAMES = {
    "common_draws": "exact_pixel.common_draws",
    "distance_quantile": "distances.quantile",
    "exact": "exact_pixel.attacks",
    "expected_success_rate": "exact_pixel.success_rate",
    "expected_success_sd": "exact_pixel.success_sd",
    "failed_starts": "starts.failed",
    "has_start": "starts.needed_by",
    "seed_std": "trainings.std",
    "start_share": "starts.share",
    "success_within": "distances.success_within",
    "training_interval": "trainings.interval",
    "wider_interval": "trainings.difference_interval",
}
"""What has another name since this release; the next one drops the old names."""


class Results(Recorded):
    """The outcomes of a comparison and the figures that are read from them.

    Five accessors group the figures of one kind of attack or question: `exact_pixel`, `starts`, `distances`,
    `margins`, `trainings`.
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
    def margins(self) -> Margins:
        """Clean margins, and success rates with the margin held fixed."""
        return Margins(self)

    @cached_property
    def trainings(self) -> Trainings:
        """Variation between trainings of one framework."""
        return Trainings(self, self.exact_pixel)

    def __getattr__(self, name: str) -> Any:
        if name not in OLD_NAMES:  # as Python says it, also of what failed within a property
            return self.__getattribute__(name)
        home, _, member = OLD_NAMES[name].partition(".")
        warnings.warn(f"ev.{name} is now ev.{OLD_NAMES[name]}", DeprecationWarning, stacklevel=2)
        return getattr(getattr(self, home), member)

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
        """The accuracy of models that classify less than half as many images as the best one does.

        Such a model is probably not asked as it was trained (bounds, preprocessing), and its rates say nothing.
        """
        accuracies = self.clean_accuracy
        return {name: accuracy for name, accuracy in accuracies.items() if accuracy < max(accuracies.values()) / 2}

    @property
    def at_chance(self) -> dict[str, float]:
        """The accuracy of models that do no better than who always answers with the most frequent class.

        That is within two standard errors of this class's share, with at least one mistake. Their rates say nothing
        either. Empty for runs from before this share was stored.
        """
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
        there = self.dataset.ran & (self.dataset.repeat < self.dataset.repeats)
        rate: xarray.DataArray = self.dataset.success.mean("image").where(there)
        return rate.rename("success_rate")

    @property
    def epsilon_curve(self) -> xarray.DataArray:
        """The success rate at each ε, over (model, training_seed, attack, epsilon); NaN for attacks without ε."""
        curve: xarray.DataArray = self.dataset.epsilon_curve
        return curve

    def interval(self, model: str, attack: str, *, training_seed: int | None = None) -> Interval:
        """Return the 95 % interval of a model's mean success rate, over images.

        Wilson's interval for one training under a deterministic attack, else the percentile bootstrap of the images'
        means over repeats and, without `training_seed`, over all trainings.

        Raises
        ------
        UsageError
            The training does not exist.
        """
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
        """Return the standard deviation of the success rate over repeats, within a training (root mean square).

        0 for a deterministic attack, NaN for one repeat.
        """
        return 0.0 if self.deterministic(attack) else root_mean_std(self.values(model, attack).mean(axis=2))

    @cached_property
    def same_weights(self) -> dict[str, Any] | None:
        """How closely frameworks agree on the same weights, None if the models are not from `same_weights`.

        See `robustcmp.analysis.control.control`.
        """
        return control(self)

    @cached_property
    def paper(self) -> dict[str, dict[str, float]]:
        """The success rates that Guo et al. published for this network, by framework and attack.

        Only for attacks with the paper's settings, on the paper's dataset for the network; empty for other runs.
        """
        return paper.beside(self.manifest)

    # R -----------------------------------------------------------------------------------------------------------

    @property
    def indicator(self) -> dict[str, float]:
        """R(m) by model, from the means over training seeds and repeats; see `robustcmp.robustness_indicator`.

        Uses the attacks that every trained model ran, without references beside R; NaN if there are none. Empty for a
        suite of references alone, and for the same-weights control, which has nothing to rank.
        """
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
        """Variants of R: without each attack and each model in turn, and from distances, by variant and model.

        From distances: P of −distance at the quantiles of 50, 25 and 10 % of the images, in each attack's own norm,
        of the attacks for which it is finite for every model, which the variant names; a shorter distance is less
        robust. A quantile that no attack has is left out.
        """
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

        record, expected = self.attack_records[attack], self.exact_pixel.probabilities(attack)
        return Outcomes(
            attack,
            record.deterministic,
            of_models("success"),
            {model: self.seeds(model, attack) for model in models},
            None if expected is None else {model: expected[model] for model in models},
            twins=self.twins,
            not_compared=self.distances.not_compared(attack, models),
            **({record.norm: of_models(record.norm)} if record.compares_distances else {}),
        )

    @cached_property
    def _tests(self) -> dict[Level | None, pandas.DataFrame]:
        return {}

    def tests(self, level: Level | None = None) -> pandas.DataFrame:
        """Test every attack, for all `sources` jointly and for every pair, on two levels that are never mixed.

        Deployed networks are in no test here, and in no family of Holm's: `deployments` compares each with its source.

        *Models*: is this trained network easier to fool than that one, on images like these? Cochran's Q and McNemar
        for a deterministic attack, permutations and sign flips of the images' means over repeats for a random one,
        Friedman and signs for distances, where an attack is about them. *Frameworks*: are networks trained in this
        framework easier to fool? Tests of Brown and Forsythe, and Welch's t, of success rates and median distances; the
        training run is the unit of analysis, and frameworks may vary unequally. F, and permutations of the trainings,
        stand beside them. Frameworks whose trainings are `twins` of each other are tested by the paired t instead of
        Welch's.

        Parameters
        ----------
        level : str, optional
            ``"models"`` or ``"frameworks"`` (default: every level that the data allow).

        Returns
        -------
        pandas.DataFrame
            One row per test: level, test, a, b, attack, n, statistic, p, p_adjusted, effect, low, high,
            p_westfall_young; see `robustcmp.analysis.significance.run_tests`. Empty for one model.

        Raises
        ------
        UsageError
            The level is unknown, or frameworks cannot be compared because they have one training each.
        """
        if level not in self._tests:
            self._tests[level] = run_tests(self.outcomes, level)
        return self._tests[level].copy()

    @property
    def level(self) -> Level:
        """The level of a report: ``"frameworks"`` if there are several `sources`, each with several trainings.

        ``"models"`` otherwise.
        """
        return "frameworks" if has_framework_level(self.outcomes) else "models"

    @cached_property
    def within_noise(self) -> list[str]:
        """The attacks whose joint test is not significant, so that P may rank chance differences of the sources.

        Empty if one framework has several trainings and another only one, because no test covers that comparison, and
        where deployed networks are compared with one source alone.
        """
        if self.is_uneven or not self.compares_sources:
            return []
        joint = deciding(self.tests(self.level))
        joint = joint[~of_distances(joint)]
        return [str(attack) for attack in joint.attack[~(joint.p_adjusted < ALPHA)]]

    def equivalence(
        self, margin: float, level: Level | None = None, of: Compared = "success rates"
    ) -> pandas.DataFrame:
        """Test whether sources differ by less than a margin: two one-sided tests (Schuirmann 1987).

        A difference that is not significant may still be large. This asks for evidence that it is small.

        Parameters
        ----------
        margin : float
            In the unit of what is compared, chosen before the results are known: 0.02 is two points of success rates,
            of which at most 1 is a margin.
        level : str, optional
            ``"models"`` or ``"frameworks"`` (default: that of `verdicts`). Frameworks whose trainings are `twins` are
            compared pair by pair.
        of : str, default "success rates"
            Or ``"distances"``: the median distances of frameworks' trainings, under attacks that are about distances
            and whose searches have converged.

        Returns
        -------
        pandas.DataFrame
            One row per pair and attack, with the 90 % interval of the difference, and one row for all pairs of an
            attack: level, a, b, attack, n, difference, low, high, p, equivalent; see
            `robustcmp.analysis.equivalence.equivalence`.

        Raises
        ------
        UsageError
            The margin is not above 0 or, of success rates, above 1; `of` is neither of the two; or frameworks have one
            training each. With distances: models are compared, or no attack has any to compare.
        """
        return equivalence(self.outcomes, level or self.level, margin, of)

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
        """Return how much easier each deployed network is to fool than the model that it was converted from.

        Parameters
        ----------
        margin : float, default 0.02
            Of equivalence, in the unit of the rates, chosen before the results are known.

        Returns
        -------
        pandas.DataFrame
            A row per deployment and attack; see `robustcmp.analysis.deployments.compared`. `deployed_networks` has
            their sizes, times, and how alike they answer.

        Raises
        ------
        UsageError
            The margin is not above 0, or above 1.
        """
        return compared(self, margin)

    @property
    def deployed_networks(self) -> pandas.DataFrame:
        """What each deployed network is, beside its source; see `robustcmp.analysis.deployments.measured`."""
        return measured(self)

    def variance(self) -> pandas.DataFrame:
        """Return the variance components of a trained model's success rate, one row per attack.

        Over the `sources`: a deployed network is no further training, and would hide how far trainings differ.
        Columns: framework, training_run, repeat, image, share, low, high; see `robustcmp.analysis.variance.variance`.

        Raises
        ------
        UsageError
            Frameworks have one training each, or different numbers of trainings.
        """
        return variance(self.outcomes)

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """The answer for each attack, about the `sources`; see `robustcmp.analysis.verdicts.Verdict`.

        Empty for a single source and for the same-weights control. `deployments` answers about deployed networks.
        """
        return verdicts(self)

    # the next comparison -----------------------------------------------------------------------------------------

    def costs(self) -> pandas.DataFrame:
        """Return what each task of the run cost, one row per model, attack and session.

        Columns: model, training_seed, attack, repeats, images, seconds, queries, peak_memory; see
        `robustcmp.analysis.costs.costs`. Without rows for a run whose costs were not logged.
        """
        return costs(self)

    def plan(
        self,
        difference: float,
        *,
        power: float = POWER,
        attack: str | None = None,
        training_seconds: float = math.nan,
    ) -> pandas.DataFrame:
        """Plan the comparison that detects a difference between frameworks, with this run as the pilot.

        The joint test is Brown-Forsythe at 5 %, divided by the number of joint tests, as in `verdicts`. The variance of
        a trained model's rate on n images with r repeats is training + (image + draw / r) / n; see
        `robustcmp.statistics.rate_variance`. Frameworks keep the ratio of their variances. The number of trainings is
        that of `robustcmp.statistics.trainings_needed`.

        Parameters
        ----------
        difference : float
            Between the largest mean rate of a framework and the smallest, on the images attacked: 0.05 is five points.
        power : float, default 0.8
            The probability of detection.
        attack : str, optional
            Plan for one attack only.
        training_seconds : float, optional
            How long it takes to train one model. Without it, training costs nothing.

        Returns
        -------
        pandas.DataFrame
            Five rows per attack, of the designs ``"pilot"``, ``"same images"`` (and repeats, as the pilot) and
            ``"cheapest"``: attack, design, variance, trainings (of each framework), images, repeats (on each training),
            detectable (in the unit of the rates), seconds (of the attack), training_seconds, queries, room (how close a
            framework's mean rate comes to 0 or 1: for larger differences the pilot's variance does not hold), why. A
            design is planned twice: with the variance at its ``"estimate"``, and with that between trainings at its
            upper 80 % limit, ``"upper limit"`` (`robustcmp.statistics.upper_variance`), because few trainings estimate
            it badly. The cheapest takes least time, or asks the fewest queries if the run has no costs. NaN for what is
            not known; an attack without information has only the row of the pilot, with the reason in ``why``.

        Raises
        ------
        UsageError
            A number is out of range, the attack is unknown, a framework has one training, or the run is a same-weights
            control.
        """
        return plan(self, difference, power, attack, training_seconds)

    # checks, transfer, images --------------------------------------------------------------------------------------

    @cached_property
    def checked(self) -> Checked | None:
        """The health checks and PGD's success, None if they have not been run."""
        stored = self.run.read_answer("checks", self.question, Checked.from_json)
        return None if stored is None else self.noting(stored)

    def noting(self, checked: Checked) -> Checked:
        """Return checks with those only noted that fail by the nature of an attack's settings."""
        return checked.noting({check for record in self.attack_records.values() for check in record.expected_failures})

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
        """Transfer between trainings of one framework and between frameworks, see `robustcmp.analysis.transfer.blocks`.

        Of the `sources` alone: what fools a network mostly fools what was deployed from it, which says nothing about
        trainings or frameworks. `transfer` has every pair. Without rows for one training of one source.

        ``p``, only in the block ``"within"``, tests whether ``of_successes`` is larger within frameworks than across,
        by permuting the trainings' frameworks (`robustcmp.statistics.mantel`); it is not adjusted for the attacks.
        Pairs of `twins` are left out of both: they share weaknesses because they are nearly one network.

        Raises
        ------
        UsageError
            Transfer has not been run.
        """
        if self.transferred is None:
            raise missing("transfer")
        places = [place for place, (name, _) in enumerate(self.keys) if name in self.sources]
        frameworks = [self.keys[place][0] for place in places]
        are_twins = twin_mask(self.twins, self.keys)[np.ix_(places, places)]
        transferred = self.transferred.isel(source=places, target=places)
        shares = blocks(transferred, frameworks, are_twins)
        of_successes = transferred.of_successes
        shares["p"] = [
            mantel(np.where(are_twins, math.nan, of_successes.sel(attack=attack).values), frameworks).p
            if block == "within"
            else math.nan
            for attack, block in zip(shares.attack, shares.block, strict=True)
        ]
        return shares

    @cached_property
    def conditioned(self) -> Conditioning | None:
        """Rates on the subsets of fewer models, None if `Evaluation.run_conditioning` has not been run."""

        stored = self._stored_contested()
        return None if stored is None else Conditioning(self, stored)

    def _stored_contested(self) -> Contested | None:
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

    def conditioning(self, *, picks: int = PICKS, seed: int = 0) -> pandas.DataFrame:
        """Return the success rates against the number of models whose correct images are attacked.

        The common subset of more models has fewer images, those near a decision boundary missing, so rates fall with
        the number of models. Compare rates only with rates that are conditioned alike.

        Parameters
        ----------
        picks : int, default 50
            How many random orders of the other trained models are tried for each of them.
        seed : int, default 0
            Of the orders.

        Returns
        -------
        pandas.DataFrame
            One row per attack, model and number of models: attack, model, models (1 to all trained models), images
            (the share of all images that so many models classify correctly), success_rate (the mean over trainings and
            choices of the other models), low and high (the central 95 % of them).

        Raises
        ------
        UsageError
            `Evaluation.run_conditioning` has not been run.
        """
        return self._conditioned().curve(picks, seed)

    def prediction(self, model: str, attack: str, *, models: int, images: int = 1000) -> Prediction:
        """Return where one more training of a framework is expected, in a comparison of one training each.

        That is what a published rate of one network should be held against: it is conditioned on few models, and
        varies with the training, with the other models and with the choice of images.

        Parameters
        ----------
        model, attack : str
            The framework and the attack.
        models : int
            How many models that comparison has, each of another framework.
        images : int, default 1000
            How many images it attacks.

        Returns
        -------
        Prediction
            mean, low, high: the mean rate and the 95 % prediction interval; see
            `robustcmp.analysis.conditioning.Conditioning.prediction`.

        Raises
        ------
        UsageError
            `Evaluation.run_conditioning` has not been run, or the run has fewer frameworks than `models`.
        """
        return self._conditioned().prediction(model, attack, models=models, images=images)

    def _conditioned(self) -> Conditioning:
        if self.conditioned is None:
            raise missing("conditioning")
        return self.conditioned

    def adversarials(
        self, model: str, attack: str, *, training_seed: int | None = None, repeat: int = 0
    ) -> NDArray[np.float32]:
        """Return the adversarial images (N, H, W, C) of one cell, the clean images where the attack failed.

        `training_seed` defaults to the model's smallest.

        Raises
        ------
        UsageError
            The cell does not exist.
        StoreError
            The run was stored without images.
        """
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


def missing(what: str) -> UsageError:
    """Return the error for what an opened run does not have and its models would be needed for."""
    return UsageError(
        f"this run was stored without {what}, and its models are not loaded. Call robustcmp.evaluate with the same "
        f"models and out, then run_{what}() on the result."
    )
