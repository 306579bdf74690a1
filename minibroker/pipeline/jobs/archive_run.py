"""A run of the archive. It continues the last run, or refuses to, and may be killed at any time.

`archive_batches` writes its batches. Spark's checkpoint has the stream's position. The archive has a note of its
topics' ids, so that a run cannot continue with another log by mistake.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from minibroker.pipeline.jobs.archive import archived
from minibroker.pipeline.jobs.archive_batches import HOME, ArchiveBatches, ArchiveError, queries_of
from minibroker.pipeline.jobs.archived_topics import note_configs
from minibroker.pipeline.jobs.hadoop_files import HadoopFiles, Journal
from minibroker.pipeline.spark_errors import reason_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

SOURCES: Final = f"{HOME}/sources"
CHECKPOINT: Final = f"{HOME}/checkpoint"


class ArchiveRun:
    """A stream of records into an archive.

    `query` is Spark's; `batches.written` counts what this run has written so far.
    """

    def __init__(
        self,
        records: DataFrame,
        path: str,
        *,
        topic_ids: Mapping[str, str],
        topic_configs: Mapping[str, Mapping[str, str]] | None = None,
        checkpoint: str | None = None,
        interval: str | None = None,
        compression: str = "zstd",
    ) -> None:
        """Begin or continue; the stream then runs by itself.

        `records` is a streaming DataFrame of the records table with headers. `topic_ids` has for each topic its id, or
        another text that identifies its log; `topic_configs` are kept for a replay. Without an `interval` ("30
        seconds"), the run ends when it has read all that exists at its start. Raises `ArchiveError`.
        """
        spark = records.sparkSession
        files = HadoopFiles(spark, path)
        progress = HadoopFiles(spark, checkpoint or files.url(CHECKPOINT))
        _require_archive(files)
        _require_checkpoint(files, progress)
        _note_topics(files, topic_ids)
        note_configs(files, topic_configs or {})
        self.batches = ArchiveBatches(files, compression)
        self.checkpoint = progress
        writer = archived(records).writeStream.foreachBatch(self._put).option("checkpointLocation", progress.root)
        trigger = writer.trigger(processingTime=interval) if interval else writer.trigger(availableNow=True)
        self.query: StreamingQuery = trigger.start()

    def stop(self) -> None:
        """End the stream, even within a batch: the next run begins that batch again."""
        self.query.stop()

    def _put(self, rows: DataFrame, batch: int) -> None:
        self.batches.query = self.batches.query or (_query_of(self.checkpoint) or "")
        try:
            self.batches.put(rows, batch)
        except Exception as error:
            # In one line: Spark searches the text of an error with a regular expression that fails on long texts.
            raise ArchiveError(reason_of(str(error))) from None


def _require_archive(files: HadoopFiles) -> None:
    """Raise `ArchiveError` if the path has something that is not an archive."""
    if files.is_file():
        raise ArchiveError(f"{files.root} is a file")
    strangers = [name for name in files.names() if not name.startswith((".", "_"))]
    if strangers and not files.exists(HOME):
        raise ArchiveError(f"{files.root} is not an archive, and not empty: it has {strangers[0]}")


def _require_checkpoint(files: HadoopFiles, checkpoint: HadoopFiles) -> None:
    """Raise `ArchiveError` unless archive and checkpoint belong to one stream, or are both new.

    With another checkpoint the archive would get records twice. As batches are known by number, it could also miss
    some.
    """
    queries, query = queries_of(files), _query_of(checkpoint)
    if queries and query is None:
        raise ArchiveError(f"{files.root} was written with a checkpoint that is not at {checkpoint.root}")
    if queries and queries != {query}:
        raise ArchiveError(f"the checkpoint {checkpoint.root} is of another archive than {files.root}")
    if not queries and query is not None and Journal(files, SOURCES).newest() is None:
        raise ArchiveError(f"the checkpoint {checkpoint.root} is not of the archive {files.root}")


def _note_topics(files: HadoopFiles, topic_ids: Mapping[str, str]) -> None:
    """Note the ids of the archive's topics, new ones included. Raises `ArchiveError` if they are other topics."""
    journal = Journal(files, SOURCES)
    newest = journal.newest()
    known: dict[str, str] = json.loads(newest[1]) if newest and queries_of(files) else {}
    require_same_topics(files.root, known, topic_ids)
    journal.replace(json.dumps(dict(topic_ids), sort_keys=True))


def require_same_topics(where: str, known: Mapping[str, str], topic_ids: Mapping[str, str]) -> None:
    """Raise `ArchiveError` unless these are the archived topics, and perhaps new ones. `known` are their ids."""
    for topic, identity in known.items():
        if topic not in topic_ids:
            raise ArchiveError(f"{where} also has {topic}, which is not selected now")
        if topic_ids[topic] != identity:
            raise ArchiveError(f"{where} is of another source: its {topic} is {identity}, this one {topic_ids[topic]}")


def _query_of(checkpoint: HadoopFiles) -> str | None:
    """Return the id of the stream of a checkpoint, or None if there is no checkpoint."""
    if not checkpoint.exists("metadata"):
        return None
    try:
        query: str = json.loads(checkpoint.read("metadata"))["id"]
    except (ValueError, KeyError, TypeError) as error:
        raise ArchiveError(f"{checkpoint.url('metadata')} is malformed: {error!r}") from error
    return query
