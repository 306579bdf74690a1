"""Numbers as a person reads them: bytes, counts and times, for tables and plots.

Units are powers of 1000, but where powers of two are what is shown.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

UNITS: Final = ("", "k", "M", "G", "T", "P", "E")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SPAN_UNITS: Final = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))


def count_text(number: float) -> str:
    """Three digits and a factor: `950`, `1.25 M`."""
    return _scaled(number, "").strip()


def bytes_text(size_bytes: float) -> str:
    """Three digits and a unit: `950 B`, `16.4 kB`."""
    return _scaled(size_bytes, "B")


def _scaled(number: float, unit: str) -> str:
    index = 0
    while abs(number) >= 999.5 and index < len(UNITS) - 1:
        number, index = number / 1000, index + 1
    digits = f"{number:.0f}" if number == int(number) and abs(number) < 1000 else f"{number:.3g}"
    return f"{digits} {UNITS[index]}{unit}"


def binary_text(size_bytes: float) -> str:
    """A power of two: `512 B`, `16 KiB`."""
    index = 0
    while size_bytes >= 1024 and index < len(UNITS) - 1:
        size_bytes, index = size_bytes / 1024, index + 1
    return f"{size_bytes:.3g} {UNITS[index].upper()}iB" if index else f"{size_bytes:.3g} B"


def time_of(time_ms: int) -> datetime | None:
    """A time in UTC, None for one that a calendar does not have."""
    try:
        return EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return None


def time_text(time_ms: int | None) -> str:
    """`2026-11-21 22:49:12`, in UTC; nothing for no time."""
    if time_ms is None:
        return ""
    time = time_of(time_ms)
    return f"{time:%Y-%m-%d %H:%M:%S}" if time else f"{time_ms} ms"


def span_text(span_ms: int) -> str:
    """`minute`, `15 seconds`."""
    for size, name in SPAN_UNITS:
        if span_ms % size == 0:
            return name if span_ms == size else f"{span_ms // size} {name}s"
    return f"{span_ms} ms"
