"""Batches of format 2 whose records have no attributes byte, which says nothing (KIP-931, which was discarded).

Bit 7 of a batch's attributes says that the byte is missing in each of its records, which saves as many bytes. Readers
need not know: `payload_of` gives the records with the byte. When batches are stored so is decided by the storage layer.

    with     |length|attributes 0|timestamp delta|offset delta|key ...|value ...|headers ...|
    without  |length - 1|timestamp delta|offset delta|key ...|value ...|headers ...|
"""

from __future__ import annotations

from minibroker.protocol.errors import InvalidRecords
from minibroker.protocol.records.batch import CONTROL_BIT, ELIDED_BIT, MAGIC, BatchHeader
from minibroker.protocol.records.building import assemble
from minibroker.protocol.records.compression import compress
from minibroker.protocol.records.record import payload_of
from minibroker.protocol.records.varints import MAX_VARINT_BYTES, Bytes, MalformedVarint, read_raw, zigzag_bytes


def without_attributes(batch: Bytes, header: BatchHeader, level: int | None = None) -> bytearray | None:
    """The batch without the attributes of its records, under the same codec; None if it is to stay as it is.

    That is a batch which has none already, one of another format, a control batch, and one with an attribute other
    than 0, which would be lost. Raises what reading the records raises.
    """
    if header.magic != MAGIC or header.attributes & (ELIDED_BIT | CONTROL_BIT) or header.record_count == 0:
        return None
    payload = elided(bytes(payload_of(batch, 0, header)), header.record_count)
    if payload is None:
        return None
    changed = header._replace(attributes=header.attributes | ELIDED_BIT)
    return assemble(changed, compress(header.compression, payload, level))


def with_attributes(batch: Bytes, header: BatchHeader, level: int | None = None) -> bytearray:
    """The batch with the attributes of its records, which are 0. Raises what reading the records raises."""
    payload = payload_of(batch, 0, header)
    changed = header._replace(attributes=header.attributes & ~ELIDED_BIT)
    return assemble(changed, compress(header.compression, payload, level))


def elided(payload: bytes, count: int) -> bytes | None:
    """The `count` records in `payload` without their attributes; None if one has some. Raises `InvalidRecords`."""
    out = bytearray()
    position = 0
    for _ in range(count):
        body, end = _extent(payload, position)
        if payload[body]:
            return None
        out += zigzag_bytes(end - body - 1)
        out += payload[body + 1 : end]
        position = end
    out += payload[position:]
    return bytes(out)


def restored(payload: bytes, count: int) -> bytes:
    """The `count` records in `payload`, which have no attributes, with them. Raises `InvalidRecords`."""
    out = bytearray()
    position = 0
    for _ in range(count):
        body, end = _extent(payload, position)
        out += zigzag_bytes(end - body + 1)
        out.append(0)
        out += payload[body:end]
        position = end
    out += payload[position:]
    return bytes(out)


def _extent(payload: bytes, position: int) -> tuple[int, int]:
    """Where the record at `position` begins behind its length, and where it ends."""
    try:
        length, body = read_raw(payload, position, MAX_VARINT_BYTES)
    except MalformedVarint as error:
        raise InvalidRecords(f"the record at byte {position} is malformed: {error}") from error
    end = body + (length >> 1)
    if length & 1 or not body < end <= len(payload):
        raise InvalidRecords(f"the record at byte {position} is malformed: a length of {length >> 1} bytes")
    return body, end
