"""Permutations of trainings: several attacks tested together, with the dependence between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from .foundations import NO_VARIANCE, Floats, check_values
from .hypotheses import Evidence
from .intervals import split_resamples

RELATIVE = 1e-9  # statistics that differ by less are equal


class Permuted(NamedTuple):
    """The statistics of several attacks, and those under permutations of the trainings.

    Attributes
    ----------
    observed : ndarray of float64, shape (attacks,)
        The statistics of the data, 0 where there is no yardstick, as `brown_forsythe` has it.
    permuted : ndarray of float64, shape (permutations, attacks)
    exact : bool
        Whether these are all permutations; else the data count as one more.
    """

    observed: Floats
    permuted: Floats
    exact: bool

    def adjust(self) -> list[float]:
        """Return a p value for each attack, adjusted for their number and dependence."""
        order = np.argsort(-self.observed, kind="stable")
        largest = np.maximum.accumulate(self.permuted[:, order][:, ::-1], axis=1)[:, ::-1]  # of each and those after it
        adjusted = np.empty(len(order))
        adjusted[order] = np.maximum.accumulate(self._share(largest, self.observed[order]))
        return [float(p) for p in adjusted]

    def joint(self, attacks: Sequence[int]) -> Evidence:
        """Return a single test of some attacks, by their numbers; the statistic is the sum of theirs."""
        total = self.observed[list(attacks)].sum()
        p = self._share(self.permuted[:, list(attacks)].sum(axis=1), total)
        return Evidence(float(total), float(p))

    def _share(self, permuted: Floats, observed: Floats) -> Floats:
        """Return in what share of permutations each statistic is reached."""
        reached = (permuted >= observed * (1 - RELATIVE)).sum(axis=0)
        if self.exact:
            return np.asarray(reached / len(permuted))
        return np.asarray((1 + reached) / (1 + len(permuted)))


def permute(rates: Floats, sizes: Sequence[int], resamples: int = 10_000, seed: int = 0) -> Permuted:
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
    >>> permuted = permute(rates, [3, 3])  # of 20 permutations, the data and their mirror image are the extremes
    >>> permuted.adjust(), round(permuted.joint([0, 1]).p, 3)
    ([0.1, 1.0], 0.1)
    """
    rates = np.asarray(rates, np.float64)
    check_values(rates)
    n = sum(sizes)
    if rates.ndim != 2 or rates.shape[1] != n or len(sizes) < 2 or min(sizes) < 2:
        raise UsageError(
            "expected rates (attacks, training runs) of at least two frameworks with at least two trainings each; "
            f"received {rates.shape} and {', '.join(map(str, sizes))} trainings"
        )
    members = np.repeat(np.arange(len(sizes)), sizes)
    [observed] = _statistics(rates, sizes, members[None])
    observed = np.where(np.isinf(observed), 0.0, observed)
    count = math.factorial(n) // math.prod(math.factorial(size) for size in sizes)
    if count <= resamples:
        return Permuted(observed, _statistics(rates, sizes, np.array(list(_assignments(members)))), True)
    rng = np.random.default_rng(seed)
    parts = [
        _statistics(rates, sizes, rng.permuted(np.broadcast_to(members, (size, n)), axis=1))
        for size in split_resamples(resamples, n * len(sizes))
    ]
    return Permuted(observed, np.concatenate(parts), False)


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
            assigned[members_of] = members[0]
            assigned[~members_of] = rest
            yield assigned


def _statistics(rates: Floats, sizes: Sequence[int], members: NDArray[np.int64]) -> Floats:
    """Return the statistic of each attack for rows of groups (permutations, training runs), (permutations, attacks)."""
    centred = rates - rates.mean(axis=1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=1, keepdims=True))
    scaled = np.divide(centred, spread, out=np.zeros_like(centred), where=spread**2 > NO_VARIANCE)
    counts = np.array(sizes, np.float64)[:, None]
    of_groups = (members[:, None, :] == np.arange(len(sizes))[:, None]).astype(np.float64)
    sums = of_groups @ scaled.T  # (permutations, frameworks, attacks)
    squares = of_groups @ (scaled**2).T
    between = (sums**2 / counts).sum(axis=1)
    variances = np.maximum(squares - sums**2 / counts, 0) / (counts - 1)
    within = ((1 - counts / counts.sum()) * variances).sum(axis=1)
    undefined = np.where(between > RELATIVE, np.inf, 0.0)
    return np.asarray(np.divide(between, within, out=undefined, where=within > RELATIVE))
