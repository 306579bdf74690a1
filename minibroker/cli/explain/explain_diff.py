"""The lines of `minibroker explain --diff`: fields that only one side has, and fields whose values differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from minibroker.protocol.explaining.explained_text import value_text

if TYPE_CHECKING:
    from minibroker.protocol.explaining.parts import Part


def differences(first: list[Part], second: list[Part]) -> list[str]:
    """Return a line for each difference, "-" of the first and "+" of the second; in wire order of both."""
    is_single = len(first) == len(second) == 1
    left, right = _fields(first, is_single), _fields(second, is_single)
    lines: list[str] = []
    for path in dict.fromkeys([*left, *right]):
        before, after = left.get(path), right.get(path)
        if before != after:
            lines += [f"- {path}: {before}"] * (before is not None) + [f"+ {path}: {after}"] * (after is not None)
    return lines


def _fields(parts: list[Part], is_single: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for index, part in enumerate(parts):
        found.update(_below(part, part.name if is_single else f"{part.name} {index + 1}"))
    return found


def _below(part: Part, path: str) -> Iterator[tuple[str, str]]:
    said = " ".join(each for each in (part.type, value_text(part), part.meaning, part.problem) if each)
    yield path, said
    for each in part.parts:
        yield from _below(each, f"{path}.{each.name}" if not each.name.startswith("[") else f"{path}{each.name}")
