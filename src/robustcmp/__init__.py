"""Is one trained model easier to fool than another, and is the difference real?

The public names. Each is imported when it is first asked for: opening a stored run loads no framework and no attack.
"""

from __future__ import annotations

import os
from importlib import import_module

# GitPython, which Foolbox imports, would fail where there is no git.
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

TYPE_CHECKING = False  # a command handles interrupts after this file: it does not wait for typing
if TYPE_CHECKING:
    from typing import Any

    __version__: str

    from . import attacks
    from .analysis import statistics
    from .analysis.indicator import robustness_indicator
    from .bench.benchmark import open_benchmark
    from .bench.measure import benchmark
    from .compare import evaluate
    from .data import load_dataset
    from .deployments.deploy import deploy, open_deployed
    from .errors import RobustcmpError
    from .evaluation import Evaluation, open_run
    from .models.averaged import averaged
    from .models.functions import wrap_functions
    from .models.model import predict, wrap
    from .runs.subset import common_subset
    from .sources.from_code import from_function
    from .sources.from_zoo import load_model, same_weights
    from .sources.training import fit

__all__ = [
    "Evaluation",
    "RobustcmpError",
    "attacks",
    "averaged",
    "benchmark",
    "common_subset",
    "deploy",
    "evaluate",
    "fit",
    "from_function",
    "load_dataset",
    "load_model",
    "open_benchmark",
    "open_deployed",
    "open_run",
    "predict",
    "robustness_indicator",
    "same_weights",
    "statistics",
    "wrap",
    "wrap_functions",
]

_HOME = {
    "Evaluation": "evaluation",
    "RobustcmpError": "errors",
    "averaged": "models.averaged",
    "benchmark": "bench.measure",
    "common_subset": "runs.subset",
    "deploy": "deployments.deploy",
    "evaluate": "compare",
    "fit": "sources.training",
    "from_function": "sources.from_code",
    "load_dataset": "data",
    "load_model": "sources.from_zoo",
    "open_benchmark": "bench.benchmark",
    "open_deployed": "deployments.deploy",
    "open_run": "evaluation",
    "predict": "models.model",
    "robustness_indicator": "analysis.indicator",
    "same_weights": "sources.from_zoo",
    "wrap": "models.model",
    "wrap_functions": "models.functions",
}
_MODULES = {"attacks": "attacks", "statistics": "analysis.statistics"}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module(".provenance", __name__).own_version()
    if name in _MODULES:
        return import_module(f".{_MODULES[name]}", __name__)
    if name in _HOME:
        value = getattr(import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
