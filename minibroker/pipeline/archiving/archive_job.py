"""A run of the archive: ranges of offsets, one after another, each appended by one commit.

A run reads the newest note in the archive, which says where the last commit ended, and goes on there. A crash at any
moment leaves a commit that is there with its note, or is not there at all: nothing is lost, and nothing is there twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Final

from minibroker.pipeline import planning
from minibroker.pipeline.archiving import archive_tables
from minibroker.pipeline.engines import Engine, LocalEngine
from minibroker.pipeline.log_opening import open_source
from minibroker.pipeline.log_source import LogSource, OffsetRange
from minibroker.pipeline.options import parse_options

BATCH_OFFSETS: Final = 1_000_000
FROM_EARLIEST: Final = {"startingOffsets": "earliest", "isolation.level": "read_committed"}


class LogArchive:
    """An archive that goes on with a log. Only one run at a time may write to it. `note` is that of the newest commit.

    `options` are those of a reader of the records table, `topic_ids` has for each topic its id, or another text that
    identifies its log; `topic_configs` are kept for a replay. Raises `ArchiveError` if the archive is of other topics.
    """

    def __init__(
        self,
        table: archive_tables.ArchiveTable,
        options: Mapping[str, str],
        *,
        topic_ids: Mapping[str, str],
        topic_configs: Mapping[str, Mapping[str, str]] | None = None,
        batch_offsets: int = BATCH_OFFSETS,
        decoder: archive_tables.Decoder | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.table = table
        self._options = parse_options({**FROM_EARLIEST, **options, "includeHeaders": "true"}, "records", "stream")
        self._reading = archive_tables.ArchiveRowsReader(self._options, decoder)
        self._batch_offsets = batch_offsets
        self._engine = engine or LocalEngine()
        table.finish_interrupted_commit()
        note = find_newest_note(table)
        require_same_topics(table.location, note.topics, topic_ids)
        configs = {**note.configs, **(topic_configs or {})}
        self.note = replace(note, topics=dict(topic_ids), configs=configs)

    def run(self) -> Iterator[archive_tables.WrittenTotals]:
        """Archive what there is at the start of this run. Yield what each commit has added.

        Raises `ArchiveError`, and what the log's source raises.
        """
        with closing(open_source(self._options)) as source:
            begin, until = self._find_start_and_end_offsets(source)
            while planning.count_offsets_by_partition(begin, until, source):
                end = planning.limit_end_offsets(begin, until, self._batch_offsets, source)
                ranges = planning.find_stream_ranges(self._options, source, begin, end)
                yield self._append_ranges(source, ranges, {**begin, **end})
                begin = planning.parse_json_offsets(self.note.offsets)

    def _find_start_and_end_offsets(self, source: LogSource) -> tuple[planning.Offsets, planning.Offsets]:
        """Return the offsets of each partition from which and up to which this run archives."""
        known, until = self.note.offsets, planning.find_end_offsets(self._options, source)
        if known:
            return planning.parse_json_offsets(known), until
        return planning.find_initial_offsets(self._options, source), until

    def _append_ranges(
        self, source: LogSource, ranges: list[OffsetRange], end: planning.Offsets
    ) -> archive_tables.WrittenTotals:
        """Append the records of these ranges by one commit."""
        note = replace(self.note, number=self.note.number + 1, offsets=planning.make_json_offsets(end))
        if not ranges:  # all of these offsets are gone, and `failOnDataLoss` is off
            self.note = replace(self.note, offsets=planning.make_json_offsets(end))
            return archive_tables.WrittenTotals()
        options = replace(self._options, min_partitions=self._options.min_partitions or self._engine.workers)
        totals = self.table.append_commit(
            self._reading, planning.make_splits(options, source, ranges), note, self._engine
        )
        self.note = note
        return totals


def require_same_topics(archive_name: str, archived_ids: Mapping[str, str], topic_ids: Mapping[str, str]) -> None:
    """Raise `ArchiveError` unless these are the archived topics, and perhaps new ones. `archived_ids` are their ids."""
    for topic, identity in archived_ids.items():
        if topic not in topic_ids:
            raise archive_tables.ArchiveError(f"{archive_name} also has {topic}, which is not selected now")
        if topic_ids[topic] != identity:
            raise archive_tables.ArchiveError(
                f"{archive_name} is of another source: its {topic} is {identity}, this one {topic_ids[topic]}"
            )


def find_newest_note(table: archive_tables.ArchiveTable) -> archive_tables.CommitNote:
    """Return the newest commit's note; if none is left, one that continues each partition behind its last row."""
    if not table.exists():
        return archive_tables.CommitNote()
    note = table.read_newest_note()
    if note is not None:
        return note
    offsets = {each.partition: each.last + 1 for each in archive_tables.list_archived_partitions(table)}
    return archive_tables.CommitNote(offsets=planning.make_json_offsets(offsets))
