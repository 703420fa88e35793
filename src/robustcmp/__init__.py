"""Is one trained model easier to fool than another, and is the difference real?

The public names. Importing this package loads no framework.
"""

from . import attacks, statistics
from .bridge import wrap_functions
from .data import Dataset, load_dataset
from .errors import RobustcmpError
from .evaluation import Evaluation, evaluate, open_run
from .indicator import robustness_indicator
from .model import Model, predict, wrap
from .subset import common_subset
from .zoo import fit, load_model, same_weights

__all__ = [
    "Dataset",
    "Evaluation",
    "Model",
    "RobustcmpError",
    "attacks",
    "common_subset",
    "evaluate",
    "fit",
    "load_dataset",
    "load_model",
    "open_run",
    "predict",
    "robustness_indicator",
    "same_weights",
    "statistics",
    "wrap",
    "wrap_functions",
]
