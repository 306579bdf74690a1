"""Interprets the rows of `stats`: ratios, overheads and skews, as plain data for tables, plots and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Shares = npt.NDArray[np.float64]

SECOND_MS: Final = 1000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
# Spans that people use. The smallest one that gives at most `SPANS_MAX` spans is chosen.
SPANS_MS: Final = (
    *(SECOND_MS * count for count in (1, 2, 5, 10, 15, 30)),
    *(MINUTE_MS * count for count in (1, 2, 5, 10, 15, 30)),
    *(HOUR_MS * count for count in (1, 2, 3, 6, 12)),
    *(DAY_MS * count for count in (1, 7, 28, 91, 364)),
)
SPANS_MAX: Final = 120
# Most batches are between two of these. If all take a thousand times as long, the plot shows those between and near.
FRACTIONS: Final = (0.005, 0.995, 0.05, 0.95, 0.25, 0.75)
FAR: Final = 1000
CURVE_POINTS: Final = 500


def window_of(first_ms: int, last_ms: int, quantiles: Sequence[int]) -> tuple[int, int]:
    """Return the time for a plot: all of it, unless a few far times would leave no room for the others.

    `quantiles` are the times at `FRACTIONS`; none without times.
    """
    times = iter(quantiles)
    for earliest, latest in zip(times, times, strict=True):
        length = max(latest - earliest, MINUTE_MS)
        if length * FAR < last_ms - first_ms:
            first_ms, last_ms = max(earliest - length, first_ms), min(latest + length, last_ms)
    return first_ms, last_ms


def span_for(first_ms: int | None, last_ms: int | None, most: int = SPANS_MAX) -> int:
    """Return the length of the spans in ms for a plot over this time."""
    length = (last_ms or 0) - (first_ms or 0)
    return next((span for span in SPANS_MS if length / span < most), SPANS_MS[-1])


@dataclass(frozen=True)
class Traffic:
    """A row of `grouped`: some batches. `by` is what they have in common. Sizes are in bytes, times in ms.

    `compression_ratio` is uncompressed to stored bytes, `overhead_per_record` the uncompressed bytes that are neither
    key nor value. These, uncompressed bytes and tombstones come from the measured batches, if any.
    """

    by: Mapping[str, str | int]
    records: int
    batches: int
    bytes: int
    share: float  # of the bytes of all rows
    median_batch_bytes: int | None
    max_batch_bytes: int | None
    uncompressed_bytes: int | None
    compression_ratio: float | None
    overhead_per_record: float | None
    key_bytes: int | None
    value_bytes: int | None
    tombstones: int | None
    records_per_second: float | None
    first_ms: int | None
    last_ms: int | None
    measured_batches: int
    control_batches: int
    control_bytes: int

    @property
    def is_measured_wholly(self) -> bool:
        """Whether all batches were measured, so that nothing is an estimate."""
        return self.measured_batches == self.batches

    @classmethod
    def of(cls, row: Mapping[str, Any], by: Sequence[str], all_bytes: int) -> Traffic:
        """Make it from a row of `grouped`. Batches that were not measured count like those that were."""
        measured_bytes, uncompressed = row["measured_bytes"], row["measured_uncompressed_bytes"]
        payload = row["measured_key_bytes"] + row["measured_value_bytes"]
        measured_records = row["measured_records"]

        def scaled(name: str, whole: int, part: int) -> int | None:
            return round(row[name] * whole / part) if part else None

        return cls(
            **{each.name: row[each.name] for each in fields(cls) if each.name in row},
            by={name: row[name] for name in by},
            share=row["bytes"] / all_bytes if all_bytes else 0.0,
            uncompressed_bytes=scaled("measured_uncompressed_bytes", row["bytes"], measured_bytes),
            compression_ratio=uncompressed / measured_bytes if measured_bytes else None,
            overhead_per_record=(uncompressed - payload) / measured_records if measured_records else None,
            key_bytes=scaled("measured_key_bytes", row["records"], measured_records),
            value_bytes=scaled("measured_value_bytes", row["records"], measured_records),
            tombstones=scaled("measured_null_values", row["records"], measured_records),
            records_per_second=_rate(row["records"], row["first_ms"], row["last_ms"]),
        )


def _rate(records: int, first_ms: int | None, last_ms: int | None) -> float | None:
    if first_ms is None or last_ms is None or last_ms <= first_ms:
        return None
    return records * SECOND_MS / (last_ms - first_ms)


@dataclass(frozen=True)
class TopKey:
    """One of the most frequent keys. None means records without a key."""

    key: bytes | None
    records: int
    share: float  # of the topic's records


@dataclass(frozen=True)
class KeySkew:
    """How the records of a topic are spread over its keys.

    `gini` is 0 if all keys have equally many records, and near 1 if few keys have nearly all. `curve` is a Lorenz curve
    from the most frequent keys on: (share of the keys, share of their records).
    """

    topic: str
    keys: int
    records: int  # with a key
    records_without_key: int
    gini: float | None
    share_of_top_percent: float | None  # of the records: the share of the most frequent 1 % of the keys
    top: list[TopKey]
    curve: list[tuple[float, float]]

    @classmethod
    def of(cls, topic: str, frequencies: Iterable[tuple[int, int]], top: Iterable[tuple[bytes | None, int]]) -> KeySkew:
        """Make it from (records of a key, number of such keys), the most records first, and the most frequent keys."""
        frequencies, top = list(frequencies), list(top)
        keys = sum(count for _, count in frequencies)
        records = sum(each * count for each, count in frequencies)
        curve = lorenz_curve(frequencies)
        without_key = sum(count for key, count in top if key is None)
        everything = records + without_key
        return cls(
            topic=topic,
            keys=keys,
            records=records,
            records_without_key=without_key,
            gini=gini(*curve) if keys else None,
            share_of_top_percent=float(np.interp(max(1 / keys, 0.01), *curve)) if keys else None,
            top=[TopKey(key, count, count / everything) for key, count in top],
            curve=_thin_curve(*curve),
        )


def lorenz_curve(frequencies: Sequence[tuple[int, int]]) -> tuple[Shares, Shares]:
    """Return shares of the keys, from the most frequent on, and of the records that they have; both begin at 0."""
    values, counts = np.array([(0, 0), *frequencies], np.float64).T
    keys, records = counts.cumsum(), (values * counts).cumsum()
    return keys / max(keys[-1], 1), records / max(records[-1], 1)


def gini(keys: Shares, records: Shares) -> float:
    """Return the Gini coefficient, by the area under a Lorenz curve."""
    return float(np.diff(keys) @ (records[1:] + records[:-1])) - 1


def _thin_curve(keys: Shares, records: Shares) -> list[tuple[float, float]]:
    """Return fewer points of a curve, as many as a plot can show, and the last one."""
    kept = [(0.0, 0.0)]
    for x, y in zip(keys.tolist(), records.tolist(), strict=True):
        if max(x - kept[-1][0], y - kept[-1][1]) >= 1 / CURVE_POINTS or x == 1:
            kept.append((x, y))
    return kept


@dataclass(frozen=True)
class Rate:
    """The records that were written to a topic in one span of time."""

    topic: str
    start_ms: int
    records: int
    bytes: int


@dataclass(frozen=True)
class SizeClass:
    """The number of batches of a codec whose size is from `least_bytes` to the next class's."""

    codec: str
    least_bytes: int
    batches: int


@dataclass
class Statistics:
    """All that `minibroker pipeline stats` finds. One in `measured_every` batches was decompressed."""

    source: str
    measured_every: int
    all: Traffic
    tables: dict[str, list[Traffic]] = field(default_factory=dict)  # by the dimensions' names, separated by ", "
    left_out: dict[str, int] = field(default_factory=dict)  # the number of rows that a table lacks
    span_ms: int = SECOND_MS
    rates: list[Rate] = field(default_factory=list)
    sizes: list[SizeClass] = field(default_factory=list)
    keys: list[KeySkew] | None = None
    records_outside: int = 0  # their times are too far from the others for the rates

    def as_json(self) -> dict[str, Any]:
        """Return the statistics as JSON."""
        parsed = asdict(self)
        for skew in parsed["keys"] or ():
            for top in skew["top"]:
                key = top.pop("key")
                top.update(_key_fields(key))
        return parsed


def _key_fields(key: bytes | None) -> dict[str, str | None]:
    """Return a text as `key`; return other bytes in hexadecimal under another name, so that nothing is lost."""
    try:
        return {"key": None if key is None else key.decode()}
    except UnicodeDecodeError:
        return {"key_hex": (key or b"").hex()}
