"""Writes the rows of one task: checks columns, chooses partitions, gathers, sends and counts.

Rows are kept by partition until there are enough of them, or they have waited long enough; then all are sent. Asking
for the partitions of a topic creates it, if brokers create topics automatically.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from minibroker.client.client_errors import get_error_name, is_retriable_code
from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.log_source import TopicPartition
from minibroker.pipeline.sink.partitioner import Partitioner
from minibroker.pipeline.sink.sender import Sender
from minibroker.pipeline.sink.sink_columns import Rows
from minibroker.pipeline.sink.sink_errors import WriteFailed
from minibroker.pipeline.sink.sink_settings import SinkSettings
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.metadata import MetadataRequest

_BACKOFF_S: Final = 0.1


class Buffer:
    """Rows by partition, up to about `size_bytes`. With `linger_ms`, none of them stays longer than that."""

    def __init__(self, size_bytes: int, linger_ms: int | None) -> None:
        self._size_bytes = size_bytes
        self._linger_s = None if linger_ms is None else linger_ms / 1000
        self._rows: dict[TopicPartition, list[pa.RecordBatch]] = {}
        self._held_bytes = 0
        self._oldest = 0.0

    def add(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """Add rows of a partition behind the others."""
        if not self._rows:
            self._oldest = time.monotonic()
        self._rows.setdefault(partition, []).append(rows)
        self._held_bytes += rows.nbytes

    def is_due(self) -> bool:
        """Return whether the rows should be sent now."""
        if self._held_bytes >= self._size_bytes:
            return True
        return bool(self._rows) and self._linger_s is not None and time.monotonic() - self._oldest >= self._linger_s

    def take(self) -> dict[TopicPartition, pa.RecordBatch]:
        """Remove and return all rows, one record batch for each partition."""
        taken = {partition: _join_rows(rows) for partition, rows in self._rows.items()}
        self._rows, self._held_bytes = {}, 0
        return taken


def _join_rows(rows: list[pa.RecordBatch]) -> pa.RecordBatch:
    return rows[0] if len(rows) == 1 else pa.concat_batches(rows)


class Counted(NamedTuple):
    """How many rows there are, and how many bytes their keys and values have. A repeated attempt must have the same."""

    rows: int = 0
    size_bytes: int = 0

    def plus(self, batch: pa.RecordBatch) -> Counted:
        """Return the counts with those of a batch, whatever the type of its keys and values."""
        columns = [batch.column(name) for name in ("key", "value") if batch.schema.get_field_index(name) >= 0]
        added = sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in columns)
        return Counted(self.rows + batch.num_rows, self.size_bytes + added)


class TaskWriter:
    """Writes batches of rows from Spark. All are in the brokers after `flush`. Raises `WriteFailed`.

    `task` is the task's number: it decides where rows without a key begin. `counted` are the rows so far.
    """

    def __init__(
        self, client: Client, settings: SinkSettings, sender: Sender, task: int = 0, keep_none: bool = False
    ) -> None:
        topics = Topics(client, settings.max_block_ms)
        self._sender = sender
        self._rows = Rows(settings.topic, settings.keep_timestamps, keep_none)
        self._partitioner = Partitioner(topics.count, settings.batches.batch_bytes, task, settings.ignore_keys)
        self._buffer = Buffer(settings.buffer_bytes, settings.linger_ms)
        self.counted = Counted()

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows. Send all that were taken when there are enough."""
        self.counted = self.counted.plus(batch)
        for partition, rows in self._partitioner.split(self._rows.of(batch)):
            self._buffer.add(partition, rows)
        if self._buffer.is_due():
            self.flush()

    def flush(self) -> None:
        """Send all rows that were taken."""
        self._sender.send(self._buffer.take())


class Topics:
    """The partition counts of topics. They are asked for once, and again if a row has a partition beyond them."""

    def __init__(self, client: Client, max_block_ms: int) -> None:
        self._client = client
        self._max_block_ms = max_block_ms
        self._counts: dict[str, int] = {}

    def count(self, topic: str, at_least: int = 1) -> int:
        """Return the number of partitions of a topic. Wait until there are `at_least` so many.

        After `max_block_ms`, raise `WriteFailed` with the missing topic or partition.
        """
        deadline = time.monotonic() + self._max_block_ms / 1000
        while self._counts.get(topic, 0) < at_least:
            code = self._ask_for_count(topic)
            if code != ErrorCode.NONE and not is_retriable_code(code):
                raise WriteFailed(f"{self._client.bootstrap_servers}: topic {topic}: {get_error_name(code)}")
            if self._counts.get(topic, 0) >= at_least:
                break
            if time.monotonic() + _BACKOFF_S > deadline:
                raise WriteFailed(self._explain_missing(topic, at_least, code))
            time.sleep(_BACKOFF_S)
        return self._counts[topic]

    def _ask_for_count(self, topic: str) -> int:
        wanted = [MetadataRequest.MetadataRequestTopic(name=topic)]
        answer = self._client.request(MetadataRequest(topics=wanted, allow_auto_topic_creation=True))
        for each in answer.topics:
            if each.error_code == ErrorCode.NONE:
                self._counts[topic] = len(each.partitions)
            return int(each.error_code)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _explain_missing(self, topic: str, at_least: int, code: int) -> str:
        waited = f"after {self._max_block_ms} ms"
        if code != ErrorCode.NONE:
            return f"{self._client.bootstrap_servers}: topic {topic}: {get_error_name(code)} {waited}"
        return (
            f"{self._client.bootstrap_servers}: partition {at_least - 1} of topic {topic}, which has "
            f"{self._counts[topic]}, is not present in metadata {waited}"
        )
