"""Compaction of messages of formats 0 and 1, plain and in wrappers, beside batches of format 2: offsets stay.

What becomes of them in a log whose own format is 2 is tested in `test_converted_formats.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.records.batch import BatchHeader
from minibroker.protocol.records.conversion import build_records_in_format
from minibroker.protocol.records.formats import (
    check_batch_or_message,
    iterate_batches_in_any_format,
    iterate_records_in_any_format,
)
from minibroker.protocol.records.message import read_message
from minibroker.protocol.records.message_set import decompress_inner_messages, iterate_messages_in
from minibroker.protocol.records.record import Record
from minibroker.storage.log import Log
from minibroker.storage.names import LOG_SUFFIX
from tests.protocol.records.test_conversion import MAGICS
from tests.protocol.records.test_message_set import CODECS
from tests.storage.compaction.support import SETTINGS, Pair, clean
from tests.storage.support import NOW_MS, open_at, validate_records

DAY_MS = 86_400_000


def write(log: Log, magic: int, codec: int, *pairs: Pair) -> None:
    """Append (key, value) records in a format, in a segment of their own."""
    log.update_settings(log.settings._replace(message_format_version=magic))
    records = [
        Record(index, NOW_MS + index, key and key.encode(), value and value.encode())
        for index, (key, value) in enumerate(pairs)
    ]
    source = min(magic, 1)
    data = memoryview(build_records_in_format(records, source, compression=codec))
    log.append(*validate_records(log, data, api_version=2, now_ms=NOW_MS), 0)
    log.roll_segment_if_used()


def stored(log: Log) -> Iterator[tuple[BatchHeader, bytes]]:
    for segment in log.segments:
        data = segment.file.read(0, segment.size_bytes)
        for position, header in iterate_batches_in_any_format(data):
            batch = data[position : position + header.size_bytes]
            assert check_batch_or_message(batch) == header
            yield header, batch


def contents(log: Log) -> list[tuple[int, str | None, str | None]]:
    return [
        (record.offset, record.key and record.key.decode(), record.value and record.value.decode())
        for _, batch in stored(log)
        for record in iterate_records_in_any_format(batch)
    ]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", MAGICS)
def test_the_latest_value_of_each_key_is_kept_at_its_offset(tmp_path: Path, magic: int, codec: int) -> None:
    log = open_at(tmp_path, SETTINGS)
    write(log, magic, codec, ("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", "2"))
    write(log, magic, codec, ("b", "3"), ("d", "1"))
    clean(log)
    assert contents(log) == [(2, "a", "2"), (3, "c", "1"), (5, "b", "3"), (6, "d", "1")]
    assert {(header.magic, header.compression) for header, _ in stored(log)} == {(magic, codec)}
    for offset in range(7):
        region = log.read(offset, 1)
        assert region is not None
        assert max(header.last_offset for _, header in iterate_batches_in_any_format(region.read())) >= offset
    log.close()
    assert contents(open_at(tmp_path, SETTINGS, clean=False)) == [
        (2, "a", "2"),
        (3, "c", "1"),
        (5, "b", "3"),
        (6, "d", "1"),
    ]


def test_offsets_in_a_wrapper_keep_their_gaps(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS)
    write(log, 1, 1, ("a", "1"), ("b", "1"), ("x", "1"), ("c", "1"), ("x", "1"))
    write(log, 1, 1, ("a", "2"), ("x", "2"))
    clean(log)
    (_, first), _ = stored(log)
    wrapper, _ = read_message(first)
    assert wrapper.offset == 3
    assert [message.offset for message in iterate_messages_in(wrapper, decompress_inner_messages(wrapper))] == [0, 2]
    assert [record.offset for record in iterate_records_in_any_format(first)] == [1, 3]


def test_a_batch_that_is_kept_completely_is_unchanged(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS)
    for magic in MAGICS:
        write(log, magic, 1, (f"{magic}a", "1"), (f"{magic}b", "1"))
    log.update_settings(log.settings._replace(message_format_version=0))
    before = [batch for _, batch in stored(log)]
    clean(log)
    assert [batch for _, batch in stored(log)] == before


@pytest.mark.parametrize("magic", [0, 1])
def test_records_without_a_key_are_removed(tmp_path: Path, magic: int) -> None:
    log = open_at(tmp_path, SETTINGS._replace(cleanup_policy=frozenset({"delete"})))
    write(log, magic, 0, (None, "1"), ("a", "1"), (None, "2"))
    log.update_settings(SETTINGS)
    clean(log)
    assert contents(log) == [(1, "a", "1")]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("older_ms", "stays"), [(DAY_MS - 1, True), (DAY_MS, False)])
def test_tombstones_are_kept_by_the_modification_times_of_files(
    tmp_path: Path, magic: int, older_ms: int, stays: bool
) -> None:
    log = open_at(tmp_path, SETTINGS)
    large = "v" * 300  # so that segments stay apart
    write(log, magic, 0, ("a", None), ("b", large))
    write(log, magic, 0, ("c", large))
    clean(log)
    assert contents(log) == [(0, "a", None), (1, "b", large), (2, "c", large)]
    with_tombstone, last_clean, _ = log.segments
    log.environment.disk.set_modified_ms(with_tombstone.path + LOG_SUFFIX, NOW_MS - older_ms)
    log.environment.disk.set_modified_ms(last_clean.path + LOG_SUFFIX, NOW_MS)
    write(log, magic, 0, ("d", large))
    clean(log)
    assert ((0, "a", None) in contents(log)) == stays


@given(st.data())
def test_the_same_records_are_kept_in_all_formats(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    keys, values = st.sampled_from("abcd"), st.sampled_from(["1", "2", "3"])
    batches = data.draw(st.lists(st.lists(st.tuples(keys, values), min_size=1, max_size=6), min_size=1, max_size=5))
    kinds = st.tuples(st.sampled_from(MAGICS), st.sampled_from(CODECS))
    log = open_at(tmp_path_factory.mktemp("log"), SETTINGS)
    latest: dict[str, tuple[int, str]] = {}
    offset = 0
    for pairs in batches:
        write(log, *data.draw(kinds), *pairs)
        for key, value in pairs:
            latest[key] = offset, value
            offset += 1
    clean(log)
    found = contents(log)
    assert sorted((offset, key, value) for key, (offset, value) in latest.items()) == found
    assert log.log_end_offset == offset
