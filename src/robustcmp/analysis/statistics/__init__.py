"""Statistics of success rates, from arrays alone: one kind a file. Imports the ground alone."""

from .draws import CommonDraws, common_draws, fall_probability
from .foundations import ONE_TRAINING
from .hypotheses import (
    NOTHING_VARIES,
    Difference,
    Evidence,
    cochran_q,
    f_test,
    friedman,
    holm,
    label_permutation,
    mantel,
    mcnemar,
    pooled_t,
    sign_flips,
    sign_test,
)
from .intervals import (
    EVERYTHING,
    NO_EVIDENCE,
    Interval,
    bootstrap_interval,
    difference_intervals,
    resampled_rates,
    t_interval,
    two_way_interval,
    wilson_interval,
)
from .variance import NestedVariance, nested_variance

__all__ = [
    "EVERYTHING",
    "NOTHING_VARIES",
    "NO_EVIDENCE",
    "ONE_TRAINING",
    "CommonDraws",
    "Difference",
    "Evidence",
    "Interval",
    "NestedVariance",
    "bootstrap_interval",
    "cochran_q",
    "common_draws",
    "difference_intervals",
    "f_test",
    "fall_probability",
    "friedman",
    "holm",
    "label_permutation",
    "mantel",
    "mcnemar",
    "nested_variance",
    "pooled_t",
    "resampled_rates",
    "sign_flips",
    "sign_test",
    "t_interval",
    "two_way_interval",
    "wilson_interval",
]
