"""Explains record batches, and the messages of formats 0 and 1, down to the fields of each record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct as Packing
from zlib import crc32

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.explaining.internal_records import ExplainRecord
from minibroker.protocol.explaining.meanings import format_timestamp
from minibroker.protocol.explaining.parts import MOST_DECOMPRESSED_BYTES, ExplainedPart, PartCursor, UnreadablePart
from minibroker.protocol.record_fields import BY_PLACE
from minibroker.protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_START,
    DELETE_HORIZON_BIT,
    ELIDED_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_POSITION,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from minibroker.protocol.records.compression import Compression, decompress_chunks
from minibroker.protocol.records.crc import crc32c
from minibroker.protocol.records.varints import (
    MAX_VARINT_BYTES,
    MAX_VARLONG_BYTES,
    Bytes,
    MalformedVarint,
    convert_from_zigzag,
    read_zigzag_varint,
)

_TYPES = {"b": "int8", "h": "int16", "i": "int32", "I": "uint32", "q": "int64"}
_PACKINGS = {code: Packing(f">{code}") for code in _TYPES}
_HEADER = (
    ("base_offset", "q"),
    ("batch_length", "i"),
    ("partition_leader_epoch", "i"),
    ("magic", "b"),
    ("crc", "I"),
    ("attributes", "h"),
    ("last_offset_delta", "i"),
    ("base_timestamp", "q"),
    ("max_timestamp", "q"),
    ("producer_id", "q"),
    ("producer_epoch", "h"),
    ("base_sequence", "i"),
    ("record_count", "i"),
)
_MESSAGE_HEADER = (("offset", "q"), ("size", "i"), ("crc", "I"), ("magic", "b"), ("attributes", "b"))
_TIMES = ("base_timestamp", "max_timestamp", "timestamp")
_FLAGS = (
    (TRANSACTIONAL_BIT, "transactional"),
    (CONTROL_BIT, "control batch"),
    (DELETE_HORIZON_BIT, "base_timestamp is the delete horizon"),
    (ELIDED_BIT, "records without attributes"),
)


def explain_batches(cursor: PartCursor, explain_record: ExplainRecord) -> None:
    """Explain all batches up to the cursor's end. The last one may be incomplete, as answers and files are.

    `explain_record` explains keys and values.
    """
    index = 0
    while cursor.left_bytes:
        if cursor.left_bytes <= MAGIC_POSITION:
            raise UnreadablePart(f"{cursor.left_bytes} bytes are too few for a batch")
        if cursor.data[cursor.position + MAGIC_POSITION] < MAGIC:
            _explain_message(cursor, f"message [{index}]", explain_record)
        else:
            _explain_batch(cursor, f"batch [{index}]", explain_record)
        index += 1


@contextmanager
def _add_described_part(cursor: PartCursor, name: str, type_: str) -> Iterator[ExplainedPart]:
    """Add a part whose inner parts are fields of `type_`: each gets the field's description and KIP."""
    with cursor.add_part(name, type_) as whole:
        try:
            yield whole
        finally:
            for part in whole.parts:
                if (field := BY_PLACE.get((type_, part.name))) is not None:
                    part.about, part.kip = field.about, field.kip


# --- format 2 ---


def _explain_batch(cursor: PartCursor, name: str, explain_record: ExplainRecord) -> None:
    """Explain the batch of format 2 at the cursor."""
    start = cursor.position
    with _add_described_part(cursor, name, "RecordBatch") as batch:
        fields = {field: _explain_header_field(cursor, field, code) for field, code in _HEADER[:2]}
        length = fields["batch_length"].value
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            raise UnreadablePart(f"a batch of {length + LOG_OVERHEAD_BYTES} bytes is smaller than its header")
        is_whole = length <= cursor.left_bytes
        with cursor.limit_cursor_to_part(batch, min(length, cursor.left_bytes)):
            fields |= {field: _explain_header_field(cursor, field, code) for field, code in _HEADER[2:]}
            _explain_header_meanings(fields)
            if is_whole:
                _explain_crc(fields["crc"], crc32c(memoryview(cursor.data)[start + CRC_START : cursor.end]))
            else:
                batch.meaning = "cut off: the rest of it is not here"
            _explain_records(cursor, fields, explain_record)


def _explain_header_field(cursor: PartCursor, name: str, code: str) -> ExplainedPart:
    """Add the part of a field of the header, a number with this `struct` format letter."""
    with cursor.add_part(name, _TYPES[code]) as part:
        part.value = cursor.read_number(_PACKINGS[code])
        if name in _TIMES:
            part.meaning = format_timestamp(part.value)
    return part


def _explain_header_meanings(fields: dict[str, ExplainedPart]) -> None:
    """Set the meanings of a header's attributes and producer fields. Raises UnreadablePart for another magic."""
    attributes = fields["attributes"]
    if fields["magic"].value != MAGIC:
        raise UnreadablePart(f"there is no magic {fields['magic'].value}")
    times = "log append time" if attributes.value & TIMESTAMP_TYPE_BIT else "create time"
    said = [_get_codec_name(attributes.value), times, *(text for bit, text in _FLAGS if attributes.value & bit)]
    attributes.meaning = ", ".join(said)
    for name in ("producer_id", "producer_epoch", "base_sequence"):
        if fields[name].value == -1:
            fields[name].meaning = "none"


def _get_codec_name(attributes: int) -> str:
    number = attributes & COMPRESSION_MASK
    known = number in Compression._value2member_map_
    return Compression(number).name.lower() if known else f"unknown codec {number}"


def _explain_crc(part: ExplainedPart, computed_crc: int) -> None:
    """Set the meaning of a checksum's part: whether it is the computed one."""
    part.meaning = (
        "right" if part.value == computed_crc else f"WRONG: the bytes have {computed_crc}, in hex {computed_crc:08x}"
    )


def _explain_records(cursor: PartCursor, fields: dict[str, ExplainedPart], explain_record: ExplainRecord) -> None:
    """Explain the records of a batch, decompressed if need be."""
    attributes, count = fields["attributes"].value, fields["record_count"].value
    reader = _RecordsExplainer(fields, explain_record)
    if not attributes & COMPRESSION_MASK:
        for index in range(count):
            reader.explain_record(cursor, index)
        return
    with cursor.add_part("records", "compressed records") as part:
        stopped = _decompress_payload(cursor, part, cursor.read_bytes(cursor.left_bytes), attributes & COMPRESSION_MASK)
        assert part.payload is not None
        inner = cursor.make_inner_cursor(part.payload)
        with inner.add_part("", "") as top, inner.limit_cursor_to_part(top):
            for index in range(count):
                reader.explain_record(inner, index)
        part.parts, part.problem = top.parts, stopped or top.problem


def _decompress_payload(cursor: PartCursor, part: ExplainedPart, compressed: bytes, codec: int) -> str:
    """Decompress a part's payload. Return why it ends early, "" if it does not. Raises UnreadablePart."""
    pieces: list[Bytes] = []
    stopped = ""
    try:
        pieces.extend(decompress_chunks(codec, compressed, cursor.remaining_decompressed_bytes))
    except KafkaError as error:
        if error.code != ErrorCode.MESSAGE_TOO_LARGE:
            raise UnreadablePart(f"it cannot be decompressed: {error}") from None
        stopped = f"only its beginning is decompressed: {MOST_DECOMPRESSED_BYTES:,} bytes are the most in all"
    part.payload = b"".join(pieces)
    cursor.count_decompressed_bytes(len(part.payload))
    beginning = "at least " if stopped else ""
    part.meaning = f"{beginning}{len(part.payload):,} bytes when decompressed"
    return stopped


class _RecordsExplainer:
    """Explains the records of a batch, by its header."""

    def __init__(self, fields: dict[str, ExplainedPart], explain_record: ExplainRecord) -> None:
        self._base_offset = fields["base_offset"].value
        self._base_timestamp = fields["base_timestamp"].value
        self._is_control = bool(fields["attributes"].value & CONTROL_BIT)
        self._explain_record = explain_record

    def explain_record(self, cursor: PartCursor, index: int) -> None:
        """Explain the record with this index at the cursor."""
        with _add_described_part(cursor, f"record [{index}]", "Record") as record:
            length = _explain_zigzag(cursor, "length", "varint").value
            if not 1 <= length <= cursor.left_bytes:
                raise UnreadablePart(f"a length of {length:,} bytes, and {cursor.left_bytes:,} are left")
            with cursor.limit_cursor_to_part(record, length):
                self._explain_body(cursor, record)

    def _explain_body(self, cursor: PartCursor, record: ExplainedPart) -> None:
        """Explain what follows a record's length: attributes, deltas, key, value and headers."""
        _explain_header_field(cursor, "attributes", "b")
        timestamp = _explain_zigzag(cursor, "timestamp_delta", "varlong")
        timestamp.meaning = format_timestamp(self._base_timestamp + timestamp.value)
        offset = _explain_zigzag(cursor, "offset_delta", "varint")
        offset.meaning = f"offset {self._base_offset + offset.value}"
        record.meaning = offset.meaning
        key, value = _explain_bytes(cursor, "key"), _explain_bytes(cursor, "value")
        self._explain_record(cursor, self._is_control, key, value)
        with cursor.add_part("headers", "[]header") as headers:
            count = _read_varint(cursor, MAX_VARINT_BYTES)
            headers.prefix_bytes = cursor.position - headers.start
            headers.meaning = f"{count} header{'' if count == 1 else 's'}"
            if not 0 <= count <= cursor.left_bytes:
                raise UnreadablePart(f"{count:,} headers, and {cursor.left_bytes:,} bytes are left")
            for index in range(count):
                with _add_described_part(cursor, f"[{index}]", "header"):
                    name = _explain_bytes(cursor, "key")
                    if name.value is not None:
                        name.type, name.value = "string", name.value.decode(errors="replace")
                    _explain_bytes(cursor, "value")


def _explain_zigzag(cursor: PartCursor, name: str, type_: str) -> ExplainedPart:
    """Add the part of a number in zigzag encoding; `type_` is "varint" or "varlong"."""
    with cursor.add_part(name, type_) as part:
        part.value = _read_varint(cursor, MAX_VARINT_BYTES if type_ == "varint" else MAX_VARLONG_BYTES)
    return part


def _read_varint(cursor: PartCursor, max_bytes: int) -> int:
    """Read a number of at most `max_bytes` in zigzag encoding. Raises UnreadablePart."""
    try:
        raw, cursor.position = read_zigzag_varint(memoryview(cursor.data)[: cursor.end], cursor.position, max_bytes)
    except MalformedVarint as error:
        raise UnreadablePart(str(error)) from None
    return convert_from_zigzag(raw)


def _explain_bytes(cursor: PartCursor, name: str) -> ExplainedPart:
    """Add the part of bytes that follow their length, a varint."""
    with cursor.add_part(name, "bytes") as part:
        length = _read_varint(cursor, MAX_VARINT_BYTES)
        part.prefix_bytes = cursor.position - part.start
        _read_nullable_bytes(cursor, part, length)
    return part


def _read_nullable_bytes(cursor: PartCursor, part: ExplainedPart, length: int) -> None:
    """Read `length` bytes as a part's value; a negative length is null."""
    if length < 0:
        part.meaning = "null"
    else:
        part.value = cursor.read_bytes(length)


# --- formats 0 and 1 ---


def _explain_message(cursor: PartCursor, name: str, explain_record: ExplainRecord) -> None:
    """Explain the message of format 0 or 1 at the cursor, and those inside of a wrapper."""
    with _add_described_part(cursor, name, "Message") as message:
        offset, size = (_explain_header_field(cursor, field, code) for field, code in _MESSAGE_HEADER[:2])
        message.meaning = f"offset {offset.value}"
        is_whole = 0 <= size.value <= cursor.left_bytes
        with cursor.limit_cursor_to_part(message, min(max(size.value, 0), cursor.left_bytes)):
            crc = _explain_header_field(cursor, "crc", "I")
            covered = cursor.position
            magic, attributes = (_explain_header_field(cursor, field, code) for field, code in _MESSAGE_HEADER[3:])
            attributes.meaning = _get_codec_name(attributes.value)
            if magic.value == 1:
                _explain_header_field(cursor, "timestamp", "q")
            if is_whole:
                _explain_crc(crc, crc32(memoryview(cursor.data)[covered : cursor.end]))
            else:
                message.meaning += ", cut off: the rest of it is not here"
            key, value = _explain_sized_bytes(cursor, "key"), _explain_sized_bytes(cursor, "value")
            codec = attributes.value & COMPRESSION_MASK
            if not codec:
                explain_record(cursor, False, key, value)
            elif value.value is not None:
                _explain_inner_messages(cursor, value, codec, explain_record)


def _explain_sized_bytes(cursor: PartCursor, name: str) -> ExplainedPart:
    """Add the part of bytes that follow their length, an int32."""
    with cursor.add_part(name, "bytes") as part:
        length = cursor.read_number(_PACKINGS["i"])
        part.prefix_bytes = 4
        _read_nullable_bytes(cursor, part, length)
    return part


def _explain_inner_messages(
    cursor: PartCursor, value: ExplainedPart, codec: int, explain_record: ExplainRecord
) -> None:
    """Explain the messages that are compressed in the value of a wrapper."""
    try:
        stopped = _decompress_payload(cursor, value, value.value, codec)
    except UnreadablePart as error:
        value.problem = str(error)
        return
    assert value.payload is not None
    inner = cursor.make_inner_cursor(value.payload)
    with inner.add_part("", "") as top, inner.limit_cursor_to_part(top):
        explain_batches(inner, explain_record)
    value.parts, value.problem, value.value = top.parts, stopped or top.problem, None
