"""Is the difference real? Tests on two levels that are never mixed, variances, and how far R can be trusted.

*Models*: is this trained network easier to fool than that one, on images like these? The image is the unit.
*Frameworks*: are networks trained in this framework easier to fool? The training run is the unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import UsageError
from .indicator import relative
from .statistics import (
    ONE_TRAINING,
    Evidence,
    cochran_q,
    difference_intervals,
    f_test,
    friedman,
    holm,
    label_permutation,
    mcnemar,
    nested_variance,
    pooled_t,
    resampled_rates,
    sign_flips,
    sign_test,
)

if TYPE_CHECKING:
    import pandas

Level = Literal["models", "frameworks"]
LEVELS: tuple[Level, ...] = ("models", "frameworks")
COLUMNS = ("level", "test", "a", "b", "attack", "n", "statistic", "p", "p_adjusted", "effect", "low", "high")
ALL = "all"
ALPHA = 0.05
RESAMPLES = 10_000


@dataclass(frozen=True)
class Outcomes:
    """What one attack did to every trained model on the images of a comparison.

    Attributes
    ----------
    attack : str
        Its name.
    deterministic : bool
        Whether all repeats are one and the same.
    success : dict of str to ndarray of bool
        By framework (the name of the models), (training runs, repeats, images).
    seeds : dict of str to list of int
        The training seeds, by framework.
    expected : dict of str to ndarray of float64, optional
        For exact single pixel: the probability of each image to fall to a draw of positions, (training runs, images).
    l2 : dict of str to ndarray of float64, optional
        The distances, for an attack whose distances are what it is about; +inf where it failed.
    """

    attack: str
    deterministic: bool
    success: Mapping[str, NDArray[np.bool_]]
    seeds: Mapping[str, list[int]]
    expected: Mapping[str, NDArray[np.float64]] | None = None
    l2: Mapping[str, NDArray[np.float64]] | None = None

    @property
    def labels(self) -> list[str]:
        """The trained models: ``torch``, or ``torch/3`` where there are several trainings of one framework."""
        several = any(len(seeds) > 1 for seeds in self.seeds.values())
        return [f"{name}/{seed}" if several else name for name, seeds in self.seeds.items() for seed in seeds]

    @property
    def image_means(self) -> NDArray[np.float64]:
        """How often each image falls, (models, images): over all draws, else over repeats, which are no images."""
        means = self.expected or {name: its.mean(axis=1) for name, its in self.success.items()}
        return np.concatenate(list(means.values()))

    @property
    def rates(self) -> dict[str, NDArray[np.float64]]:
        """A rate for each training run, by framework: the expectation over all draws where that is known."""
        if self.expected is not None:
            return {name: its.mean(axis=1) for name, its in self.expected.items()}
        return {name: its.mean(axis=(1, 2)) for name, its in self.success.items()}


def run_tests(outcomes: Iterable[Outcomes], level: Level | None, resamples: int = RESAMPLES) -> pandas.DataFrame:
    """Test every attack, over all models together and over every pair.

    Parameters
    ----------
    outcomes : iterable of Outcomes
        One for each attack.
    level : str or None
        ``"models"`` or ``"frameworks"``; every level that the data allow for None.
    resamples : int, default 10,000
        Of images, for intervals; and at least of flips and permutations, which many pairs need more of.

    Returns
    -------
    pandas.DataFrame
        A row a test. Joint ones have ``a`` ``"all"``, no ``b`` and NaN for an interval; their ``effect`` is the
        largest rate minus the smallest one, NaN for distances. For pairs it is a's rate minus b's, with its interval
        before adjustment; for distances the share of images on which a is fooled nearer minus that on which b is.
        ``n`` counts images or training runs. ``p_adjusted`` is Holm's over all pairs and attacks of the level, and
        over the joint tests of the level.

    Raises
    ------
    UsageError
        The level is unknown, or the data do not allow it; or statsmodels is not installed.
    """
    import pandas

    if level not in (None, *LEVELS):
        raise UsageError(f"level should be one of {', '.join(LEVELS)}, received {level!r}")
    outcomes = list(outcomes)
    rows: list[dict[str, Any]] = []
    # The smallest p that flips can give must survive Holm's factor.
    flips = max(resamples, 200 * sum(math.comb(len(its.labels), 2) for its in outcomes))
    if level in (None, "models"):
        tested = [_model_tests(its, resamples, flips) for its in outcomes]
        of_models = [row for its, _ in tested for row in its]
        differences = [values for _, its in tested for values in its]
        pairs = [row for row in of_models if row["a"] != ALL]
        intervals = difference_intervals(np.array(differences), resamples=resamples) if pairs else []
        for row, (low, high) in zip(pairs, intervals, strict=True):
            row |= {"low": low, "high": high}
        rows += _adjusted(of_models)
    if level == "frameworks" or (level is None and has_framework_level(outcomes)):
        rows += _adjusted(row for its in outcomes for row in _framework_tests(its))
    return pandas.DataFrame(rows, columns=list(COLUMNS))


def has_framework_level(outcomes: Iterable[Outcomes]) -> bool:
    """Say whether there are two frameworks or more, with two trainings of each or more."""
    outcomes = list(outcomes)
    return bool(outcomes) and all(len(its.seeds) > 1 and min(map(len, its.seeds.values())) > 1 for its in outcomes)


def _model_tests(
    outcomes: Outcomes, resamples: int, flips: int
) -> tuple[list[dict[str, Any]], list[NDArray[np.float64]]]:
    """Return the tests, and for each pair among them the differences of which an interval is wanted."""
    values, labels = outcomes.image_means, outcomes.labels
    pairs = list(combinations(range(len(labels)), 2))
    if not pairs or not values.size:
        return [], []
    differences = np.array([values[a] - values[b] for a, b in pairs])
    if outcomes.deterministic:
        names = "Cochran's Q", "McNemar, exact"
        fell = values > 0
        each = [mcnemar(fell[a], fell[b]) for a, b in pairs]
        if len(fell) > 2:
            joint = cochran_q(fell)
        else:  # its approximation is coarse where few images differ
            names, joint = (names[1], names[1]), each[0]
    else:
        names = "permutation of models", "sign flips"
        joint, each = label_permutation(values, resamples), sign_flips(differences, flips)
    row: dict[str, Any] = {"level": "models", "attack": outcomes.attack, "n": values.shape[1]}
    rows = [row | _joint(names[0], joint, np.ptp(values.mean(axis=1)))]
    rows += [
        row | _pair(names[1], labels[a], labels[b], test, float(its.mean()))
        for (a, b), test, its in zip(pairs, each, differences, strict=True)
    ]
    if outcomes.l2 is None:
        return rows, list(differences)
    distances = np.concatenate([np.median(its, axis=1) for its in outcomes.l2.values()])
    nearer = np.array([np.sign(_finite(distances[b]) - _finite(distances[a])) for a, b in pairs])
    rows.append(row | _joint("Friedman of L2", friedman(distances), math.nan))
    rows += [
        row | _pair("sign test of L2", labels[a], labels[b], sign_test(distances[b], distances[a]), its.mean())
        for (a, b), its in zip(pairs, nearer, strict=True)
    ]
    return rows, [*differences, *nearer]


def _finite(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Make a failure the farthest of all, so that two of them are equal."""
    return np.where(np.isfinite(distances), distances, np.finfo(np.float64).max)


def _framework_tests(outcomes: Outcomes) -> list[dict[str, Any]]:
    names, groups = list(outcomes.rates), list(outcomes.rates.values())
    row: dict[str, Any] = {"level": "frameworks", "attack": outcomes.attack, "n": sum(map(len, groups))}
    rows = [row | _joint("F", f_test(groups), np.ptp([group.mean() for group in groups]))]
    for a, b in combinations(range(len(groups)), 2):
        statistic, p, *effect = pooled_t(groups, a, b)
        rows.append(row | _pair("t, pooled", names[a], names[b], Evidence(statistic, p), *effect))
    return rows


def _joint(name: str, test: Evidence, effect: float) -> dict[str, Any]:
    return _pair(name, ALL, "", test, effect)


def _pair(
    name: str, a: str, b: str, test: Evidence, effect: float, low: float = math.nan, high: float = math.nan
) -> dict[str, Any]:
    return {"test": name, "a": a, "b": b, **test._asdict(), "effect": float(effect), "low": low, "high": high}


def _adjusted(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adjust the p values of one level: those of pairs among themselves, and those of joint tests."""
    rows = list(rows)
    for joint in (True, False):
        family = [row for row in rows if (row["a"] == ALL) == joint]
        for row, p in zip(family, holm([row["p"] for row in family]), strict=True):
            row["p_adjusted"] = p
    return rows


def variance(outcomes: Iterable[Outcomes]) -> pandas.DataFrame:
    """Return where the variance of a trained model's success rate lies, a row an attack.

    ``framework`` and ``training_run`` are the components of `robustcmp.statistics.nested_variance`, ``share``,
    ``low`` and ``high`` the share of frameworks between trained models with its interval. Beside them stand two
    variances of one trained model's rate: ``repeat``, from its repeats, and ``image``, from the choice of images,
    without what repeats add. All models see the same images and draws. What these do to all of them alike is not in
    ``training_run``; what they do to each model in its own way is. Exact single pixel is analysed by its expectation,
    where repeats do nothing; ``repeat`` is then what as many draws would have added, exactly. ``image`` is NaN for one
    image, both are NaN for one repeat of a random attack that is not exact.

    Raises
    ------
    UsageError
        There is one training per framework, or their numbers differ.
    """
    import pandas

    rows = []
    for its in outcomes:
        sizes = {len(rates) for rates in its.rates.values()}
        if len(sizes) > 1:
            raise UsageError(
                f"the frameworks have {', '.join(map(str, sorted(sizes)))} training runs; the nested analysis of "
                "variance needs equal numbers. Name as many --training-seeds for each."
            )
        if len(its.rates) < 2 or sizes == {1}:
            reason = (
                f"{ONE_TRAINING} Name several --training-seeds." if sizes == {1} else "There is one framework alone."
            )
            raise UsageError(f"expected two frameworks and two trainings of each, or more. {reason}")
        found = nested_variance(np.array(list(its.rates.values())))
        rows.append(
            {
                "attack": its.attack,
                "framework": found.framework,
                "training_run": found.training_run,
                "repeat": _repeat_variance(its),
                "image": _image_variance(its),
                "share": found.share,
                "low": found.low,
                "high": found.high,
            }
        )
    names = ("attack", "framework", "training_run", "repeat", "image", "share", "low", "high")
    return pandas.DataFrame(rows, columns=list(names)).set_index("attack")


def _image_variance(outcomes: Outcomes) -> float:
    """Return the variance of a model's rate that comes from the choice of images; NaN for one image."""
    values = outcomes.image_means
    n = values.shape[1]
    of_repeats = 0.0 if outcomes.expected else _repeat_variance(outcomes)  # is in the images' means as well
    return float(values.var(axis=1, ddof=1).mean() / n) - of_repeats if n > 1 else math.nan


def _repeat_variance(outcomes: Outcomes) -> float:
    """Return the variance of a model's mean rate that comes from its repeats; NaN for one repeat of a random attack."""
    if outcomes.deterministic:
        return 0.0
    rates = np.concatenate([its.mean(axis=2) for its in outcomes.success.values()])
    repeats = rates.shape[1]
    if outcomes.expected:  # draws are independent between images
        p = outcomes.image_means
        return float((p * (1 - p)).mean() / p.shape[1] / repeats)
    return float(rates.var(axis=1, ddof=1).mean() / repeats) if repeats > 1 else math.nan


class IndicatorRange(NamedTuple):
    """How far R of one model varies over resamples.

    Attributes
    ----------
    low, high : float
        What 95 % of the resamples lie between: a bootstrap range, and no confidence interval, as the smallest and the
        largest rate make R irregular.
    ranks : list of float
        The share of resamples in which the model is the most robust one, the second, and so on; ties are shared.
    """

    low: float
    high: float
    ranks: list[float]


def indicator_ranges(
    outcomes: Sequence[Outcomes], resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, IndicatorRange]:
    """Return how far R varies if other images had been attacked, and, with several trainings, others been trained.

    An image is drawn with everything that happened to it, in all models, attacks and repeats, and a training run with
    all its attacks.
    """
    from scipy.stats import rankdata

    names = list(outcomes[0].success)
    values = [np.stack([its.success[name].mean(axis=1) for its in outcomes]) for name in names]
    totals = relative(np.stack(resampled_rates(values, resamples, seed), axis=-1)).sum(axis=1)
    first, last = (rankdata(totals.round(9), method=method, axis=1) for method in ("min", "max"))
    places = np.arange(1, len(names) + 1)
    held = (first[..., None] <= places) & (places <= last[..., None])
    ranks = (held / (last - first + 1)[..., None]).mean(axis=0)
    low, high = np.quantile(totals, [0.025, 0.975], axis=0)
    return {
        name: IndicatorRange(float(low[i]), float(high[i]), [float(share) for share in ranks[i]])
        for i, name in enumerate(names)
    }
