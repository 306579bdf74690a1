"""Writes the rows of one task: checks columns, chooses partitions, gathers, sends and counts.

The partition of a row is the one in the row, else by its key as Kafka's Java client, else in turns. Rows wait in
memory, by partition. All are sent when there are enough of them, or no more. The broker creates missing topics if its
settings say so. The columns are those of Spark's own Kafka sink.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from minibroker.client.client_errors import get_error_name, is_retriable_code
from minibroker.client.murmur2 import MULTIPLIER, SEED, compute_murmur2
from minibroker.pipeline.array_types import Int64s, UInt8s
from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.log_source import OptionError, TopicPartition
from minibroker.pipeline.schemas import HEADERS
from minibroker.pipeline.sink.sender import ProduceSender
from minibroker.pipeline.sink.sink_settings import SinkSettings
from minibroker.pipeline.sink.sink_transaction import RecordRefused, WriteFailed
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.metadata import MetadataRequest

# Returns the number of partitions of a topic. Waits until there are at least so many.
PartitionCount = Callable[[str, int], int]

_RECORD_OVERHEAD_BYTES = 10  # roughly, beside the value

# Longer keys are hashed one by one: the vectorized way takes a step for each four bytes of the longest key.
_COLUMN_KEY_BYTES_MAX: Final = 256

UInt32s = npt.NDArray[np.uint32]


class Partitioner:
    """Chooses partitions, in turns for rows without a key, also from one batch of rows to the next.

    These rows stay with a partition for `sticky_bytes`, so that batches fill up, and then go to the next one, as in the
    Java client (KIP-480, KIP-794). The first one is `first` modulo the number of partitions, so that tasks begin with
    different partitions. With `ignore_keys`, keys are ignored.
    """

    def __init__(self, count: PartitionCount, sticky_bytes: int, first: int = 0, ignore_keys: bool = False) -> None:
        self._count = count
        self._sticky_bytes = sticky_bytes
        self._first = first
        self._ignore_keys = ignore_keys
        self._sent_bytes: dict[str, int] = {}  # by topic, of rows without a key

    def split_by_partition(self, rows: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """Yield the rows of each partition, in order. Raises `WriteFailed` if a partition does not exist."""
        topics = rows.column("topic").dictionary_encode()
        codes = topics.indices.to_numpy(zero_copy_only=False)
        partitions = np.empty(rows.num_rows, np.int64)
        for code, topic in enumerate(topics.dictionary.to_pylist()):
            places = np.flatnonzero(codes == code) if len(topics.dictionary) > 1 else slice(None)
            chosen = rows.take(pa.array(places)) if isinstance(places, np.ndarray) else rows
            partitions[places] = self._choose_partitions_of_topic(topic, chosen)
        for code, partition, some in _group_rows(rows, codes, partitions):
            yield TopicPartition(topics.dictionary[code].as_py(), partition), some

    def _choose_partitions_of_topic(self, topic: str, rows: pa.RecordBatch) -> Int64s:
        given = rows.column("partition")
        highest = pc.max(given).as_py()
        count = self._count(topic, 1 if highest is None else highest + 1)
        partitions: Int64s = given.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        if not given.null_count:
            return partitions
        free = partitions < 0
        keys = rows.column("key")
        keyed = np.zeros_like(free) if self._ignore_keys else free & keys.is_valid().to_numpy(zero_copy_only=False)
        if keyed.any():
            hashes = (hash_keys(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64)
            partitions[keyed] = hashes[keyed] % count
        turns = free & ~keyed
        if turns.any():
            partitions[turns] = self._choose_partitions_round_robin(
                topic, rows.column("value").filter(pa.array(turns)), count
            )
        return partitions

    def _choose_partitions_round_robin(self, topic: str, values: pa.BinaryArray, count: int) -> Int64s:
        """Return a partition for each row, of `count`: the same for some bytes of values, and then the next one."""
        sizes = pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False) + _RECORD_OVERHEAD_BYTES
        before = self._sent_bytes.get(topic, 0)
        ends = before + np.cumsum(sizes, dtype=np.int64)
        self._sent_bytes[topic] = int(ends[-1])
        partitions: Int64s = (self._first + (ends - sizes) // self._sticky_bytes) % count
        return partitions


def _group_rows(
    rows: pa.RecordBatch, codes: npt.NDArray[np.int32], partitions: Int64s
) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Yield the rows by (code of the topic, partition). Rows that all have the same are not copied."""
    places = codes.astype(np.int64) << 32 | partitions
    if not len(places):
        return
    if (places == places[0]).all():
        yield int(codes[0]), int(partitions[0]), rows
        return
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    sorted_rows = rows.take(pa.array(order))
    for start, end in zip(starts, [*starts[1:], len(ordered)], strict=True):
        place = int(ordered[start])
        yield place >> 32, place & 0xFFFFFFFF, sorted_rows.slice(int(start), int(end - start))


def hash_keys(keys: pa.BinaryArray) -> UInt32s:
    """Return the hashes of a column of keys, unsigned 32-bit numbers. Null has the hash of an empty key."""
    offsets, data = _get_starts_and_data_of_keys(keys)
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = np.empty(len(keys), np.uint32)
    short = np.flatnonzero(lengths <= _COLUMN_KEY_BYTES_MAX)
    hashes[short] = _hash_short_keys(data, starts[short], lengths[short])
    for row in np.flatnonzero(lengths > _COLUMN_KEY_BYTES_MAX):
        hashes[row] = compute_murmur2(data[starts[row] : starts[row] + lengths[row]].tobytes())
    return hashes


def _hash_short_keys(data: UInt8s, starts: Int64s, lengths: Int64s) -> UInt32s:
    words = lengths >> 2
    order = np.argsort(-words, kind="stable")  # the keys with a word i are always a prefix
    starts, lengths, words = starts[order], lengths[order], words[order]
    values = (SEED ^ lengths).astype(np.uint32)
    little_endian: Any = np.ndarray((max(len(data) - 3, 0),), "<u4", data, strides=(1,))  # a word begins at every byte
    for index in range(int(words[0]) if len(words) else 0):
        active = int(np.searchsorted(-words, -index, side="left"))  # the number of keys with more than `index` words
        word = little_endian[starts[:active] + 4 * index] * np.uint32(MULTIPLIER)
        word = (word ^ word >> np.uint32(24)) * np.uint32(MULTIPLIER)
        values[:active] = values[:active] * np.uint32(MULTIPLIER) ^ word
    _mix_last_bytes(values, data, starts + 4 * words, lengths & 3)
    values = (values ^ values >> np.uint32(13)) * np.uint32(MULTIPLIER)
    values ^= values >> np.uint32(15)
    hashes = np.empty_like(values)
    hashes[order] = values
    return hashes


def _mix_last_bytes(values: UInt32s, data: UInt8s, starts: Int64s, lengths: Int64s) -> None:
    """Mix the one to three bytes after each key's last whole word into its hash in `values`."""
    for byte in (2, 1, 0):
        has = np.flatnonzero(lengths > byte)
        values[has] ^= data[starts[has] + byte].astype(np.uint32) << np.uint32(8 * byte)
    has = np.flatnonzero(lengths)
    values[has] *= np.uint32(MULTIPLIER)


def _get_starts_and_data_of_keys(keys: pa.BinaryArray) -> tuple[Int64s, UInt8s]:
    """Return the offsets of the keys, one more than there are keys, and their bytes."""
    _, offsets, data = keys.buffers()
    if offsets is None:
        return np.zeros(len(keys) + 1, np.int64), np.empty(0, np.uint8)
    positions = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    return positions, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


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
        """Return the rows of a batch with the columns of `ROWS`, and count them.

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

    def _get_topics(self, batch: pa.RecordBatch, first_row: int) -> pa.Array:
        """Return each row's topic. Raises `RecordRefused` for a null one; rows count from `first_row`."""
        if self._topic is not None:
            return pa.repeat(pa.scalar(self._topic, pa.string()), batch.num_rows)
        topics = _cast_column(batch, "topic", pa.string())
        if topics.null_count:
            row = first_row + int(pc.index(topics.is_null(), True).as_py())
            raise RecordRefused(f"row {row}: null topic present in the data: the option topic sets one for all rows")
        return topics

    def _get_timestamps(self, batch: pa.RecordBatch, first_row: int) -> pa.Array:
        """Return each row's time in ms, now for null. Raises `RecordRefused` below 0; rows count from `first_row`."""
        given = _get_column(batch, "timestamp") if self._keep_timestamps else None
        if given is None:
            given = pa.nulls(batch.num_rows, pa.int64())
        if pa.types.is_floating(given.type):  # seconds, as in Spark's casts
            given = pc.floor(pc.multiply(given, 1000.0)).cast(pa.int64())
        elif pa.types.is_timestamp(given.type):
            micros = given.cast(pa.timestamp("us", given.type.tz)).cast(pa.int64())
            given = _refuse_negative_numbers("timestamp", pc.divide(micros, 1000), first_row, micros)
        times = _refuse_negative_numbers("timestamp", given.cast(pa.int64()), first_row)
        return times.fill_null(-1 if self._keep_none else int(time.time() * 1000))


def _get_headers(batch: pa.RecordBatch, first_row: int) -> pa.Array:
    """Return each row's headers. Raises `RecordRefused` for a header without a key; rows count from `first_row`."""
    headers = _cast_column(batch, "headers", HEADERS)
    keys = headers.flatten().field("key") if headers.null_count < len(headers) else None
    if keys is not None and keys.null_count:
        parents = pc.list_parent_indices(headers)
        row = first_row + int(parents[int(pc.index(keys.is_null(), True).as_py())].as_py())
        raise RecordRefused(f"row {row}: a header has no key")
    return headers


def _refuse_negative_numbers(name: str, numbers: pa.Array, first_row: int, signs: pa.Array | None = None) -> pa.Array:
    """Return the numbers. Raises `RecordRefused`, naming the first row whose number (or sign) is below 0."""
    below = pc.index(pc.less(numbers if signs is None else signs, 0), True).as_py()
    if below >= 0:
        raise RecordRefused(f"row {first_row + below}: {name} {numbers[below].as_py()} is below 0")
    return numbers


def _cast_column(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    """Return the column in this type; all null if it does not exist."""
    column = _get_column(batch, name)
    return pa.nulls(batch.num_rows, kind) if column is None else column if column.type == kind else column.cast(kind)


def _get_column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    index = batch.schema.get_field_index(name)
    return None if index < 0 else batch.column(index)


_BACKOFF_S: Final = 0.1


class RowCounts(NamedTuple):
    """The number of a task's rows, and of the bytes of their keys and values.

    If Spark repeats a task that was committed already, these are compared with those of the first time.
    """

    rows: int = 0
    size_bytes: int = 0

    def count_batch(self, batch: pa.RecordBatch) -> RowCounts:
        """Return the sum of these counts and those of a batch, whatever the type of its keys and values."""
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
        self._buffer_bytes = settings.buffer_bytes
        self._held: dict[TopicPartition, list[pa.RecordBatch]] = {}
        self._held_bytes = 0
        self._rows = RowsConverter(settings.topic, settings.keep_timestamps, keep_none)
        self._partitioner = Partitioner(
            topics.get_partition_count, settings.batches.batch_bytes, task, settings.ignore_keys
        )
        self.counted = RowCounts()

    def write_rows(self, batch: pa.RecordBatch) -> None:
        """Buffer rows, and send all when there are enough."""
        self.counted = self.counted.count_batch(batch)
        for partition, rows in self._partitioner.split_by_partition(self._rows.convert_rows(batch)):
            self._held.setdefault(partition, []).append(rows)
            self._held_bytes += rows.nbytes
        if self._held_bytes >= self._buffer_bytes:
            self.flush_rows()

    def flush_rows(self) -> None:
        """Send all rows that are buffered."""
        held, self._held, self._held_bytes = self._held, {}, 0
        self._sender.send_rows({partition: pa.concat_batches(rows) for partition, rows in held.items()})


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
                raise WriteFailed(self._explain_missing_topic_or_partition(topic, at_least, code))
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

    def _explain_missing_topic_or_partition(self, topic: str, at_least: int, code: int) -> str:
        waited = f"after {self._max_block_ms} ms"
        if code != ErrorCode.NONE:
            return f"{self._client.bootstrap_servers}: topic {topic}: {get_error_name(code)} {waited}"
        return (
            f"{self._client.bootstrap_servers}: partition {at_least - 1} of topic {topic}, which has "
            f"{self._counts[topic]}, is not present in metadata {waited}"
        )
