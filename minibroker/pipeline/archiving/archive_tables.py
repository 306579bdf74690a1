"""What plain Parquet and tables of Iceberg and Delta have in common: commits with a note, and rows by their offsets.

Each append is one commit, and each commit also notes how far the archive is. So there is no moment at which records
are in the archive and the note is not, or the other way round.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from minibroker.pipeline.archiving.archive_rows import Reading, Totals
from minibroker.pipeline.engines import Engine
from minibroker.pipeline.log_source import PipelineError, Split, TopicPartition
from minibroker.pipeline.stream_planning import JsonOffsets

NOTE: Final = "minibroker.archive"


class ArchiveError(PipelineError):
    """An archive cannot be continued or read. The message is one line."""


@dataclass(frozen=True)
class ArchiveNote:
    """What a commit notes: its number, the next offset of each partition, and identity and configs of the topics."""

    number: int = -1
    offsets: JsonOffsets = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def text(self) -> str:
        """Return the note as a commit has it."""
        return json.dumps({NOTE: asdict(self)}, sort_keys=True)


def parse_note(text: str | None, where: str) -> ArchiveNote | None:
    """Return the note in the text of a commit, or None if it is none of ours. Raises `ArchiveError`."""
    if text is None or NOTE not in text:
        return None
    try:
        return ArchiveNote(**json.loads(text)[NOTE])
    except (ValueError, KeyError, TypeError) as error:
        raise ArchiveError(f"{where} is malformed: {error!r}") from error


def require_next(found: ArchiveNote | None, note: ArchiveNote, where: str) -> None:
    """Raise `ArchiveError` unless a note follows the newest one that is there."""
    if found is not None and found.number + 1 != note.number:
        raise ArchiveError(f"{where}: another run writes to it at the same time")


class Window(NamedTuple):
    """The rows of one partition with offsets from `start` to before `end`."""

    partition: TopicPartition
    start: int
    end: int


# Yields these columns of all rows or of a window, in any order.
Scan = Callable[[Sequence[str], Window | None], Iterator[pa.RecordBatch]]


class ArchiveTable(Protocol):
    """An archive of one format. It is small when pickled, and opens what it needs."""

    @property
    def where(self) -> str:
        """What messages call it."""
        ...

    def prepare(self) -> None:
        """Do what a killed run has left to do. Raises `ArchiveError` if there is something else than an archive."""
        ...

    def note(self) -> ArchiveNote | None:
        """Return the newest note, or None if there is none."""
        ...

    def exists(self) -> bool:
        """Return whether there are commits."""
        ...

    def append(self, reading: Reading, splits: Sequence[Split], note: ArchiveNote, engine: Engine) -> Totals:
        """Append the rows of these splits by one commit with this note."""
        ...

    def count(self) -> int:
        """Return the number of records, by metadata."""
        ...

    def compact(self) -> None:
        """Merge small files."""
        ...

    def scanner(self) -> Scan:
        """Open the archive as it is now. Raises `ArchiveError` if there is none."""
        ...


class Archived(NamedTuple):
    """A partition in an archive: records, first and last offset, and the time of the oldest record in ms."""

    partition: TopicPartition
    records: int
    first: int
    last: int
    oldest_ms: int | None


def list_archived_partitions(table: ArchiveTable) -> list[Archived]:
    """Return the archive's partitions, sorted, without reading keys and values."""
    batches = table.scanner()(("topic", "partition", "offset", "timestamp"), None)
    aggregates = [("offset", "count"), ("offset", "min"), ("offset", "max"), ("timestamp", "min")]
    tables = (pa.Table.from_batches([batch]) for batch in batches)
    partial = [each.group_by(["topic", "partition"]).aggregate(aggregates) for each in tables]
    if not partial:
        return []
    sums = [("offset_count", "sum"), ("offset_min", "min"), ("offset_max", "max"), ("timestamp_min", "min")]
    whole = pa.concat_tables(partial).group_by(["topic", "partition"]).aggregate(sums)
    times = pc.divide(pc.cast(whole.column("timestamp_min_min"), pa.int64()), 1000).to_pylist()
    names = ("topic", "partition", "offset_count_sum", "offset_min_min", "offset_max_max")
    rows = zip(*(whole.column(name).to_pylist() for name in names), times, strict=True)
    return sorted(Archived(TopicPartition(*row[:2]), *row[2:]) for row in rows)
