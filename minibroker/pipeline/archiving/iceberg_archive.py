"""An archive in a table of Iceberg, by pyiceberg: in any catalog that it has, with its own names of properties.

Notes are properties of snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

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
    parse_note,
    require_next_note,
)
from minibroker.pipeline.engines import Engine
from minibroker.pipeline.log_source import Split

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table

NAME: Final = "name"  # of the catalog in pyiceberg's own settings, beside its properties
DEFAULT_NAME: Final = "default"
RETRIES: Final = "commit.retry.num-retries"
CHUNK_BYTES: Final = 256 << 20  # of rows in memory; each chunk is a file for each topic and date in it


@dataclass(frozen=True)
class IcebergArchive:
    """The table of an identifier such as `lake.orders`. `catalog` has pyiceberg's properties of the catalog."""

    location: str
    catalog: Mapping[str, str] = field(default_factory=dict)
    compression: str = "zstd"

    def _open_table(self) -> tuple[Catalog, Table | None]:
        """Return the catalog, and the table if it exists. Raises `ArchiveError`."""
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError

        properties = {name: value for name, value in self.catalog.items() if name != NAME}
        if "." not in self.location:
            raise ArchiveError(f"{self.location} is not like NAMESPACE.TABLE")
        try:
            catalog = load_catalog(self.catalog.get(NAME, DEFAULT_NAME), **properties)
            return catalog, catalog.load_table(self.location)
        except NoSuchTableError:
            return catalog, None
        except ValueError as error:
            raise ArchiveError(f"the catalog of {self.location}: {error}") from None

    def exists(self) -> bool:
        """Return whether there are commits."""
        table = self._open_table()[1]
        return table is not None and table.current_snapshot() is not None

    def finish_interrupted_commit(self) -> None:
        """Raise `ArchiveError` if the table is no archive."""
        table = self._open_table()[1]
        missing = {"topic", "partition", "offset"} - set(table.schema().column_names) if table else set()
        if missing:
            raise ArchiveError(f"{self.location} is not an archive: it has no {', '.join(sorted(missing))}")

    def read_newest_note(self) -> CommitNote | None:
        """Return the newest note, or None if there is none."""
        return self._read_newest_note(self._open_table()[1])

    def _read_newest_note(self, table: Table | None) -> CommitNote | None:
        snapshot = table.current_snapshot() if table else None
        while table is not None and snapshot is not None:
            summary = snapshot.summary
            note = parse_note(summary.additional_properties.get(NOTE) if summary else None, self.location)
            if note is not None:
                return note
            snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None
        return None

    def _create_table(self, catalog: Catalog, schema: pa.Schema) -> Table:
        catalog.create_namespace_if_not_exists(self.location.rpartition(".")[0])
        codec = "uncompressed" if self.compression == "none" else self.compression
        properties = {"write.parquet.compression-codec": codec}
        creation = catalog.create_table_transaction(self.location, schema, properties=properties)
        with creation, creation.update_spec() as spec:
            for name in DIRECTORIES:
                spec.add_identity(name)
        return catalog.load_table(self.location)

    def append_commit(
        self, rows_reader: ArchiveRowsReader, splits: Sequence[Split], note: CommitNote, engine: Engine
    ) -> WrittenTotals:
        """Append the rows of these splits by one commit with this note. This process writes them.

        A run that commits at the same time makes this one fail.
        """
        from pyiceberg.exceptions import CommitFailedException

        totals = WrittenTotals()
        catalog, table = self._open_table()
        require_next_note(self._read_newest_note(table), note, self.location)
        chunks = cut_into_tables(rows_reader.read_rows(splits, totals))
        first = next(chunks, SCHEMA.empty_table())
        table = table or self._create_table(catalog, first.schema)
        table.metadata.properties[RETRIES] = "0"  # a retry would append to what another run has committed
        try:
            with table.transaction() as commit:
                for chunk in chain((first,), chunks):
                    self._append_rows(commit, chunk, note)
        except CommitFailedException as error:
            raise ArchiveError(f"{self.location}: another run writes to it at the same time: {error}") from None
        return totals

    def _append_rows(self, commit: Any, rows: pa.Table, note: CommitNote) -> None:
        if set(rows.schema.names) != set(SCHEMA.names):  # decoded columns, which may be more than the table has
            with commit.update_schema() as update:
                update.union_by_name(rows.schema)
        commit.append(rows, snapshot_properties={NOTE: note.encode_as_text()})

    def count_records(self) -> int:
        """Return the number of records, by the newest snapshot's summary."""
        table = self._open_table()[1]
        snapshot = table.current_snapshot() if table else None
        summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
        return int(summary.get("total-records", "0"))

    def open_scan(self) -> RowsScan:
        """Open the table as it is now. Raises `ArchiveError` if there is none."""
        table = self._open_table()[1]
        if table is None:
            raise ArchiveError(f"there is no table {self.location}")

        def scan(columns: Sequence[str], window: OffsetWindow | None) -> Iterator[pa.RecordBatch]:
            yield from table.scan(
                row_filter=make_offset_filter(window), selected_fields=tuple(columns)
            ).to_arrow_batch_reader()

        return scan


def make_offset_filter(window: OffsetWindow | None) -> BooleanExpression:
    """Return a window as a filter of pyiceberg's."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.expressions.parser import parse

    if window is None:
        return AlwaysTrue()
    (topic, partition), start, end = window
    return parse(f"topic = '{topic}' AND partition = {partition} AND offset >= {start} AND offset < {end}")


def cut_into_tables(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield rows in tables of some size."""
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
