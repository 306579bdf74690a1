"""Spans of time as tests write them: "7 days", "1.5 s", a number of milliseconds, or a timedelta."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

Duration = str | float | timedelta

DEFAULT_TIMEOUT: Final = "5 s"
"""How long a test waits for anything."""
DEFAULT_SILENCE: Final = "200 ms"
"""How long a test watches that nothing is produced."""

MAXIMUM_MS = 1000 * 365.25 * 86_400_000  # a timestamp that far from now still fits in 64 bits

_TEXT = re.compile(r"\s*(?P<number>[0-9]+(\.[0-9]+)?)\s*(?P<unit>[a-z]+)\s*")
_UNITS_MS = {
    ("ms", "millisecond", "milliseconds"): 1.0,
    ("s", "second", "seconds"): 1_000.0,
    ("min", "minute", "minutes"): 60_000.0,
    ("h", "hour", "hours"): 3_600_000.0,
    ("d", "day", "days"): 86_400_000.0,
    ("w", "week", "weeks"): 604_800_000.0,
}
_MS_OF = {name: ms for names, ms in _UNITS_MS.items() for name in names}


def milliseconds(duration: Duration) -> float:
    """Return a duration in ms; a bare number is in ms.

    Raises ValueError for text that is not a duration, and for a span below 0 or above a thousand years.
    """
    if isinstance(duration, timedelta):
        span_ms = duration.total_seconds() * 1000
    elif isinstance(duration, str):
        span_ms = _parsed(duration)
    elif isinstance(duration, int | float) and not isinstance(duration, bool):
        span_ms = float(duration)
    else:
        raise ValueError(f"{duration!r} is not a duration: give a number of ms, a text like '7 days', or a timedelta")
    if not 0 <= span_ms <= MAXIMUM_MS:
        raise ValueError(f"{duration!r} is not between 0 and 1000 years")
    return span_ms


def _parsed(text: str) -> float:
    found = _TEXT.fullmatch(text)
    unit_ms = _MS_OF.get(found["unit"]) if found else None
    if found is None or unit_ms is None:
        raise ValueError(f"{text!r} is not a duration: write a number and ms, s, min, hours, days or weeks")
    return float(found["number"]) * unit_ms
