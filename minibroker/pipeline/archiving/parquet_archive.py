"""An archive of plain Parquet files, in a directory for each topic and date: each commit whole and once.

A commit goes through these states, whatever kills it between them:

    _archive/staging/<number>/topic=<topic>/date=<date>/<file>   being written; the next run deletes it
    _archive/notes/<number>                                      the commit: what is staged now counts
    topic=<topic>/date=<date>/<file>                             each file is moved to its place, also by the next run

So the result is a directory of Parquet files and nothing else that a reader needs: any program can read it, and it can
be moved and pruned by date.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem, SubTreeFileSystem

from minibroker.pipeline.archiving import archive_tables
from minibroker.pipeline.directory.reading_disk import is_remote, locate_path, normalize_path
from minibroker.pipeline.engines import Engine
from minibroker.pipeline.log_source import Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNFINISHED: Final = ".unfinished"


class ArchiveFiles:
    """The files below one directory or URL. Paths are relative to it. Raises `OSError`."""

    def __init__(self, root: str) -> None:
        path = normalize_path(root)
        system, base = locate_path(path) if is_remote(path) else (LocalFileSystem(), os.path.abspath(path))
        self.root = root
        self.is_local = not is_remote(path)
        self.is_file = system.get_file_info(base).type == FileType.File  # which no archive can be
        self.system: FileSystem = SubTreeFileSystem(base, system)

    def list_names(self, path: str = "") -> list[str]:
        """Return the names in a directory, sorted; none if it does not exist."""
        return sorted(each.base_name for each in self.system.get_file_info(FileSelector(path, allow_not_found=True)))

    def list_files(self, path: str) -> list[str]:
        """Return all files below a directory, sorted; none if it does not exist."""
        below = FileSelector(path, allow_not_found=True, recursive=True)
        return sorted(each.path for each in self.system.get_file_info(below) if each.type == FileType.File)

    def read_text(self, path: str) -> str:
        """Return the text of a small UTF-8 file."""
        with self.system.open_input_file(path) as file:
            text: bytes = file.readall()
        return text.decode()

    def write_text(self, path: str, text: str) -> None:
        """Write a small file so that it exists as a whole or not at all; an object store does so by itself."""
        directory, _, name = path.rpartition("/")
        self.system.create_dir(directory)
        new = f"{directory}/.{name}{UNFINISHED}" if self.is_local else path
        with self.system.open_output_stream(new) as file:
            file.write(text.encode())
        if self.is_local:
            self.system.move(new, path)

    def move_path(self, path: str, target: str) -> None:
        """Rename a file, and create its new directory."""
        self.system.create_dir(target.rpartition("/")[0])
        self.system.move(path, target)

    def delete_path(self, path: str) -> None:
        """Remove a file, or a directory with its content, if it exists."""
        kind = self.system.get_file_info(path).type
        if kind == FileType.Directory:
            self.system.delete_dir(path)
        elif kind == FileType.File:
            self.system.delete_file(path)


HOME: Final = "_archive"
STAGING: Final = f"{HOME}/staging"
NOTES: Final = f"{HOME}/notes"
DIGITS: Final = 12  # so that names sort like numbers
NOTES_KEPT: Final = 2
LAYOUT: Final = ds.partitioning(
    pa.schema([archive_tables.SCHEMA.field(name) for name in archive_tables.DIRECTORIES]), flavor="hive"
)  # a date that is null is in date=__HIVE_DEFAULT_PARTITION__
ROWS_PER_GROUP: Final = 128 << 10
ROWS_PER_GROUP_MIN: Final = 16 << 10
OPEN_FILES_MAX: Final = 64


@dataclass(frozen=True)
class ParquetArchive:
    """The archive at a directory or URL. Only one run at a time may write to it."""

    location: str
    compression: str = "zstd"

    @property
    def _files(self) -> ArchiveFiles:
        return ArchiveFiles(self.location)

    def exists(self) -> bool:
        """Return whether there are commits."""
        return bool(self._list_commit_note_names())

    def finish_interrupted_commit(self) -> None:
        """Finish what a killed run has left. Raises `ArchiveError` if the path has something else than an archive."""
        files = self._files
        if files.is_file:
            raise archive_tables.ArchiveError(f"{self.location} is a file")
        strangers = [name for name in files.list_names() if not name.startswith((".", "_"))]
        if strangers and not self.exists():
            raise archive_tables.ArchiveError(
                f"{self.location} is not an archive, and not empty: it has {strangers[0]}"
            )
        note = self.read_newest_note()
        self._move_staged_files(note.number if note else -1)

    def read_newest_note(self) -> archive_tables.CommitNote | None:
        """Return the newest note, or None if there is none."""
        names = self._list_commit_note_names()
        path = f"{NOTES}/{names[-1]}" if names else ""
        return archive_tables.parse_note(self._files.read_text(path), f"{self.location}/{path}") if names else None

    def _list_commit_note_names(self) -> list[str]:
        return [name for name in self._files.list_names(NOTES) if name.isdecimal()]

    def append_commit(
        self,
        rows_reader: archive_tables.ArchiveRowsReader,
        splits: Sequence[Split],
        note: archive_tables.CommitNote,
        engine: Engine,
    ) -> archive_tables.WrittenTotals:
        """Append the rows of these splits by one commit with this note."""
        archive_tables.require_next_note(self.read_newest_note(), note, self.location)
        staging = f"{STAGING}/{note.number:0{DIGITS}}"
        parts = list(enumerate(split_among_workers(splits, engine.workers)))
        totals = archive_tables.WrittenTotals()
        for written in engine.run_on_items(
            StagedPartWriter(rows_reader, self.location, staging, self.compression), parts
        ):
            totals.add_totals(written)
        self._files.write_text(f"{NOTES}/{note.number:0{DIGITS}}", note.encode_as_text())
        for name in self._list_commit_note_names()[:-NOTES_KEPT]:
            self._files.delete_path(f"{NOTES}/{name}")
        self._move_staged_files(note.number)
        return totals

    def _move_staged_files(self, commit_number: int) -> None:
        """Move the files of a commit to their places, and delete what is staged of no commit."""
        files = self._files
        staging = f"{STAGING}/{commit_number:0{DIGITS}}"
        for path in files.list_files(staging):
            files.move_path(path, path.removeprefix(f"{staging}/"))
        files.delete_path(STAGING)

    def count_records(self) -> int:
        """Return the number of records, by the files' footers."""
        count: int = self.open_dataset().count_rows()
        return count

    def open_scan(self) -> archive_tables.RowsScan:
        """Open the archive as it is now. Raises `ArchiveError` if there is none."""
        if not self.exists():
            raise archive_tables.ArchiveError(f"there is no archive {self.location}")
        return archive_tables.make_scan(self.open_dataset())

    def open_dataset(self) -> ds.Dataset:
        """Return the archive as a dataset of pyarrow's, without decoded columns, which differ by file."""
        paths = [path for path in self._files.list_files("") if is_archive_file(path)]
        format = ds.ParquetFileFormat()
        options = ds.FileSystemFactoryOptions(partitioning=LAYOUT)
        found = ds.FileSystemDatasetFactory(self._files.system, paths, format, options)
        return found.finish(archive_tables.SCHEMA)


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """Return the rows of an archive in Spark, with the columns' types as they were written.

    Without the schema, Spark would guess types from the directories' names, and read the topic `007` as the number 7.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.read.schema(from_arrow_schema(archive_tables.SCHEMA)).parquet(path)


def is_archive_file(path: str) -> bool:
    """Return whether a file is one of the archive's own, with records."""
    return path.endswith(".parquet") and not path.startswith((".", "_"))


def split_among_workers(splits: Sequence[Split], workers: int) -> list[list[Split]]:
    """Return the splits in as many runs of neighbours as there are workers, or fewer."""
    count = max(1, min(workers, len(splits)))
    edges = [len(splits) * number // count for number in range(count + 1)]
    return [list(splits[start:end]) for start, end in zip(edges, edges[1:], strict=False)]


@dataclass(frozen=True, slots=True)
class StagedPartWriter:
    """Writes a part of a commit into staging files. It is pickled."""

    reading: archive_tables.ArchiveRowsReader
    root: str
    staging: str
    compression: str

    def __call__(self, part: tuple[int, Sequence[Split]]) -> archive_tables.WrittenTotals:
        """Write the rows of these splits; return what was written."""
        number, splits = part
        totals = archive_tables.WrittenTotals()
        rows = self.reading.read_rows(splits, totals)
        first = next(rows, None)
        if first is not None:
            ds.write_dataset(
                chain((first,), rows),
                self.staging,
                schema=first.schema,
                filesystem=ArchiveFiles(self.root).system,
                basename_template=f"{self.staging.rpartition('/')[2]}-{number}-{{i}}.parquet",
                format="parquet",
                file_options=ds.ParquetFileFormat().make_write_options(compression=self.compression),
                partitioning=LAYOUT,
                use_threads=False,  # threads would mix up the offsets; the other parts keep the other cores busy
                max_open_files=OPEN_FILES_MAX,
                min_rows_per_group=ROWS_PER_GROUP_MIN,
                max_rows_per_group=ROWS_PER_GROUP,
                existing_data_behavior="overwrite_or_ignore",
            )
        return totals
