"""Writes the rows of one task: checks columns, chooses partitions, gathers, sends and counts.

Rows wait in memory, by partition. All are sent when there are enough of them, or when the first has waited long enough.
The broker creates missing topics if its settings say so. The columns are those of Spark's own Kafka sink.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from minibroker.client.client_errors import get_error_name, is_retriable_code
from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.log_source import OptionError, TopicPartition
from minibroker.pipeline.schemas import HEADERS
from minibroker.pipeline.sink.partitioner import Partitioner
from minibroker.pipeline.sink.sender import ProduceSender
from minibroker.pipeline.sink.sink_settings import SinkSettings
from minibroker.pipeline.sink.sink_transaction import RecordRefused, WriteFailed
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.metadata import MetadataRequest

# The types of each column, by Spark's names.
_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
    "timestamp": ("double", "timestamp"),
}

# The form of rows. `row` is a row's number in the task, for messages.
ROWS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),  # ms since 1970, -1: none
        ("headers", HEADERS),
        ("row", pa.int64()),
    ]
)


def check_columns(types: Mapping[str, str], topic: str | None) -> None:
    """Check a DataFrame's columns (name to Spark's type) as Spark's own sink does. Raises `OptionError`.

    Columns of other names are ignored.
    """
    if topic is None and "topic" not in types:
        raise OptionError("topic option required when no 'topic' attribute is present")
    if "value" not in types:
        raise OptionError("required attribute 'value' not found")
    for name, allowed in _TYPES.items():
        if name in types and types[name] not in allowed and not (name == "topic" and topic is not None):
            raise OptionError(
                f"{name} attribute unsupported type {types[name]}: {name} must be a(n) {' or '.join(allowed)}"
            )


class RowsConverter:
    """Converts Spark's rows to `ROWS`, and counts them.

    The option `topic` overrides the column. If a timestamp is null, missing or not to be kept, the row gets the current
    time; with `keep_none` a null stays none (-1), as in message format 0.
    """

    def __init__(self, topic: str | None, keep_timestamps: bool = True, keep_none: bool = False) -> None:
        self._topic = topic
        self._keep_timestamps = keep_timestamps
        self._keep_none = keep_none
        self.count = 0

    def convert_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return one batch's rows.

        Raises `RecordRefused` for null topics, partitions and times below 0, and headers without a key.
        """
        count, first = batch.num_rows, self.count
        self.count += count
        columns = [
            self._get_topics(batch, first),
            _refuse_negative_numbers("partition", _cast_column(batch, "partition", pa.int32()), first),
            _cast_column(batch, "key", pa.binary()),
            _cast_column(batch, "value", pa.binary()),
            self._get_timestamps(batch, first),
            _get_headers(batch, first),
            pa.array(np.arange(first, first + count, dtype=np.int64)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ROWS)

    def _get_topics(self, batch: pa.RecordBatch, first: int) -> pa.Array:
        if self._topic is not None:
            return pa.repeat(pa.scalar(self._topic, pa.string()), batch.num_rows)
        topics = _cast_column(batch, "topic", pa.string())
        if topics.null_count:
            row = first + int(pc.index(topics.is_null(), True).as_py())
            raise RecordRefused(f"row {row}: null topic present in the data: the option topic sets one for all rows")
        return topics

    def _get_timestamps(self, batch: pa.RecordBatch, first: int) -> pa.Array:
        given = _get_column(batch, "timestamp") if self._keep_timestamps else None
        if given is None:
            given = pa.nulls(batch.num_rows, pa.int64())
        if pa.types.is_floating(given.type):  # seconds, as in Spark's casts
            given = pc.floor(pc.multiply(given, 1000.0)).cast(pa.int64())
        elif pa.types.is_timestamp(given.type):
            micros = given.cast(pa.timestamp("us", given.type.tz)).cast(pa.int64())
            given = _refuse_negative_numbers("timestamp", pc.divide(micros, 1000), first, micros)
        times = _refuse_negative_numbers("timestamp", given.cast(pa.int64()), first)
        return times.fill_null(-1 if self._keep_none else int(time.time() * 1000))


def _get_headers(batch: pa.RecordBatch, first: int) -> pa.Array:
    headers = _cast_column(batch, "headers", HEADERS)
    keys = headers.flatten().field("key") if headers.null_count < len(headers) else None
    if keys is not None and keys.null_count:
        parents = pc.list_parent_indices(headers)
        row = first + int(parents[int(pc.index(keys.is_null(), True).as_py())].as_py())
        raise RecordRefused(f"row {row}: a header has no key")
    return headers


def _refuse_negative_numbers(name: str, numbers: pa.Array, first: int, signs: pa.Array | None = None) -> pa.Array:
    below = pc.index(pc.less(numbers if signs is None else signs, 0), True).as_py()
    if below >= 0:
        raise RecordRefused(f"row {first + below}: {name} {numbers[below].as_py()} is below 0")
    return numbers


def _cast_column(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    """Return the column in this type; all null if it does not exist."""
    column = _get_column(batch, name)
    return pa.nulls(batch.num_rows, kind) if column is None else column if column.type == kind else column.cast(kind)


def _get_column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    index = batch.schema.get_field_index(name)
    return None if index < 0 else batch.column(index)


_BACKOFF_S: Final = 0.1


class RowsBuffer:
    """Rows by partition, up to about `size_bytes`. With `linger_ms`, none of them stays longer than that."""

    def __init__(self, size_bytes: int, linger_ms: int | None) -> None:
        self._size_bytes = size_bytes
        self._linger_s = None if linger_ms is None else linger_ms / 1000
        self._rows: dict[TopicPartition, list[pa.RecordBatch]] = {}
        self._held_bytes = 0
        self._oldest = 0.0

    def add_rows(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """Add rows of a partition behind the others."""
        if not self._rows:
            self._oldest = time.monotonic()
        self._rows.setdefault(partition, []).append(rows)
        self._held_bytes += rows.nbytes

    def is_send_due(self) -> bool:
        """Return whether the rows should be sent now."""
        if self._held_bytes >= self._size_bytes:
            return True
        return bool(self._rows) and self._linger_s is not None and time.monotonic() - self._oldest >= self._linger_s

    def remove_all_rows(self) -> dict[TopicPartition, pa.RecordBatch]:
        """Remove and return all rows, one record batch for each partition."""
        taken = {partition: _join_rows(rows) for partition, rows in self._rows.items()}
        self._rows, self._held_bytes = {}, 0
        return taken


def _join_rows(rows: list[pa.RecordBatch]) -> pa.RecordBatch:
    return rows[0] if len(rows) == 1 else pa.concat_batches(rows)


class RowCounts(NamedTuple):
    """The number of a task's rows, and of the bytes of their keys and values.

    If Spark repeats a task that was committed already, these are compared with those of the first time.
    """

    rows: int = 0
    size_bytes: int = 0

    def count_batch(self, batch: pa.RecordBatch) -> RowCounts:
        """Return the counts with those of a batch, whatever the type of its keys and values."""
        columns = [batch.column(name) for name in ("key", "value") if batch.schema.get_field_index(name) >= 0]
        added = sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in columns)
        return RowCounts(self.rows + batch.num_rows, self.size_bytes + added)


class TaskWriter:
    """Writes batches of rows from Spark. All are in the brokers after `flush_rows`. Raises `WriteFailed`.

    `task` is the task's number: it decides where rows without a key begin. `counted` are the rows so far.
    """

    def __init__(
        self, client: Client, settings: SinkSettings, sender: ProduceSender, task: int = 0, keep_none: bool = False
    ) -> None:
        topics = PartitionCounts(client, settings.max_block_ms)
        self._sender = sender
        self._rows = RowsConverter(settings.topic, settings.keep_timestamps, keep_none)
        self._partitioner = Partitioner(
            topics.get_partition_count, settings.batches.batch_bytes, task, settings.ignore_keys
        )
        self._buffer = RowsBuffer(settings.buffer_bytes, settings.linger_ms)
        self.counted = RowCounts()

    def write_rows(self, batch: pa.RecordBatch) -> None:
        """Take rows. Send all that were taken when there are enough."""
        self.counted = self.counted.count_batch(batch)
        for partition, rows in self._partitioner.split_by_partition(self._rows.convert_rows(batch)):
            self._buffer.add_rows(partition, rows)
        if self._buffer.is_send_due():
            self.flush_rows()

    def flush_rows(self) -> None:
        """Send all rows that were taken."""
        self._sender.send_rows(self._buffer.remove_all_rows())


class PartitionCounts:
    """The partition counts of topics. They are asked for once, and again if a row has a partition beyond them."""

    def __init__(self, client: Client, max_block_ms: int) -> None:
        self._client = client
        self._max_block_ms = max_block_ms
        self._counts: dict[str, int] = {}

    def get_partition_count(self, topic: str, at_least: int = 1) -> int:
        """Return the number of partitions of a topic. Wait until there are `at_least` so many.

        After `max_block_ms`, raise `WriteFailed` with the missing topic or partition.
        """
        deadline = time.monotonic() + self._max_block_ms / 1000
        while self._counts.get(topic, 0) < at_least:
            code = self._request_partition_count(topic)
            if code != ErrorCode.NONE and not is_retriable_code(code):
                raise WriteFailed(f"{self._client.bootstrap_servers}: topic {topic}: {get_error_name(code)}")
            if self._counts.get(topic, 0) >= at_least:
                break
            if time.monotonic() + _BACKOFF_S > deadline:
                raise WriteFailed(self._explain_missing(topic, at_least, code))
            time.sleep(_BACKOFF_S)
        return self._counts[topic]

    def _request_partition_count(self, topic: str) -> int:
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
