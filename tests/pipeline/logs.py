"""Log directories for the tests of the jobs: segments with batches of our encoder, and nothing else."""

from __future__ import annotations

from pathlib import Path

from minibroker.pipeline.encoder import BatchSettings, Producer, encode_rows
from minibroker.protocol.records.record import Record
from minibroker.storage.checkpoints.checkpoint_texts import (
    PARTITION_METADATA,
    format_partition_metadata,
)
from tests.pipeline.encode.rows import rows_of

NOW_MS = 1_790_000_000_000  # 2026-09-21
DAY_MS = 86_400_000


def records(count: int, start: int = 0, *, size: int = 10, step_ms: int = 1000) -> list[Record]:
    """Records whose values tell their offsets; every fourth has no value, every fifth no key, every sixth a header."""
    return [
        Record(
            offset=offset,
            timestamp=NOW_MS + offset * step_ms,
            key=None if offset % 5 == 4 else b"k%d" % (offset % 7),
            value=None if offset % 4 == 3 else b"%d" % offset * size,
            headers=((("h", b"%d" % offset),) if offset % 6 == 5 else ()),
        )
        for offset in range(start, start + count)
    ]


def write_log(
    root: Path,
    topic: str,
    partition: int,
    rows: list[Record],
    settings: BatchSettings = BatchSettings(),  # noqa: B008 - it is frozen
    producer: Producer = Producer(),  # noqa: B008 - it is frozen
    topic_id: bytes | None = None,
) -> Path:
    """Write, or append to, a partition of a log directory; its directory."""
    directory = root / f"{topic}-{partition}"
    directory.mkdir(parents=True, exist_ok=True)
    if topic_id is not None:
        (directory / PARTITION_METADATA).write_bytes(format_partition_metadata(topic_id))
    with (directory / f"{0:020}.log").open("ab") as file:
        for batch in encode_rows(rows_of(rows), settings, producer, base_offset=rows[0].offset):
            file.write(batch.data)
    return directory
