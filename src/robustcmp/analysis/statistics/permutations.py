"""Permutations of trainings: several attacks tested together, with the dependence between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from .foundations import NO_VARIANCE, check_values
from .hypotheses import Evidence
from .intervals import blocks

RELATIVE = 1e-9  # statistics that differ by less are equal


class Together(NamedTuple):
    """What permutations of trainings say of several attacks.

    Attributes
    ----------
    adjusted : list of float
        A p value for each attack, adjusted for their number and dependence.
    joint : Evidence
        A single test of all attacks; the statistic is the sum of theirs.
    """

    adjusted: list[float]
    joint: Evidence


def westfall_young(
    rates: NDArray[np.float64], sizes: Sequence[int], resamples: int = 10_000, seed: int = 0
) -> Together:
    """Test several attacks on the same trainings, by permuting the trainings between frameworks.

    A permutation moves a training with its rates under all attacks, so the dependence between attacks is kept. Each
    attack has the statistic of `brown_forsythe`, which is F if frameworks have equally many trainings. Adjusted p
    values are those of the step-down maximum (Westfall and Young 1993, "Resampling-Based Multiple Testing", algorithm
    4.1). All permutations are enumerated if there are at most `resamples`, else that many are drawn and the data count
    as one more.

    Permuting assumes that the trainings of all frameworks are exchangeable if frameworks do not differ, which unequal
    spreads violate; docs/validity.md has the rates.

    Parameters
    ----------
    rates : ndarray of float64, shape (attacks, training runs)
        Framework by framework, the same trainings for every attack.
    sizes : sequence of int
        How many trainings each framework has.

    Raises
    ------
    UsageError
        The sizes do not add up, a framework has one training, or a rate is NaN.

    Examples
    --------
    >>> rates = np.array([[0.1, 0.2, 0.3, 0.7, 0.8, 0.9], [0.5, 0.4, 0.6, 0.5, 0.4, 0.6]])
    >>> together = westfall_young(rates, [3, 3])  # of 20 permutations, the data and their mirror image are the extremes
    >>> together.adjusted, round(together.joint.p, 3)
    ([0.1, 1.0], 0.1)
    """
    permuted = permute(rates, sizes, resamples, seed)
    return Together(permuted.adjusted(), permuted.joint(range(len(rates))))


class Permuted(NamedTuple):
    """The statistics of several attacks under permutations of the trainings.

    Attributes
    ----------
    statistics : ndarray of float64, shape (permutations, attacks)
        Those of the data first.
    exact : bool
        Whether these are all permutations.
    """

    statistics: NDArray[np.float64]
    exact: bool

    @property
    def observed(self) -> NDArray[np.float64]:
        """The statistics of the data, 0 where there is no yardstick, as `brown_forsythe` has it."""
        return np.where(np.isinf(self.statistics[0]), 0.0, self.statistics[0])

    @property
    def others(self) -> NDArray[np.float64]:
        """The statistics that those of the data are compared with."""
        return self.statistics if self.exact else self.statistics[1:]

    def adjusted(self) -> list[float]:
        """Return a p value for each attack, adjusted for their number and dependence."""
        observed = self.observed
        order = np.argsort(-observed, kind="stable")
        largest = np.maximum.accumulate(self.others[:, order][:, ::-1], axis=1)[:, ::-1]  # of each and those after it
        stepped = np.maximum.accumulate(_share(largest, observed[order], self.exact))
        adjusted = np.empty(len(observed))
        adjusted[order] = stepped
        return [float(p) for p in adjusted]

    def joint(self, attacks: Sequence[int]) -> Evidence:
        """Return a single test of some attacks, by their numbers; the statistic is the sum of theirs."""
        total = float(self.observed[list(attacks)].sum())
        [joint] = _share(self.others[:, list(attacks)].sum(axis=1)[:, None], np.array([total]), self.exact)
        return Evidence(total, float(joint))


def permute(rates: NDArray[np.float64], sizes: Sequence[int], resamples: int = 10_000, seed: int = 0) -> Permuted:
    """Return the statistics of several attacks under permutations of the trainings; see `westfall_young`."""
    rates = np.asarray(rates, np.float64)
    check_values(rates)
    if rates.ndim != 2 or rates.shape[1] != sum(sizes) or len(sizes) < 2 or min(sizes) < 2:
        raise UsageError(
            "expected rates (attacks, training runs) of at least two frameworks with at least two trainings each; "
            f"received {rates.shape} and {', '.join(map(str, sizes))} trainings"
        )
    return Permuted(*_permute(rates, sizes, resamples, seed))


def _share(permuted: NDArray[np.float64], observed: NDArray[np.float64], exact: bool) -> NDArray[np.float64]:
    """Return in what share of permutations each statistic is reached; drawn ones count the data as one more."""
    reached = (permuted >= observed * (1 - RELATIVE)).sum(axis=0) + (not exact)
    shares: NDArray[np.float64] = reached / (len(permuted) + (not exact))
    return shares


def _permute(
    rates: NDArray[np.float64], sizes: Sequence[int], resamples: int, seed: int
) -> tuple[NDArray[np.float64], bool]:
    """Return the statistics (permutations, attacks), of the data first, and whether these are all there are."""
    n = sum(sizes)
    members = np.repeat(np.arange(len(sizes)), sizes)
    count = math.factorial(n) // math.prod(math.factorial(size) for size in sizes)
    if count <= resamples:
        return _statistics(rates, sizes, np.array(list(_assignments(members)))), True
    rng = np.random.default_rng(seed)
    parts = [_statistics(rates, sizes, members[None])]
    for size in blocks(resamples, n * len(sizes)):
        parts.append(_statistics(rates, sizes, rng.permuted(np.broadcast_to(members, (size, n)), axis=1)))
    return np.concatenate(parts), False


def _assignments(members: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield every way of sharing places among groups of given sizes, the given one first."""
    if members[0] == members[-1]:
        yield members
        return
    first = members == members[0]
    for chosen in combinations(range(len(members)), int(first.sum())):  # the first places first
        members_of = np.zeros(len(members), np.bool_)
        members_of[list(chosen)] = True
        for rest in _assignments(members[~first]):
            assigned = np.empty_like(members)
            assigned[members_of], assigned[~members_of] = members[0], rest
            yield assigned


def _statistics(rates: NDArray[np.float64], sizes: Sequence[int], members: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the statistic of each attack for rows of groups (permutations, training runs), (permutations, attacks)."""
    centred = rates - rates.mean(axis=1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=1, keepdims=True))
    scaled = np.divide(centred, spread, out=np.zeros_like(centred), where=spread**2 > NO_VARIANCE)
    counts = np.array(sizes, np.float64)[:, None]
    of_groups = (members[:, None, :] == np.arange(len(sizes))[:, None]).astype(np.float64)
    sums, squares = of_groups @ scaled.T, of_groups @ (scaled**2).T  # (permutations, frameworks, attacks)
    between = (sums**2 / counts).sum(axis=1)
    variances = np.maximum(squares - sums**2 / counts, 0) / (counts - 1)
    within = ((1 - counts / counts.sum()) * variances).sum(axis=1)
    undefined = np.where(between > RELATIVE, np.inf, 0.0)
    statistics: NDArray[np.float64] = np.divide(between, within, out=undefined, where=within > RELATIVE)
    return statistics
