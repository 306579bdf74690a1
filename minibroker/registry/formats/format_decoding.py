"""Decodes what Confluent's serializers write: where a record says which schema it has, and its values.

A schema's id, of 4 bytes after a zero, or GUID, of 16 bytes after a one, stands before the data, or since Confluent 8
alone in a header of the record. For Protobuf, indexes after it choose a message of the schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple
from uuid import UUID

from minibroker.registry.formats.decoding_budget import MAXIMUM_VALUES, DecodingBudget
from minibroker.registry.formats.java_json import make_json_decoder
from minibroker.registry.formats.schema import InvalidData, ParsedSchema

KEY_HEADER: Final = "__key_schema_id"
VALUE_HEADER: Final = "__value_schema_id"
ID_MAGIC, GUID_MAGIC = 0, 1
BETWEEN_VALUES: Final = (b",", b"[", b"{")  # one before each value of JSON but the outermost, at least
MANY_VALUES: Final = 50_000  # more would keep other threads waiting for long
TEXT_OF_JSON: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)

Headers = Iterable[tuple[str, bytes | None]]


class FramedData(NamedTuple):
    """Data, and which schema it has. `after_id` is what comes after an id in a header, or None if data does."""

    schema: int | UUID
    data: bytes
    after_id: bytes | None = None


def read_schema_id(data: bytes | None, headers: Headers = (), *, is_key: bool = False) -> FramedData | None:
    """Return the data of a record's key or value and its schema's id or GUID, or None if it says none.

    A header counts before what the data begins with, as for Confluent's deserializers.
    """
    if data is None:
        return None
    header = KEY_HEADER if is_key else VALUE_HEADER
    for name, value in headers:
        if name == header and value is not None:
            identifier = _split_off_schema_id(value)
            if identifier is not None:
                return FramedData(identifier[0], data, identifier[1])
    identifier = _split_off_schema_id(data)
    return None if identifier is None else FramedData(*identifier)


def decode_framed_data(kind: str, schema: ParsedSchema, record: FramedData, time_limit_s: float | None = None) -> Any:
    """Return the value of a record's data as Python's own. Raises InvalidData, also beyond `time_limit_s`.

    `kind` is Confluent's name of the format: "AVRO", "JSON" or "PROTOBUF"; `schema` was parsed by that format.
    """
    values = DecodingBudget(time_limit_s)
    if kind == "JSON":
        return _decode_json(record.data, values)
    if kind == "AVRO":
        return _decode_avro(schema, record.data, values)
    if kind == "PROTOBUF":
        return _decode_protobuf(schema, record, values)
    raise InvalidData(f"there is no format {kind}")


def _split_off_schema_id(data: bytes) -> tuple[int | UUID, bytes] | None:
    """Return the id or GUID that data begins with, and what comes after it, or None."""
    if len(data) >= 5 and data[0] == ID_MAGIC:
        return int.from_bytes(data[1:5], "big"), data[5:]
    if len(data) >= 17 and data[0] == GUID_MAGIC:
        return UUID(bytes=data[1:17]), data[17:]
    return None


def _decode_json(data: bytes, budget: DecodingBudget) -> Any:
    count = sum(map(data.count, BETWEEN_VALUES))
    if count > MAXIMUM_VALUES:  # it may be that many are in texts
        count = sum(map(TEXT_OF_JSON.sub(b"", data).count, BETWEEN_VALUES))
    budget.count_values(count + 1)
    try:
        if count <= MANY_VALUES:
            return json.loads(data)
        text = data.decode(json.detect_encoding(data), "surrogatepass")
        return make_json_decoder(text).decode(text)
    except (ValueError, RecursionError) as error:
        raise InvalidData(f"the data is no JSON: {error}") from None


def _decode_avro(schema: ParsedSchema, data: bytes, budget: DecodingBudget) -> Any:
    from minibroker.registry.formats.avro import AvroSchema
    from minibroker.registry.formats.avro.avro_reading import read_avro

    assert isinstance(schema, AvroSchema)
    return read_avro(schema.type, data, budget)


def _decode_protobuf(schema: ParsedSchema, record: FramedData, budget: DecodingBudget) -> Any:
    # Late: the library protobuf takes 30 ms to import.
    from minibroker.registry.formats.protobuf import ProtobufSchema
    from minibroker.registry.formats.protobuf.protobuf_decoding import read_message_indexes, read_protobuf

    assert isinstance(schema, ProtobufSchema)
    indexes, data = read_message_indexes(record.data if record.after_id is None else record.after_id)
    return read_protobuf(schema, indexes, data if record.after_id is None else record.data, budget)
