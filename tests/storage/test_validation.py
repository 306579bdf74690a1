"""What a produced batch may be refused for, with which code, and what a topic's settings change in one that is taken.

The records' own rules are tested with the protocol's `validation.py`; here is one case of each.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.errors import ErrorCode, InvalidRecords, KafkaError
from minibroker.protocol.records.batch import LOG_APPEND_TIME, BatchHeader, check_batch, set_checksum
from minibroker.protocol.records.building import assemble_batch, build_batch, encode_record
from minibroker.protocol.records.compression import Compression, compress
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record
from minibroker.protocol.steps import run_all_steps
from minibroker.storage.log import Log
from minibroker.storage.log_settings import MAX_LONG, LogSettings
from minibroker.storage.validation import validate_records_in_steps
from tests.cases import for_each
from tests.protocol.records.samples import T, similar_records
from tests.sampling import sampled
from tests.storage.support import NOW_MS, batch, open_at, records, validate_records

HOUR_MS = 3_600_000
INT32, INT16, INT64 = Struct(">i"), Struct(">h"), Struct(">q")


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_at(tmp_path)


def validated(
    log: Log, data: bytes | bytearray, *, api_version: int = 9, **settings: object
) -> tuple[memoryview, BatchHeader]:
    log.update_settings(LogSettings(**settings))  # type: ignore[arg-type]
    batch_to_append, headers = validate_records(
        log, memoryview(bytearray(data)), api_version=api_version, now_ms=NOW_MS
    )
    assert headers == (check_batch(batch_to_append),)
    assert len(batch_to_append) == headers[0].size_bytes
    return batch_to_append, headers[0]


def refused(log: Log, data: bytes | bytearray, *, api_version: int = 9, **settings: object) -> KafkaError:
    with pytest.raises(KafkaError) as raised:
        validated(log, data, api_version=api_version, **settings)
    return raised.value


def changed(data: bytearray, position: int, field: Struct, value: int) -> bytearray:
    """A batch with one field of its header set, and its checksum right."""
    field.pack_into(data, position, value)
    set_checksum(data, 0, len(data))
    return data


@pytest.mark.parametrize("compression", list(Compression))
def test_a_valid_batch_is_accepted_unchanged(log: Log, compression: Compression) -> None:
    data = batch(3, compression=compression)
    view = memoryview(data)
    taken, headers = validate_records(log, view, api_version=9, now_ms=NOW_MS)
    assert taken is view
    assert headers == (check_batch(data),)


# --- the batch --------------------------------------------------------------------------------------------------------


def test_bytes_that_are_no_valid_batch_are_corrupt(log: Log) -> None:
    good = batch(2)
    flipped = bytearray(good)
    flipped[-1] ^= 1
    too_short = bytearray(good)
    INT32.pack_into(too_short, 8, 48)
    old = bytearray(good)
    old[16] = 1
    for data in (b"", b"\0" * 10, good[:-1], flipped, too_short, old):
        assert refused(log, data).code == ErrorCode.CORRUPT_MESSAGE


def test_more_than_one_batch_is_rejected(log: Log) -> None:
    assert refused(log, batch(1) + batch(1)).code == ErrorCode.INVALID_RECORD
    damaged = batch(1)
    damaged[-1] ^= 1
    assert refused(log, batch(1) + damaged).code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("rest", [b"\0", batch(1)[:60], batch(1)[:-1]])
def test_an_incomplete_batch_after_the_first_is_dropped(log: Log, rest: bytes) -> None:
    taken, _ = validated(log, batch(2) + rest)
    assert taken == batch(2)


def test_a_batch_whose_base_offset_is_not_zero_is_rejected(log: Log) -> None:
    error = refused(log, batch(1, base_offset=5))
    assert error.code == ErrorCode.INVALID_RECORD
    assert error.message == "The baseOffset of the record batch should be 0, but it is 5"


@pytest.mark.parametrize("count", [1, 3, 0, -1])
def test_the_record_count_must_match_the_offsets(log: Log, count: int) -> None:
    assert refused(log, changed(batch(2), 57, INT32, count)).code == ErrorCode.INVALID_RECORD
    assert refused(log, changed(batch(2), 23, INT32, count - 1)).code == ErrorCode.INVALID_RECORD


def test_clients_cannot_write_control_batches(log: Log) -> None:
    assert refused(log, batch(1, control=True)).code == ErrorCode.INVALID_RECORD


def test_a_producer_id_requires_a_sequence(log: Log) -> None:
    assert refused(log, batch(1, producer_id=7, producer_epoch=0)).code == ErrorCode.INVALID_RECORD
    validated(log, batch(1, producer_id=7, producer_epoch=0, base_sequence=0))


def test_a_batch_is_limited_by_the_topics_maximum_size(log: Log) -> None:
    data = batch(1, value=b"x" * 1000)
    validated(log, data, max_message_bytes=len(data))
    error = refused(log, data, max_message_bytes=len(data) - 1)
    assert error.code == ErrorCode.MESSAGE_TOO_LARGE
    assert error.message is not None and str(len(data)) in error.message


def test_a_batch_larger_than_a_segment_is_rejected(log: Log) -> None:
    data = batch(1, value=b"x" * 1000)
    validated(log, data, segment_bytes=len(data))
    assert refused(log, data, segment_bytes=len(data) - 1).code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_zstd_is_accepted_from_produce_version_7_on(log: Log) -> None:
    data = batch(1, compression=Compression.ZSTD)
    assert refused(log, data, api_version=6).code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    validated(log, data, api_version=7)
    validated(log, batch(1, compression=Compression.LZ4), api_version=3)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_batch_of_an_unknown_codec_is_rejected(log: Log, codec: int) -> None:
    assert refused(log, changed(batch(1), 21, INT16, codec)).code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


# --- the records ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", list(Compression))
def test_records_that_cannot_be_parsed_are_invalid(log: Log, compression: Compression) -> None:
    data = build_batch([Record(value=b"x" * 30)] * 2, compression=Compression.NONE)
    data[61] = 0x7F
    set_checksum(data, 0, len(data))
    assert refused(log, data).code == ErrorCode.INVALID_RECORD


def test_a_compacted_topic_rejects_records_without_a_key(log: Log) -> None:
    data = build_batch([Record(key=b"k", timestamp=NOW_MS), Record(key=None, timestamp=NOW_MS)])
    validated(log, data)
    for policy in ({"compact"}, {"compact", "delete"}):
        error = refused(log, data, cleanup_policy=frozenset(policy))
        assert isinstance(error, InvalidRecords)
        assert error.code == ErrorCode.INVALID_RECORD
        assert [index for index, _ in error.record_errors] == [1]


# --- time -------------------------------------------------------------------------------------------------------------


def stamped(*timestamps: int) -> bytearray:
    return build_batch([Record(timestamp=timestamp, value=b"v") for timestamp in timestamps])


def test_timestamps_may_be_an_hour_ahead_and_arbitrarily_old(log: Log) -> None:
    validated(log, stamped(0, -1, NOW_MS + HOUR_MS))
    error = refused(log, stamped(NOW_MS, NOW_MS + HOUR_MS + 1, NOW_MS))
    assert isinstance(error, InvalidRecords)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [1]


def test_the_bounds_of_timestamps_move_with_the_clock(log: Log) -> None:
    ahead = stamped(NOW_MS + HOUR_MS + 1)
    with pytest.raises(KafkaError):
        validate_records(log, memoryview(ahead), api_version=9, now_ms=NOW_MS)
    validate_records(log, memoryview(ahead), api_version=9, now_ms=NOW_MS + 1)


def test_a_topic_may_limit_the_age_and_lead_of_timestamps(log: Log) -> None:
    bounds = {"message_timestamp_before_max_ms": 1000, "message_timestamp_after_max_ms": 2000}
    validated(log, stamped(NOW_MS - 1000, NOW_MS + 2000, -1), **bounds)
    assert refused(log, stamped(NOW_MS - 1001), **bounds).code == ErrorCode.INVALID_TIMESTAMP
    assert refused(log, stamped(NOW_MS + 2001), **bounds).code == ErrorCode.INVALID_TIMESTAMP


ANY_TIME = {"message_timestamp_before_max_ms": MAX_LONG, "message_timestamp_after_max_ms": MAX_LONG}


@for_each("count", [1, 2, 40])
@for_each(
    ("base", "delta", "timestamp"),
    [(MAX_LONG, 5, -MAX_LONG + 3), (-MAX_LONG, -5, MAX_LONG - 3), (MAX_LONG - 9, 9, MAX_LONG), (-MAX_LONG, -1, None)],
)
def test_a_timestamp_beyond_int64_wraps_around_as_in_java(
    log: Log, base: int, delta: int, timestamp: int | None, count: int
) -> None:
    timestamp = -MAX_LONG - 1 if timestamp is None else timestamp
    deltas = [delta] if count == 1 else [0, *[delta] * (count - 1)]
    payload = b"".join(encode_record(Record(), index, each) for index, each in enumerate(deltas))
    data = assemble_batch(check_batch(build_batch([Record()] * count)), payload)
    data = changed(changed(data, 27, INT64, base), 35, INT64, base)
    taken, header = validated(log, data, **ANY_TIME)
    times = [record.timestamp for record in iterate_records_of_batch(taken)]
    assert times == [timestamp if index or count == 1 else base for index in range(count)]
    assert header.max_timestamp == max(-1, *times)


def test_a_wrapped_timestamp_is_compared_with_the_bounds_after_wrapping(log: Log) -> None:
    data = changed(build_batch([Record(timestamp=0), Record(timestamp=5)]), 27, INT64, MAX_LONG)
    assert refused(log, data).code == ErrorCode.INVALID_TIMESTAMP


def test_a_wrong_largest_timestamp_in_the_header_is_corrected(log: Log) -> None:
    _, header = validated(log, changed(stamped(NOW_MS, NOW_MS + 5), 35, INT64, NOW_MS + 99))
    assert header.max_timestamp == NOW_MS + 5


def test_log_append_time_is_set_by_the_broker(log: Log) -> None:
    taken, header = validated(log, stamped(5, 9, NOW_MS * 2), message_timestamp_type=1)
    assert (header.timestamp_type, header.max_timestamp) == (1, NOW_MS)
    assert [record.timestamp for record in iterate_records_of_batch(taken)] == [NOW_MS] * 3


def test_a_producer_cannot_set_log_append_time(log: Log) -> None:
    data = build_batch(records(2), timestamp_type=1)
    error = refused(log, data, message_timestamp_type=1)
    assert isinstance(error, InvalidRecords)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [0, 1]


def test_log_append_time_is_reset_for_a_topic_with_create_time(log: Log) -> None:
    _, header = validated(log, build_batch(records(2), timestamp_type=1))
    assert (header.timestamp_type, header.max_timestamp) == (0, NOW_MS)
    _, header = validated(log, build_batch(records(1, timestamp=0), timestamp_type=1))
    assert (header.timestamp_type, header.max_timestamp) == (0, 0)
    without = build_batch(records(2, timestamp=-1), timestamp_type=1)
    assert refused(log, without).code == ErrorCode.INVALID_TIMESTAMP


# --- offset deltas ----------------------------------------------------------------------------------------------------


def misnumbered(deltas: list[int], compression: Compression = Compression.NONE, **options: int) -> bytearray:
    """A batch of as many records, which are as of `records`."""
    sent = records(len(deltas))
    header = check_batch(build_batch(sent, compression=compression, **options))
    data = b"".join(encode_record(record, delta, 0) for record, delta in zip(sent, deltas, strict=True))
    return assemble_batch(header, compress(compression, data))


DELTAS = [[0, 0, 0], [2, 1, 0], [0, 1, 5], [-3, 7, 2**31 - 1]]


@pytest.mark.parametrize("kind", ["producer", "uncompressed"])
@pytest.mark.parametrize("deltas", DELTAS)
def test_uncompressed_records_keep_their_offset_deltas(log: Log, deltas: list[int], kind: str) -> None:
    data = misnumbered(deltas)
    taken, header = validated(log, data, compression_type=kind)
    assert taken == data
    assert log.append(taken, (header,), 0) == 0
    assert (header.last_offset_delta, log.log_end_offset) == (2, 3)


@for_each(
    ("compression", "kind"),
    [(Compression.NONE, "gzip"), (Compression.GZIP, "zstd"), (Compression.LZ4, "uncompressed")],
)
@for_each("deltas", DELTAS)
def test_recompressed_records_get_new_offset_deltas(
    log: Log, deltas: list[int], compression: Compression, kind: str
) -> None:
    producer = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 3, "transactional": True}
    taken, header = validated(log, misnumbered(deltas, compression, **producer), compression_type=kind)
    assert [record.offset for record in iterate_records_of_batch(taken)] == [0, 1, 2]
    assert [record.value for record in iterate_records_of_batch(taken)] == [record.value for record in records(3)]
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == (7, 2, 3, True)
    assert header.compression == (Compression.NONE if kind == "uncompressed" else Compression[kind.upper()])


@for_each("kind", ["producer", "lz4"])
@for_each("deltas", DELTAS)
def test_records_that_stay_compressed_must_have_consecutive_offsets(log: Log, deltas: list[int], kind: str) -> None:
    error = refused(log, misnumbered(deltas, Compression.LZ4), compression_type=kind)
    assert isinstance(error, InvalidRecords)
    assert error.record_errors[0][1].startswith("Record ")


# --- compression ------------------------------------------------------------------------------------------------------


@for_each("kind", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@for_each("compression", list(Compression))
def test_the_topics_own_compression_is_applied(log: Log, compression: Compression, kind: str) -> None:
    data = batch(5, value=b"x" * 100, compression=compression, producer_id=7, producer_epoch=2, base_sequence=3)
    taken, header = validated(log, data, compression_type=kind)
    codec = Compression.NONE if kind == "uncompressed" else Compression[kind.upper()]
    assert header.compression == codec
    assert (taken == data) == (codec == compression)
    assert list(iterate_records_of_batch(taken)) == list(iterate_records_of_batch(data))
    before = check_batch(data)
    same = ("producer_id", "producer_epoch", "base_sequence", "record_count", "max_timestamp", "last_offset_delta")
    assert all(getattr(header, field) == getattr(before, field) for field in same)


def test_a_compression_level_changes_the_compression_ratio(log: Log) -> None:
    data = batch(200, value=b"some words that repeat " * 4)
    sizes = {
        level: len(validated(log, data, compression_type="gzip", compression_gzip_level=level)[0]) for level in (1, 9)
    }
    assert sizes[9] < sizes[1]


def test_batches_that_are_too_large_uncompressed_are_rejected(log: Log) -> None:
    data = batch(1, value=b"x" * 10_000, compression=Compression.GZIP)
    error = refused(log, data, compression_type="uncompressed", max_message_bytes=5000)
    assert error.code == ErrorCode.MESSAGE_TOO_LARGE


def test_compression_and_log_append_time_can_be_combined(log: Log) -> None:
    taken, header = validated(log, stamped(5, 9), compression_type="lz4", message_timestamp_type=1)
    assert (header.compression, header.timestamp_type, header.max_timestamp) == (Compression.LZ4, 1, NOW_MS)
    assert [record.timestamp for record in iterate_records_of_batch(taken)] == [NOW_MS] * 2


@given(st.data())
def test_corrupt_batches_are_never_accepted_and_do_not_crash_the_broker(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    log = open_at(tmp_path_factory.getbasetemp() / "any")
    good = batch(3, compression=data.draw(st.sampled_from(list(Compression))))
    bad = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        set_checksum(bad, 0, len(bad))
    try:
        taken, headers = validate_records(log, memoryview(bad), api_version=9, now_ms=NOW_MS)
    except KafkaError:
        return
    assert len(list(iterate_records_of_batch(taken))) == headers[0].record_count == 3


# --- in steps ---------------------------------------------------------------------------------------------------------


def steps_of(log: Log, data: bytes | bytearray) -> tuple[int, memoryview | KafkaError]:
    """Return how many steps a batch takes, and its result."""
    steps, count = validate_records_in_steps(log, memoryview(bytearray(data)), api_version=9, now_ms=NOW_MS), 0
    try:
        while True:
            next(steps)
            count += 1
    except StopIteration as end:
        return count, end.value[0]
    except KafkaError as error:
        return count, error


CHANGES: list[dict[str, object]] = [
    {},
    {"compression_type": "gzip", "compression_gzip_level": 9},
    {"compression_type": "zstd", "compression_zstd_level": 22},
    {"compression_type": "lz4", "compression_lz4_level": 17},
    {"compression_type": "snappy"},
    {"compression_type": "uncompressed"},
    {"record_attributes_elide": True},
    {"message_timestamp_type": LOG_APPEND_TIME},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
@pytest.mark.parametrize("codec", sampled(Compression, every=4))
def test_a_large_batch_is_validated_in_many_steps_without_loss(
    log: Log, changes: dict[str, object], codec: int
) -> None:
    sent = [Record(timestamp=NOW_MS, key=b"k%d" % number, value=bytes(20)) for number in range(10_000)]
    log.update_settings(LogSettings(**changes))  # type: ignore[arg-type]
    data = build_batch(sent, compression=codec)
    count, taken = steps_of(log, data)
    assert isinstance(taken, memoryview)
    assert count >= len(sent) // 4096  # runs of equal records are checked at once
    assert [record.key for record in iterate_records_of_batch(taken)] == [record.key for record in sent]
    again = validate_records(log, memoryview(bytearray(data)), api_version=9, now_ms=NOW_MS)
    assert again == (taken, (check_batch(taken),))


def test_a_decompression_bomb_is_counted_but_not_kept(log: Log) -> None:
    bomb = build_batch([Record(timestamp=NOW_MS, value=bytes(30_000_000))], compression=Compression.ZSTD)
    log.update_settings(LogSettings(compression_type="uncompressed"))
    count, refusal = steps_of(log, bomb)
    assert isinstance(refusal, KafkaError)
    assert refusal.code == ErrorCode.MESSAGE_TOO_LARGE
    assert "30000074 bytes" in str(refusal)
    assert count > 400


def test_settings_that_change_during_a_validation_are_ignored(log: Log) -> None:
    data = build_batch([Record(timestamp=NOW_MS, value=bytes(1000))] * 500, compression=Compression.GZIP)
    steps = validate_records_in_steps(log, memoryview(data), api_version=9, now_ms=NOW_MS)
    next(steps)
    log.update_settings(LogSettings(compression_type="zstd", cleanup_policy=frozenset({"compact"})))
    taken, (header,) = run_all_steps(steps)
    assert header.compression == Compression.GZIP


@for_each("seed", range(60))
def test_validating_mutated_batches_in_steps_gives_the_same_results_as_at_once(log: Log, seed: int) -> None:
    random = Random(seed)
    settings = dict(random.choice(CHANGES))
    if random.random() < 0.5:
        settings["cleanup_policy"] = frozenset({"compact"})
    log.update_settings(LogSettings(**settings))  # type: ignore[arg-type]
    data = build_batch(similar_records(random), compression=random.choice((0, 0, *Compression)))
    for _ in range(random.randrange(3)):
        data[random.randrange(61, len(data))] = random.randrange(256)
    set_checksum(data, 0, len(data))
    now_ms = T
    try:
        expected = validate_records(log, memoryview(bytearray(data)), api_version=9, now_ms=now_ms)
    except KafkaError as error:
        with pytest.raises(type(error)) as refusal:
            run_all_steps(validate_records_in_steps(log, memoryview(data), api_version=9, now_ms=now_ms))
        assert (refusal.value.code, refusal.value.message) == (error.code, error.message)
        assert getattr(refusal.value, "record_errors", ()) == getattr(error, "record_errors", ())
    else:
        assert run_all_steps(validate_records_in_steps(log, memoryview(data), api_version=9, now_ms=now_ms)) == expected
