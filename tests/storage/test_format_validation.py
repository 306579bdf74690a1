"""Produced records of any format for logs of any format: what is stored, with which offsets, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import CREATE_TIME, LOG_APPEND_TIME
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.conversion import build_records_in_format
from minibroker.protocol.records.formats import check_batch_or_message, iterate_batches_in_any_format
from minibroker.protocol.records.message import encode_message, read_message, set_message_offset
from minibroker.protocol.records.message_set import build_message_set, iterate_headers_of_set
from minibroker.protocol.records.record import Record
from minibroker.protocol.steps import run_all_steps
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.validation import validate_records_in_steps
from tests.cases import for_each
from tests.protocol.records.samples import damaged
from tests.protocol.records.test_conversion import MAGICS, bare, records_of_data
from tests.protocol.records.test_message_set import CODECS, FORMATS, OLD, named
from tests.protocol.records.test_message_set import SMALL as GOLDEN_SMALL
from tests.storage.support import NOW_MS, batch, offset_for_timestamp, open_at, validate_records

VERSIONS = {0: 0, 1: 2, 2: 9}  # of Produce, by format
RECORDS = [Record(offset, NOW_MS + offset, b"k%d" % offset, b"v" * offset) for offset in range(5)]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = open_at(tmp_path)
    log.append(batch(7), (check_batch_or_message(batch(7)),), 0)
    return log


def append(
    log: Log, data: bytes | bytearray, *, api_version: int = 2, now_ms: int = NOW_MS, **settings: object
) -> memoryview:
    """Validate and append what a producer sends; what was stored."""
    log.update_settings(LogSettings(**settings))  # type: ignore[arg-type]
    first_offset = log.log_end_offset
    view = memoryview(bytearray(data))
    validated, headers = validate_records(log, view, api_version=api_version, now_ms=now_ms)
    assert sum(header.size_bytes for header in headers) == len(validated)
    assert log.append(validated, headers, 3) == first_offset
    stored = log.read(first_offset, 1 << 20)
    assert stored is not None
    assert stored.read() == validated
    assert log.log_end_offset == first_offset + sum(header.last_offset_delta + 1 for header in headers)
    return validated


def refused(log: Log, data: bytes | bytearray, *, api_version: int = 2, **settings: object) -> KafkaError:
    end_offset = log.log_end_offset
    with pytest.raises(KafkaError) as raised:
        append(log, data, api_version=api_version, **settings)
    assert log.log_end_offset == end_offset
    return raised.value


def moved(records: list[Record], offset: int) -> list[Record]:
    return [record._replace(offset=offset + index) for index, record in enumerate(records)]


@pytest.mark.parametrize("magic", MAGICS)
def test_a_batch_truncated_in_its_header_is_corrupt(log: Log, magic: int) -> None:
    data = build_records_in_format(RECORDS, magic)
    for size_bytes in range(1, 18):
        error = refused(log, data[:size_bytes], message_format_version=1)
        assert error.code == ErrorCode.CORRUPT_MESSAGE, size_bytes


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("target", MAGICS)
@pytest.mark.parametrize("source", MAGICS)
def test_records_of_every_format_are_converted_to_that_of_the_log(
    log: Log, source: int, target: int, codec: int
) -> None:
    data = build_records_in_format(RECORDS, source, compression=codec)
    stored = append(log, data, api_version=VERSIONS[source], message_format_version=target)
    headers = [header for _, header in iterate_batches_in_any_format(stored)]
    assert {(header.magic, header.compression) for header in headers} == {(target, codec)}
    for position, _ in iterate_batches_in_any_format(stored):
        check_batch_or_message(stored, position)
    assert records_of_data(bytes(stored)) == moved(bare(bare(RECORDS, source), target), 7)
    assert headers[-1].last_offset == 11
    assert len(headers) == (5 if codec == 0 and target < 2 else 1)


@for_each("name", [name for name in OLD if "small" in name])
def test_message_sets_of_old_clients_are_accepted(log: Log, name: str) -> None:
    version, *_ = name.split()
    for target in MAGICS:
        offset = log.log_end_offset
        stored = append(log, OLD[name], message_format_version=target)
        expected = bare(named(FORMATS[version], GOLDEN_SMALL), target)
        assert records_of_data(bytes(stored)) == moved(expected, offset)


def test_headers_are_lost_in_older_formats(log: Log) -> None:
    data = build_batch([RECORDS[0]._replace(headers=(("a", b"1"),))])
    assert records_of_data(bytes(append(log, data, message_format_version=1))) == [RECORDS[0]._replace(offset=7)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("target", [0, 1])
def test_offset_deltas_that_are_not_consecutive_are_reassigned(log: Log, target: int, codec: int) -> None:
    sent = [record._replace(offset=offset) for record, offset in zip(RECORDS, (5, 5, 2), strict=False)]
    data = build_batch(sent, keep_offsets=True, compression=codec)
    stored = append(log, data, message_format_version=target)
    assert records_of_data(bytes(stored)) == moved(bare(sent, target), 7)


@pytest.mark.parametrize("target", [0, 1])
def test_a_compression_level_applies_to_older_formats(log: Log, target: int) -> None:
    data = build_records_in_format(
        [Record(number, NOW_MS, None, b"some words and %d " % number**3) for number in range(200)], target
    )
    settings = {"message_format_version": target, "compression_type": "gzip"}
    fast, small = (len(append(log, data, **settings, compression_gzip_level=level)) for level in (1, 9))
    assert small < fast


def test_a_wrapper_with_relative_offsets_is_not_recompressed(log: Log) -> None:
    inner = b"".join(encode_message(1, r.offset, r.timestamp, 0, r.key, r.value) for r in RECORDS)
    value = gzip.compress(inner, 1, mtime=77)  # which nobody else would write like that
    stored = append(log, encode_message(1, 4, NOW_MS + 4, 1, None, value), message_format_version=1)
    wrapper, _ = read_message(bytes(stored))
    assert (wrapper.offset, wrapper.timestamp, wrapper.value) == (11, NOW_MS + 4, value)


@pytest.mark.parametrize("offsets", [[0, 0, 0], [0, 2, 4], [3, 4, 5], [2, 1, 0]])
def test_offsets_in_a_wrapper_that_do_not_ascend_from_zero_are_reassigned(log: Log, offsets: list[int]) -> None:
    inner = b"".join(encode_message(1, offset, NOW_MS, 0, b"%d" % at, b"") for at, offset in enumerate(offsets))
    data = encode_message(1, max(offsets), NOW_MS, Compression.GZIP, None, gzip.compress(inner))
    stored = append(log, data, message_format_version=1)
    assert [(record.offset, record.key) for record in records_of_data(bytes(stored))] == [
        (7, b"0"),
        (8, b"1"),
        (9, b"2"),
    ]


def test_a_wrapper_of_format_0_is_recompressed_with_absolute_offsets(log: Log) -> None:
    stored = append(log, build_message_set(RECORDS, 0, compression=Compression.GZIP), message_format_version=0)
    assert [record.offset for record in records_of_data(bytes(stored))] == [7, 8, 9, 10, 11]


def test_uncompressed_messages_get_their_offsets_in_place(log: Log) -> None:
    for magic in (0, 1):
        data, offset = build_message_set(RECORDS, magic), log.log_end_offset
        stored = append(log, data, message_format_version=magic)
        for index, (position, _) in enumerate(iterate_headers_of_set(data)):
            set_message_offset(data, position, offset + index)
        assert stored == data


@pytest.mark.parametrize("source", [0, 1])
@pytest.mark.parametrize("target", MAGICS)
def test_the_topics_codec_is_applied(log: Log, source: int, target: int) -> None:
    for codec, kind in ((0, "uncompressed"), (1, "gzip"), (2, "snappy"), (3, "lz4")):
        for came in CODECS:
            data, offset = build_message_set(RECORDS, source, compression=came), log.log_end_offset
            stored = append(log, data, message_format_version=target, compression_type=kind)
            assert {header.compression for _, header in iterate_batches_in_any_format(stored)} == {codec}
            assert records_of_data(bytes(stored)) == moved(bare(bare(RECORDS, source), target), offset)


@for_each("codec", CODECS)
@for_each("target", MAGICS)
@for_each("source", MAGICS)
def test_log_append_time_is_set_where_the_format_has_timestamps(log: Log, source: int, target: int, codec: int) -> None:
    data = build_records_in_format(RECORDS, source, compression=codec)
    stored = append(
        log,
        data,
        api_version=VERSIONS[source],
        now_ms=NOW_MS + 500,
        message_format_version=target,
        message_timestamp_type=LOG_APPEND_TIME,
    )
    expected = {NOW_MS + 500} if target else {-1}
    assert {header.timestamp_type for _, header in iterate_batches_in_any_format(stored)} == {
        LOG_APPEND_TIME if target else CREATE_TIME
    }
    assert {header.max_timestamp for _, header in iterate_batches_in_any_format(stored)} == expected
    assert {record.timestamp for record in records_of_data(bytes(stored))} == expected


@for_each("codec", CODECS)
@for_each("settings", [{}, {"message_timestamp_type": LOG_APPEND_TIME}])
def test_a_producer_cannot_set_log_append_time(log: Log, codec: int, settings: dict[str, int]) -> None:
    records = [record._replace(timestamp=-1) for record in RECORDS]
    data = build_message_set(records, 1, compression=codec, timestamp_type=LOG_APPEND_TIME)
    error = refused(log, data, message_format_version=1, **settings)
    assert error.code == ErrorCode.INVALID_TIMESTAMP


@for_each("codec", CODECS)
@for_each(("source", "target"), [(1, 1), (1, 2), (1, 0), (2, 1)])
def test_timestamps_must_be_within_bounds(log: Log, source: int, target: int, codec: int) -> None:
    data = build_records_in_format(RECORDS, source, compression=codec)
    settings = {"message_format_version": target, "message_timestamp_after_max_ms": 3}
    error = refused(log, data, api_version=VERSIONS[source], **settings)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [4]  # type: ignore[attr-defined]


def test_a_record_without_a_timestamp_is_accepted_whatever_the_bounds(log: Log) -> None:
    data = build_message_set([Record(0, -1, b"k", b"")], 1)
    settings = {"message_timestamp_before_max_ms": 0, "message_timestamp_after_max_ms": 0}
    assert records_of_data(bytes(append(log, data, message_format_version=1, **settings)))[0].timestamp == -1


@for_each("codec", CODECS)
@for_each(("source", "target"), [(0, 0), (0, 2), (1, 1), (2, 0)])
def test_a_compacted_topic_rejects_records_without_a_key(log: Log, source: int, target: int, codec: int) -> None:
    data = build_records_in_format([RECORDS[0], RECORDS[1]._replace(key=None)], source, compression=codec)
    settings = {"message_format_version": target, "cleanup_policy": frozenset({"compact"})}
    error = refused(log, data, api_version=VERSIONS[source], **settings)
    assert error.code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.record_errors] == [1]  # type: ignore[attr-defined]


@pytest.mark.parametrize("target", [0, 1])
@pytest.mark.parametrize("options", [{}, {"transactional": True}])
def test_idempotent_producers_require_format_2(log: Log, target: int, options: dict[str, bool]) -> None:
    for producer_id in (0, 4):
        data = build_batch(RECORDS, producer_id=producer_id, producer_epoch=0, base_sequence=0, **options)
        error = refused(log, data, api_version=9, message_format_version=target)
        assert error.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_newer_produce_versions_require_format_2(log: Log) -> None:
    for target in MAGICS:
        for magic in (0, 1):
            data = build_message_set(RECORDS, magic)
            error = refused(log, data, api_version=3, message_format_version=target)
            assert error.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("target", [0, 1])
def test_zstd_is_rejected_for_older_formats(log: Log, target: int) -> None:
    data = build_batch(RECORDS, compression=Compression.ZSTD)
    error = refused(log, data, api_version=9, message_format_version=target)
    assert error.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    error = refused(log, build_batch(RECORDS), api_version=9, message_format_version=target, compression_type="zstd")
    assert error.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    error = refused(log, data, api_version=6, message_format_version=target, compression_type="gzip")
    assert error.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


ONE = build_message_set(RECORDS[:1], 1)
WRAPPED = build_message_set(RECORDS, 1, compression=Compression.GZIP)


@for_each(
    ("data", "code"),
    [
        (b"", ErrorCode.CORRUPT_MESSAGE),
        (ONE[:-1], ErrorCode.CORRUPT_MESSAGE),
        (ONE[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        (ONE + build_message_set(RECORDS[:1], 0), ErrorCode.INVALID_RECORD),
        (WRAPPED + WRAPPED, ErrorCode.INVALID_RECORD),
        (WRAPPED + ONE, ErrorCode.INVALID_RECORD),
        (ONE + WRAPPED, ErrorCode.INVALID_RECORD),
        (encode_message(1, 0, NOW_MS, 1, None, gzip.compress(bytes(WRAPPED))), ErrorCode.INVALID_RECORD),
        (encode_message(1, 0, NOW_MS, 4, None, b""), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
@for_each("target", MAGICS)
def test_invalid_message_sets_are_rejected(log: Log, data: bytes, code: ErrorCode, target: int) -> None:
    assert refused(log, data, message_format_version=target).code == code


def test_a_partial_message_at_the_end_is_dropped(log: Log) -> None:
    stored = append(log, ONE + ONE[:20], message_format_version=1)
    assert len(records_of_data(bytes(stored))) == 1


def test_each_message_is_limited_by_the_topics_maximum_size(log: Log) -> None:
    data = build_message_set([Record(0, NOW_MS, b"", bytes(100)), Record(1, NOW_MS, b"", bytes(100))], 1)
    append(log, data, message_format_version=1, max_message_bytes=134)
    assert refused(log, data, message_format_version=1, max_message_bytes=133).code == ErrorCode.MESSAGE_TOO_LARGE
    error = refused(log, data, message_format_version=2, max_message_bytes=134)  # the batch is larger than each message
    assert error.code == ErrorCode.MESSAGE_TOO_LARGE
    error = refused(log, data, message_format_version=1, segment_bytes=200)
    assert error.code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_old_formats_have_no_leader_epochs(log: Log) -> None:
    append(log, ONE, message_format_version=1)
    assert log.epochs.latest == -1 or log.epochs.find_end_offset(3, log.log_end_offset) == (-1, -1)
    append(log, ONE, message_format_version=2)
    assert log.epochs.latest == 3


def test_a_log_of_mixed_formats_is_read_from_every_offset_and_searched_by_time(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    for target in (0, 2, 1, 0, 1, 2):
        for codec in CODECS:
            append(log, build_message_set(RECORDS, 1, compression=codec), message_format_version=target)
    count = log.log_end_offset
    assert count == 6 * 4 * 5
    for reopened in (False, True):
        if reopened:
            log.close()
            log = open_at(tmp_path, LogSettings(index_interval_bytes=100), clean=False)
        for offset in range(count):
            region = log.read(offset, 1)
            assert region is not None
            found = records_of_data(region.read())
            assert offset in [record.offset for record in found]
        region = log.read(0, 1 << 20)
        assert region is not None
        assert [record.offset for record in records_of_data(region.read())] == list(range(count))
        by_time = offset_for_timestamp(log, NOW_MS + 2)
        assert by_time is not None
        assert (by_time.offset, by_time.timestamp) == (22, NOW_MS + 2)
    log.truncate_to(63)
    assert log.log_end_offset <= 63
    region = log.read(0, 1 << 20)
    assert region is not None
    assert [record.offset for record in records_of_data(region.read())] == list(
        range(60 + (log.log_end_offset > 60) * 3)
    )


@given(st.randoms(use_true_random=False), st.sampled_from(MAGICS), st.sampled_from(sorted(OLD)))
def test_corrupt_messages_are_never_accepted_and_do_not_crash_the_broker(
    tmp_path_factory: pytest.TempPathFactory, random: object, target: int, name: str
) -> None:
    log = open_at(tmp_path_factory.mktemp("log"))
    data = damaged(random, OLD[name][:2000])  # type: ignore[arg-type]
    try:
        stored = append(log, data, message_format_version=target)
    except KafkaError:
        return
    assert [record.offset for record in records_of_data(bytes(stored))] == list(range(log.log_end_offset))


@pytest.mark.parametrize("target, codec", [(0, 0), (1, 0), (0, 1), (1, 1), (2, 1)])
def test_offsets_follow_the_log_end_even_if_the_log_grows_during_validation(log: Log, target: int, codec: int) -> None:
    log.update_settings(LogSettings(message_format_version=target))
    sent = [Record(offset, NOW_MS, b"k", b"v") for offset in range(1000)]
    view = memoryview(bytearray(build_records_in_format(sent, 1, compression=codec)))
    steps = validate_records_in_steps(log, view, api_version=2, now_ms=NOW_MS)
    for turn in range(3):
        next(steps)
        other = memoryview(bytearray(build_records_in_format([Record(value=b"other")], 0)))
        log.append(*validate_records(log, other, api_version=0, now_ms=NOW_MS), 0)
        log.update_settings(LogSettings(message_format_version=(target + turn) % 3))  # the one of the begin counts
    taken, headers = run_all_steps(steps)
    first_offset = log.append(taken, headers, 3)
    assert log.read(first_offset, 1 << 20) is not None
    assert headers[0].magic == target
    assert [record.offset for record in records_of_data(bytes(taken))] == list(range(first_offset, first_offset + 1000))
