"""The requests that `holds.py` measures: arrays of minimal items, and what has held a broker before.

Set-ups are ordinary requests. Where a row would take minutes it is smaller, and its name says what it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from machine import ROOT
from servers import Server

sys.path.insert(0, str(ROOT))

from tests.protocol.array_frames import Array, all_arrays, array_frame, tags_frame  # noqa: E402

MB = 1_000_000


def nothing(server: Server) -> None:
    """The set-up of a row that needs none."""


class Row(NamedTuple):
    """What is asked: `set_up` prepares the server, `frames` are then sent on one connection. `probes` are what the
    other client asks, ApiVersions and Metadata unless said; `settings` are the broker's, as `key=value`."""

    kind: str
    name: str
    frames: Callable[[Server], Sequence[bytes]]
    set_up: Callable[[Server], None] = nothing
    settings: Sequence[str] = ()
    probes: Sequence[bytes] = ()


def array_rows(sizes_mb: Sequence[float], *, distinct: bool) -> list[Row]:
    """A row for each array of each request, and each size."""
    rows = []
    for size_mb in sizes_mb:
        for array in all_arrays():
            rows.append(Row("arrays", f"{array.name}, {size_mb:g} MB", _array(array, size_mb, distinct)))
        for place in ("header", "body"):
            rows.append(Row("arrays", f"unknown tags in the {place}, {size_mb:g} MB", _tags(size_mb, place)))
    return rows


def _array(array: Array, size_mb: float, distinct: bool) -> Callable[[Server], Sequence[bytes]]:
    return lambda server: [array_frame(array, int(size_mb * MB), distinct=distinct)]


def _tags(size_mb: float, place: str) -> Callable[[Server], Sequence[bytes]]:
    return lambda server: [tags_frame(int(size_mb * MB), in_header=place == "header")]


def table_rows(quick: bool) -> list[Row]:
    """What has held a broker for long, once."""
    return []
