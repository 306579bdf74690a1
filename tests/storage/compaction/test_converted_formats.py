"""Messages of formats 0 and 1, as logs have them that were begun long ago: what stays of them becomes format 2."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Record
from minibroker.storage.log import Log
from tests.storage.compaction.support import SETTINGS, clean, contents, fill, log_headers, log_records, pairs
from tests.storage.support import NOW_MS, append, open_at

CODECS = (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
HOUR_MS = 3_600_000


def records(*given: tuple[str | None, str | None], first_offset: int = 0) -> list[Record]:
    return [
        Record(first_offset + index, NOW_MS + index, key and key.encode(), value and value.encode(), ())  # type: ignore[arg-type]
        for index, (key, value) in enumerate(given)
    ]


def write_segment(directory: Path, base_offset: int, data: bytes, *, modified_ms: int = NOW_MS) -> None:
    directory.mkdir(exist_ok=True)
    path = directory / f"{base_offset:020d}.log"
    path.write_bytes(data)
    os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))


def opened(directory: Path, **settings: int) -> Log:
    """The log of the segments that were written, and a new one."""
    log = open_at(directory, SETTINGS._replace(**settings))  # type: ignore[arg-type]
    log.roll_segment_if_used()
    return log


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_the_latest_record_of_each_key_keeps_offset_timestamp_and_codec(
    tmp_path: Path, magic: int, codec: Compression
) -> None:
    old = records(("a", "1"), ("b", "2"), ("a", "3"), ("c", "4"), ("b", "5"))
    write_segment(tmp_path, 0, bytes(build_message_set(old, magic, compression=codec)))
    log = opened(tmp_path)
    clean(log)
    assert contents(log) == [(2, "a", "3"), (3, "c", "4"), (4, "b", "5")]
    assert {(header.magic, header.compression) for header in log_headers(log)} == {(2, codec)}
    times = [NOW_MS + 2, NOW_MS + 3, NOW_MS + 4] if magic else [-1] * 3
    assert [record.timestamp for record in log_records(log)] == times
    assert log.clean_offset == log.log_end_offset == 5


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_that_are_kept_completely_are_converted(tmp_path: Path, magic: int, codec: Compression) -> None:
    old = records(("a", "1"), ("b", "2"))
    write_segment(tmp_path, 0, bytes(build_message_set(old, magic, compression=codec)))
    log = opened(tmp_path)
    clean(log)
    assert contents(log) == [(0, "a", "1"), (1, "b", "2")]
    assert {header.magic for header in log_headers(log)} == {2}
    assert {header.delete_horizon_ms for header in log_headers(log)} == {None}


def test_a_tombstone_converted_into_a_batch_gets_a_delete_horizon(tmp_path: Path) -> None:
    data = build_message_set(records(("a", "1"), ("b", None)), 1, compression=Compression.GZIP)
    write_segment(tmp_path, 0, bytes(data))
    log = opened(tmp_path, delete_retention_ms=1000)
    clean(log)
    assert [header.delete_horizon_ms for header in log_headers(log)] == [NOW_MS + 1000]
    assert [record.timestamp for record in log_records(log)] == [NOW_MS, NOW_MS + 1]
    fill(log, [pairs(("c", "3"))])
    clean(log, NOW_MS + 999)
    assert contents(log) == [(0, "a", "1"), (1, "b", None), (2, "c", "3")]
    fill(log, [pairs(("d", "4"))])
    clean(log, NOW_MS + 1000)
    assert contents(log) == [(0, "a", "1"), (2, "c", "3"), (3, "d", "4")]


def test_newer_batches_supersede_older_messages_and_vice_versa(tmp_path: Path) -> None:
    first = build_message_set(records(("a", "old"), ("b", "old")), 1, compression=Compression.LZ4)
    second = build_batch(records(("a", "new"), ("c", "new"), first_offset=2), base_offset=2)
    third = build_message_set(records(("c", "last"), first_offset=4), 0)
    write_segment(tmp_path, 0, bytes(first + second + third))
    log = opened(tmp_path)
    append(log, pairs(("b", "newest")))
    log.roll_segment_if_used()
    clean(log)
    assert contents(log) == [(2, "a", "new"), (4, "c", "last"), (5, "b", "newest")]


def test_records_without_a_key_are_removed(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, bytes(build_message_set(records((None, "1"), ("a", "2"), (None, "3")), 1)))
    log = opened(tmp_path)
    assert clean(log).rewriter.counts.keyless_records == 2  # type: ignore[union-attr]
    assert contents(log) == [(1, "a", "2")]


@pytest.mark.parametrize(("age_ms", "stays"), [(HOUR_MS - 1, True), (HOUR_MS, False)])
def test_old_format_tombstones_are_removed_by_the_age_of_their_segment(
    tmp_path: Path, age_ms: int, stays: bool
) -> None:
    write_segment(tmp_path, 0, bytes(build_message_set(records(("a", None)), 1)), modified_ms=NOW_MS - age_ms)
    write_segment(tmp_path, 1, bytes(build_message_set(records(("b", "1"), first_offset=1), 1)))
    log = opened(tmp_path, delete_retention_ms=HOUR_MS, segment_bytes=10)
    log.clean_offset = 2  # by a version of Kafka that left the format alone
    append(log, pairs(("c", "2")))
    log.roll_segment_if_used()
    clean(log)
    assert contents(log) == [(0, "a", None)] * stays + [(1, "b", "1"), (2, "c", "2")]


def test_the_first_cleaning_of_a_log_keeps_old_format_tombstones(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, bytes(build_message_set(records(("a", None)), 1)), modified_ms=NOW_MS - HOUR_MS)
    log = opened(tmp_path, delete_retention_ms=0)
    clean(log)
    assert contents(log) == [(0, "a", None)]


def test_log_append_time_is_kept_for_all_messages_in_a_wrapper(tmp_path: Path) -> None:
    old = [record._replace(timestamp=NOW_MS) for record in records(("a", "1"), ("a", "2"))]
    data = build_message_set(old, 1, compression=Compression.GZIP, timestamp_type=1)
    write_segment(tmp_path, 0, bytes(data))
    log = opened(tmp_path)
    clean(log)
    (header,) = log_headers(log)
    assert (header.timestamp_type, header.max_timestamp) == (1, NOW_MS)
    assert contents(log) == [(1, "a", "2")]


@given(
    parts=st.lists(
        st.tuples(
            st.sampled_from([0, 1, 2]),
            st.sampled_from(CODECS),
            st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["v", None])), min_size=1, max_size=5),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_only_superseded_records_are_removed_in_any_format(
    tmp_path_factory: pytest.TempPathFactory, parts: Sequence[tuple[int, Compression, list[tuple[str, str | None]]]]
) -> None:
    directory = tmp_path_factory.mktemp("log")
    data, offset, written = bytearray(), 0, []
    for magic, codec, given_records in parts:
        made = records(*given_records, first_offset=offset)
        if magic == 2:
            data += build_batch(made, base_offset=offset, compression=codec)
        else:
            data += build_message_set(made, magic, compression=codec)
        offset += len(made)
        written += made
    write_segment(directory, 0, bytes(data))
    log = opened(directory)
    clean(log)
    latest = {record.key: record.offset for record in written}
    expected = [(record.offset, record.key, record.value) for record in written if latest[record.key] == record.offset]
    assert [(record.offset, record.key, record.value) for record in log_records(log)] == expected
