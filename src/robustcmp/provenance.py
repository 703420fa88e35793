"""What a result was computed with: versions and hardware, as JSON types."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = ("robustcmp", "numpy", "scipy", "foolbox", "eagerpy", "h5py", "xarray", "keras", "jaxlib")


def package_version(name: str) -> str | None:
    """Return the version of an installed package, or None; nothing is imported."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@cache
def own_version() -> str:
    """Return the version of robustcmp, from its package's metadata."""
    return package_version("robustcmp") or "unknown"


def processor() -> str:
    """Return what the processor calls itself, "" where the system does not tell."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        return platform.processor()


def made_with() -> dict[str, Any]:
    """Return the versions and the hardware that a result may depend on in its last bits."""
    return {
        "versions": {"python": platform.python_version()} | {name: package_version(name) for name in PACKAGES},
        "system": platform.system(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
    }
