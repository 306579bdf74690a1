"""Explained bytes for the page: the tree as rows in the order of the bytes, and the bytes that they are about."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any, Final

from minibroker.protocol.explaining.parts import ExplainedPart
from minibroker.protocol.legible import escape_unprintable, shorten_text
from minibroker.protocol.primitives import format_uuid

MOST_ROWS: Final = 20_000  # the rest is counted: a page with more is slow to load, and nobody reads it
SHOWN_BYTES: Final = 1 << 20  # of each block
VALUE_CHARACTERS: Final = 240
UUID: Final = "uuid"


def make_tree_of_parts(part: ExplainedPart, data: bytes) -> dict[str, Any]:
    """Return a part and all in it, as rows, with blocks of bytes: `data`, then what was decompressed from it."""
    blocks = [data]
    rows = list(_iterate_rows(part, 0, 0, blocks))
    hidden = [row for row in rows if row.get("secret")]
    return {
        "rows": rows[:MOST_ROWS],
        "more_rows": max(len(rows) - MOST_ROWS, 0),
        "blocks": [
            _make_bytes_block(block, [row for row in hidden if row["block"] == at]) for at, block in enumerate(blocks)
        ],
    }


def _make_bytes_block(data: bytes, hidden_parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the beginning of a block, with zeros in the place of secrets."""
    shown = bytearray(data[:SHOWN_BYTES])
    for row in hidden_parts:
        end = min(row["end"], len(shown))
        shown[row["start"] : end] = bytes(max(end - row["start"], 0))
    return {"size": len(data), "base64": b64encode(shown).decode()}


def _iterate_rows(part: ExplainedPart, depth: int, block: int, blocks: list[bytes]) -> Iterator[dict[str, Any]]:
    """Yield a row for a part and for each in it, whose bytes are in `blocks[block]`. Append decompressed bytes."""
    inner = block
    if part.payload is not None:
        inner = len(blocks)
        blocks.append(part.payload)
    said = {
        "value": _show_value(part),
        "meaning": escape_unprintable(part.meaning),
        "versions": part.versions,
        "about": part.about,
        "kip": part.kip,
        "problem": escape_unprintable(part.problem),
        "prefix": part.prefix_bytes,
        "payload": inner if inner != block else None,
        "secret": part.is_secret,
    }
    row = {
        "depth": depth,
        "name": escape_unprintable(part.name),
        "type": part.type,
        "start": part.start,
        "end": part.end,
    }
    yield row | {"block": block} | {name: value for name, value in said.items() if value not in (None, "", 0, False)}
    for each in part.parts:
        yield from _iterate_rows(each, depth + 1, inner, blocks)


def _show_value(part: ExplainedPart) -> str | None:
    """Return the value as people read it. It may come from anyone, so nothing in it is left unprintable."""
    value = part.value
    if value is None:
        return None
    if isinstance(value, bytes):
        if part.type == UUID:
            return format_uuid(value)
        size = f"  ({len(value):,} bytes)" if len(value) > VALUE_CHARACTERS else ""
        return quote_bytes(value[:VALUE_CHARACTERS]) + size
    if isinstance(value, str):
        return f'"{escape_unprintable(shorten_text(value, VALUE_CHARACTERS))}"'
    return str(value)


def quote_bytes(data: bytes) -> str:
    """Return bytes as text in quotes; what is no UTF-8 or not printable is escaped."""
    return f'"{escape_unprintable(data.decode("utf-8", errors="backslashreplace"))}"'
