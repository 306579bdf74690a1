"""Checks messages of formats 0 and 1: their sizes, and the messages in wrappers.

A wrapper has the offset of its last message. Its messages have absolute offsets in format 0; in format 1 they are
relative to the first one (KIP-31).
"""

from __future__ import annotations

import numpy as np

from minibroker.pipeline.decode.arena import MAX_BATCH_BYTES
from minibroker.pipeline.verifying.findings import Problem
from minibroker.pipeline.verifying.log_blocks import Block
from minibroker.pipeline.verifying.record_checks import Checked, Records, Unreadable, describe_undecompressed
from minibroker.protocol.errors import CorruptBatch, InvalidRecords, KafkaError
from minibroker.protocol.records.batch import LOG_APPEND_TIME, MAGIC
from minibroker.protocol.records.formats import iterate_batches_in
from minibroker.protocol.records.message import Message, check_message, read_message
from minibroker.protocol.records.message_set import decompress_inner_messages


def check_messages(block: Block, *, compacted: bool) -> Checked:
    """Read the sound messages of formats 0 and 1 in the block. Return the problems and the keys.

    Set `block.first_offset` of wrappers.
    """
    problems: list[Problem] = []
    found: list[tuple[int, Message]] = []
    for index in np.flatnonzero(block.sound & (block.headers.magic < MAGIC)).tolist():
        try:
            message = _read_message(bytes(block.batch(index)), 0)
            inside = _check_inner_messages(message, compacted=compacted) if message.compression else [message]
        except Unreadable as error:
            problems.append(block.problem(error.kind, index, str(error)))
            continue
        block.first_offset[index] = inside[0].offset
        found += [(index, each) for each in inside]
    return Checked(problems, [_make_records(found)] if found else [])


def _read_message(data: bytes, position: int) -> Message:
    """Return the message at `position`, whose checksum is right. Raises `Unreadable`."""
    try:
        return read_message(data, position, is_checked=True)[0]
    except InvalidRecords as error:
        raise Unreadable("record", str(error)) from error


def _check_inner_messages(wrapper: Message, *, compacted: bool) -> list[Message]:
    """Return the messages of a wrapper with absolute offsets. Raises `Unreadable`."""
    inner = _read_inner_messages(wrapper)
    if not inner:
        raise Unreadable("record-count", "a wrapper without messages")
    base = wrapper.offset - inner[-1].offset if wrapper.magic else 0
    if base + inner[-1].offset != wrapper.offset or base < 0:
        detail = f"its last message has offset {base + inner[-1].offset}, the wrapper {wrapper.offset}"
        raise Unreadable("record-offset", detail)
    for before, message in zip(inner, inner[1:], strict=False):
        step = message.offset - before.offset
        if step < 1 or step > 1 and not compacted:
            detail = f"offset {base + message.offset} follows {base + before.offset} within a wrapper"
            raise Unreadable("record-offset", detail)
    largest = max(message.timestamp for message in inner)
    if wrapper.magic and wrapper.timestamp_type != LOG_APPEND_TIME and largest != wrapper.timestamp:
        raise Unreadable("max-timestamp", f"{wrapper.timestamp} in the wrapper, {largest} in its messages")
    return [message._replace(offset=base + message.offset) for message in inner]


def _read_inner_messages(wrapper: Message) -> list[Message]:
    """Return the messages of a wrapper as they are stored. Raises `Unreadable`."""
    try:
        payload = decompress_inner_messages(wrapper, MAX_BATCH_BYTES)
    except KafkaError as error:
        raise describe_undecompressed(error) from error
    found: list[Message] = []
    end = 0
    try:
        for position, header in iterate_batches_in(payload):
            end = position + header.size_bytes
            if header.magic != wrapper.magic or header.compression:
                raise Unreadable("record", f"codec {header.compression} and magic {header.magic} in a wrapper")
            try:
                check_message(payload, position)
            except CorruptBatch as error:
                raise Unreadable("crc", f"in a wrapper: {error}") from error
            found.append(_read_message(payload, position))
    except CorruptBatch as error:
        raise Unreadable("record", f"in a wrapper: {error}") from error
    if end != len(payload):
        raise Unreadable("record", f"{len(payload) - end} bytes are left of a message in a wrapper")
    return found


def _make_records(found: list[tuple[int, Message]]) -> Records:
    keys = [bytes(message.key or b"") for _, message in found]
    sizes = np.array([len(key) for key in keys], np.int64)
    return Records(
        b"".join(keys),
        np.array([index for index, _ in found], np.int64),
        np.array([message.offset for _, message in found], np.int64),
        np.cumsum(sizes) - sizes,
        np.where([message.key is None for _, message in found], -1, sizes),
        np.array([message.value is not None for _, message in found], np.bool_),
    )
