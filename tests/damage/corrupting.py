"""Damage to one file of a data directory, chosen by a seed.

Nothing here tests anything.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from minibroker.protocol.records.batch import iterate_batches

SECTOR_BYTES = 512
UNCOVERED = (*range(8), *range(12, 16))  # the bytes of base offset and leader epoch


class Damage(NamedTuple):
    """A damage, in words. `uncovered`: to a byte that no checksum covers, so that Kafka, too, believes it."""

    text: str
    uncovered: bool


def damage(directory: Path, random: Random) -> Damage:
    """Damage one file in some way."""
    by_kind: dict[str, list[Path]] = {}
    for path in sorted(path for path in directory.rglob("*") if path.is_file() and path.name != ".lock"):
        by_kind.setdefault(_kind(path), []).append(path)
    path = random.choice(by_kind[random.choice(sorted(by_kind))])
    size = path.stat().st_size
    way = (
        random.choice([_flip, _flip, _cut, _zero, _zero_sector, _empty, _delete])
        if size
        else random.choice([_delete, _grow])
    )
    before = path.read_bytes()
    text = f"{path.relative_to(directory)} of {size} bytes: {way(path, random)}"
    return Damage(text, path.suffix == ".log" and way is _flip and _is_uncovered(before, path.read_bytes()))


def _is_uncovered(before: bytes, after: bytes) -> bool:
    """Whether the byte that differs is one of a batch's base offset or leader epoch."""
    changed = next(at for at, (one, other) in enumerate(zip(before, after, strict=True)) if one != other)
    return any(changed - start in UNCOVERED for start, _ in iterate_batches(before))


def _kind(path: Path) -> str:
    """Files of the metadata log are kinds of their own, as they are few among many."""
    kind = path.suffix if path.name[:1].isdigit() else path.name
    return f"metadata {kind}" if path.parent.name.startswith("__cluster_metadata") else kind


def _flip(path: Path, random: Random) -> str:
    data = bytearray(path.read_bytes())
    position, bit = random.randrange(len(data)), random.randrange(8)
    data[position] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of byte {position} flipped"


def _cut(path: Path, random: Random) -> str:
    size = random.randrange(path.stat().st_size)
    path.write_bytes(path.read_bytes()[:size])
    return f"cut to {size} bytes"


def _zero(path: Path, random: Random) -> str:
    path.write_bytes(bytes(path.stat().st_size))
    return "all zeros"


def _zero_sector(path: Path, random: Random) -> str:
    data = bytearray(path.read_bytes())
    start = random.randrange(0, len(data), SECTOR_BYTES)
    end = min(start + SECTOR_BYTES, len(data))
    data[start:end] = bytes(end - start)
    path.write_bytes(data)
    return f"zeros from {start} to {end}"


def _empty(path: Path, random: Random) -> str:
    path.write_bytes(b"")
    return "emptied"


def _delete(path: Path, random: Random) -> str:
    path.unlink()
    return "deleted"


def _grow(path: Path, random: Random) -> str:
    path.write_bytes(random.randbytes(random.randrange(1, 100)))
    return "filled with chance"


Way = Callable[[Path, Random], str]
