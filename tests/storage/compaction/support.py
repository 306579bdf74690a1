"""What the compaction tests share: compacted logs, batches by key, one cleaning from end to end.

Nothing here tests anything.
"""

from __future__ import annotations

from collections.abc import Iterable

from minibroker.protocol.records.batch import BatchHeader
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.formats import check_batch_or_message, iterate_records_in_any_format
from minibroker.protocol.records.record import Record
from minibroker.storage.compaction.cleaning import CleaningThrottle, LogCleaning
from minibroker.storage.compaction.dirtiness import measure_dirtiness
from minibroker.storage.compaction.rewriting import CleaningLimits
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from tests.storage.support import NOW_MS, append, read_batches

COMPACT = frozenset({"compact"})
SETTINGS = LogSettings(segment_bytes=420, index_interval_bytes=100, cleanup_policy=COMPACT, file_delete_delay_ms=0)
LIMITS = CleaningLimits(keys_bytes=1 << 20, load_factor=0.9, buffer_bytes=4096)

Pair = tuple[str | None, str | None]


def unthrottled() -> CleaningThrottle:
    """A throttle that never lets anybody wait."""
    return CleaningThrottle(float("inf"), lambda: 0.0, lambda seconds: None)


def pairs(*given: Pair, timestamp: int = NOW_MS, **options: int | bool) -> bytearray:
    """A batch of (key, value) records a millisecond apart; `options` as of `build_batch`."""
    records = [
        Record(timestamp=timestamp + index, key=_bytes(key), value=_bytes(value))
        for index, (key, value) in enumerate(given)
    ]
    return build_batch(records, **options)  # type: ignore[arg-type]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def fill(log: Log, batches: Iterable[bytearray]) -> None:
    """Append all, each into a segment of its own, and begin another one."""
    for data in batches:
        append(log, data)
        log.roll_segment_if_used()


def begin(
    log: Log, now_ms: int = NOW_MS, limits: CleaningLimits = LIMITS, throttle: CleaningThrottle | None = None
) -> LogCleaning:
    """A cleaning of all that may be cleaned, of which nothing is done yet."""
    return LogCleaning(log, measure_dirtiness(log, now_ms), limits, throttle or unthrottled(), now_ms)


def clean(log: Log, now_ms: int = NOW_MS, limits: CleaningLimits = LIMITS) -> LogCleaning:
    """A cleaning from end to end, in one thread."""
    cleaning = begin(log, now_ms, limits)
    while cleaning.clean_next_segment():
        cleaning.replace_cleaned_segments()
    cleaning.set_clean_offset()
    return cleaning


def contents(log: Log) -> list[tuple[int, str | None, str | None]]:
    """(offset, key, value) of each record in the log."""
    return [(record.offset, _text(record.key), _text(record.value)) for record in log_records(log)]


def log_records(log: Log) -> list[Record]:
    """All records in the log."""
    return [record for data in read_batches(log) for record in iterate_records_in_any_format(data)]


def log_headers(log: Log) -> list[BatchHeader]:
    """The headers of all batches in the log."""
    return [check_batch_or_message(data) for data in read_batches(log)]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
