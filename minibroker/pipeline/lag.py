"""The lag of a streaming query, as Spark's own Kafka source reports it: how far it is behind the end of each partition.

Spark takes metrics from sources written in Java only. What they are made of is in the progress of every query:

    from minibroker.pipeline.lag import offsets_behind
    offsets_behind(query.lastProgress)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple

from minibroker.pipeline.planning import Offsets
from minibroker.pipeline.stream_planning import from_json


class SourceLag(NamedTuple):
    """How many offsets a source has not read yet: most, fewest and average of its partitions, and in all."""

    topics: tuple[str, ...]
    max_offsets_behind_latest: int
    min_offsets_behind_latest: int
    avg_offsets_behind_latest: float
    offsets_behind_latest: int

    def metrics(self) -> dict[str, str]:
        """Return the metrics as the progress has them of Spark's Kafka source, the average with one decimal place."""
        average = Decimal(str(self.avg_offsets_behind_latest)).quantize(Decimal("0.1"), ROUND_HALF_UP)
        return {
            "avgOffsetsBehindLatest": f"{average:f}",
            "maxOffsetsBehindLatest": str(self.max_offsets_behind_latest),
            "minOffsetsBehindLatest": str(self.min_offsets_behind_latest),
        }


def offsets_behind(progress: Any) -> list[SourceLag]:
    """Return the lag of each of our sources after a batch, from `query.lastProgress` or a listener's `event.progress`.

    Sources of other kinds, whose offsets are not by topic and partition, are left out. None is no progress yet.
    """
    if progress is None:
        return []
    text = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    found = [_measure_lag(source.get("endOffset"), source.get("latestOffset")) for source in text["sources"]]
    return [lag for lag in found if lag is not None]


def _measure_lag(end: Any, latest: Any) -> SourceLag | None:
    read, there = _parse_offsets(end), _parse_offsets(latest)
    if not there:
        return None
    behind = [max(0, offset - read.get(partition, 0)) for partition, offset in there.items()]
    topics = tuple(sorted({partition.topic for partition in there}))
    return SourceLag(topics, max(behind), min(behind), sum(behind) / len(behind), sum(behind))


def _parse_offsets(value: Any) -> Offsets:
    """Return offsets by partition; none if the value, or the JSON text, has another form."""
    try:
        return from_json(json.loads(value) if isinstance(value, str) else value)
    except (ValueError, TypeError, AttributeError):
        return {}
