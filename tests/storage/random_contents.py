"""What random histories of a log are made of: settings under which much happens soon, and records with few keys."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from minibroker.protocol.records.record import Record
from minibroker.storage.log_settings import MAX_LONG, LogSettings

KEYS = (b"a", b"b", b"c", b"d")
POLICIES = ({"delete"}, {"delete"}, {"compact"}, {"compact", "delete"})


def random_settings(random: Random) -> LogSettings:
    """Return settings of a log whose segments are small and soon over."""
    return LogSettings(
        segment_bytes=random.choice((150, 400, 1500, 6000)),
        segment_ms=random.choice((50, 10_000)),
        segment_jitter_ms=random.choice((0, 20)),
        segment_index_bytes=random.choice((48, 10_000)),
        index_interval_bytes=random.choice((0, 100, 400)),
        flush_messages=random.choice((MAX_LONG, 1, 5)),
        retention_ms=random.choice((-1, 200)),
        retention_bytes=random.choice((-1, -1, 1000)),
        file_delete_delay_ms=0,
        cleanup_policy=frozenset(random.choice(POLICIES)),
        delete_retention_ms=random.choice((0, 10_000)),
        preallocate=random.random() < 0.1,
    )


def random_records(random: Random, timestamps: Sequence[int], number: int) -> tuple[list[Record], int]:
    """Return a few records with a timestamp of these, in ms, and a codec; `number` is the one of the record before."""
    timestamp = random.choice(timestamps)
    padding = b"v" * random.choice((1, 30, 700))
    records = []
    for _ in range(random.randint(1, 4)):
        number += 1
        value = None if random.random() < 0.1 else b"%d %s" % (number, padding)
        records.append(Record(timestamp=timestamp, key=random.choice(KEYS), value=value))
    return records, random.choice((0, 0, 1, 4))
