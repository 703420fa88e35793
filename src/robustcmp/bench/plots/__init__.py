"""Pictures of a benchmark, one a file, as Matplotlib axes."""

from __future__ import annotations

from typing import Any

from ...report.plots import Drawing, picture
from . import latency, trainings


class BenchmarkPlots(Drawing[Any]):
    """The pictures of a benchmark; each method returns its Matplotlib axes."""

    learning = picture(trainings.draw)
    latency = picture(latency.draw)
