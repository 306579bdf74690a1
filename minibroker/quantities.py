"""Spans of time, sizes and times between text and numbers: the one place that reads or writes them for people.

    "7 days"  "1.5 s"  "200ms"  "15m"        a number and a unit, as people and Spark write it
    "P1DT12H"  "PT30M"                       a period by ISO 8601, as Kafka's own tools take it
    "2026-01-31 12:00"  "2 hours ago"        a time: of ISO 8601, or as people say it

No library reads both: pytimeparse2 and humanfriendly know no ISO 8601, and take a bare number for seconds, where here
it is one of ms; isodate knows nothing else. Nor does one write counts as they are written here: humanize has
"950 Bytes" and calls 0.0219 "21.9 m". Units of sizes are powers of 1000, but where powers of two are what is shown.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Final

Duration = str | float | timedelta

MAXIMUM_MS: Final = 1000 * 365.25 * 86_400_000  # so far from now, a timestamp still has room in 64 bits

# Texts, as `re` compiles them at their first use: most programs that import this file read none.
_WORDS: Final = r"\s*(?P<number>[0-9]+(\.[0-9]+)?)\s*(?P<unit>[a-z]+)\s*"
_PERIOD: Final = (
    r"P(?=.)(?:(?P<d>[0-9]+)D)?"
    r"(?:T(?=.)(?:(?P<h>[0-9]+)H)?(?:(?P<m>[0-9]+)M)?(?:(?P<s>[0-9]+(?:\.[0-9]+)?)S)?)?"
)
_UNITS_MS: Final = {
    ("ms", "millisecond", "milliseconds"): 1.0,
    ("s", "second", "seconds"): 1_000.0,
    ("m", "min", "minute", "minutes"): 60_000.0,
    ("h", "hour", "hours"): 3_600_000.0,
    ("d", "day", "days"): 86_400_000.0,
    ("w", "week", "weeks"): 604_800_000.0,
}
_MS_OF: Final = {name: ms for names, ms in _UNITS_MS.items() for name in names}

_AGO: Final = re.compile(r"(?P<span>.*\S)\s+ago", re.IGNORECASE)
_SINCE_1970: Final = re.compile(r"@(?P<ms>[0-9]{1,18})")
_DAYS_BACK: Final = {"today": 0, "yesterday": 1}

UNITS: Final = ("", "k", "M", "G", "T", "P", "E")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SPAN_UNITS: Final = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))


def parse_milliseconds(duration: Duration) -> float:
    """Return the span in ms; a bare number is one of ms.

    Raises ValueError for a negative span, one that is none, and one of more than a thousand years.
    """
    if isinstance(duration, timedelta):
        span_ms = duration.total_seconds() * 1000
    elif isinstance(duration, str):
        span_ms = _parse_span_ms(duration)
    elif isinstance(duration, int | float) and not isinstance(duration, bool):
        span_ms = float(duration)
    else:
        raise ValueError(f"{duration!r} is no duration: give a number of ms, a text as '7 days', or a timedelta")
    if not 0 <= span_ms <= MAXIMUM_MS:
        raise ValueError(f"{duration!r} is no span of time that could pass")
    return span_ms


def _parse_span_ms(text: str) -> float:
    period = re.fullmatch(_PERIOD, text)
    if period is not None:
        return sum(float(number or 0) * _MS_OF[unit] for unit, number in period.groupdict().items())
    found = re.fullmatch(_WORDS, text)
    unit_ms = _MS_OF.get(found["unit"]) if found else None
    if found is None or unit_ms is None:
        raise ValueError(f"{text!r} is no duration: write a number and ms, s, min, hours, days or weeks")
    return float(found["number"]) * unit_ms


def parse_moment_ms(text: str, now_ms: int, zone: tzinfo | None = None) -> int:
    """Return the time in ms since 1970, 0 for earlier ones.

    It is a date or a time by ISO 8601, a time of today, such as `12:30`, a span and `ago`, `now`, `today` or
    `yesterday` (when it began), or `@` and the ms. Without a zone in the text, it is in `zone`, by default this
    machine's. Raises ValueError.
    """
    since_1970 = _SINCE_1970.fullmatch(text)
    if since_1970 is not None:
        return int(since_1970["ms"])
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, round(now_ms - parse_milliseconds(ago["span"])))
    if text.lower() == "now":
        return now_ms
    try:
        return max(0, round(_parse_moment(text, datetime.fromtimestamp(now_ms / 1000, zone), zone).timestamp() * 1000))
    except (OverflowError, OSError) as error:  # a year that has no time stamp
        raise ValueError(str(error)) from None


def _parse_moment(text: str, now: datetime, zone: tzinfo | None) -> datetime:
    day = now.date() - timedelta(days=_DAYS_BACK.get(text.lower(), 0))
    if text.lower() in _DAYS_BACK:
        return datetime.combine(day, time(), zone)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = datetime.combine(day, time.fromisoformat(text))
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)


def format_count(number: int, noun: str) -> str:
    """`1 record`, `2 records`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_number(number: float) -> str:
    """Three digits and a factor: `950`, `1.25 M`."""
    return _format_scaled(number, "").strip()


def format_bytes(size_bytes: float) -> str:
    """Three digits and a unit: `950 B`, `16.4 kB`."""
    return _format_scaled(size_bytes, "B")


def _format_scaled(number: float, unit: str) -> str:
    index = 0
    while abs(number) >= 999.5 and index < len(UNITS) - 1:
        number, index = number / 1000, index + 1
    digits = f"{number:.0f}" if number == int(number) and abs(number) < 1000 else f"{number:.3g}"
    return f"{digits} {UNITS[index]}{unit}"


def make_utc_time(time_ms: int) -> datetime | None:
    """Return a time in UTC, None for one that a calendar does not have."""
    try:
        return EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return None


def format_time(time_ms: int | None) -> str:
    """`2026-11-21 22:49:12`, in UTC; nothing for no time."""
    if time_ms is None:
        return ""
    time = make_utc_time(time_ms)
    return f"{time:%Y-%m-%d %H:%M:%S}" if time else f"{time_ms} ms"


def format_instant(time_ms: int) -> str:
    """`2026-11-21T22:49:12.500Z`, as `parse_moment_ms` reads it; the number for a time that no calendar has."""
    time = make_utc_time(time_ms)
    return str(time_ms) if time is None else f"{time:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03}Z"


def format_span(span_ms: int) -> str:
    """`minute`, `15 seconds`."""
    for size, name in SPAN_UNITS:
        if span_ms % size == 0:
            return name if span_ms == size else f"{span_ms // size} {name}s"
    return f"{span_ms} ms"
