"""How `minibroker consume` prints a record: as a line of text, in a format of the user's, or as JSON.

All but JSON is a list of parts, each a function from a record to bytes. With --decode, values are printed by the
schemas of a registry.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from minibroker.cli.shared import make_bytes_field
from minibroker.protocol.legible import format_readable
from minibroker.quantities import format_instant

if TYPE_CHECKING:
    from minibroker.cli.dump.dump_records import DecodedKeyAndValue
    from minibroker.cli.dump.dump_records import DecodeRecord as InternalDecoder
    from minibroker.client.record_fetching import FetchedRecord
    from minibroker.protocol.records.record import Record
    from minibroker.registry.registry_client import RegistryClient

ShowBytes = Callable[[bytes], bytes]
FormatPart = Callable[["FetchedRecord"], bytes]
FormatRecord = Callable[["FetchedRecord"], bytes]
Decoders = Mapping[str, "InternalDecoder"]  # by topic

NULL: Final = b"null"
NO_SIZE: Final = -1
_SIZE: Final = struct.Struct(">i")
_TOKEN: Final = re.compile(r"%(.?)", re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\(?:x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_ESCAPED: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"0": b"\0"}
_NULL_HEADER: Final = b"NULL"  # where null keys and values are printed as nothing, as kcat does


# --- parts ------------------------------------------------------------------------------------------------


def _format_topic(record: FetchedRecord) -> bytes:
    return record.partition[0].encode()


def _format_partition(record: FetchedRecord) -> bytes:
    return b"%d" % record.partition[1]


def _format_offset(record: FetchedRecord) -> bytes:
    return b"%d" % record.record.offset


def _format_timestamp(record: FetchedRecord) -> bytes:
    return b"%d" % record.record.timestamp


def _format_timestamp_as_date(record: FetchedRecord) -> bytes:
    """Return the timestamp as a date, or nothing if the record has none."""
    return format_instant(record.record.timestamp).encode() if record.record.timestamp >= 0 else b""


def _format_key_size(record: FetchedRecord) -> bytes:
    return b"%d" % _measure_bytes(record.record.key)


def _format_value_size(record: FetchedRecord) -> bytes:
    return b"%d" % _measure_bytes(record.record.value)


def _format_binary_value_size(record: FetchedRecord) -> bytes:
    """Return the size of the value as 4 bytes, as the format's `%R` has it."""
    return _SIZE.pack(_measure_bytes(record.record.value))


def _measure_bytes(data: bytes | None) -> int:
    """Return the length, -1 for null."""
    return NO_SIZE if data is None else len(data)


def _make_key_formatter(show_bytes: ShowBytes, null: bytes) -> FormatPart:
    return lambda found: null if found.record.key is None else show_bytes(found.record.key)


def _make_value_formatter(show_bytes: ShowBytes, null: bytes) -> FormatPart:
    return lambda found: null if found.record.value is None else show_bytes(found.record.value)


def _make_headers_formatter(show_bytes: ShowBytes, null: bytes) -> FormatPart:
    """Return a formatter of the headers as name=value,name=value."""
    null_header = null or _NULL_HEADER

    def format_headers(record: FetchedRecord) -> bytes:
        pairs = ((name, null_header if value is None else show_bytes(value)) for name, value in record.record.headers)
        return b",".join(show_bytes(name.encode()) + b"=" + value for name, value in pairs)

    return format_headers


# kcat's, and %d.
_PARTS: Final[Mapping[str, FormatPart]] = {
    "t": _format_topic,
    "p": _format_partition,
    "o": _format_offset,
    "T": _format_timestamp,
    "d": _format_timestamp_as_date,
    "K": _format_key_size,
    "S": _format_value_size,
    "R": _format_binary_value_size,
}
_PARTS_OF_BYTES: Final = {"k": _make_key_formatter, "s": _make_value_formatter, "h": _make_headers_formatter}


# --- formatters -------------------------------------------------------------------------------------------


def parse_format(text: str) -> str:
    """Return a format if it is valid. Raises click.BadParameter."""
    for token in _TOKEN.findall(text):
        if token not in (*_PARTS, *_PARTS_OF_BYTES, "%"):
            known = ", ".join(f"%{each}" for each in sorted((*_PARTS, *_PARTS_OF_BYTES), key=str.lower))
            raise click.BadParameter(f"{text!r} has %{token}, which is none of {known} and %%")
    return text


def make_formatter(text: str, null: bytes, *, is_terminal: bool) -> FormatRecord:
    """Return the formatter of a format that `parse_format` accepts; for a terminal, it escapes control characters."""
    shown = _escape_control_characters if is_terminal else bytes
    parts: list[FormatPart] = []
    position = 0
    for token in _TOKEN.finditer(text):
        parts.append(_make_constant_formatter(text[position : token.start()]))
        position = token.end()
        name = token[1]
        if name == "%":
            parts.append(lambda found: b"%")
        else:
            parts.append(_PARTS[name] if name in _PARTS else _PARTS_OF_BYTES[name](shown, null))
    return _join_formatters([*parts, _make_constant_formatter(text[position:])])


def _make_constant_formatter(text: str) -> FormatPart:
    data = _ESCAPE.sub(_unescape_match, os.fsencode(text))
    return lambda found: data


def _unescape_match(match: re.Match[bytes]) -> bytes:
    """Return the byte that an escape such as `\\n` or `\\x0a` stands for."""
    hexadecimal, other = match.groups()
    return _ESCAPED.get(other, other) if hexadecimal is None else bytes([int(hexadecimal, 16)])


def make_line_formatter(null: bytes, key_separator: str | None, *, timestamps: bool, headers: bool) -> FormatRecord:
    """Return the formatter of a line with the value, and before it what is asked for, separated by tabs."""
    tab = _make_constant_formatter("\\t")
    parts: list[FormatPart] = []
    if timestamps:
        parts += [_format_timestamp_as_date, tab]
    if headers:
        parts += [_make_headers_formatter(_escape_control_characters, null), tab]
    if key_separator is not None:
        separator = os.fsencode(key_separator)
        parts += [_make_key_formatter(_escape_control_characters, null), lambda found: separator]
    return _join_formatters([*parts, _make_value_formatter(_escape_control_characters, null), lambda found: b"\n"])


def _join_formatters(parts: Iterable[FormatPart]) -> FormatRecord:
    all_parts = tuple(parts)
    return lambda found: b"".join([part(found) for part in all_parts])


def _escape_control_characters(data: bytes) -> bytes:
    return format_readable(data).encode()


# --- the meaning of records of internal topics ------------------------------------------------------------


def make_decoding_formatter(decoders: Decoders, fallback: FormatRecord) -> FormatRecord:
    """Return the formatter of a line with what a record means. One of an unknown kind is printed as `fallback`."""

    def format_line(record: FetchedRecord) -> bytes:
        from minibroker.cli.dump.dump_text import format_decoded_record

        said = decode_internal_record(decoders, record)
        return fallback(record) if said is None else f"{format_decoded_record(said)}\n".encode()

    return format_line


def decode_internal_record(decoders: Decoders, record: FetchedRecord) -> DecodedKeyAndValue | None:
    """Return the messages in a record. If they are unknown, return None, and say so on stderr."""
    from minibroker.cli.dump.dump_records import UndecodableRecord

    try:
        return decoders[record.partition[0]](record.record)
    except UndecodableRecord as error:
        topic, index = record.partition
        click.echo(f"minibroker: {topic}-{index} at {record.record.offset}: its meaning is unknown: {error}", err=True)
        return None


# --- JSON -------------------------------------------------------------------------------------------------


def make_json_formatter(decoders: Decoders) -> FormatRecord:
    """Return the formatter of a line of JSON, with the meaning of records if there are decoders."""
    from minibroker.cli.dump.dump_records import make_decoded_record_object

    def format_line(record: FetchedRecord) -> bytes:
        document = make_record_object(record.partition, record.record)
        said = decode_internal_record(decoders, record) if decoders else None
        return json.dumps(document if said is None else document | make_decoded_record_object(said)).encode() + b"\n"

    return format_line


def make_record_object(partition: tuple[str, int], record: Record) -> dict[str, Any]:
    """Return a record as an object for JSON, of which `minibroker produce --input json` makes the same record."""
    return {
        "topic": partition[0],
        "partition": partition[1],
        "offset": record.offset,
        "timestamp": record.timestamp if record.timestamp >= 0 else None,
        **make_bytes_field("key", record.key),
        **make_bytes_field("value", record.value),
        "headers": [{"name": name, **make_bytes_field("value", value)} for name, value in record.headers],
    }


def make_schema_formatter(registry: RegistryClient, fallback: FormatRecord, *, as_json: bool) -> FormatRecord:
    """Return the formatter of a line with a decoded value, or of a JSON object that has it as "decoded".

    A value that cannot be decoded is printed as `fallback`, after a line on stderr.
    """
    from minibroker.registry.decoding import Decoder, DecodingError, format_json

    decoder = Decoder(registry)

    def encode_value(value: Any) -> bytes:
        return format_json(value).encode() + b"\n"

    def decode_key_or_value(record: FetchedRecord, *, is_key: bool) -> Any:
        data = record.record.key if is_key else record.record.value
        headers = tuple((name, value) for name, value in record.record.headers)
        return decoder.decode(data, headers, is_key=is_key)

    def format_line(record: FetchedRecord) -> bytes:
        document = make_record_object(record.partition, record.record) if as_json else {}
        if as_json:
            with contextlib.suppress(DecodingError):  # many keys are plain texts, which "key" has
                document["decoded_key"] = decode_key_or_value(record, is_key=True)
        try:
            value = decode_key_or_value(record, is_key=False)
            return encode_value(document | {"decoded": value} if as_json else value)
        except DecodingError as error:
            topic, index = record.partition
            click.echo(f"minibroker: {topic}-{index} at {record.record.offset}: {error}", err=True)
            return encode_value(document) if as_json else fallback(record)

    return format_line
