"""Keys and values decoded by the schemas that they name.

How they name them, and how data is read, is `formats.decoding`; here is where the schemas come from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from minibroker.registry.formats.format_decoding import FramedData, Headers, decode_framed_data, read_schema_id
from minibroker.registry.formats.schema import REMEDY, InvalidData, InvalidSchema, ParsedSchema
from minibroker.registry.state.schema_formats import FORMATS, parse_schema, resolve_references
from minibroker.registry.state.schema_state import SchemaState

INVALID: Final = "its schema is invalid"
FIRST_MESSAGE: Final = b"\0"  # the indexes that choose it


class DecodingError(ValueError):
    """Data that cannot be decoded; the message says why."""


class NoSchema(DecodingError):
    """The schema that data names is unknown or invalid."""


class MissingLibrary(DecodingError):
    """A library that a format needs is not installed."""


class WireSchema(NamedTuple):
    """A schema that data names, with the texts that it refers to, each after those that it needs."""

    kind: str
    text: str
    references: Mapping[str, str]


class SchemaSource(Protocol):
    """Finds schemas."""

    def find_schema(self, id_or_guid: int | str) -> WireSchema:
        """Return the schema with an id, or with a GUID. Raises LookupError."""


class StateSource:
    """The schemas of a state, which is a fold over `_schemas`."""

    def __init__(self, state: SchemaState) -> None:
        self._state = state

    def find_schema(self, id_or_guid: int | str) -> WireSchema:
        """Return the schema with an id or a GUID. Raises LookupError, InvalidSchema."""
        id = (
            id_or_guid
            if isinstance(id_or_guid, int)
            else self._state.get_context_index("").id_by_guid.get(id_or_guid, -1)
        )
        found = self._state.find_schema_by_id(id, "")
        if found is None:
            raise LookupError(id_or_guid)
        references = resolve_references(self._state, found.references, found.subject)
        return WireSchema(found.kind, found.text, references)


class Decoder:
    """Decodes data; each schema is parsed once."""

    def __init__(self, source: SchemaSource) -> None:
        self._source = source
        self._parse_schema: dict[int | UUID, tuple[str, ParsedSchema]] = {}

    def decode(
        self, data: bytes | None, headers: Headers = (), *, is_key: bool = False, time_limit_s: float | None = None
    ) -> Any:
        """Return a decoded key or value, None for null. Raises DecodingError, also after `time_limit_s`."""
        if data is None:
            return None
        record = read_schema_id(data, headers, is_key=is_key)
        if record is None:
            raise DecodingError("it names no schema: it begins with no byte 0 and id, and no header has a GUID")
        if record.schema not in self._parse_schema:
            self._parse_schema[record.schema] = self._find_schema(record.schema)
        return _decode_data(*self._parse_schema[record.schema], record, time_limit_s)

    def _find_schema(self, id_or_guid: int | UUID) -> tuple[str, ParsedSchema]:
        """Return the schema with an id or a GUID, and its kind. Raises DecodingError."""
        try:
            found = self._source.find_schema(id_or_guid if isinstance(id_or_guid, int) else str(id_or_guid))
        except LookupError:
            kind = "id" if isinstance(id_or_guid, int) else "GUID"
            raise NoSchema(f"the registry has no schema with the {kind} {id_or_guid}") from None
        except InvalidSchema as error:
            raise NoSchema(f"{INVALID}: {error}") from None
        return found.kind, _parse_schema(found)


class GivenDecoder:
    """Decodes data that names no schema, by one that is given: of Protobuf, by its first message."""

    def __init__(self, kind: str, text: str) -> None:
        """Parse the schema of a kind ("AVRO", "JSON" or "PROTOBUF"). Raises NoSchema, MissingLibrary."""
        self._kind = kind
        self._schema = _parse_schema(WireSchema(kind, text, {}))

    def decode(self, data: bytes | None, headers: Headers = (), *, is_key: bool = False) -> Any:
        """Return a key or value decoded by the given schema, None for null. Raises DecodingError."""
        return None if data is None else _decode_data(self._kind, self._schema, FramedData(0, data, FIRST_MESSAGE))


def _decode_data(kind: str, schema: ParsedSchema, record: FramedData, time_limit_s: float | None = None) -> Any:
    try:
        return decode_framed_data(kind, schema, record, time_limit_s)
    except InvalidData as error:
        raise DecodingError(f"it is not what its {kind} schema says: {error}") from None


def _parse_schema(wire_schema: WireSchema) -> ParsedSchema:
    """Parse a schema. Raises NoSchema, MissingLibrary."""
    if wire_schema.kind not in FORMATS:
        raise NoSchema(f"there is no format {wire_schema.kind}, but {', '.join(FORMATS)}")
    try:
        return parse_schema(wire_schema.kind, wire_schema.text, wire_schema.references)
    except InvalidSchema as error:
        raise NoSchema(f"{INVALID}: {error}") from None
    except ImportError:
        raise MissingLibrary(f"{wire_schema.kind} needs {REMEDY}") from None


def format_json(value: Any, indent: int | None = None, max_length: int | None = None) -> str:
    """Return a decoded value as JSON, up to `max_length` characters; what JSON does not have is a text.

    Bytes are as Avro's JSON has them, a character each; times and decimals are as they print. Raises DecodingError for
    values that are nested too deep, TypeError and ValueError for those that no JSON can have, such as a circle.
    """
    encoder = json.JSONEncoder(indent=indent, default=_convert_value_for_json, ensure_ascii=False)
    try:
        text = encoder.encode(value) if max_length is None else _join_until_limit(encoder.iterencode(value), max_length)
    except RecursionError:
        raise DecodingError("it is nested too deep to be shown") from None
    return text.encode("utf-8", "backslashreplace").decode()


def _join_until_limit(pieces: Iterator[str], max_length: int) -> str:
    """Return joined pieces; of more than `max_length` characters the beginning, and a line that says so."""
    found: list[str] = []
    left = max_length
    for piece in pieces:
        found.append(piece[:left])
        left -= len(piece)
        if left < 0:
            return f"{''.join(found)}\n… and more: only {max_length:,} characters are shown"
    return "".join(found)


def _convert_value_for_json(value: Any) -> str:
    """Return a text for a value that JSON does not have: bytes as Latin-1, others as `str` has them."""
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
