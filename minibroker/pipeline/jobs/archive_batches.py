"""How the batches of a stream get into an archive: each whole and once, through crashes at any moment.

Which rows they are is decided in `archive`. A batch goes through these states, each reached by a rename:

    _archive/staging/<batch>/data/...         being written by Spark's tasks; after a crash it is written anew
    _archive/staging/<batch>/written          all is written and counted; a crash from here on is rolled forward
    topic=<topic>/date=<date>/<file>          each file is moved to its place
    _archive/batches/<batch>                  done: the stream may ask for the batch again, and nothing happens

So the files in their places are plain Parquet: a directory that anything can read, that can be moved and pruned by
date. Spark's own file sink keeps instead a list of the files that count, which ties them to their place and to Spark.
"""

from __future__ import annotations

import json
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minibroker.pipeline.jobs.archive import COLUMNS, DIRECTORIES, ORDER
from minibroker.pipeline.jobs.archive_totals import Totals, Written
from minibroker.pipeline.jobs.hadoop_files import HadoopFiles, Journal, StoredFile
from minibroker.pipeline.log_source import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HOME: Final = "_archive"
STAGING: Final = f"{HOME}/staging"
DONE: Final = f"{HOME}/batches"
# A task writes a file for each topic and date that it meets. The splits of a log are small, so that reading is spread
# well; this many of them make a file of a size that readers of Parquet like.
SPLITS_PER_TASK: Final = 2
TIMESTAMP_SETTING: Final = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # Spark's INT96 is deprecated


class ArchiveError(Exception):
    """An archive, or its checkpoint, cannot be continued like this: one line."""


class Noted(NamedTuple):
    """A note in the archive's own files about batches: their stream, and totals."""

    query: str
    totals: Totals

    def text(self) -> str:
        """Return the text that a file holds."""
        return json.dumps({"query": self.query, "totals": self.totals.as_json()})

    @classmethod
    def of(cls, text: str, where: str) -> Noted:
        """From such a file. Raises `ArchiveError`."""
        try:
            parsed = json.loads(text)
            return cls(parsed["query"], Totals.from_json(parsed["totals"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ArchiveError(f"{where} cannot be understood: {error!r}") from error


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
    """Puts the batches of one stream into an archive; `written` is what this object has put there, `totals` is all.

    To be called as `foreachBatch` does: with batches that follow one another, the last one perhaps again.
    """

    def __init__(self, files: HadoopFiles, compression: str = "zstd") -> None:
        self.files = files
        self.compression = compression
        self.query = ""  # the stream's id, to be set before the first batch
        self.written = Totals()
        self._journal = Journal(files, DONE)
        newest = self._journal.newest()
        self.batch = newest[0] if newest else -1
        self.totals = Noted.of(newest[1], files.url(DONE)).totals if newest else Totals()

    def put(self, rows: DataFrame, batch: int) -> None:
        """Put a batch into the archive, or what is missing of it; rows are those of `archived`."""
        staging = f"{STAGING}/{batch:0{Journal.DIGITS}}"
        if batch > self.batch:
            if not self.files.exists(f"{staging}/written"):
                self._write(rows, staging)
            self._move(staging, batch)
        self.files.delete(staging)

    def _write(self, rows: DataFrame, staging: str) -> None:
        """All of a batch into files apart, however far an earlier attempt came."""
        self.files.delete(staging)
        data = f"{staging}/data"
        rows.sparkSession.conf.set(*TIMESTAMP_SETTING)  # the stream's own copy of the session
        ordered = _in_few_tasks(rows).sortWithinPartitions(*ORDER)
        ordered.write.partitionBy(*DIRECTORIES).option("compression", self.compression).parquet(self.files.url(data))
        self.files.write(f"{staging}/written", Noted(self.query, self._counted(rows, data)).text())

    def _counted(self, rows: DataFrame, data: str) -> Totals:
        """Count what is in the files by reading them: that shows, too, that they can be read."""
        written = rows.sparkSession.read.schema(COLUMNS).parquet(self.files.url(data))
        counts = written.groupBy("topic", "partition").agg(*_counts()).collect()
        partitions = {TopicPartition(row[0], row[1]): Written(*row[2:]) for row in counts}
        files = self._parquet(data)
        return Totals(partitions, len(files), sum(file.size_bytes for file in files))

    def _move(self, staging: str, batch: int) -> None:
        """The files of a batch that is written go to their places, those that are not there yet."""
        noted = Noted.of(self.files.read(f"{staging}/written"), self.files.url(staging))
        data = f"{staging}/data"
        for file in self._parquet(data):
            self.files.move(f"{data}/{file.path}", file.path)
        self.written.add(noted.totals)
        self.totals.add(noted.totals)
        self.batch = batch
        self._journal.append(batch, Noted(self.query, self.totals).text())

    def _parquet(self, data: str) -> list[StoredFile]:
        return [file for file in self.files.files(data) if file.path.endswith(".parquet")]


def _in_few_tasks(rows: DataFrame) -> DataFrame:
    """The same rows in fewer partitions, each of neighbouring ones, so that there are not too many files."""
    splits: int = rows._jdf.rdd().getNumPartitions()
    tasks = max(ceil(splits / SPLITS_PER_TASK), rows.sparkSession.sparkContext.defaultParallelism)
    return rows.coalesce(tasks) if tasks < splits else rows


def _counts() -> list[Any]:
    from pyspark.sql import functions as F

    sizes = [F.coalesce(F.octet_length(column), F.lit(0)).cast("bigint") for column in ("key", "value")]
    return [F.count("*"), F.sum(sizes[0] + sizes[1]), F.min("offset"), F.max("offset")]
