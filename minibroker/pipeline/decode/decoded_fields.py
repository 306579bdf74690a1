"""The parts of some records, as columns of positions and numbers: the step between bytes and Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from minibroker.pipeline.array_types import Bools, Int64s


class Wanted(NamedTuple):
    """The parts of records that the wanted columns need."""

    timestamp: bool
    offset: bool
    key: bool
    value: bool
    headers: bool

    @classmethod
    def by(cls, columns: Sequence[str]) -> Wanted:
        """Return what these columns of the records table need."""
        names = {"timestamp" if name == "timestampMs" else name for name in columns}
        return cls(*(name in names for name in cls._fields))

    @property
    def depth(self) -> int:
        """How many of these parts must be read. They follow each other in a record in this order."""
        return max((index for index, is_wanted in enumerate(self, 1) if is_wanted), default=0)


class Parts(NamedTuple):
    """A key, a value or the like of each record: its start, its length, and whether it is null (None: no one is)."""

    start: Int64s
    length: Int64s
    is_null: Bools | None


class HeaderParts(NamedTuple):
    """The headers of each record: their number, and the keys and values of all headers, one after the other."""

    per_record: Int64s
    keys: Parts
    values: Parts


@dataclass(slots=True)
class Fields:
    """Columns of equal length. None means not wanted, or not in the format."""

    count: int
    offsets: Int64s | None = None
    timestamps_ms: Int64s | None = None  # -1: none
    timestamp_types: Int64s | int = 0
    keys: Parts | None = None
    values: Parts | None = None
    headers: HeaderParts | None = None
