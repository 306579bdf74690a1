"""What a log is to the pipeline, be it a directory or a running broker: ranges of offsets, splits of them, and rows.

The directory and the broker implement `LogSource`; planning and Spark's classes know nothing but this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import pyarrow as pa

Table = Literal["records", "batches"]
Mode = Literal["FAILFAST", "PERMISSIVE", "DROPMALFORMED"]


class TopicPartition(NamedTuple):
    """One partition of a topic; as text it is called as Kafka names its directory, `orders-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetRange(NamedTuple):
    """The offsets from `start` up to, not including, `end` of a partition."""

    partition: TopicPartition
    start: int
    end: int


class Bounds(NamedTuple):
    """The first offset there is, and the one after the last to read: high watermark, or last stable offset."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class Split:
    """A part that one Spark task reads: a range of offsets, and for a directory where its batches lie.

    It travels by pickle. `place` is the implementation's own (None for a broker).
    """

    offsets: OffsetRange
    place: object = None


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """How the rows of a split are wanted: of which table, which columns in which order, and what of damage."""

    table: Table
    columns: tuple[str, ...]
    mode: Mode = "FAILFAST"
    fail_on_data_loss: bool = True
    verify_crc: bool = False
    measure_one_in: int = 0  # of how many batches one is decompressed to measure it; 0: none is


class PipelineError(Exception):
    """An error that a user needs to know, in one line: Spark shows it without the way through our code."""


class OptionError(PipelineError, ValueError):
    """An option of a reader or writer that cannot be, said in one line."""


class DataLoss(PipelineError):
    """Offsets that were to be read are no longer there; with `failOnDataLoss=false` they are passed over."""


class CorruptData(PipelineError):
    """A batch is damaged: file (or broker), position and offset are in the message."""


class LogSource(Protocol):
    """A log that can be read in parallel. Implementations pickle cheaply: they connect and open on first use."""

    def partitions(self) -> Sequence[TopicPartition]:
        """The partitions that the options select, sorted. Raises `OptionError` if they name some that do not exist."""
        ...

    def bounds(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Bounds]:
        """Where the partitions begin and end now, under the isolation level of the options."""
        ...

    def offsets_at(self, timestamps_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """The first offset whose timestamp is not before the given one, None where there is none."""
        ...

    def splits(self, ranges: Sequence[OffsetRange], min_splits: int = 0) -> list[Split]:
        """Split the ranges for tasks that together read them, each once. Raises `DataLoss`."""
        ...

    def read(self, split: Split, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        """The rows of one split, in the order of their offsets. Raises `DataLoss` and `CorruptData`."""
        ...

    def close(self) -> None:
        """Give back connections and files."""
        ...
