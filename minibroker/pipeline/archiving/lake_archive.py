"""Archives in tables of Iceberg and Delta, by pyiceberg and delta-rs, which write them in this process.

Iceberg is in any catalog that pyiceberg has, with its own names of properties; notes are properties of snapshots. Of
Delta, they are the commits' own metadata.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from minibroker.pipeline.archiving.archive_tables import (
    DIRECTORIES,
    NOTE,
    SCHEMA,
    ArchiveError,
    ArchiveRowsReader,
    CommitNote,
    OffsetWindow,
    RowsScan,
    WrittenTotals,
    make_scan,
    parse_note,
    require_next_note,
)
from minibroker.pipeline.engines import Engine
from minibroker.pipeline.log_source import Split

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table

Codec = Literal["UNCOMPRESSED", "ZSTD", "SNAPPY", "GZIP", "LZ4_RAW"]

CATALOG_NAME: Final = "name"  # in pyiceberg's own settings, beside the catalog's properties
DEFAULT_NAME: Final = "default"
RETRIES: Final = "commit.retry.num-retries"
CHUNK_BYTES: Final = 256 << 20  # of rows in memory; each chunk is a file for each topic and date in it
DELTA_CODECS: Final[Mapping[str, Codec]] = {
    "none": "UNCOMPRESSED",
    "zstd": "ZSTD",
    "snappy": "SNAPPY",
    "gzip": "GZIP",
    "lz4": "LZ4_RAW",
}
RECENT_COMMITS: Final = 20


class LakeArchive(ABC):
    """What tables of both formats have in common. `location` names the table."""

    location: str

    @abstractmethod
    def _open_table(self) -> Any:
        """Return the library's table as it is now, or None. Raises `ArchiveError`."""

    @abstractmethod
    def _list_columns(self, table: Any) -> list[str]:
        """Return the names of a table's columns."""

    @abstractmethod
    def _iterate_notes(self, table: Any) -> Iterator[str | None]:
        """Yield the text of each commit's note, the newest first; None for a commit without one."""

    @abstractmethod
    def _append_rows(self, table: Any, rows: Iterator[pa.RecordBatch], note: CommitNote) -> None:
        """Append rows to a table, or create it, by one commit with this note. Raises `ArchiveError`."""

    def exists(self) -> bool:
        """Return whether there are commits."""
        return self._open_table() is not None

    def finish_interrupted_commit(self) -> None:
        """Raise `ArchiveError` if the table is no archive."""
        table = self._open_table()
        missing = set() if table is None else {"topic", "partition", "offset"} - set(self._list_columns(table))
        if missing:
            raise ArchiveError(f"{self.location} is not an archive: it has no {', '.join(sorted(missing))}")

    def read_newest_note(self) -> CommitNote | None:
        """Return the newest note, or None if there is none."""
        return self._find_newest_note(self._open_table())

    def _find_newest_note(self, table: Any) -> CommitNote | None:
        texts = () if table is None else self._iterate_notes(table)
        return next((note for text in texts if (note := parse_note(text, self.location)) is not None), None)

    def append_commit(
        self, rows_reader: ArchiveRowsReader, splits: Sequence[Split], note: CommitNote, engine: Engine
    ) -> WrittenTotals:
        """Append the rows of these splits by one commit with this note. This process writes them, all in one stream.

        A run that commits at the same time makes this one fail.
        """
        table, totals = self._open_table(), WrittenTotals()
        require_next_note(self._find_newest_note(table), note, self.location)
        self._append_rows(table, rows_reader.read_rows(splits, totals), note)
        return totals

    def _make_conflict_error(self, reason: object) -> ArchiveError:
        """Return the error that another run writes to the table at the same time."""
        return ArchiveError(f"{self.location}: another run writes to it at the same time: {reason}")

    def _require_existing_table(self) -> Any:
        """Return the library's table. Raises `ArchiveError` if it does not exist."""
        table = self._open_table()
        if table is None:
            raise ArchiveError(f"there is no table {self.location}")
        return table


@dataclass(frozen=True)
class IcebergArchive(LakeArchive):
    """The table of an identifier such as `lake.orders`. `catalog` has pyiceberg's properties of the catalog."""

    location: str
    catalog: Mapping[str, str] = field(default_factory=dict)
    compression: str = "zstd"

    def _load_catalog(self) -> Catalog:
        from pyiceberg.catalog import load_catalog

        properties = {name: value for name, value in self.catalog.items() if name != CATALOG_NAME}
        return load_catalog(self.catalog.get(CATALOG_NAME, DEFAULT_NAME), **properties)

    def _open_table(self) -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError

        if "." not in self.location:
            raise ArchiveError(f"{self.location} is not like NAMESPACE.TABLE")
        try:
            return self._load_catalog().load_table(self.location)
        except NoSuchTableError:
            return None
        except ValueError as error:
            raise ArchiveError(f"the catalog of {self.location}: {error}") from None

    def exists(self) -> bool:
        """Return whether there are commits; a killed run may have left a table without any."""
        table = self._open_table()
        return table is not None and table.current_snapshot() is not None

    def _list_columns(self, table: Table) -> list[str]:
        return table.schema().column_names

    def _iterate_notes(self, table: Table) -> Iterator[str | None]:
        snapshot = table.current_snapshot()
        while snapshot is not None:
            yield snapshot.summary.additional_properties.get(NOTE) if snapshot.summary else None
            snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None

    def _create_table(self, schema: pa.Schema) -> Table:
        """Create the table and its namespace. Raises `ArchiveError` if another run has just done so."""
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        catalog = self._load_catalog()
        catalog.create_namespace_if_not_exists(self.location.rpartition(".")[0])
        codec = "uncompressed" if self.compression == "none" else self.compression
        properties = {"write.parquet.compression-codec": codec}
        try:
            creation = catalog.create_table_transaction(self.location, schema, properties=properties)
            with creation, creation.update_spec() as spec:
                for name in DIRECTORIES:
                    spec.add_identity(name)
        except (CommitFailedException, TableAlreadyExistsError) as error:
            raise self._make_conflict_error(error) from None
        except ValueError as error:  # there is no warehouse
            raise ArchiveError(f"the catalog of {self.location}: {error}") from None
        return catalog.load_table(self.location)

    def _append_rows(self, table: Table | None, rows: Iterator[pa.RecordBatch], note: CommitNote) -> None:
        from pyiceberg.exceptions import CommitFailedException

        chunks = cut_into_tables(rows)
        first = next(chunks, SCHEMA.empty_table())
        table = table or self._create_table(first.schema)
        table.metadata.properties[RETRIES] = "0"  # a retry would append to what another run has committed
        try:
            with table.transaction() as commit:
                for chunk in chain((first,), chunks):
                    if set(chunk.schema.names) != set(SCHEMA.names):  # decoded columns, perhaps more than the table has
                        with commit.update_schema() as update:
                            update.union_by_name(chunk.schema)
                    commit.append(chunk, snapshot_properties={NOTE: note.encode_as_text()})
        except CommitFailedException as error:
            raise self._make_conflict_error(error) from None

    def count_records(self) -> int:
        """Return the number of records, by the newest snapshot's summary."""
        table = self._open_table()
        snapshot = table.current_snapshot() if table else None
        summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
        return int(summary.get("total-records", "0"))

    def open_scan(self) -> RowsScan:
        """Open the table as it is now. Raises `ArchiveError` if there is none."""
        table = self._require_existing_table()

        def scan(columns: Sequence[str], window: OffsetWindow | None) -> Iterator[pa.RecordBatch]:
            yield from table.scan(
                row_filter=_make_iceberg_filter(window), selected_fields=tuple(columns)
            ).to_arrow_batch_reader()

        return scan


def _make_iceberg_filter(window: OffsetWindow | None) -> BooleanExpression:
    """Return a window as a filter of pyiceberg's."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.expressions.parser import parse

    if window is None:
        return AlwaysTrue()
    (topic, partition), start, end = window
    return parse(f"topic = '{topic}' AND partition = {partition} AND offset >= {start} AND offset < {end}")


def cut_into_tables(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield rows in tables of about `CHUNK_BYTES`."""
    chunk: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in rows:
        chunk.append(batch)
        size_bytes += batch.nbytes
        if size_bytes >= CHUNK_BYTES:
            yield pa.Table.from_batches(chunk)
            chunk, size_bytes = [], 0
    if chunk:
        yield pa.Table.from_batches(chunk)


@dataclass(frozen=True)
class DeltaArchive(LakeArchive):
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

    def _list_columns(self, table: DeltaTable) -> list[str]:
        return [each.name for each in table.schema().fields]

    def _iterate_notes(self, table: DeltaTable) -> Iterator[str | None]:
        """Yield the notes of recent commits, then of all. Delta keeps a commit's metadata for 30 days by default."""
        for limit in (RECENT_COMMITS, None):
            yield from (commit.get(NOTE) for commit in table.history(limit))

    def _append_rows(self, table: DeltaTable | None, rows: Iterator[pa.RecordBatch], note: CommitNote) -> None:
        from deltalake import CommitProperties, Transaction, WriterProperties, write_deltalake
        from deltalake.exceptions import CommitFailedError, DeltaError

        written = RowsForDelta(rows)
        try:
            write_deltalake(
                table or self.location,
                pa.RecordBatchReader.from_batches(written.schema, iter(written)),
                mode="append",
                schema_mode="merge",
                partition_by=list(DIRECTORIES),
                storage_options=dict(self.storage),
                writer_properties=WriterProperties(compression=DELTA_CODECS[self.compression]),
                commit_properties=CommitProperties(
                    custom_metadata={NOTE: note.encode_as_text()},
                    app_transactions=[Transaction(NOTE, note.number)],
                ),
            )
        except CommitFailedError as error:
            raise self._make_conflict_error(error) from None
        except DeltaError as error:
            raise written.error or ArchiveError(f"{self.location}: {error}") from None

    def count_records(self) -> int:
        """Return the number of records, by the footers of its files."""
        table = self._open_table()
        return int(table.to_pyarrow_dataset().count_rows()) if table is not None else 0

    def open_scan(self) -> RowsScan:
        """Open the table as it is now. Raises `ArchiveError` if there is none."""
        return make_scan(self._require_existing_table().to_pyarrow_dataset())


class RowsForDelta:
    """Rows on their way through delta-rs, which would make a page of text of an error: `error` is what it was."""

    def __init__(self, rows: Iterator[pa.RecordBatch]) -> None:
        self._first = next(rows, None)
        self._rest = rows
        self.schema: pa.Schema = SCHEMA if self._first is None else self._first.schema
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            if self._first is not None:
                yield self._first
                yield from self._rest
        except Exception as error:
            self.error = error
            raise
