"""Chooses the partition of each row: the one in the row, else by its key as Kafka's Java client, else in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from minibroker.client.murmur2 import MULTIPLIER, SEED, compute_murmur2
from minibroker.pipeline.array_types import Int64s, UInt8s
from minibroker.pipeline.log_source import TopicPartition

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
            partitions[turns] = self._choose_partitions_in_turns(
                topic, rows.column("value").filter(pa.array(turns)), count
            )
        return partitions

    def _choose_partitions_in_turns(self, topic: str, values: pa.BinaryArray, count: int) -> Int64s:
        sizes = pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False) + _RECORD_OVERHEAD_BYTES
        before = self._sent_bytes.get(topic, 0)
        ends = before + np.cumsum(sizes, dtype=np.int64)
        self._sent_bytes[topic] = int(ends[-1])
        partitions: Int64s = (self._first + (ends - sizes) // self._sticky_bytes) % count
        return partitions


def _group_rows(
    rows: pa.RecordBatch, codes: npt.NDArray[np.int32], partitions: Int64s
) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Yield the rows by (code of the topic, partition). If all have the same, they are not copied."""
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
    """Mix in the one to three bytes after the last whole word."""
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
