"""Reads Kafka's small text files to show people each line, and every invalid one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from minibroker.protocol.records.walking import BLOCK_BYTES
from minibroker.storage.checkpoints.checkpoint_texts import CHECKPOINT_VERSION
from minibroker.storage.files import File
from minibroker.storage.inspection.file_walking import BlockReader
from minibroker.storage.inspection.log_inspection import DamagedBytes

MAX_LINE_BYTES = 4096  # a topic's name has 249 bytes at most
MAX_JSON_BYTES = 1 << 20  # a voter of the quorum takes some 15
SHOWN_CHARACTERS = 80
NUMBERS = frozenset(("epoch", "start_offset", "partition", "offset", "base_offset", "entries", "crc"))

EPOCH_COLUMNS = ("epoch", "start_offset")
OFFSET_COLUMNS = ("topic", "partition", "offset")
ABORTED_COLUMNS = ("base_offset", "entries", "crc")

_BEFORE_KEY = re.compile(r"[\s,]*")
_BEFORE_VALUE = re.compile(r"\s*:\s*")


class TextLine(NamedTuple):
    """A line of a text file. `fields` are its parts by name; those in `NUMBERS` are int."""

    position: int
    fields: dict[str, str | int]


def iterate_checkpoint_lines(file: File, columns: tuple[str, ...]) -> Iterator[TextLine | DamagedBytes]:
    """Yield the rows of a checkpoint with these columns. An empty file has none. Raises `OSError`."""
    if file.size_bytes() == 0:
        return
    lines = _iterate_lines(file)
    position, text = next(lines, (0, ""))
    if text != str(CHECKPOINT_VERSION):
        yield DamagedBytes(
            file.path, position, 0, None, f"version {CHECKPOINT_VERSION} in the first line", _shorten_line(text)
        )
    counted, announced = next(lines, (file.size_bytes(), ""))
    count, before = 0, (-1, -1)
    for position, text in lines:
        count += 1
        row = _parse_checkpoint_row(file, position, text, columns)
        yield row
        if columns == EPOCH_COLUMNS and isinstance(row, TextLine):
            epoch, start_offset = now = int(row.fields["epoch"]), int(row.fields["start_offset"])
            if epoch <= before[0] or start_offset <= before[1]:
                expected = f"an epoch above {before[0]} and a start offset above {before[1]}"
                yield DamagedBytes(file.path, position, 0, start_offset, expected, _shorten_line(text))
            else:
                before = now
    if announced != str(count):
        yield DamagedBytes(
            file.path, counted, 0, None, f"{count} rows, as there are, in the second line", _shorten_line(announced)
        )


def _parse_checkpoint_row(file: File, position: int, text: str, columns: tuple[str, ...]) -> TextLine | DamagedBytes:
    """Return the fields of a row, or the damage if it does not have these columns."""
    words = text.split()
    expected = " and ".join(columns)
    if len(words) != len(columns):
        return DamagedBytes(file.path, position, len(text), None, expected, _shorten_line(text))
    fields: dict[str, str | int] = {}
    for name, word in zip(columns, words, strict=True):
        if name not in NUMBERS:
            fields[name] = word
        elif word.isascii() and word.isdigit():
            fields[name] = int(word)
        else:
            return DamagedBytes(file.path, position, len(text), None, expected, _shorten_line(text))
    return TextLine(position, fields)


def iterate_property_lines(
    file: File, separator: str, required_names: tuple[str, ...]
) -> Iterator[TextLine | DamagedBytes]:
    """Yield the key and value of each line of `meta.properties` ("=") or `partition.metadata` (": ").

    Raises `OSError`.
    """
    missing = dict.fromkeys(required_names)
    for position, text in _iterate_lines(file):
        if not text.strip() or text.startswith(("#", "!")):
            continue
        key, found, value = text.partition(separator)
        if found:
            missing.pop(key.strip(), None)
            yield TextLine(position, {key.strip(): value.strip()})
        else:
            yield DamagedBytes(
                file.path, position, len(text), None, f"a key, {separator!r} and a value", _shorten_line(text)
            )
    for key in missing:
        yield DamagedBytes(file.path, file.size_bytes(), 0, None, f"a line for {key}", "the end of the file")


def iterate_json_lines(file: File, required_names: tuple[str, ...]) -> Iterator[TextLine | DamagedBytes]:
    """Yield each field of a file with a JSON object. An empty file has none. Raises `OSError`."""
    data = file.read(0, MAX_JSON_BYTES)
    try:
        lines = [TextLine(start, {key: str(value)}) for start, _, key, value in iterate_json_fields(data)]
    except ValueError as error:
        yield DamagedBytes(file.path, 0, len(data), None, "a JSON object", str(error))
        return
    yield from lines
    missing = set(required_names if data else ()) - {key for line in lines for key in line.fields}
    for key in sorted(missing):
        yield DamagedBytes(file.path, len(data), 0, None, f"a field {key}", "the end of the file")


def iterate_json_fields(data: bytes) -> Iterator[tuple[int, int, str, Any]]:
    """Yield (start, end, key, value) of each field of a JSON object. No bytes have no fields. Raises ValueError."""
    import json  # a slow import

    text = data.decode("latin-1")  # where a character is a byte
    try:
        if not isinstance(json.loads(text or "{}"), dict):
            raise ValueError("JSON, and no object")
    except RecursionError:
        raise ValueError("too many values in each other") from None
    decoder, position = json.JSONDecoder(), text.find("{") + 1
    while text and text[position := _find_match_end(_BEFORE_KEY, text, position)] != "}":
        key, end = decoder.raw_decode(text, position)
        value, end = decoder.raw_decode(text, _find_match_end(_BEFORE_VALUE, text, end))
        yield position, end, key, value
        position = end


def _find_match_end(pattern: re.Pattern[str], text: str, position: int) -> int:
    """Return where the pattern, which must match at `position`, ends."""
    found = pattern.match(text, position)
    assert found is not None  # the text is a JSON object
    return found.end()


def _shorten_line(text: str) -> str:
    return repr(text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}...")


def _iterate_lines(file: File) -> Iterator[tuple[int, str]]:
    """Yield (position, text) of each line. Long lines are cut, and bytes that are not UTF-8 become escapes."""
    position, end = 0, file.size_bytes()
    reader = BlockReader(file, end)
    while piece := reader.read_at(position, MAX_LINE_BYTES):
        line, newline, _ = piece.tobytes().partition(b"\n")
        yield position, line.decode(errors="backslashreplace")
        position += len(line)
        while not newline and (piece := reader.read_at(position, BLOCK_BYTES)):  # skip the rest of the line
            rest, newline, _ = piece.tobytes().partition(b"\n")
            position += len(rest)
        position += 1
