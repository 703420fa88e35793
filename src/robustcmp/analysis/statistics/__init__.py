"""Statistics of success rates and of times, from arrays alone: one kind a file. Imports the ground alone."""

from .draws import (
    CommonDraws as CommonDraws,
)
from .draws import (
    common_draws as common_draws,
)
from .draws import (
    fall_probability as fall_probability,
)
from .equivalence import (
    Equivalence as Equivalence,
)
from .equivalence import (
    equivalent_frameworks as equivalent_frameworks,
)
from .equivalence import (
    equivalent_models as equivalent_models,
)
from .equivalence import (
    equivalent_shift as equivalent_shift,
)
from .equivalence import (
    equivalent_twins as equivalent_twins,
)
from .foundations import (
    ONE_TRAINING as ONE_TRAINING,
)
from .hypotheses import (
    NOTHING_VARIES as NOTHING_VARIES,
)
from .hypotheses import (
    Difference as Difference,
)
from .hypotheses import (
    Evidence as Evidence,
)
from .hypotheses import (
    brown_forsythe as brown_forsythe,
)
from .hypotheses import (
    cochran_q as cochran_q,
)
from .hypotheses import (
    f_test as f_test,
)
from .hypotheses import (
    friedman as friedman,
)
from .hypotheses import (
    holm as holm,
)
from .hypotheses import (
    label_permutation as label_permutation,
)
from .hypotheses import (
    mantel as mantel,
)
from .hypotheses import (
    mcnemar as mcnemar,
)
from .hypotheses import (
    paired_t as paired_t,
)
from .hypotheses import (
    pooled_t as pooled_t,
)
from .hypotheses import (
    sign_flips as sign_flips,
)
from .hypotheses import (
    sign_test as sign_test,
)
from .hypotheses import (
    welch_t as welch_t,
)
from .intervals import (
    EVERYTHING as EVERYTHING,
)
from .intervals import (
    NO_EVIDENCE as NO_EVIDENCE,
)
from .intervals import (
    Interval as Interval,
)
from .intervals import (
    bootstrap_interval as bootstrap_interval,
)
from .intervals import (
    difference_intervals as difference_intervals,
)
from .intervals import (
    paired_two_way_interval as paired_two_way_interval,
)
from .intervals import (
    resampled_rates as resampled_rates,
)
from .intervals import (
    t_interval as t_interval,
)
from .intervals import (
    two_way_interval as two_way_interval,
)
from .intervals import (
    wilson_interval as wilson_interval,
)
from .permutations import (
    Together as Together,
)
from .permutations import (
    westfall_young as westfall_young,
)
from .power import (
    detectable_between_groups as detectable_between_groups,
)
from .power import (
    detectable_between_models as detectable_between_models,
)
from .power import (
    trainings_needed as trainings_needed,
)
from .ranks import (
    ChangePoint as ChangePoint,
)
from .ranks import (
    Located as Located,
)
from .ranks import (
    Trend as Trend,
)
from .ranks import (
    a12 as a12,
)
from .ranks import (
    change_point as change_point,
)
from .ranks import (
    hodges_lehmann as hodges_lehmann,
)
from .ranks import (
    kolmogorov_smirnov as kolmogorov_smirnov,
)
from .ranks import (
    median_interval as median_interval,
)
from .ranks import (
    pairs_needed as pairs_needed,
)
from .ranks import (
    smallest_p as smallest_p,
)
from .ranks import (
    trend as trend,
)
from .ranks import (
    wilcoxon as wilcoxon,
)
from .variance import (
    NestedVariance as NestedVariance,
)
from .variance import (
    Prediction as Prediction,
)
from .variance import (
    RateVariance as RateVariance,
)
from .variance import (
    nested_variance as nested_variance,
)
from .variance import (
    prediction_interval as prediction_interval,
)
from .variance import (
    rate_variance as rate_variance,
)
from .variance import (
    upper_variance as upper_variance,
)
