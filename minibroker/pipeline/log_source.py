"""The interface of a log to the pipeline: selected partitions, ranges of offsets, splits of them, and rows.

The directory and the broker implement `LogSource`; planning and Spark's classes use only this.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import pyarrow as pa

Table = Literal["records", "batches"]
Mode = Literal["FAILFAST", "PERMISSIVE", "DROPMALFORMED"]


class TopicPartition(NamedTuple):
    """One partition of a topic. As text it is Kafka's name of its directory, such as `orders-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetRange(NamedTuple):
    """The offsets of a partition from `start` to before `end`."""

    partition: TopicPartition
    start: int
    end: int


class Bounds(NamedTuple):
    """The first offset, and the end: high watermark or last stable offset."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class Split:
    """The part for one Spark task: a range of offsets, and for a directory the places of its batches.

    It is pickled. `place` belongs to the implementation (None for a broker).
    """

    offsets: OffsetRange
    place: object = None


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What to read of a split: table, columns and their order, and how to handle damage."""

    table: Table
    columns: tuple[str, ...]
    mode: Mode = "FAILFAST"
    fail_on_data_loss: bool = True
    verify_crc: bool = False


class PipelineError(Exception):
    """An error with a message of one line. Spark shows it without our stack trace."""


class OptionError(PipelineError, ValueError):
    """An invalid option of a reader or writer. The message is one line."""


class DataLoss(PipelineError):
    """Offsets that should be read no longer exist. With `failOnDataLoss=false` they are skipped."""


class CorruptData(PipelineError):
    """A batch is damaged. The message has file (or broker), position and offset."""


class LogSource(Protocol):
    """A log that can be read in parallel.

    Implementations are small when pickled: they connect and open on first use.
    """

    def list_partitions(self, *, missing_ok: bool = False) -> Sequence[TopicPartition]:
        """Return the partitions that the options select, sorted.

        Raises `OptionError` if a named one does not exist; with `missing_ok`, leave it out.
        """
        ...

    def find_bounds(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Bounds]:
        """Return where the partitions begin and end now, under the isolation level of the options."""
        ...

    def find_offsets_at(self, timestamps_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """Return the first offset with the given timestamp (ms) or a later one, or None if there is none."""
        ...

    def make_splits(self, ranges: Sequence[OffsetRange], min_splits: int = 0) -> list[Split]:
        """Split the ranges for tasks. Together they read each offset once. Raises `DataLoss`."""
        ...

    def read_split(self, split: Split, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split, in the order of their offsets. Raises `DataLoss` and `CorruptData`."""
        ...

    def close(self) -> None:
        """Close connections and files."""
        ...


# The topics of the brokers themselves. Kafka's clients list them only on request.
INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"))


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The partitions of `topics`, of topics in whose name `pattern` is found, or those `assigned`; else all.

    As in Spark's Kafka source, `orders` also finds `orders-eu`. Internal topics are selected only by name.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()

    def choose_partitions(
        self, existing: Iterable[TopicPartition], *, missing_ok: bool = False
    ) -> list[TopicPartition]:
        """Return the selected partitions among the existing ones, sorted.

        Raises `OptionError` if a named topic or partition does not exist, unless `missing_ok`, and for a malformed
        pattern.
        """
        there = sorted(existing)
        if missing_ok and (self.assigned or self.topics):
            return [each for each in there if each in self.assigned or each.topic in self.topics]
        if self.assigned:
            _refuse_missing_names("assign", [str(each) for each in set(self.assigned) - set(there)])
            return sorted(set(self.assigned))
        if self.topics:
            _refuse_missing_names("subscribe", set(self.topics) - {each.topic for each in there})
            return [each for each in there if each.topic in self.topics]
        search = _compile_pattern(self.pattern or "").search
        return [each for each in there if each.topic not in INTERNAL_TOPICS and search(each.topic)]


def _compile_pattern(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise OptionError(f"subscribePattern: {pattern!r} is not a regular expression: {error}") from None


def _refuse_missing_names(option: str, names: Iterable[str]) -> None:
    missing = sorted(names)
    if missing:
        raise OptionError(f"{option}: there is no {', '.join(missing)}")
