"""Reading: pictures of a benchmark, one a file, as Matplotlib axes."""

from __future__ import annotations

from ...report.plots import Drawing, picture
from ..performance import Performance
from . import latency, learning, resources, time_to_accuracy


class BenchmarkPlots(Drawing[Performance]):
    """The pictures of a benchmark; each method returns its Matplotlib axes."""

    learning = picture(learning.draw)
    time_to_accuracy = picture(time_to_accuracy.draw)
    latency = picture(latency.draw)
    resources = picture(resources.draw)
