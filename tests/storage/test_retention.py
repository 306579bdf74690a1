"""Which segments go: each rule by itself, together, and what never goes; then what a log makes of the decision."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.operating_system import HAS_POSITIONED_IO
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.retention import DeletionReason, LogExtent, list_deletion_reasons
from tests.cases import for_each
from tests.storage.support import NOW_MS, FailingDisk, Surroundings, append, batch, open_at, read_values

FOREVER = LogSettings(retention_ms=-1, retention_bytes=-1)
COMPACTED = frozenset({"compact"})
BOTH = frozenset({"compact", "delete"})


class Stub(NamedTuple):
    """A segment as retention sees it."""

    base_offset: int
    size_bytes: int = 100
    newest_ms: int = 0

    def get_largest_timestamp(self) -> int:
        return self.newest_ms


def stubs(*sizes_bytes: int, newest_ms: Sequence[int] = ()) -> list[Stub]:
    """Segments of ten offsets each."""
    times = [*newest_ms, *[0] * len(sizes_bytes)]
    return [Stub(10 * index, size, times[index]) for index, size in enumerate(sizes_bytes)]


def decided(
    segments: Sequence[Stub],
    settings: LogSettings,
    *,
    start: int = 0,
    high_watermark: int | None = None,
    now_ms: int = 0,
) -> list[DeletionReason]:
    end = segments[-1].base_offset + (10 if segments[-1].size_bytes else 0)
    return list_deletion_reasons(
        segments, LogExtent(start, end if high_watermark is None else high_watermark, end), settings, now_ms
    )


# --- the decision -----------------------------------------------------------------------------------------------------


@for_each(("now_ms", "count"), [(1000, 0), (1100, 0), (1101, 1), (1201, 2), (1300, 2), (1301, 3), (9999, 3)])
def test_a_segment_is_deleted_when_its_newest_record_exceeds_retention_ms(now_ms: int, count: int) -> None:
    segments = stubs(10, 10, 10, newest_ms=(1000, 1100, 1200))
    settings = FOREVER._replace(retention_ms=100)
    assert decided(segments, settings, now_ms=now_ms) == [DeletionReason.TIME] * count


def test_a_segment_with_a_newer_record_keeps_those_after_it() -> None:
    segments = stubs(10, 10, 10, newest_ms=(0, 5000, 0))
    assert decided(segments, FOREVER._replace(retention_ms=100), now_ms=1000) == [DeletionReason.TIME]


def test_records_with_future_timestamps_are_kept() -> None:
    segments = stubs(10, 10, newest_ms=(10**15, 0))
    assert decided(segments, FOREVER._replace(retention_ms=0), now_ms=1000) == []


@for_each(
    ("retention_bytes", "count"), [(-1, 0), (1000, 0), (60, 0), (51, 0), (50, 1), (31, 1), (30, 2), (1, 2), (0, 3)]
)
def test_segments_are_deleted_while_at_least_retention_bytes_remain(retention_bytes: int, count: int) -> None:
    settings = FOREVER._replace(retention_bytes=retention_bytes)
    assert decided(stubs(10, 20, 30), settings) == [DeletionReason.SIZE] * count


def test_size_based_retention_is_applied_before_time_based() -> None:
    segments = stubs(10, 20, 30, newest_ms=(5000, 0, 5000))
    settings = FOREVER._replace(retention_bytes=50, retention_ms=100)
    assert decided(segments, settings, now_ms=5000) == [DeletionReason.SIZE, DeletionReason.TIME]


@for_each(("start", "count"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (30, 2)])
@for_each("policy", [frozenset(), COMPACTED, BOTH, frozenset({"delete"})])
def test_segments_below_the_log_start_are_deleted_but_never_the_last(
    start: int, count: int, policy: frozenset[str]
) -> None:
    settings = FOREVER._replace(cleanup_policy=policy)
    assert decided(stubs(10, 10, 10), settings, start=start) == [DeletionReason.START] * count


@pytest.mark.parametrize(("policy", "count"), [(frozenset(), 0), (COMPACTED, 0), (BOTH, 3), (frozenset({"delete"}), 3)])
def test_retention_applies_only_with_the_delete_policy(policy: frozenset[str], count: int) -> None:
    settings = LogSettings(retention_ms=0, retention_bytes=0, cleanup_policy=policy)
    assert len(decided(stubs(10, 10, 10), settings, now_ms=5000)) == count


@pytest.mark.parametrize(("high_watermark", "count"), [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3)])
def test_only_segments_completely_below_the_high_watermark_are_deleted(high_watermark: int, count: int) -> None:
    settings = FOREVER._replace(retention_bytes=0)
    assert len(decided(stubs(10, 10, 10), settings, high_watermark=high_watermark)) == count


def test_an_empty_active_segment_is_kept() -> None:
    settings = FOREVER._replace(retention_bytes=0, retention_ms=0)
    assert decided(stubs(10, 0), settings, now_ms=5000) == [DeletionReason.SIZE]
    assert decided(stubs(0), settings, now_ms=5000) == []


def test_timestamps_are_not_read_beyond_the_first_kept_segment() -> None:
    class Unreadable(Stub):
        def get_largest_timestamp(self) -> int:
            raise AssertionError("nobody needs this")

    segments = [Stub(0, newest_ms=0), Stub(10, newest_ms=5000), Unreadable(20)]
    assert decided(segments, FOREVER._replace(retention_ms=100), now_ms=1000) == [DeletionReason.TIME]
    assert decided([Unreadable(0)], FOREVER) == []


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=6),
    times=st.lists(st.integers(0, 100), min_size=6, max_size=6),
    start=st.integers(0, 60),
    retention_bytes=st.integers(-1, 200),
    retention_ms=st.integers(-1, 120),
)
def test_exactly_the_segments_beyond_the_retention_limits_are_deleted(
    sizes: list[int], times: list[int], start: int, retention_bytes: int, retention_ms: int
) -> None:
    segments = stubs(*sizes, newest_ms=times)
    settings = LogSettings(retention_bytes=retention_bytes, retention_ms=retention_ms)
    reasons = decided(segments, settings, start=min(start, 10 * len(sizes)), now_ms=100)
    left = segments[len(reasons) :]
    if left:
        first, *others = left
        assert not (others and others[0].base_offset <= start)
        assert retention_bytes < 0 or sum(each.size_bytes for each in others) < retention_bytes
        assert retention_ms < 0 or 100 - first.newest_ms <= retention_ms
    for reason, segment in zip(reasons, segments, strict=False):
        after = [other for other in segments if other.base_offset > segment.base_offset]
        assert {
            DeletionReason.START: bool(after) and after[0].base_offset <= start,
            DeletionReason.SIZE: 0 <= retention_bytes <= sum(other.size_bytes for other in after),
            DeletionReason.TIME: 0 <= retention_ms < 100 - segment.newest_ms,
        }[reason]


# --- what the log does ------------------------------------------------------------------------------------------------


def rolled(tmp_path: Path, surroundings: Surroundings, settings: LogSettings = FOREVER) -> Log:
    """Three segments of one batch of two records each, the records of each a second newer."""
    log = open_at(tmp_path, settings, surroundings=surroundings)
    for index in range(3):
        append(log, batch(2, timestamp=NOW_MS + 1000 * index), leader_epoch=index)
        if index < 2:
            log.roll_segment_if_used()
    return log


def test_a_log_deletes_its_old_segments_and_starts_after_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    surroundings = Surroundings()
    log = rolled(tmp_path, surroundings, FOREVER._replace(retention_ms=1500, file_delete_delay_ms=77))
    surroundings.now_ms = NOW_MS + 2000
    assert log.delete_old_segments() == 1
    assert (log.log_start_offset, log.segments[0].base_offset) == (2, 2)
    assert [offset for offset, _ in read_values(log)] == [2, 3, 4, 5]
    assert log.epochs.list_entries() == [(1, 2), (2, 4)]
    with pytest.raises(KafkaError) as raised:
        log.read(1, 100)
    assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert "00000000000000000000: the segment is deleted, as its records are older than retention.ms" in caplog.text
    assert (tmp_path / "00000000000000000000.log.deleted").exists()
    assert [delay_ms for delay_ms, _ in surroundings.scheduled] == [77]
    surroundings.run_scheduled()
    assert not list(tmp_path.glob("00000000000000000000.*"))
    assert log.delete_old_segments() == 0


@pytest.mark.skipif(not HAS_POSITIONED_IO, reason="a file that was removed cannot be read there")
def test_a_read_in_the_middle_of_a_deleted_segment_completes(tmp_path: Path) -> None:
    surroundings = Surroundings()
    log = rolled(tmp_path, surroundings)
    region = log.read(0, 1000)
    assert region is not None
    expected = region.read()
    log.update_settings(FOREVER._replace(retention_bytes=0))
    assert log.delete_old_segments() == 3
    surroundings.run_scheduled()
    assert region.read() == expected


def test_an_expired_active_segment_is_rolled_and_deleted(tmp_path: Path) -> None:
    surroundings = Surroundings()
    log = rolled(tmp_path, surroundings, FOREVER._replace(retention_ms=1000))
    surroundings.now_ms = NOW_MS + 60_000
    assert log.delete_old_segments() == 3
    assert (log.log_start_offset, log.log_end_offset) == (6, 6)
    assert [segment.base_offset for segment in log.segments] == [6]
    assert append(log, batch(1)) == 6
    log.close()
    assert read_values(open_at(tmp_path)) == [(6, b"v0")]


def test_a_segment_without_timestamps_is_as_old_as_its_file(tmp_path: Path) -> None:
    surroundings = Surroundings()
    log = open_at(tmp_path, FOREVER._replace(retention_ms=1000), surroundings=surroundings)
    append(log, batch(1, timestamp=-1))
    log.roll_segment_if_used()
    append(log, batch(1))
    os.utime(tmp_path / "00000000000000000000.log", ns=(0, NOW_MS * 1_000_000))
    surroundings.now_ms = NOW_MS + 1000
    assert log.delete_old_segments() == 0
    surroundings.now_ms = NOW_MS + 1001
    assert log.delete_old_segments() == 2


def test_producers_are_known_after_all_their_records_are_deleted(tmp_path: Path) -> None:
    surroundings = Surroundings()
    log = open_at(tmp_path, FOREVER._replace(retention_bytes=0), surroundings=surroundings)
    append(log, batch(3, producer_id=7, producer_epoch=0, base_sequence=0))
    log.delete_old_segments()
    log.close()
    log = open_at(tmp_path)
    assert dict(log.producers.iterate_entries())[7].batches[-1][1] == 2


def test_segments_below_a_raised_log_start_are_deleted_later(tmp_path: Path) -> None:
    surroundings = Surroundings()
    log = rolled(tmp_path, surroundings, FOREVER._replace(cleanup_policy=COMPACTED))
    log.close()
    log = open_at(tmp_path, FOREVER, surroundings=surroundings, log_start_offset=5)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    assert log.delete_old_segments() == 2
    assert (log.log_start_offset, [segment.base_offset for segment in log.segments]) == (5, [4])


def test_a_segment_that_cannot_be_renamed_is_kept_with_all_after_it(tmp_path: Path) -> None:
    disk = FailingDisk()
    surroundings = Surroundings(disk)
    log = rolled(tmp_path, surroundings, FOREVER._replace(retention_bytes=0))
    disk.failing, disk.suffix = {"rename"}, "00002.log.deleted"
    with pytest.raises(KafkaError) as raised:
        log.delete_old_segments()
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [segment.base_offset for segment in log.segments] == [2, 4, 6]
    assert (log.log_start_offset, log.log_end_offset) == (6, 6)
    disk.failing = set()
    assert log.delete_old_segments() == 2
    assert [segment.base_offset for segment in log.segments] == [6]


def test_an_index_that_cannot_be_renamed_is_left_to_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FailingDisk()
    surroundings = Surroundings(disk)
    log = rolled(tmp_path, surroundings)
    disk.failing, disk.suffix = {"rename"}, "00000.timeindex.deleted"
    log.delete_records_before(2)
    disk.failing = set()
    assert [segment.base_offset for segment in log.segments] == [2, 4]
    assert "an index is not removed before the next start" in caplog.text
    log.close()
    assert open_at(tmp_path).log_start_offset == 2
    assert not list(tmp_path.glob("00000000000000000000.*"))


# --- jitter -----------------------------------------------------------------------------------------------------------


def lifetimes(tmp_path: Path, jitter_ms: int) -> set[int]:
    """How many ms lie between the first records of segments of segment.ms=100, a record being appended every ms."""
    log = open_at(tmp_path, LogSettings(segment_ms=100, segment_jitter_ms=jitter_ms, segment_index_bytes=1 << 20))
    begun = []
    for time_ms in range(NOW_MS, NOW_MS + 8000):
        count = len(log.segments)
        append(log, batch(1, timestamp=time_ms))
        if len(log.segments) > count:
            begun.append(time_ms)
    return {later - earlier for earlier, later in pairwise(begun)}


def test_segments_are_rolled_after_segment_ms_minus_the_jitter(tmp_path: Path) -> None:
    assert lifetimes(tmp_path / "none", 0) == {101}
    jittered = lifetimes(tmp_path / "some", 5)
    assert jittered <= {97, 98, 99, 100, 101} and len(jittered) > 1
