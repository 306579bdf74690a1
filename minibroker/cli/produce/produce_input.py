"""What `minibroker produce` makes records of: lines, JSON lines, whole files, and lines typed in a terminal."""

from __future__ import annotations

import base64
import binascii
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import click

from minibroker.protocol.legible import make_legible
from minibroker.quantities import parse_moment_ms

if TYPE_CHECKING:
    from minibroker.protocol.records.record import Header, Record

# The largest request that brokers accept by default; no longer line could be a record.
LINE_MAX_BYTES: Final = 104_857_600
READ_BYTES: Final = 512 << 10
TIMESTAMP_MAX: Final = (1 << 63) - 1
PARTITION_MAX: Final = (1 << 31) - 1
# The fields of `consume --json`; those of the last line are not read.
KNOWN: Final = frozenset(("topic", "partition", "timestamp", "key", "key_base64", "value", "value_base64", "headers",
                          "offset", "key_says", "value_says"))  # fmt: skip


# Those of the records of `dump --json` that are not read. Its other lines say of which file and batch they are.
OF_DUMP: Final = frozenset(("type", "position", "size_bytes", "decompressed"))


class BadLine(click.ClickException):
    """A line that is no record; the message says which. As with wrong arguments, the status is 2."""

    exit_code = 2


class CommonFields(NamedTuple):
    """What records get that do not say it themselves; headers are added to their own."""

    key: bytes | None
    timestamp_ms: int | None
    headers: tuple[Header, ...]


class LineFormat(NamedTuple):
    """The format of a line: the separator of key and value, and the texts that stand for null."""

    key_separator: bytes | None
    null_key: bytes | None
    null_value: bytes | None


class InputRecord(NamedTuple):
    """A record to write; topic and partition are None if the record does not say them. `place` is for messages."""

    record: Record
    place: str
    topic: str | None = None
    partition: int | None = None


LinePortions = Iterator[list[bytes]]  # those that were read at once
InputRecordPortions = Iterator[list[InputRecord]]


# --- lines ------------------------------------------------------------------------------------------------


def iterate_lines(source: BinaryIO) -> LinePortions:
    """Yield lists of lines without line endings, each with what can be read at once; the last line may have no end.

    Raises `BadLine` for a line that is too long to be a record.
    """
    number, rest = 1, b""
    while data := source.read1(READ_BYTES):  # type: ignore[attr-defined]
        *lines, rest = (rest + data).split(b"\n")
        if any(len(line) > LINE_MAX_BYTES for line in (*lines, rest)):
            number += next(index for index, line in enumerate((*lines, rest)) if len(line) > LINE_MAX_BYTES)
            raise BadLine(f"line {number} is longer than {LINE_MAX_BYTES} bytes")
        number += len(lines)
        yield lines
    if rest:
        yield [rest]


def iterate_typed_lines() -> LinePortions:
    """Yield lines that a person types, with a prompt, until Ctrl-D. Line editing is that of Python's prompt."""
    with suppress(ImportError):  # on Windows
        import readline  # noqa: F401 - `input` uses it
    while True:
        try:
            yield [input("> ").encode(sys.stdin.encoding, "surrogateescape")]
        except EOFError:
            click.echo()
            return


def iterate_records_of_lines(
    lines: LinePortions, line_format: LineFormat, common_fields: CommonFields
) -> InputRecordPortions:
    """Yield a record for each line."""
    from minibroker.protocol.records.record import Record

    for some in lines:
        now_ms = _get_now_ms() if common_fields.timestamp_ms is None else common_fields.timestamp_ms
        items = []
        for line in some:
            key, value = split_key_and_value(line, line_format)
            key = common_fields.key if key is None else key
            items.append(InputRecord(Record(-1, now_ms, key, value, common_fields.headers), ""))
        yield items


def split_key_and_value(line: bytes, line_format: LineFormat) -> tuple[bytes | None, bytes | None]:
    """Return the key and the value of a line; without a separator, the whole line is the value."""
    key: bytes | None = None
    value: bytes | None = line
    if line_format.key_separator is not None and line_format.key_separator in line:
        key, _, value = line.partition(line_format.key_separator)
        key = None if key == line_format.null_key else key
    return key, None if value == line_format.null_value else value


def iterate_record_of_file(source: BinaryIO, common_fields: CommonFields) -> InputRecordPortions:
    """Yield one record with all that is read. Raises `BadLine` if that is too long for a record."""
    from minibroker.protocol.records.record import Record

    data = source.read(LINE_MAX_BYTES + 1)
    if len(data) > LINE_MAX_BYTES:
        raise BadLine(f"{_get_source_name(source)} is longer than {LINE_MAX_BYTES} bytes")
    timestamp_ms = _get_now_ms() if common_fields.timestamp_ms is None else common_fields.timestamp_ms
    yield [
        InputRecord(Record(-1, timestamp_ms, common_fields.key, data, common_fields.headers), _get_source_name(source))
    ]


# --- JSON -------------------------------------------------------------------------------------------------


class DumpLines:
    """What the lines of `dump --json` say of the records that follow them: their partition, and if they are markers."""

    def __init__(self) -> None:
        self._place: dict[str, Any] = {}
        self._is_control = False

    def parse_record(self, document: dict[str, Any]) -> dict[str, Any] | None:
        """Return the record of a line as `consume --json` prints it; None for a control record, or for no record."""
        kind = document.get("type")
        if kind == "file":
            self._place = {name: document.get(name) for name in ("topic", "partition")}
        elif kind == "batch":
            self._is_control = document.get("control") is True
        if kind != "record" or self._is_control:
            return None
        has_none = {"timestamp"} if document.get("timestamp") == -1 else set()
        return self._place | {name: value for name, value in document.items() if name not in OF_DUMP | has_none}


def iterate_records_of_json(lines: LinePortions, common_fields: CommonFields) -> InputRecordPortions:
    """Yield a record for each line of JSON, as `consume --json` prints it, or `dump --json`.

    Empty lines are passed over. Raises `BadLine`, after the records before that line.
    """
    number, dumped = 0, DumpLines()
    for some in lines:
        items: list[InputRecord] = []
        now_ms = _get_now_ms()
        try:
            for line in some:
                number += 1
                document = _parse_object(line) if line.strip() else None
                if document is not None and "type" in document:
                    document = dumped.parse_record(document)
                if document is not None:
                    items.append(_make_record_of_json(document, f"line {number}", common_fields, now_ms))
        except ValueError as error:
            yield items
            raise BadLine(f"line {number}: {error}") from None
        yield items


def _parse_object(line: bytes) -> dict[str, Any]:
    """Return the object of a line. Raises ValueError."""
    try:
        document = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"this is not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("this JSON is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"this is not JSON, as byte {error.start + 1} is not UTF-8") from None
    if not isinstance(document, dict):
        raise ValueError(f'a record is a JSON object like {{"value": "a"}}, not {make_legible(repr(document), 40)}')
    return document


def _make_record_of_json(document: dict[str, Any], place: str, common_fields: CommonFields, now_ms: int) -> InputRecord:
    """Return the record of an object. Raises ValueError."""
    from minibroker.protocol.records.record import Record

    unknown = sorted(document.keys() - KNOWN)
    if unknown:
        raise ValueError(f"a record has no field {make_legible(unknown[0], 40)!r}")
    key = _get_key_or_value(document, "key")
    record = Record(
        -1,
        _get_timestamp(document, common_fields, now_ms),
        common_fields.key if key is None and "key" not in document else key,
        _get_key_or_value(document, "value"),
        (*_parse_headers(document.get("headers")), *common_fields.headers),
    )
    return InputRecord(
        record, place, _get_field(document, "topic", str), _get_number(document, "partition", PARTITION_MAX)
    )


def _get_key_or_value(document: dict[str, Any], name: str) -> bytes | None:
    """Return the bytes of a text, of base64 in the field `NAME_base64`, or of another value as JSON; None for null."""
    encoded = document.get(f"{name}_base64")
    value = document.get(name)
    if encoded is None:
        if value is None:
            return None
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        try:
            return text.encode("utf-8")
        except UnicodeEncodeError:  # half of a surrogate pair
            raise ValueError(f"{name} is no text that UTF-8 has") from None
    if value is not None:
        raise ValueError(f"{name} and {name}_base64 are both given")
    try:
        return base64.b64decode(encoded, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise ValueError(f"{name}_base64 is not base64: {error}") from None


def _parse_headers(document_headers: Any) -> tuple[Header, ...]:
    """Return headers of a list of names and values, or of an object."""
    from minibroker.protocol.records.record import Header

    if isinstance(document_headers, dict):
        document_headers = [{"name": name, "value": value} for name, value in document_headers.items()]
    if document_headers is not None and not (
        isinstance(document_headers, list) and all(isinstance(each, dict) for each in document_headers)
    ):
        raise ValueError('headers are a list like [{"name": "a", "value": "b"}], or an object')
    headers = []
    for each in document_headers or ():
        name = _get_field(each, "name", str)
        if name is None:
            raise ValueError("a header has no name")
        headers.append(Header(name, _get_key_or_value(each, "value")))
    return tuple(headers)


def _get_timestamp(document: dict[str, Any], common_fields: CommonFields, now_ms: int) -> int:
    """Return the timestamp in ms: a number, or a time as people write it; without one, that of all records, or now."""
    given = document.get("timestamp")
    if isinstance(given, str):
        try:
            return parse_moment_ms(given, now_ms)
        except ValueError:
            raise ValueError(f"timestamp {make_legible(given, 40)!r} is no time") from None
    number = _get_number(document, "timestamp", TIMESTAMP_MAX)
    if number is not None:
        return number
    return now_ms if common_fields.timestamp_ms is None else common_fields.timestamp_ms


def _get_number(document: dict[str, Any], name: str, maximum: int) -> int | None:
    """Return a whole number from 0 to `maximum`, None without the field. Raises ValueError."""
    number: int | None = _get_field(document, name, int)
    if number is not None and not 0 <= number <= maximum:
        raise ValueError(f"{name} {number} is out of range")
    return number


def _get_field(document: dict[str, Any], name: str, kind: type[Any]) -> Any:
    """Return a field of this type, None without it. Raises ValueError for another type."""
    value = document.get(name)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise ValueError(
            f"{name} is {make_legible(json.dumps(value), 40)}, and not a {'text' if kind is str else 'number'}"
        )
    return value


def _get_now_ms() -> int:
    return time.time_ns() // 1_000_000


def _get_source_name(source: BinaryIO) -> str:
    return str(getattr(source, "name", "<stdin>"))


def iterate_sources(
    sources: Iterable[BinaryIO], read: Callable[[BinaryIO], InputRecordPortions]
) -> InputRecordPortions:
    """Yield the records of one source after the other; a message about a line names the file if there are several."""
    all_sources = list(sources)
    for source in all_sources:
        try:
            yield from read(source)
        except BadLine as error:
            if len(all_sources) == 1:
                raise
            raise BadLine(f"{_get_source_name(source)}: {error.message}") from None
