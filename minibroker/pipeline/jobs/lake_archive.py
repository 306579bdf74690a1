"""The archive in a table of Iceberg or Delta: ranges of offsets, one after another, each appended by one commit.

A run reads the newest note in the table (`lake_tables`), which says where the last commit ended, and goes on there. A
crash at any moment leaves a commit that is there with its note, or is not there at all: nothing is lost, and nothing is
there twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from minibroker.pipeline.foreign_options import without
from minibroker.pipeline.jobs.archive import ORDER, READ, archived
from minibroker.pipeline.jobs.archive_batches import ArchiveError, in_few_tasks
from minibroker.pipeline.jobs.archive_run import require_same_topics
from minibroker.pipeline.jobs.archive_totals import Totals, totals_of
from minibroker.pipeline.jobs.hadoop_files import HadoopFiles
from minibroker.pipeline.jobs.lake_tables import ArchiveNote, LakeTable
from minibroker.pipeline.jobs.replay import archived_partitions
from minibroker.pipeline.log_opening import open_source
from minibroker.pipeline.log_source import OffsetRange
from minibroker.pipeline.options import STARTING, WHICH, parse_options
from minibroker.pipeline.planning import Offsets
from minibroker.pipeline.stream_planning import (
    from_json,
    initial_offsets,
    limit_ends,
    present_offsets,
    sizes,
    stream_ranges,
    to_json,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_OFFSETS: Final = 5_000_000
RANGES: Final = "topic string, partition int, _begin bigint, _end bigint"


class LakeArchive:
    """An archive in a table. Only one run at a time may write to it.

    `note` is that of the newest commit. `rows` makes the table's rows of the records, `archived` with more columns if
    need be.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: LakeTable,
        options: Mapping[str, str],
        *,
        topic_ids: Mapping[str, str],
        topic_configs: Mapping[str, Mapping[str, str]] | None = None,
        batch_offsets: int = BATCH_OFFSETS,
        compression: str = "zstd",
        rows: Callable[[DataFrame], DataFrame] = archived,
    ) -> None:
        """Open or create the table. `options` are those of a reader of the records table.

        `topic_ids` has for each topic its id, or another text that identifies its log; `topic_configs` are kept for a
        replay. Raises `ArchiveError` if the table is no archive, or one of other topics.
        """
        self.table = table
        self._spark = spark
        self._options = {"startingOffsets": "earliest", **options, "includeHeaders": "true"}
        self._batch_offsets = batch_offsets
        self._compression = "uncompressed" if compression == "none" else compression
        self._rows = rows
        _require_archive(spark, table)
        if table.exists():
            table.mend()
        note = newest_note(table)
        require_same_topics(table.target, note.topics, topic_ids)
        configs = {**note.configs, **(topic_configs or {})}
        self.note = replace(note, topics=dict(topic_ids), configs=configs)

    def run(self) -> Iterator[Totals]:
        """Archive what there is at the start of this run. Yield what each commit has added.

        Raises `ArchiveError`, and what the log's source raises.
        """
        parsed = parse_options(self._options, "records", "stream")
        with closing(open_source(parsed)) as source:
            until = present_offsets(parsed, source)
            begin = from_json(self.note.offsets) if self.note.offsets else initial_offsets(parsed, source)
            while sizes(begin, until, source):
                end = limit_ends(begin, until, self._batch_offsets, source)
                yield self._put(stream_ranges(parsed, source, begin, end), {**begin, **end})
                begin = from_json(self.note.offsets)

    def compact(self) -> None:
        """Merge the table's small files."""
        self.table.compact(self.note)

    def _put(self, ranges: list[OffsetRange], end: Offsets) -> Totals:
        """Append the records of these ranges by one commit."""
        if not ranges:  # all of these offsets are gone, and `failOnDataLoss` is off
            self.note = replace(self.note, offsets=to_json(end))
            return Totals()
        reader = self._spark.read.format("minibroker").options(**self._reading(ranges))
        records = reader.schema(READ).load()
        rows = self._rows(records)
        if not self.table.exists():
            self.table.create(rows)
        self._commit(in_few_tasks(rows).sortWithinPartitions(*ORDER), end)
        return self._count_totals(ranges)

    def _reading(self, ranges: list[OffsetRange]) -> dict[str, str]:
        """Return the options to read these ranges, and nothing else."""
        assigned: dict[str, list[int]] = {}
        for each in ranges:
            assigned.setdefault(each.partition.topic, []).append(each.partition.partition)
        return {
            **without(self._options, (*WHICH, *STARTING, "startingOffsetsByTimestampStrategy")),
            "assign": json.dumps(assigned),
            "startingOffsets": json.dumps(to_json({each.partition: each.start for each in ranges})),
            "endingOffsets": json.dumps(to_json({each.partition: each.end for each in ranges})),
        }

    def _commit(self, rows: DataFrame, end: Offsets) -> None:
        note = replace(self.note, number=self.note.number + 1, offsets=to_json(end))
        self.table.append(rows, note, self._compression)
        newest, *earlier = [each.number for each in islice(self.table.notes(), 2)] or [-1]
        if newest == self.note.number and rows.isEmpty():
            note = replace(note, number=newest)  # Delta makes no commit without rows: these offsets are read again
        elif newest != note.number or any(number >= newest for number in earlier):
            raise ArchiveError(
                f"{self.table.target}: another run writes to it at the same time; it may have records twice"
            )
        self.note = note

    def _count_totals(self, ranges: list[OffsetRange]) -> Totals:
        """Count the rows of these ranges."""
        from pyspark.sql import functions as F

        todo = self._spark.createDataFrame([(*each.partition, each.start, each.end) for each in ranges], RANGES)
        lowest, topics = min(each.start for each in ranges), sorted({each.partition.topic for each in ranges})
        rows = self.table.read().where(F.col("topic").isin(topics) & (F.col("offset") >= lowest))
        found = rows.join(F.broadcast(todo), ["topic", "partition"]).where("offset >= _begin AND offset < _end")
        return totals_of(found)


def _require_archive(spark: SparkSession, table: LakeTable) -> None:
    """Raise `ArchiveError` if there is something else than a table of archived records."""
    if not table.exists():
        files = HadoopFiles(spark, table.target)
        if files.is_file() or not _is_unfinished(files, table.unfinished):
            raise ArchiveError(f"{table.target} is not a table of this format, and not empty")
        return
    missing = sorted({"topic", "partition", "offset"} - set(table.read().columns))
    if missing:
        raise ArchiveError(f"{table.target} is not an archive: it has no {', '.join(missing)}")


def _is_unfinished(files: HadoopFiles, unfinished: re.Pattern[str]) -> bool:
    """Return whether there is nothing but what a killed run may have left."""
    return len(files.names()) <= 1 and (
        not files.exists() or all(unfinished.fullmatch(file.path) for file in files.files(""))
    )


def newest_note(table: LakeTable) -> ArchiveNote:
    """Return the newest note; if all have expired, what the rows say: each partition goes on behind its last one."""
    if not table.exists():
        return ArchiveNote()
    note = next(table.notes(), None)
    if note is not None:
        return note
    ends = {each.partition: each.last + 1 for each in archived_partitions(table.read())}
    return ArchiveNote(offsets=to_json(ends))
