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

from minibroker.cli.shared import bytes_field
from minibroker.protocol.legible import readable
from minibroker.quantities import instant_text

if TYPE_CHECKING:
    from minibroker.cli.dump.dump_records import Decoder as InternalDecoder
    from minibroker.cli.dump.dump_records import Pair
    from minibroker.client.record_fetching import Found
    from minibroker.protocol.records.record import Record
    from minibroker.registry.registry_client import RegistryClient

Bytes = Callable[[bytes], bytes]
Part = Callable[["Found"], bytes]
Formatter = Callable[["Found"], bytes]
Decoders = Mapping[str, "InternalDecoder"]  # by topic

NULL: Final = b"null"
NO_SIZE: Final = -1
_SIZE: Final = struct.Struct(">i")
_TOKEN: Final = re.compile(r"%(.?)", re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\(?:x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_ESCAPED: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"0": b"\0"}
_NULL_HEADER: Final = b"NULL"  # where null keys and values are printed as nothing, as kcat does


# --- parts ------------------------------------------------------------------------------------------------


def _topic(found: Found) -> bytes:
    return found.partition[0].encode()


def _partition(found: Found) -> bytes:
    return b"%d" % found.partition[1]


def _offset(found: Found) -> bytes:
    return b"%d" % found.record.offset


def _timestamp(found: Found) -> bytes:
    return b"%d" % found.record.timestamp


def _instant(found: Found) -> bytes:
    """Return the timestamp as a date, nothing for none."""
    return instant_text(found.record.timestamp).encode() if found.record.timestamp >= 0 else b""


def _key_size(found: Found) -> bytes:
    return b"%d" % _size(found.record.key)


def _value_size(found: Found) -> bytes:
    return b"%d" % _size(found.record.value)


def _format_binary_value_size(found: Found) -> bytes:
    return _SIZE.pack(_size(found.record.value))


def _size(data: bytes | None) -> int:
    return NO_SIZE if data is None else len(data)


def _key(shown: Bytes, null: bytes) -> Part:
    return lambda found: null if found.record.key is None else shown(found.record.key)


def _value(shown: Bytes, null: bytes) -> Part:
    return lambda found: null if found.record.value is None else shown(found.record.value)


def _headers(shown: Bytes, null: bytes) -> Part:
    """Return a part that prints name=value,name=value."""
    null_header = null or _NULL_HEADER

    def part(found: Found) -> bytes:
        pairs = ((name, null_header if value is None else shown(value)) for name, value in found.record.headers)
        return b",".join(shown(name.encode()) + b"=" + value for name, value in pairs)

    return part


# kcat's, and %d.
_PARTS: Final[Mapping[str, Part]] = {
    "t": _topic,
    "p": _partition,
    "o": _offset,
    "T": _timestamp,
    "d": _instant,
    "K": _key_size,
    "S": _value_size,
    "R": _format_binary_value_size,
}
_PARTS_OF_BYTES: Final = {"k": _key, "s": _value, "h": _headers}


# --- formatters -------------------------------------------------------------------------------------------


def format_of(text: str) -> str:
    """Return a format if it is valid. Raises click.BadParameter."""
    for token in _TOKEN.findall(text):
        if token not in (*_PARTS, *_PARTS_OF_BYTES, "%"):
            known = ", ".join(f"%{each}" for each in sorted((*_PARTS, *_PARTS_OF_BYTES), key=str.lower))
            raise click.BadParameter(f"{text!r} has %{token}, which is none of {known} and %%")
    return text


def formatter(text: str, null: bytes, *, is_terminal: bool) -> Formatter:
    """Return the formatter of a valid format. Bytes stay as they are, but are made safe for a terminal."""
    shown = _readable if is_terminal else bytes
    parts: list[Part] = []
    position = 0
    for token in _TOKEN.finditer(text):
        parts.append(_constant(text[position : token.start()]))
        position = token.end()
        name = token[1]
        if name == "%":
            parts.append(lambda found: b"%")
        else:
            parts.append(_PARTS[name] if name in _PARTS else _PARTS_OF_BYTES[name](shown, null))
    return _join_parts([*parts, _constant(text[position:])])


def _constant(text: str) -> Part:
    data = _ESCAPE.sub(_unescape, os.fsencode(text))
    return lambda found: data


def _unescape(found: re.Match[bytes]) -> bytes:
    hexadecimal, other = found.groups()
    return _ESCAPED.get(other, other) if hexadecimal is None else bytes([int(hexadecimal, 16)])


def line_formatter(null: bytes, key_separator: str | None, *, timestamps: bool, headers: bool) -> Formatter:
    """Return the formatter of a line with the value, and before it what is asked for, separated by tabs."""
    tab = _constant("\\t")
    parts: list[Part] = []
    if timestamps:
        parts += [_instant, tab]
    if headers:
        parts += [_headers(_readable, null), tab]
    if key_separator is not None:
        separator = os.fsencode(key_separator)
        parts += [_key(_readable, null), lambda found: separator]
    return _join_parts([*parts, _value(_readable, null), lambda found: b"\n"])


def _join_parts(parts: Iterable[Part]) -> Formatter:
    all_parts = tuple(parts)
    return lambda found: b"".join([part(found) for part in all_parts])


def _readable(data: bytes) -> bytes:
    return readable(data).encode()


# --- the meaning of records of internal topics ------------------------------------------------------------


def decoding_formatter(decoders: Decoders, otherwise: Formatter) -> Formatter:
    """Return the formatter of a line with what a record means. One of an unknown kind is printed as `otherwise`."""

    def line(found: Found) -> bytes:
        from minibroker.cli.dump.dump_text import meaning_text

        said = meaning(decoders, found)
        return otherwise(found) if said is None else f"{meaning_text(said)}\n".encode()

    return line


def meaning(decoders: Decoders, found: Found) -> Pair | None:
    """Return the messages in a record. If they are unknown, return None, and say so on stderr."""
    from minibroker.cli.dump.dump_records import Undecodable

    try:
        return decoders[found.partition[0]](found.record)
    except Undecodable as error:
        topic, index = found.partition
        click.echo(f"minibroker: {topic}-{index} at {found.record.offset}: its meaning is unknown: {error}", err=True)
        return None


# --- JSON -------------------------------------------------------------------------------------------------


def json_formatter(decoders: Decoders) -> Formatter:
    """Return the formatter of a line of JSON, with the meaning of records if there are decoders."""
    from minibroker.cli.dump.dump_records import said_object

    def line(found: Found) -> bytes:
        document = record_object(found.partition, found.record)
        said = meaning(decoders, found) if decoders else None
        return json.dumps(document if said is None else document | said_object(said)).encode() + b"\n"

    return line


def record_object(partition: tuple[str, int], record: Record) -> dict[str, Any]:
    """Return a record as an object for JSON, of which `minibroker produce --input json` makes the same record."""
    return {
        "topic": partition[0],
        "partition": partition[1],
        "offset": record.offset,
        "timestamp": record.timestamp if record.timestamp >= 0 else None,
        **bytes_field("key", record.key),
        **bytes_field("value", record.value),
        "headers": [{"name": name, **bytes_field("value", value)} for name, value in record.headers],
    }


def schema_formatter(registry: RegistryClient, otherwise: Formatter, *, as_json: bool) -> Formatter:
    """Return the formatter of a line with a decoded value, or of a JSON object that has it as "decoded".

    A value that cannot be decoded is printed as `otherwise`, after a line on stderr.
    """
    from minibroker.registry.decoding import Decoder, DecodingError, json_text

    decoder = Decoder(registry)

    def encoded(value: Any) -> bytes:
        return json_text(value).encode() + b"\n"

    def decoded(found: Found, *, is_key: bool) -> Any:
        data = found.record.key if is_key else found.record.value
        headers = tuple((name, value) for name, value in found.record.headers)
        return decoder.decode(data, headers, is_key=is_key)

    def line(found: Found) -> bytes:
        document = record_object(found.partition, found.record) if as_json else {}
        if as_json:
            with contextlib.suppress(DecodingError):  # many keys are plain texts, which "key" has
                document["decoded_key"] = decoded(found, is_key=True)
        try:
            value = decoded(found, is_key=False)
            return encoded(document | {"decoded": value} if as_json else value)
        except DecodingError as error:
            topic, index = found.partition
            click.echo(f"minibroker: {topic}-{index} at {found.record.offset}: {error}", err=True)
            return encoded(document) if as_json else otherwise(found)

    return line
