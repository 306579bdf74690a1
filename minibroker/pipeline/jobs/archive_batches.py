"""Writes the batches of a stream into an archive: each one whole and once, despite crashes at any moment.

`archive` makes the rows. A batch goes through these states, each reached by a rename:

    _archive/staging/<batch>/data/...         being written by Spark's tasks; after a crash it is written again
    _archive/staging/<batch>/written          all is written and counted; after a crash the next run goes on from here
    topic=<topic>/date=<date>/<file>          each file is moved to its place
    _archive/batches/<batch>                  done: if the stream repeats the batch, nothing happens

So the result is a plain directory of Parquet files: any program can read it, and it can be moved and pruned by date.
Spark's own file sink instead keeps a list of the valid files, which only Spark understands, and which contains their
paths.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from minibroker.pipeline.jobs.archive import COLUMNS, DIRECTORIES, ORDER
from minibroker.pipeline.jobs.archive_merging import Merging
from minibroker.pipeline.jobs.archive_totals import Totals, totals_of
from minibroker.pipeline.jobs.hadoop_files import HadoopFiles, Journal, StoredFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HOME: Final = "_archive"
STAGING: Final = f"{HOME}/staging"
DONE: Final = f"{HOME}/batches"
# A task writes a file for each topic and date in its rows. The splits of a log are small, so that tasks are balanced;
# this many of them give a good size for a Parquet file.
SPLITS_PER_TASK: Final = 2
TIMESTAMP_SETTING: Final = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # Spark's INT96 is deprecated


class ArchiveError(Exception):
    """An archive or its checkpoint cannot be continued. The message is one line."""


class Noted(NamedTuple):
    """A note in the archive's own files about batches: their stream, and totals."""

    query: str
    totals: Totals

    def text(self) -> str:
        """Return the content of the file."""
        return json.dumps({"query": self.query, "totals": self.totals.as_json()})

    @classmethod
    def of(cls, text: str, where: str) -> Noted:
        """Read a note from a file's content; `where` is for messages. Raises `ArchiveError`."""
        try:
            parsed = json.loads(text)
            return cls(parsed["query"], Totals.from_json(parsed["totals"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ArchiveError(f"{where} is malformed: {error!r}") from error


def queries_of(files: HadoopFiles) -> set[str]:
    """Return the ids of the streams that have put batches into an archive, or have begun to.

    There is one, or none in a new archive.
    """
    newest = Journal(files, DONE).newest()
    texts = [newest[1]] if newest else []
    marks = [f"{STAGING}/{name}/written" for name in files.names(STAGING)]
    texts += [files.read(mark) for mark in marks if files.exists(mark)]
    return {Noted.of(text, files.url(HOME)).query for text in texts}


class ArchiveBatches:
    """Puts the batches of one stream into an archive. `written` counts this object's batches, `totals` all.

    Calls must follow the order of batches, as those of `foreachBatch` do; the last batch may be repeated.
    """

    def __init__(self, files: HadoopFiles, compression: str = "zstd") -> None:
        self.files = files
        self.compression = compression
        self.query = ""  # the stream's id, set before the first batch
        self.written = Totals()
        self._touched: set[str] = set()  # the directories with new files
        self._journal = Journal(files, DONE)
        newest = self._journal.newest()
        self.batch = newest[0] if newest else -1
        self.totals = Noted.of(newest[1], files.url(DONE)).totals if newest else Totals()

    def put(self, rows: DataFrame, batch: int) -> None:
        """Put a batch into the archive, or the missing part of it. `rows` are those of `archived`."""
        staging = f"{STAGING}/{batch:0{Journal.DIGITS}}"
        if batch > self.batch:
            if not self.files.exists(f"{staging}/written"):
                self._write(rows, staging)
            self._move(staging, batch)
        self.files.delete(staging)
        merging = Merging(rows.sparkSession, self.files, self.compression)
        self.totals.files -= merging.merge(self._touched)
        self._touched.clear()

    def _write(self, rows: DataFrame, staging: str) -> None:
        """Write all rows of a batch into staging files, whatever an earlier attempt has written."""
        self.files.delete(staging)
        data = f"{staging}/data"
        rows.sparkSession.conf.set(*TIMESTAMP_SETTING)  # only in the stream's own copy of the session
        ordered = in_few_tasks(rows).sortWithinPartitions(*ORDER)
        ordered.write.partitionBy(*DIRECTORIES).option("compression", self.compression).parquet(self.files.url(data))
        self.files.write(f"{staging}/written", Noted(self.query, self._count_totals(rows, data)).text())

    def _count_totals(self, rows: DataFrame, data: str) -> Totals:
        files = self._parquet(data)
        totals = totals_of(rows.sparkSession.read.schema(COLUMNS).parquet(self.files.url(data)))
        return replace(totals, files=len(files), file_bytes=sum(file.size_bytes for file in files))

    def _move(self, staging: str, batch: int) -> None:
        """Move the files of a written batch to their places, unless they are there already."""
        noted = Noted.of(self.files.read(f"{staging}/written"), self.files.url(staging))
        data = f"{staging}/data"
        for file in self._parquet(data):
            self.files.move(f"{data}/{file.path}", file.path)
            self._touched.add(file.path.rpartition("/")[0])
        self.written.add(noted.totals)
        self.totals.add(noted.totals)
        self.batch = batch
        self._journal.append(batch, Noted(self.query, self.totals).text())

    def _parquet(self, data: str) -> list[StoredFile]:
        return [file for file in self.files.files(data) if file.path.endswith(".parquet")]


def in_few_tasks(rows: DataFrame) -> DataFrame:
    """Return the rows in fewer partitions of neighbouring ones, so that there are fewer files."""
    splits: int = rows._jdf.rdd().getNumPartitions()
    tasks = max(ceil(splits / SPLITS_PER_TASK), rows.sparkSession.sparkContext.defaultParallelism)
    return rows.coalesce(tasks) if tasks < splits else rows
