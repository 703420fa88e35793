"""Who does the work of `robustcmp.evaluate`: this process, one for each framework, or workers of Dask.

All of them give the same results, bit for bit.
"""

from .runs.distributed import Distributed
from .runs.executor import Executor, Failed, Finished, InProcess
from .runs.isolated import Isolated

__all__ = ["Distributed", "Executor", "Failed", "Finished", "InProcess", "Isolated"]
