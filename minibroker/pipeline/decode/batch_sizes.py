"""Measures batches: their uncompressed size, the bytes of keys and of values, and the number of null values.

Headers do not have these sizes, so batches must be decompressed: only as many as were asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from minibroker.pipeline.array_types import Bools, Int64s, UInt8s
from minibroker.pipeline.decode import message_columns
from minibroker.pipeline.decode.arena import Arena
from minibroker.pipeline.decode.batch_headers import Headers
from minibroker.pipeline.decode.decoded_fields import Parts
from minibroker.pipeline.decode.record_field_columns import read_fields
from minibroker.pipeline.decode.record_starts import record_starts
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.batch import ELIDED_BIT, HEADER_BYTES, MAGIC

_KEY_VALUE_DEPTH: Final = 4
_SPREAD: Final = 0x9E3779B97F4A7C15  # the golden ratio, which spreads neighbouring offsets


class Sizes(NamedTuple):
    """A column for each size. It has no meaning for batches that are not `measured`."""

    measured: Bools
    uncompressed: Int64s  # of format 2 with the batch's header; of a wrapper, the messages in it
    keys: Int64s
    values: Int64s
    null_values: Int64s
    records: Int64s


class _Load(NamedTuple):
    """Batches of one kind whose records are in the arena."""

    which: list[int]  # their indexes in the headers
    start: list[int]
    end: list[int]
    inner: list[Int64s]  # of formats 0 and 1: where the messages of each begin


def measure_sizes(view: memoryview, headers: Headers, one_in: int, arena: Arena, chunk_bytes: int) -> Sizes:
    """Return the sizes of one in `one_in` batches. They are chosen by offset, so that all readers choose the same ones.

    All compressed messages of formats 0 and 1 are measured, as only this shows how many records they have. Damaged
    batches are not measured.
    """
    count = len(headers.size)
    sizes = Sizes(np.zeros(count, np.bool_), *(np.zeros(count, np.int64) for _ in Sizes._fields[1:]))
    for is_new in (True, False):
        wanted = _choose_sample(headers, one_in) & ((headers.magic == MAGIC) == is_new)
        for load in _load_batches(view, headers, np.flatnonzero(wanted).tolist(), arena, chunk_bytes):
            (_measure_batches if is_new else _measure_messages)(arena.data, headers, load, sizes)
    return sizes


def _choose_sample(headers: Headers, one_in: int) -> Bools:
    spread = headers.base_offset.astype(np.uint64) * np.uint64(_SPREAD)
    is_wrapper = (headers.magic < MAGIC) & (headers.codec != 0)
    chosen: Bools = (((spread >> np.uint64(33)) % np.uint64(one_in) == 0) | is_wrapper) & ~headers.is_control
    return chosen


def _load_batches(
    view: memoryview, headers: Headers, wanted: list[int], arena: Arena, chunk_bytes: int
) -> Iterator[_Load]:
    """Bring the wanted batches into the arena, about a chunk at a time."""
    arena.clear()
    load = _Load([], [], [], [])
    for index in wanted:
        position = int(headers.position[index])
        batch = view[position : position + int(headers.size[index])]
        try:
            start, inner = _bring_batch(batch, int(headers.magic[index]), int(headers.codec[index]), arena)
        except KafkaError:
            continue
        load.which.append(index)
        load.start.append(start)
        load.end.append(arena.used)
        load.inner.append(inner)
        if arena.used >= chunk_bytes:
            yield load
            arena.clear()
            load = _Load([], [], [], [])
    if load.which:
        yield load


def _bring_batch(batch: memoryview, magic: int, codec: int, arena: Arena) -> tuple[int, Int64s]:
    """Put the records of a batch into the arena. Return where they begin, and where each old message does.

    Raises `KafkaError`.
    """
    if magic == MAGIC:
        payload = batch[HEADER_BYTES:]
        return arena.decompress(codec, payload) if codec else arena.append(payload), np.empty(0, np.int64)
    start = arena.used
    return start, message_columns.unwrap_messages(batch, arena) if codec else np.array([arena.append(batch)])


def _measure_batches(data: UInt8s, headers: Headers, load: _Load, sizes: Sizes) -> None:
    index, start, end = (np.array(each, np.int64) for each in load[:3])
    counts = headers.record_count[index]
    starts, sound = record_starts(data, start, end, counts)
    index, start, end, counts = index[sound], start[sound], end[sound], counts[sound]
    batch = np.repeat(np.arange(len(index)), counts)
    has_attributes = (headers.attributes[index] & ELIDED_BIT == 0).astype(np.int64)
    fields = read_fields(data, starts, has_attributes[batch], _KEY_VALUE_DEPTH)
    assert fields.keys is not None and fields.values is not None
    _add_up_sizes(sizes, index, end - start + HEADER_BYTES, batch, fields.keys, fields.values, fields.malformed)


def _measure_messages(data: UInt8s, headers: Headers, load: _Load, sizes: Sizes) -> None:
    index = np.array(load.which, np.int64)
    counts = np.array([len(each) for each in load.inner], np.int64)
    batch = np.repeat(np.arange(len(index)), counts)
    starts = np.concatenate(load.inner)
    keys, values, malformed = message_columns.read_key_and_value(data, starts, headers.magic[index][batch])
    _add_up_sizes(sizes, index, np.array(load.end) - np.array(load.start), batch, keys, values, malformed)


def _add_up_sizes(
    sizes: Sizes, index: Int64s, size: Int64s, batch: Int64s, keys: Parts, values: Parts, malformed: Bools
) -> None:
    """Add up the records' sizes by batch. Batches with a malformed record do not count as measured."""
    count = len(index)
    nothing = np.zeros(len(batch), np.bool_)
    sizes.measured[index] = np.bincount(batch, malformed, count) == 0
    sizes.uncompressed[index] = size
    sizes.keys[index] = np.bincount(batch, keys.length, count)
    sizes.values[index] = np.bincount(batch, values.length, count)
    sizes.null_values[index] = np.bincount(batch, nothing if values.is_null is None else values.is_null, count)
    sizes.records[index] = np.bincount(batch, minlength=count)
