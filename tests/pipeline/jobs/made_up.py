"""Statistics of logs that there never were, for the tests of tables and plots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minibroker.pipeline.jobs.stats_report import KeySkew, Rate, SizeClass, Statistics, Traffic

START_MS = 1_790_000_000_000
MINUTE_MS = 60_000
ROW: dict[str, Any] = {  # of batches of which a tenth was measured, as the query of `stats` gives it
    "records": 1000,
    "batches": 100,
    "bytes": 50_000,
    "median_batch_bytes": 500,
    "max_batch_bytes": 900,
    "control_batches": 0,
    "control_bytes": 0,
    "first_ms": START_MS,
    "last_ms": START_MS + 10 * MINUTE_MS,
    "measured_batches": 10,
    "measured_records": 100,
    "measured_bytes": 5_000,
    "measured_uncompressed_bytes": 15_000,
    "measured_key_bytes": 1_000,
    "measured_value_bytes": 12_000,
    "measured_null_values": 3,
}


def traffic(records: int = 1000, **by: str | int) -> Traffic:
    """A tenth of whose batches was measured."""
    return Traffic.of({**ROW, "records": records, "bytes": records * 50, **by}, tuple(by), 1_000_000)


def statistics(topics: Sequence[str] = ("orders",), partitions: int = 1, *, keys: bool = True) -> Statistics:
    """Of so many topics with so many partitions each, over ten minutes."""
    skew = KeySkew.of(topics[0], [(50, 1), (1, 50)], [(b"hot", 50), (None, 5)])
    return Statistics(
        "/data",
        10,
        traffic(),
        {
            "topic, partition": [
                traffic(100 + 7 * each, topic=topic, partition=each) for topic in topics for each in range(partitions)
            ],
            "codec, format": [traffic(codec=codec, format=2) for codec in ("zstd", "none")],
            "producer": [traffic(producer=-1), traffic(producer=4711)],
        },
        {"producer": 3},
        MINUTE_MS,
        [Rate(topic, START_MS + each * MINUTE_MS, 60 * each, 6000 * each) for topic in topics for each in range(10)],
        [SizeClass("zstd", 512, 9), SizeClass("zstd", 724, 4), SizeClass("none", 724, 1)],
        [skew] if keys else None,
    )
