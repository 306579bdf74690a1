"""Lanes: the parts of batches that are walked side by side. A batch of many records is cut into several of them.

Where to cut is guessed: a place that looks like the start of two records in a row, whose offset deltas are consecutive.
A wrong guess does no harm: a lane that does not end exactly where the next one begins is noticed, and its batch walked
record by record.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]


class Lanes(NamedTuple):
    """Runs of records that follow one another, of which `batch` says which batch they are of."""

    start: I64
    end: I64
    records: I64  # how many each has
    batch: I64


def cut(data: U8, starts: I64, ends: I64, counts: I64) -> Lanes:
    """The lanes of these batches, in order."""
    return Lanes(starts, ends, counts, np.arange(len(starts)))
