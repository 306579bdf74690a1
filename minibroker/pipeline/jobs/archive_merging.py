"""Merges small files of an archive: each batch of a stream adds files, and a year of minutes would be half a million.

The files of a date are merged when many of them are small. A merging goes through these states:

    _archive/merging/data/...                 the merged file is being written; after a crash it is written again
    _archive/merging/plan                     it is complete; after a crash the next run goes on from here
    topic=<topic>/date=<date>/<file>          the small files are deleted, and the merged file is moved to its place

So no record is ever there twice. For the moment between the last two, a reader misses those of the merged files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from minibroker.pipeline.jobs.archive import COLUMNS, DIRECTORIES, ORDER
from minibroker.pipeline.jobs.hadoop_files import HadoopFiles, StoredFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOME: Final = "_archive/merging"
PLAN: Final = f"{HOME}/plan"
DATA: Final = f"{HOME}/data"
FILES_MIN: Final = 16
SMALL_BYTES: Final = 16 << 20
MERGED_BYTES_MAX: Final = 256 << 20
FILE_COLUMNS: Final = ", ".join(column for column in COLUMNS.split(", ") if column.split()[0] not in DIRECTORIES)


class Merging:
    """Merges the small files of an archive's directories. Only one run of the archive may do so at a time."""

    def __init__(self, spark: SparkSession, files: HadoopFiles, compression: str, files_min: int = FILES_MIN) -> None:
        self._spark = spark
        self._files = files
        self._compression = compression
        self._files_min = files_min

    def merge(self, directories: Iterable[str]) -> int:
        """Merge the small files of these directories. Return how many files there are less."""
        self.finish()
        return sum(self._merge(directory) for directory in sorted(set(directories)))

    def finish(self) -> None:
        """Do the rest of a merging that a crash has interrupted."""
        if self._files.exists(PLAN):
            plan = json.loads(self._files.read(PLAN))
            for name in plan["small"]:
                self._files.delete(name)
            if self._files.exists(plan["merged"]):
                self._files.move(plan["merged"], plan["target"])
        self._files.delete(HOME)

    def _merge(self, directory: str) -> int:
        small = self._small_files(directory)
        if len(small) < self._files_min:
            return 0
        rows = self._spark.read.schema(FILE_COLUMNS).parquet(*(self._files.url(each.path) for each in small))
        order = [name for name in ORDER if name not in DIRECTORIES]
        ordered = rows.coalesce(1).sortWithinPartitions(*order)
        ordered.write.option("compression", self._compression).parquet(self._files.url(DATA))
        (merged,) = [each for each in self._files.files(DATA) if each.path.endswith(".parquet")]
        plan = {
            "small": [each.path for each in small],
            "merged": f"{DATA}/{merged.path}",
            "target": f"{directory}/merged-{merged.path}",
        }
        self._files.write(PLAN, json.dumps(plan))
        self.finish()
        return len(small) - 1

    def _small_files(self, directory: str) -> list[StoredFile]:
        """Return the small files of a directory, with paths relative to the archive, up to the size of a merged one."""
        found: list[StoredFile] = []
        size_bytes = 0
        for file in self._files.files(directory):
            if file.path.endswith(".parquet") and file.size_bytes < SMALL_BYTES:
                size_bytes += file.size_bytes
                if size_bytes > MERGED_BYTES_MAX:
                    break
                found.append(StoredFile(f"{directory}/{file.path}", file.size_bytes))
        return found
