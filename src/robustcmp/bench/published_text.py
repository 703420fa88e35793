"""Published times beside those of a benchmark, and what they do not say."""

from __future__ import annotations

import math

from ..report.format import NOTHING, ratio, seconds
from ..report.layout import Column, Table, names
from .performance import Performance
from .published import beside, sources

KERAS = (
    "keras: the published times are of Keras 2 on TensorFlow 1, ours of the host keras-tensorflow, Keras 3 on "
    "TensorFlow 2, and include the way of a batch to another process."
)
LEAD = (
    "Ratios between frameworks can be set beside ours within each source; absolute times cannot, because hardware, "
    "networks, batches, epochs and versions differ."
)


def tables(results: Performance) -> list[Table]:
    """Return the table of published times of the same data set; none where there are none."""
    published = beside(results)
    if not published:
        return []
    columns = [*names("source", "time of", "hardware", "framework"), Column("published", seconds), Column("batch", str)]
    columns += [Column("ratio to", str), Column("published ratio", ratio), Column("ours", ratio)]
    columns += [Column("our batch", str)]
    rows = [
        [
            *(each.source, each.of, each.hardware, each.framework),
            each.seconds,
            NOTHING if each.batch_size is None else each.batch_size,
            *(each.relative_to, each.ratio, each.ours),
            NOTHING if each.our_batch_size is None or math.isnan(each.ours) else each.our_batch_size,
        ]
        for each in published
    ]
    return [Table("Published times beside ours: only ratios within a source can be compared", columns, rows)]


def notes(results: Performance) -> list[str]:
    """Say where the published times are from, and what differs."""
    published = beside(results)
    shown = {each.source for each in published}
    if not shown:
        return []
    return [
        LEAD,
        *([KERAS] if any(each.framework == "keras" and not math.isnan(each.ours) for each in published) else []),
        *(
            f"{source['name']}: {source['cite']} ({source['at']}). Versions: {source['versions']}. What differs: "
            f"{source['differs']}."
            for source in sources()
            if source["name"] in shown
        ),
    ]
