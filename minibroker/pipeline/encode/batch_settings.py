"""The encoder's input and output: the settings of batches, their producer, and the encoded batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from minibroker.protocol.records.batch import CREATE_TIME
from minibroker.protocol.records.compression import Compression

LEVELS = {Compression.GZIP: (1, 9), Compression.LZ4: (1, 17), Compression.ZSTD: (-131072, 22)}  # the others have none


class EncodeError(ValueError):
    """Rows that cannot be encoded with these settings. The message is one line."""


@dataclass(frozen=True)
class BatchSettings:
    """How to encode rows.

    A batch has at most `batch_bytes` before compression and at most `batch_records` records, but at least one. `level`
    is the codec's; None is its default. With `timestamp_type` 1 (log append time), a batch ends where the timestamp
    changes, as all its records share one. Raises `EncodeError` for contradicting settings.
    """

    codec: Compression = Compression.NONE
    level: int | None = None
    batch_bytes: int = 16384
    batch_records: int | None = None
    timestamp_type: int = CREATE_TIME

    def __post_init__(self) -> None:
        if self.level is not None and not _has_level(self.codec, self.level):
            raise EncodeError(f"the codec {self.codec.name.lower()} has no level {self.level}")
        if self.batch_bytes < 1 or (self.batch_records is not None and self.batch_records < 1):
            raise EncodeError("a batch holds at least a byte and a record")


def _has_level(codec: Compression, level: int) -> bool:
    """Return whether Kafka's codec has this level; -1 is gzip's default."""
    levels = LEVELS.get(codec)
    return (codec == Compression.GZIP and level == -1) or (levels is not None and levels[0] <= level <= levels[1])


@dataclass(frozen=True)
class Producer:
    """The producer of batches; -1 is none. Sequences continue from `base_sequence`, by the distance of offsets."""

    producer_id: int = -1
    epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False


class RowsOrigin(NamedTuple):
    """The producer of the rows from `start` to the next origin. A batch has the rows of only one origin.

    Its last batch reaches to `last_offset`, beyond its last record, as after compaction.
    """

    start: int
    producer: Producer = Producer()
    leader_epoch: int = -1
    last_offset: int | None = None


class EncodedBatch(NamedTuple):
    """A batch of format 2."""

    data: bytes
    record_count: int
