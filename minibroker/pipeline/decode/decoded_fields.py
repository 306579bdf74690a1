"""The parts of some records, as columns of positions and numbers: the step between bytes and Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


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
        return cls(*(name in columns for name in cls._fields))

    @property
    def depth(self) -> int:
        """How many of these parts must be read. They follow each other in a record in this order."""
        return max((index for index, is_wanted in enumerate(self, 1) if is_wanted), default=0)


class Parts(NamedTuple):
    """A key, a value or the like of each record: its start, its length, and whether it is null (None: no one is)."""

    start: I64
    length: I64
    is_null: Bool | None


class HeaderParts(NamedTuple):
    """The headers of each record: their number, and the keys and values of all headers, one after the other."""

    per_record: I64
    keys: Parts
    values: Parts


@dataclass(slots=True)
class Fields:
    """Columns of equal length. None means not wanted, or not in the format."""

    count: int
    offsets: I64 | None = None
    timestamps_ms: I64 | None = None  # -1: none
    timestamp_types: I64 | int = 0
    keys: Parts | None = None
    values: Parts | None = None
    headers: HeaderParts | None = None
