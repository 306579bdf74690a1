"""The lines and the JSON of explained bytes, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from minibroker.protocol.legible import format_readable, make_legible

if TYPE_CHECKING:
    from minibroker.protocol.explaining.parts import ExplainedPart
    from minibroker.protocol.records.varints import Bytes

ROW_BYTES = 8  # of the hex column
HIDDEN_HEX = "·· ·· ··"
VALUE_CHARACTERS = 80
NAME_CHARACTERS = 44


def format_part_as_lines(part: ExplainedPart, data: Bytes, *, with_background: bool = False) -> Iterator[str]:
    """Yield a line for each part: where it begins, its bytes in hex, its name and type, its value and what it means.

    With `with_background`, a second line says what the field is for, since which version, and by which KIP.
    """
    width = max(2 * depth + len(each.name) for depth, each in part.iterate_parts())
    yield from _format_part_lines(part, data, 0, "", min(width, NAME_CHARACTERS), with_background)


def _format_part_lines(
    part: ExplainedPart, data: Bytes, depth: int, prefix: str, name_width: int, with_background: bool
) -> Iterator[str]:
    """Yield the lines of a part at this depth, and of all in it. `prefix` marks positions in decompressed bytes."""
    width = max(4, len(f"{len(data):x}"))
    inner = part.payload if part.payload is not None else data
    is_leaf = not part.parts or part.payload is not None
    end = part.end if is_leaf else part.start + part.prefix_bytes
    place = f"{prefix}{part.start:0{width}x}"
    name = f"{'  ' * depth}{part.name}"
    hexadecimal = f"{HIDDEN_HEX:<{3 * ROW_BYTES}}" if part.is_secret else _format_hex(data, part.start, end)
    yield f"{place}  {hexadecimal}  {name:<{name_width}}  {_format_name_and_value(part)}".rstrip()
    if with_background and (told := format_part_background(part)):
        yield f"{'':{len(place)}}  {'':{3 * ROW_BYTES}}  {'  ' * depth}  {told}"
    for each in part.parts:
        yield from _format_part_lines(
            each, inner, depth + 1, "+" if part.payload is not None else prefix, name_width, with_background
        )
    if part.problem:
        at = f"{prefix}{part.end:0{width}x}"
        yield f"{at}  {'':{3 * ROW_BYTES}} {'  ' * (depth + 1)}! {part.problem}"


def _format_hex(data: Bytes, start: int, end: int) -> str:
    shown = bytes(data[start : min(end, start + ROW_BYTES)]).hex(" ")
    return f"{shown:<{3 * ROW_BYTES - 1}}{'…' if end - start > ROW_BYTES else ' '}"


def _format_name_and_value(part: ExplainedPart) -> str:
    return "  ".join(
        each for each in (part.type, format_part_value(part), part.meaning and f"({part.meaning})") if each
    )


def format_part_background(part: ExplainedPart) -> str:
    """Return what a field is for, the versions that have it unless all do, and its KIP, as far as known."""
    since = f"Versions {part.versions}." if part.versions not in ("", "0+") else ""
    return " ".join(each for each in (part.about, since, f"KIP-{part.kip}." if part.kip else "") if each)


def format_part_value(part: ExplainedPart) -> str:
    """Return the value as people read it, shortened."""
    value = part.value
    if value is None:
        return ""
    if isinstance(value, bytes):
        if part.type == "uuid":
            return ""
        shown = make_legible(format_readable(value[:VALUE_CHARACTERS]), VALUE_CHARACTERS)
        return f'"{shown}"{f" {len(value):,} bytes" if len(value) > VALUE_CHARACTERS else ""}'
    return f'"{make_legible(value, VALUE_CHARACTERS)}"' if isinstance(value, str) else str(value)


def make_json_of_part(part: ExplainedPart) -> dict[str, Any]:
    """Return the part and all in it for JSON. Bytes are hex."""
    value = part.value.hex() if isinstance(part.value, bytes) else part.value
    said: dict[str, Any] = {"name": part.name, "type": part.type, "start": part.start, "end": part.end}
    optional = {"prefix_bytes": part.prefix_bytes, "meaning": part.meaning, "versions": part.versions}
    optional |= {"about": part.about, "kip": part.kip or ""}
    said |= {key: each for key, each in optional.items() if each}
    said |= {"value": value} if value is not None else {}
    said |= {"problem": part.problem} if part.problem else {}
    is_shown = part.payload is not None and not any(each.is_secret for _, each in part.iterate_parts())
    said |= {"payload": part.payload.hex()} if part.payload is not None and is_shown else {}
    said |= {"parts": [make_json_of_part(each) for each in part.parts]} if part.parts else {}
    return said
