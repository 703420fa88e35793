"""What a run found: every outcome, and the figures that are read from them."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError, unknown
from ..files import json_digest
from ..records.checks import Checked
from ..records.store import Run
from .control import HELD, differing, verdict
from .indicator import common_attacks, relative, robustness_indicator, variants
from .indicator_ranges import IndicatorRange, indicator_ranges
from .outcomes import Outcomes
from .paper import PAPER_DATASETS, published
from .significance import ALL, ALPHA, Level, has_framework_level, run_tests
from .statistics.draws import CommonDraws, common_draws, fall_probability
from .statistics.hypotheses import mantel, pooled_t
from .statistics.intervals import (
    NO_EVIDENCE,
    Interval,
    bootstrap_interval,
    t_interval,
    two_way_interval,
    wilson_interval,
)
from .transfer import as_dataset, blocks
from .variance import variance

if TYPE_CHECKING:
    import pandas
    import xarray

# The distance that an attack is about; L2 for the others.
NORMS = {"FGSM": "linf", "SinglePixel": "l0"}
DISTANCE_QUANTILES = (0.5, 0.25, 0.1)


class Results:
    """The outcomes of a comparison.

    Attributes
    ----------
    dataset : xarray.Dataset
        A value an image over (model, training_seed, attack, repeat, image): ``success``, ``l0``, ``l2``, ``linf``
        (+inf where the attack failed), ``adversarial_class`` and ``queries``, and what only some attacks have (NaN
        for the others): ``smallest_epsilon`` of FGSM, ``start``, ``source_step``, ``spherical_step`` and ``l2_half`` of
        boundary, ``vulnerable_pixels`` and ``pixels`` of exact single pixel, whose ``vulnerable_map`` has no repeats
        and bits for positions. ``repeats`` says how many repeats each attack has; where there are more, they are empty
        (no success, NaN). Distances are in [0, 1] images. The coordinate ``image`` says where an image stands in
        the data that was passed.
    manifest : dict
        What was asked for, and with what: suite, models, versions, hardware, digests.
    """

    def __init__(self, run: Run, dataset: xarray.Dataset, manifest: dict[str, Any]):
        self.run = run
        self.dataset = dataset
        self.manifest = manifest
        self._tested: dict[Level | None, pandas.DataFrame] = {}

    # who, what -------------------------------------------------------------------------------------------------

    @property
    def models(self) -> list[str]:
        """The models' names, in the order in which they were passed."""
        return list(dict.fromkeys(model["name"] for model in self.manifest["models"]))

    @property
    def attacks(self) -> list[str]:
        """The attacks' names, in the order of the suite."""
        return [str(attack) for attack in self.dataset.attack.values]

    @property
    def training_seeds(self) -> list[int]:
        """The training seeds that are compared."""
        return [int(seed) for seed in self.dataset.training_seed.values]

    def deterministic(self, attack: str) -> bool:
        """Whether all repeats of an attack are one and the same."""
        return bool(self.manifest["suite"]["attacks"][attack]["deterministic"])

    def repeats(self, attack: str) -> int:
        """How many repeats an attack has; those of a deterministic one are all the same."""
        return int(self.dataset.repeats.sel(attack=attack))

    @property
    def own_repeats(self) -> dict[str, int]:
        """The attacks that have fewer repeats than others, and how many."""
        counts = {attack: self.repeats(attack) for attack in self.attacks}
        return {attack: count for attack, count in counts.items() if count < self.manifest["repeats"]}

    @property
    def clean_accuracy(self) -> dict[str, float]:
        """The share of all images that were passed that each model classifies correctly, the mean over its seeds."""
        return {
            name: float(np.mean([m["clean_accuracy"] for m in self.manifest["models"] if m["name"] == name]))
            for name in self.models
        }

    @property
    def correct_by_all(self) -> float:
        """The share of all images that were passed that every model classifies correctly."""
        return float(self.manifest["images"]["correct_by_all"])

    # rates -----------------------------------------------------------------------------------------------------

    @cached_property
    def success_rate(self) -> xarray.DataArray:
        """The share of images that fell, over (model, training_seed, attack, repeat); NaN where none were attacked."""
        there = self.dataset.ran & (self.dataset.repeat < self.dataset.repeats)
        rate: xarray.DataArray = self.dataset.success.mean("image").where(there)
        return rate.rename("success_rate")

    @property
    def epsilon_curve(self) -> xarray.DataArray:
        """The success rate at each ε, over (model, training_seed, attack, epsilon); NaN where an attack has none."""
        curve: xarray.DataArray = self.dataset.epsilon_curve
        return curve

    def rates(self) -> dict[str, dict[str, float]]:
        """Return the mean success rate over training seeds and repeats, by model and attack, from whole counts."""
        return {model: {attack: self._rate(model, attack) for attack in self.attacks} for model in self.models}

    def _rate(self, model: str, attack: str) -> float:
        outcomes = self._outcomes(model, attack)
        return float(np.count_nonzero(outcomes)) / outcomes.size if outcomes.size else math.nan

    def _outcomes(self, model: str, attack: str, name: str = "success") -> NDArray[Any]:
        """Return a variable of one model and attack, (training seeds that ran, repeats of the attack, images)."""
        where = {"model": model, "attack": attack}
        ran = self.dataset.ran.sel(where).values
        return np.asarray(self.dataset[name].sel(where).values[ran, : self.repeats(attack)])

    def interval(self, model: str, attack: str, *, training_seed: int | None = None) -> Interval:
        """Return the 95 % interval of a model's mean success rate, over images.

        Wilson's for one training under a deterministic attack; otherwise the percentile bootstrap of the images'
        means over repeats and, without `training_seed`, over all trainings.

        Raises
        ------
        UsageError
            There is no such training.
        """
        outcomes = self._outcomes(model, attack)
        if training_seed is not None:
            self._key(model, attack, training_seed, 0)  # or there is none
            outcomes = outcomes[[self._seeds(model, attack).index(training_seed)]]
        if not outcomes.size:
            return NO_EVIDENCE
        if self.deterministic(attack) and len(outcomes) == 1:
            return wilson_interval(int(np.count_nonzero(outcomes[0, 0])), outcomes.shape[-1])
        return bootstrap_interval(outcomes.mean(axis=(0, 1)))

    def repeat_std(self, model: str, attack: str) -> float:
        """Return the standard deviation of the success rate over repeats, within a training (root mean square).

        0 for a deterministic attack, NaN for one repeat.
        """
        if self.deterministic(attack):
            return 0.0
        return _std(self._outcomes(model, attack).mean(axis=2), axis=1)

    def seed_std(self, model: str, attack: str) -> float:
        """Return the standard deviation of the mean success rate over training seeds, NaN for one."""
        return _std(self._outcomes(model, attack).mean(axis=(1, 2))[None, :], axis=1)

    @property
    def indicator(self) -> dict[str, float]:
        """R(m) by model, from the means over training seeds and repeats; see `robustcmp.robustness_indicator`.

        Empty for the same-weights control, where there is nothing to rank.
        """
        return {} if self.same_weights else robustness_indicator(self.rates())

    @cached_property
    def same_weights(self) -> dict[str, Any] | None:
        """How far one training agrees in several frameworks, None where the models are not `same_weights`.

        ``passed``; ``logits``, the largest difference in standard deviations of the logits, and ``predictions``, the
        largest share of the whole test set, between two frameworks; ``differ``, for each attack and pair of
        frameworks the images that fall in one and not in the other.
        """
        measured = self.manifest.get("same_weights")
        if measured is None:
            return None
        differ = {
            attack: differing({model: self._outcomes(model, attack) for model in self.models})
            for attack in self.attacks
        }
        held = [a for a, spec in self.manifest["suite"]["attacks"].items() if spec["class"] in HELD]
        passed = verdict(measured, differ, held, self.manifest["images"]["used"])
        return {"passed": passed, **measured, "differ": differ}

    # is it real? -------------------------------------------------------------------------------------------------

    @cached_property
    def outcomes(self) -> list[Outcomes]:
        """What each attack that every model ran did to each trained model, for `robustcmp.inference`."""
        return [
            Outcomes(
                attack,
                self.deterministic(attack),
                {model: self._outcomes(model, attack) for model in self.models},
                {model: self._seeds(model, attack) for model in self.models},
                self._expected(attack),
                {model: self._outcomes(model, attack, "l2") for model in self.models}
                if self.has_start(attack)
                else None,
            )
            for attack in common_attacks(self.rates())
        ]

    def _expected(self, attack: str) -> dict[str, NDArray[np.float64]] | None:
        """Return how probably each image falls to exact single pixel, (training seeds that ran, images) by model."""
        if "vulnerable_pixels" not in self.dataset:
            return None
        falls, ran = (its.sel(attack=attack) for its in (self._falls.isel(repeat=0), self.dataset.ran))
        found = {model: falls.sel(model=model).values[ran.sel(model=model).values] for model in self.models}
        return None if any(np.isnan(its).any() for its in found.values()) else found

    def _seeds(self, model: str, attack: str) -> list[int]:
        """Return the training seeds of a model that ran an attack."""
        return [
            int(seed) for seed in self.dataset.training_seed.values[self.dataset.ran.sel(model=model, attack=attack)]
        ]

    def tests(self, level: Level | None = None) -> pandas.DataFrame:
        """Test every attack, over all models together and over every pair, on two levels that are never mixed.

        *Models*: is this trained network easier to fool than that one, on images like these? Cochran's Q and McNemar
        for a deterministic attack, permutations and sign flips of the images' means over repeats for a random one,
        Friedman and signs for the distances of boundary. *Frameworks*: are networks trained in this framework easier
        to fool? F and t with pooled variance, the training run being the unit.

        Parameters
        ----------
        level : str, optional
            ``"models"`` or ``"frameworks"``; every level that the data allow if nothing is said.

        Returns
        -------
        pandas.DataFrame
            A row a test: level, test, a, b, attack, n, statistic, p, p_adjusted, effect, low, high; see
            `robustcmp.inference.run_tests`. Empty for one model.

        Raises
        ------
        UsageError
            The level is unknown, or there is one training per framework, which tells nothing about frameworks; or
            statsmodels is not installed.
        """
        if level not in self._tested:
            self._tested[level] = run_tests(self.outcomes, level)
        return self._tested[level].copy()

    @property
    def level(self) -> Level:
        """What a report is about: ``"frameworks"`` where each of them has several trainings, else ``"models"``."""
        return "frameworks" if has_framework_level(self.outcomes) else "models"

    @cached_property
    def within_noise(self) -> list[str]:
        """The attacks for which a joint test of what P compares finds nothing.

        None without statsmodels, and none where a framework has several trainings and another has one: no test is
        about the mean of some and one alone.
        """
        if self.has_several_trainings and self.level == "models" and len(self.models) > 1:
            return []
        try:
            tests = self.tests(self.level)
        except UsageError:
            return []
        joint = tests[(tests.a == ALL) & ~tests.test.str.contains("L2")]
        return [str(attack) for attack in joint.attack[joint.p_adjusted >= ALPHA]]

    @cached_property
    def indicator_ranges(self) -> dict[str, IndicatorRange]:
        """How far R varies over resamples of images and trainings, and each model's ranks, by model."""
        return indicator_ranges(self.outcomes)

    @cached_property
    def indicator_variants(self) -> dict[str, dict[str, float]]:
        """What R hides: R without each attack and each model in turn, and R from distances, by variant and model.

        From distances: P of −distance at the quantiles of 50, 25 and 10 % of the images, in each attack's own norm,
        of the attacks for which it is finite for every model, which the variant names; a shorter distance is less
        robust. A quantile that no attack has is left out.
        """
        found = variants(self.rates())
        for q in DISTANCE_QUANTILES:
            total, counted = np.zeros(len(self.models)), []
            for attack in common_attacks(self.rates()):
                norm = NORMS.get(self.manifest["suite"]["attacks"][attack]["class"], "l2")
                distances = np.array([self.distance_quantile(model, attack, norm, q) for model in self.models])
                if np.isfinite(distances).all():
                    total = total + relative(-distances)
                    counted.append(attack)
            if counted:
                name = f"from distances at {q:.0%} of the images ({', '.join(counted)})"
                found[name] = dict(zip(self.models, total.tolist(), strict=True))
        return found

    def training_interval(self, model: str, attack: str) -> Interval:
        """Return the 95 % interval of a framework's mean success rate, over its training runs.

        Student's, cut to [0, 1]; NaN for one training, and where all have one rate.
        """
        low, high = t_interval(self._outcomes(model, attack).mean(axis=(1, 2)))
        return Interval(max(low, 0.0), min(high, 1.0))

    def wider_interval(self, attack: str, a: str, b: str) -> Interval:
        """Return the 95 % range of a difference of two frameworks over training runs and images together.

        As far as the two-way bootstrap of the two frameworks reaches, and as far as the t interval over training runs
        alone does, which takes the variance from all frameworks; NaN where a framework has one training.
        """
        expected = self._expected(attack) or {m: self._outcomes(m, attack).mean(axis=1) for m in self.models}
        both = two_way_interval(expected[a], expected[b])
        rates = {model: its.mean(axis=1) for model, its in expected.items()}
        if min(map(len, rates.values())) < 2:
            return both
        over_runs = pooled_t(list(rates.values()), self.models.index(a), self.models.index(b))
        return Interval(min(both.low, over_runs.low), max(both.high, over_runs.high))

    def variance(self) -> pandas.DataFrame:
        """Return where the variance of a trained model's success rate lies, a row an attack.

        Columns: framework, training_run, repeat, image, share, low, high; see `robustcmp.inference.variance`.

        Raises
        ------
        UsageError
            There is one training per framework, or their numbers differ.
        """
        return variance(self.outcomes)

    @cached_property
    def checked(self) -> Checked | None:
        """The health checks and PGD's success, if they were made."""
        stored = self.run.read_extra("checks", self.question)
        return None if stored is None else Checked.from_json(stored)

    @cached_property
    def transferred(self) -> xarray.Dataset | None:
        """What `Evaluation.transfer` returns, if it was made."""
        stored = self.run.read_extra("transfer", self.question)
        return None if stored is None else as_dataset(np.array(stored["counts"]), self.labels, stored["attacks"])

    @property
    def labels(self) -> list[str]:
        """The trained models: ``torch``, or ``torch/3`` where there are several trainings."""
        models = self.manifest["models"]
        return [f"{m['name']}/{m['training_seed']}" if self.has_several_trainings else m["name"] for m in models]

    @property
    def has_several_trainings(self) -> bool:
        """Whether there are two trainings or more of some framework."""
        return len(self.manifest["models"]) > len(self.models)

    def first_seed(self, model: str) -> int:
        """Return the smallest training seed that a model has."""
        return min(int(m["training_seed"]) for m in self.manifest["models"] if m["name"] == model)

    @property
    def transfer_blocks(self) -> pandas.DataFrame:
        """Transfer between trainings of one framework and between frameworks, see `robustcmp.transfer.blocks`.

        ``p``, in the block ``"within"`` alone: how often ``of_successes`` exceeds that across frameworks by as much
        where the trainings' frameworks are permuted (`robustcmp.statistics.mantel`), not adjusted for the attacks.

        Raises
        ------
        UsageError
            Transfer was not made yet.
        """
        if self.transferred is None:
            raise missing("transfer")
        frameworks = [model["name"] for model in self.manifest["models"]]
        found = blocks(self.transferred, frameworks)
        found["p"] = [
            mantel(self.transferred.of_successes.sel(attack=attack).values, frameworks).p
            if block == "within"
            else math.nan
            for attack, block in zip(found.attack, found.block, strict=True)
        ]
        return found

    @property
    def question(self) -> str:
        """What tells this run's outcomes from those of another question in the same directory."""
        return json_digest({"cells": self.manifest["cells"]})

    # one attack's own --------------------------------------------------------------------------------------------

    def distance_quantile(self, model: str, attack: str, distance: str = "l2", q: float = 0.5) -> float:
        """Return a quantile of the distances over images, repeats and training seeds; a failure counts as +inf."""
        values = self._outcomes(model, attack, distance).ravel()
        # "higher": between a finite distance and +inf there is nothing to interpolate.
        return float(np.quantile(values, q, method="higher")) if values.size else math.nan

    def success_within(self, model: str, attack: str, budget: float, distance: str = "l2") -> float:
        """Return the share of attacks that succeeded at a distance of at most `budget`."""
        values = self._outcomes(model, attack, distance)
        return float((values <= budget).mean()) if values.size else math.nan

    def has_start(self, attack: str) -> bool:
        """Whether an attack is one that needs a start."""
        return "start" in self.dataset and bool(self.dataset.start.sel(attack=attack).notnull().any())

    def start_share(self, model: str, attack: str) -> float:
        """Return the share of attacks for which a start was found."""
        return float(np.mean(self._outcomes(model, attack, "start")))

    @property
    def failed_starts(self) -> list[str]:
        """The attacks for which some model has images without a start, where success is not about robustness."""
        return [
            attack
            for attack in self.attacks
            if self.has_start(attack) and any(self.start_share(model, attack) < 1 for model in self.models)
        ]

    @property
    def exact(self) -> list[str]:
        """The attacks that every model ran and whose expectation over all draws is known: exact single pixel."""
        return [its.attack for its in self.outcomes if its.expected]

    @property
    def expected_success_rate(self) -> xarray.DataArray:
        """The expectation of the success rate over all draws, over (model, training_seed, attack).

        For single pixel with ``exact``: the mean over images of 1 − C(N − K, m)/C(N, m), K of N positions being
        vulnerable and m tried. NaN for other attacks.
        """
        return self._falls.mean(("repeat", "image")).rename("expected_success_rate")

    @property
    def expected_success_sd(self) -> xarray.DataArray:
        """The standard deviation of the success rate over draws, which are independent between images."""
        p = self._falls.isel(repeat=0)
        variance: xarray.DataArray = (p * (1 - p)).sum("image", skipna=False) / p.sizes["image"] ** 2
        return (variance**0.5).rename("expected_success_sd")

    def common_draws(self, attack: str, a: str, b: str, *, training_seed: int | None = None) -> CommonDraws:
        """Return two models' expected success under the same draws of positions, see `statistics.common_draws`.

        Without `training_seed` it is each model's smallest one.

        Raises
        ------
        UsageError
            The attack is no single pixel with ``exact``, or there is no such model.
        """
        self._check_exact()
        maps = {}
        for which, model in enumerate((a, b)):
            self._key(model, attack, training_seed, 0)  # or there is none
            seed = self.first_seed(model) if training_seed is None else training_seed
            where = self.dataset.sel(model=model, attack=attack, training_seed=seed, repeat=0)
            if bool(where.vulnerable_pixels.isnull().any()):
                raise UsageError(f"expected a single-pixel attack with exact = true, received {attack}")
            pixels = int(where.pixels.max())
            maps[which] = np.unpackbits(where.vulnerable_map.values, axis=1, count=pixels).astype(np.bool_)
        tried = self.manifest["suite"]["attacks"][attack]["settings"]["max_pixels"]
        return common_draws(maps[0], maps[1], tried)

    @cached_property
    def _falls(self) -> xarray.DataArray:
        """The probability, for each image, that it falls to a draw of positions."""
        self._check_exact()
        import xarray

        settings = self.manifest["suite"]["attacks"]
        tried = xarray.DataArray(
            [float(settings[attack]["settings"].get("max_pixels", math.nan)) for attack in self.attacks],
            coords={"attack": self.attacks},
        )
        falls: xarray.DataArray = xarray.apply_ufunc(
            fall_probability, self.dataset.vulnerable_pixels, self.dataset.pixels, tried
        )
        return falls

    def _check_exact(self) -> None:
        if "vulnerable_pixels" not in self.dataset:
            raise UsageError(
                "expected a single-pixel attack with exact = true in the suite; without it only draws are known"
            )

    def adversarials(
        self, model: str, attack: str, *, training_seed: int | None = None, repeat: int = 0
    ) -> NDArray[np.float32]:
        """Return the adversarial images (N, H, W, C) of one cell, the clean ones where the attack failed.

        Without `training_seed` it is each model's smallest one.

        Raises
        ------
        UsageError
            There is no such cell.
        StoreError
            The run was made without images.
        """
        return self.run.adversarials(self._key(model, attack, training_seed, repeat))

    def has_adversarials(self, model: str, attack: str) -> bool:
        """Whether the first cell of a model and an attack was stored with its adversarial images."""
        return self.run.has_images(self._key(model, attack, None, 0))

    def _key(self, model: str, attack: str, training_seed: int | None, repeat: int) -> str:
        if model not in self.models:
            raise unknown("model", model, self.models)
        if attack not in self.attacks:
            raise unknown("attack", attack, self.attacks)
        seed = self.first_seed(model) if training_seed is None else training_seed
        for cell in self.manifest["cells"]:
            if (
                (cell["model"], cell["attack"]) == (model, attack)
                and cell["repeat"] == (0 if self.deterministic(attack) else repeat)
                and cell["training_seed"] == seed
            ):
                return str(cell["key"])
        raise UsageError(f"the run has no repeat {repeat} of {attack} on {model}, training seed {seed}")

    # beside the paper --------------------------------------------------------------------------------------------

    @cached_property
    def paper(self) -> dict[str, dict[str, float]]:
        """The success rates that Guo et al. published for this network, by framework and attack, or nothing.

        Only for the paper's attacks with the paper's settings, on the dataset that the paper has for the network.
        """
        about, attacks = self.manifest["about"], self.manifest["suite"]["attacks"]
        figures = published()
        same_settings = all(
            attack in attacks and settings.items() <= attacks[attack]["settings"].items()
            for attack, settings in figures["settings"].items()
            if isinstance(settings, dict)
        )
        model = about.get("model")
        if not same_settings or model not in PAPER_DATASETS or about.get("dataset") != PAPER_DATASETS[model]:
            return {}
        return dict(figures["success_rate"][model])

    def to_json(self) -> dict[str, Any]:
        """Return the summary that ``python -m robustcmp.eval --json`` prints; what is undefined is None."""
        about, images = self.manifest["about"], self.manifest["images"]
        rates = self.rates()
        return {
            "model": about.get("model"),
            "dataset": about.get("dataset"),
            "recipe": about.get("recipe"),
            "training_seeds": self.training_seeds,
            "suite": self.manifest["suite"]["name"],
            "images": images["used"],
            "repeats": self.manifest["repeats"],
            **({"own_repeats": self.own_repeats} if self.own_repeats else {}),
            "seed": self.manifest["seed"],
            "frameworks": self.models,
            "success_rate": {m: {a: _null(rate) for a, rate in its.items()} for m, its in rates.items()},
            "success_std": {m: {a: _null(self.repeat_std(m, a)) for a in self.attacks} for m in self.models},
            "indicator": self.indicator or None,
            "clean_accuracy": self.clean_accuracy,
            "correct_by_all": self.correct_by_all,
            "out": None if self.run.temporary else str(self.run.directory),
            **({"checks": self.checked.to_json()["checks"]} if self.checked else {}),
            **({"same_weights": self.same_weights} if self.same_weights else {}),
        }


def _std(rates: NDArray[np.float64], axis: int) -> float:
    if rates.shape[axis] < 2 or not rates.size:
        return math.nan
    return float(np.sqrt(np.mean(np.var(rates, axis=axis, ddof=1))))


def _null(value: float) -> float | None:
    return value if math.isfinite(value) else None


def missing(what: str) -> UsageError:
    """Return the error for what an opened run does not have and its models would be needed for."""
    return UsageError(
        f"this run was stored without its {what}, and its models are not at hand. Call robustcmp.evaluate on the same "
        f"models with the same out, and run_{what}() of what it returns."
    )
