"""The entries of an index file, as they are: of a running broker's, too, which keeps zeros behind the last one.

Whether they agree with each other, and with the log, is for those who ask to find out.
"""

from __future__ import annotations

from contextlib import closing

import numpy as np
import numpy.typing as npt

from minibroker.pipeline.directory.finding import DISK

MAX_INDEX_BYTES = 1 << 28


def index_entries(path: str, entry: npt.DTypeLike) -> npt.NDArray[np.void]:
    """All up to the zeros, of the first `MAX_INDEX_BYTES` of the file; none if it cannot be opened.

    `entry` is the type of one. Raises `OSError` if what is open cannot be read.
    """
    kind = np.dtype(entry)
    try:
        file = DISK.open_to_read(path)
    except OSError:
        return np.empty(0, kind)
    with closing(file):
        data = file.read(0, min(file.size_bytes(), MAX_INDEX_BYTES)).rstrip(b"\0")
    whole_bytes = -(-len(data) // kind.itemsize) * kind.itemsize  # the last entry may itself end with zeros
    return np.frombuffer(data.ljust(whole_bytes, b"\0"), kind)
