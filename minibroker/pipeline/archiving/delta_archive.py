"""An archive in a table of Delta, by delta-rs. Notes are the commits' own metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa

from minibroker.pipeline.archiving import archive_tables
from minibroker.pipeline.archiving.parquet_archive import make_scan
from minibroker.pipeline.engines import Engine
from minibroker.pipeline.log_source import Split

if TYPE_CHECKING:
    from deltalake import DeltaTable

Codec = Literal["UNCOMPRESSED", "ZSTD", "SNAPPY", "GZIP", "LZ4_RAW"]

CODECS: Final[Mapping[str, Codec]] = {
    "none": "UNCOMPRESSED",
    "zstd": "ZSTD",
    "snappy": "SNAPPY",
    "gzip": "GZIP",
    "lz4": "LZ4_RAW",
}
RECENT_COMMITS: Final = 20


@dataclass(frozen=True)
class DeltaArchive:
    """The table at a directory or URL. `storage` has delta-rs's options of the object store."""

    location: str
    storage: Mapping[str, str] = field(default_factory=dict)
    compression: str = "zstd"

    def _open_table(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self.location, storage_options=dict(self.storage))
        except TableNotFoundError:
            return None

    def exists(self) -> bool:
        """Return whether there are commits."""
        return self._open_table() is not None

    def finish_interrupted_commit(self) -> None:
        """Raise `ArchiveError` if the table is no archive."""
        table = self._open_table()
        missing = {"topic", "partition", "offset"} - {each.name for each in table.schema().fields} if table else set()
        if missing:
            raise archive_tables.ArchiveError(
                f"{self.location} is not an archive: it has no {', '.join(sorted(missing))}"
            )

    def read_newest_note(self) -> archive_tables.CommitNote | None:
        """Return the newest note, or None. Delta keeps a commit's metadata for 30 days by default."""
        return self._read_newest_note(self._open_table())

    def _read_newest_note(self, table: DeltaTable | None) -> archive_tables.CommitNote | None:
        for limit in (RECENT_COMMITS, None):
            for commit in table.history(limit) if table else ():
                note = archive_tables.parse_note(commit.get(archive_tables.NOTE), self.location)
                if note is not None:
                    return note
        return None

    def append_commit(
        self,
        rows_reader: archive_tables.ArchiveRowsReader,
        splits: Sequence[Split],
        note: archive_tables.CommitNote,
        engine: Engine,
    ) -> archive_tables.WrittenTotals:
        """Append the rows of these splits by one commit with this note. This process writes them, all in one stream.

        A run that commits at the same time makes this one fail.
        """
        from deltalake import CommitProperties, Transaction, WriterProperties, write_deltalake
        from deltalake.exceptions import CommitFailedError, DeltaError

        table, totals = self._open_table(), archive_tables.WrittenTotals()
        archive_tables.require_next_note(self._read_newest_note(table), note, self.location)
        rows = RowsForDelta(rows_reader.read_rows(splits, totals))
        try:
            write_deltalake(
                table or self.location,
                pa.RecordBatchReader.from_batches(rows.schema, iter(rows)),
                mode="append",
                schema_mode="merge",
                partition_by=list(archive_tables.DIRECTORIES),
                storage_options=dict(self.storage),
                writer_properties=WriterProperties(compression=CODECS[self.compression]),
                commit_properties=CommitProperties(
                    custom_metadata={archive_tables.NOTE: note.encode_as_text()},
                    app_transactions=[Transaction(archive_tables.NOTE, note.number)],
                ),
            )
        except CommitFailedError as error:
            raise archive_tables.ArchiveError(
                f"{self.location}: another run writes to it at the same time: {error}"
            ) from None
        except DeltaError as error:
            raise rows.error or archive_tables.ArchiveError(f"{self.location}: {error}") from None
        return totals

    def count_records(self) -> int:
        """Return the number of records, by the footers of its files."""
        table = self._open_table()
        return int(table.to_pyarrow_dataset().count_rows()) if table is not None else 0

    def open_scan(self) -> archive_tables.RowsScan:
        """Open the table as it is now. Raises `ArchiveError` if there is none."""
        table = self._open_table()
        if table is None:
            raise archive_tables.ArchiveError(f"there is no table {self.location}")
        return make_scan(table.to_pyarrow_dataset())


class RowsForDelta:
    """Rows on their way through delta-rs, which would make a page of text of an error: `error` is what it was."""

    def __init__(self, rows: Iterator[pa.RecordBatch]) -> None:
        self._first = next(rows, None)
        self._rest = rows
        self.schema: pa.Schema = archive_tables.SCHEMA if self._first is None else self._first.schema
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            if self._first is not None:
                yield self._first
                yield from self._rest
        except Exception as error:
            self.error = error
            raise
