"""What a broker refuses in a produced batch, and what it says then."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.errors import CorruptBatch, ErrorCode, InvalidRecords, KafkaError
from minibroker.protocol.records.batch import HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, read_header
from minibroker.protocol.records.building import assemble_batch, build_batch, encode_record
from minibroker.protocol.records.compression import compress
from minibroker.protocol.records.payload import get_uncompressed_payload, iterate_records_of_batch
from minibroker.protocol.records.record import Record
from minibroker.protocol.records.validation import (
    MisnumberedRecords,
    RecordRules,
    check_batch_header,
    check_plain_records,
    check_records,
)
from minibroker.protocol.records.varints import INT64_MAX
from tests.cases import for_each
from tests.protocol.records.samples import CLIENTS, CODECS, JAVA, SMALL, T, golden, payload, similar_records

HEADER = read_header(JAVA["small none"])


def check(
    batch: bytes | bytearray,
    *,
    keys_required: bool = False,
    any_offsets: bool = False,
    earliest_ms: int = -1,
    latest_ms: int = INT64_MAX,
) -> int:
    return check_records(batch, 0, read_header(batch), RecordRules(keys_required, earliest_ms, latest_ms, any_offsets))


def refused(batch: bytes | bytearray, **rules: int) -> InvalidRecords:
    with pytest.raises(InvalidRecords) as refusal:
        check(batch, **rules)
    return refusal.value


def with_payload(data: bytes, count: int, codec: int = 0) -> bytearray:
    """A sound batch of `count` records, whose bytes are `data`."""
    header = HEADER._replace(record_count=count, last_offset_delta=count - 1, attributes=codec)
    return assemble_batch(header, compress(codec, data))


class TestGoodBatches:
    @pytest.mark.parametrize("client", CLIENTS)
    def test_valid_batches_of_real_clients_return_their_largest_timestamp(self, client: str) -> None:
        for name, batch in golden(client).items():
            if read_header(batch).is_control:
                continue
            assert check(batch) == read_header(batch).max_timestamp, name

    @given(st.integers(0, 2**32), st.sampled_from(CODECS))
    def test_batches_of_random_valid_records_are_valid(self, seed: int, codec: int) -> None:
        sent = similar_records(Random(seed))
        assert check(build_batch(sent, compression=codec)) == max(record.timestamp for record in sent)

    def test_a_batch_anywhere_in_a_buffer_is_valid(self) -> None:
        data = memoryview(bytearray(b"xxx" + JAVA["small lz4"] + b"yyy"))
        assert check_records(data, 3, read_header(data, 3), RecordRules(keys_required=False)) == T + 100000

    def test_a_wrong_largest_timestamp_in_the_header_is_valid(self) -> None:
        """Kafka corrects it, so the true one is returned."""
        header = HEADER._replace(max_timestamp=5)
        assert check(assemble_batch(header, payload(SMALL))) == T + 100000

    def test_timestamps_before_1970_are_valid(self) -> None:
        assert check(build_batch([Record(timestamp=-7)]), earliest_ms=-7) == -1

    def test_batches_without_timestamps_are_valid(self) -> None:
        assert check(build_batch([Record()] * 3), earliest_ms=T, latest_ms=T) == -1


HEADERS = {
    "offset range": ({"last_offset_delta": -1}, "Batch has an invalid offset range: [0, -1]"),
    "no records": ({"record_count": 0}, "Invalid reported count for record batch: 0"),
    "negative count": ({"record_count": -5}, "Invalid reported count for record batch: -5"),
    "count": ({"record_count": 4}, "Inconsistent batch offset range [0, 4] and count of records 4"),
    "last offset": ({"last_offset_delta": 7}, "Inconsistent batch offset range [0, 7] and count of records 5"),
    "control": ({"attributes": 0x20}, "Clients are not allowed to write control records"),
    "sequence": ({"producer_id": 7}, "Invalid sequence number -1 in record batch with producerId 7"),
}


class TestHeaders:
    @for_each("fields, message", HEADERS.values())
    def test_invalid_header_fields_are_rejected(self, fields: dict[str, int], message: str) -> None:
        header = HEADER._replace(**fields)
        refusal = refused(assemble_batch(header, payload(SMALL)))
        assert (refusal.code, refusal.message, refusal.record_errors) == (ErrorCode.INVALID_RECORD, message, ())

    def test_a_batch_header_with_a_producer_is_valid(self) -> None:
        check_batch_header(HEADER._replace(producer_id=0, producer_epoch=0, base_sequence=0))


class TestRecords:
    @for_each("codec", CODECS)
    @for_each("index", [0, 1, 40, 63, 64, 200, 299])
    @for_each("size", [10, None])
    def test_the_first_malformed_record_is_reported(self, index: int, codec: int, size: int | None) -> None:
        random = Random(index)
        sent = [Record(value=bytes(random.randrange(50) if size is None else size)) for _ in range(300)]
        data = bytearray(payload(sent, -1))
        data[len(payload(sent[:index], -1))] += 1  # a length that is negative
        refusal = refused(with_payload(bytes(data), 300, codec))
        assert refusal.code == ErrorCode.INVALID_RECORD
        assert [at for at, _ in refusal.record_errors] == [index]

    @pytest.mark.parametrize("index", [0, 5, 70])
    def test_offsets_out_of_order_are_rejected(self, index: int) -> None:
        sent = [Record(offset=at + (at == index), value=b"v") for at in range(100)]
        batch = build_batch(sent, keep_offsets=True)
        message = f"Record {index} has the offset delta {index + 1}, expected {index}"
        refusal = refused(batch)
        assert (type(refusal), refusal.record_errors) == (MisnumberedRecords, ((index, message),))

    def test_a_wrong_record_count_is_rejected(self) -> None:
        assert refused(with_payload(payload(SMALL), 6)).record_errors[0][0] == 5
        assert "still remaining" in str(refused(with_payload(payload(SMALL), 4)))
        assert "still remaining" in str(refused(with_payload(payload(SMALL) + b"\0", 5)))

    def test_records_not_compressed_in_the_codec_of_the_header_are_rejected(self) -> None:
        batch = assemble_batch(HEADER._replace(attributes=1), payload(SMALL))
        with pytest.raises(CorruptBatch):
            check(batch)

    @pytest.mark.parametrize("codec", [5, 6, 7])
    def test_a_batch_of_an_unknown_codec_is_rejected(self, codec: int) -> None:
        with pytest.raises(KafkaError) as refusal:
            check(assemble_batch(HEADER._replace(attributes=codec), payload(SMALL)))
        assert refusal.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class TestKeys:
    def test_records_without_a_key_are_valid_unless_keys_are_required(self) -> None:
        check(build_batch([Record(value=b"v")] * 100))

    @pytest.mark.parametrize("codec", CODECS)
    def test_all_records_without_a_key_are_reported(self, codec: int) -> None:
        sent = [Record(key=None if index in (3, 70, 71) else b"", value=b"v") for index in range(100)]
        refusal = refused(build_batch(sent, compression=codec), keys_required=True)
        message = "Compacted topic cannot accept message without key"
        assert refusal.code == ErrorCode.INVALID_RECORD
        assert refusal.record_errors == ((3, message), (70, message), (71, message))
        assert "3 record errors" in str(refusal)

    def test_records_without_a_key_in_a_run_of_similar_records_are_reported(self) -> None:
        refusal = refused(build_batch([Record(value=b"v")] * 100), keys_required=True)
        assert [index for index, _ in refusal.record_errors] == list(range(100))

    def test_an_empty_key_satisfies_a_topic_that_requires_keys(self) -> None:
        check(build_batch([Record(key=b"")] * 100), keys_required=True)

    def test_keys_of_large_records_satisfy_a_topic_that_requires_keys(self) -> None:
        """Lengths of three bytes are read another way."""
        check(build_batch([Record(key=b"k", value=bytes(20000))] * 5 + [Record(key=b"k")]), keys_required=True)


class TestAnyOffsets:
    """Where offset deltas may be any, the other rules stay."""

    @staticmethod
    def misnumbered(sent: list[Record], deltas: list[int]) -> bytearray:
        data = b"".join(
            encode_record(record, delta, record.timestamp - T) for record, delta in zip(sent, deltas, strict=True)
        )
        header = HEADER._replace(record_count=len(sent), last_offset_delta=len(sent) - 1, base_timestamp=T)
        return assemble_batch(header, data)

    @given(st.integers(0, 2**32), st.data())
    def test_batches_with_any_offset_deltas_are_valid_if_allowed(self, seed: int, data: st.DataObject) -> None:
        sent = similar_records(Random(seed))
        deltas = data.draw(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=len(sent), max_size=len(sent)))
        batch = self.misnumbered(sent, deltas)
        assert check(batch, any_offsets=True) == max(record.timestamp for record in sent)

    @pytest.mark.parametrize("index", [0, 40, 99])
    def test_records_with_any_offset_deltas_are_still_validated(self, index: int) -> None:
        sent = [Record(timestamp=T + (at == index), key=None if at == index else b"k") for at in range(100)]
        batch = self.misnumbered(sent, [0] * 100)
        assert check(batch, any_offsets=True) == T + 1
        assert [at for at, _ in refused(batch, any_offsets=True, keys_required=True).record_errors] == [index]
        assert refused(batch, any_offsets=True, latest_ms=T).code == ErrorCode.INVALID_TIMESTAMP

    def test_malformed_records_are_rejected_even_if_any_offset_deltas_are_allowed(self) -> None:
        batch = self.misnumbered([Record(timestamp=T)] * 3, [0, 0, 0])
        for cut in (batch[HEADER_BYTES:-1], batch[HEADER_BYTES:] + b"x"):
            refusal = refused(with_payload(cut, 3), any_offsets=True)
            assert (type(refusal), refusal.code) == (InvalidRecords, ErrorCode.INVALID_RECORD)


class TestTimestamps:
    def test_timestamps_must_be_in_range(self) -> None:
        sent = [Record(timestamp=T + delta) for delta in (0, 5, -3, 11, 10)]
        assert check(build_batch(sent), earliest_ms=T - 3, latest_ms=T + 11) == T + 11
        refusal = refused(build_batch(sent), earliest_ms=T - 2, latest_ms=T + 10)
        text = (
            "Timestamp {} of message with offset {} is out of range. "
            f"The timestamp should be within [{T - 2}, {T + 10}]"
        )
        assert refusal.code == ErrorCode.INVALID_TIMESTAMP
        assert refusal.message == "One or more records have been rejected due to invalid timestamp"
        assert refusal.record_errors == ((2, text.format(T - 3, 2)), (3, text.format(T + 11, 3)))

    def test_records_without_a_timestamp_are_in_every_timestamp_range(self) -> None:
        batch = build_batch([Record(timestamp=T), Record(timestamp=-1)])
        assert check(batch, earliest_ms=T, latest_ms=T) == T

    def test_timestamp_errors_are_reported_beside_missing_keys(self) -> None:
        """One error a record, the key's before the timestamp's; the code is that of a timestamp."""
        sent = [Record(timestamp=T), Record(timestamp=T, key=b"k"), Record(timestamp=T + 9, key=b"k")]
        refusal = refused(build_batch(sent), keys_required=True, earliest_ms=T + 1)
        assert refusal.code == ErrorCode.INVALID_TIMESTAMP
        assert [(index, message[:5]) for index, message in refusal.record_errors] == [(0, "Compa"), (1, "Times")]

    def test_log_append_time_batches_are_validated_by_their_own_timestamps(self) -> None:
        batch = build_batch(SMALL, timestamp_type=LOG_APPEND_TIME)
        assert check(batch, earliest_ms=T + 100000, latest_ms=T + 100000) == T + 100000
        assert len(refused(batch, latest_ms=T).record_errors) == 5

    def test_timestamps_beyond_int64_wrap_around(self) -> None:
        header = BatchHeader(*HEADER)._replace(base_timestamp=INT64_MAX)
        batch = assemble_batch(header, bytes(get_uncompressed_payload(JAVA["small none"], 0, HEADER)))
        deltas = {record.timestamp - T for record in iterate_records_of_batch(JAVA["small none"])}
        wrapped = {(INT64_MAX + delta + (1 << 63)) % (1 << 64) - (1 << 63) for delta in deltas}
        assert check(batch, earliest_ms=-INT64_MAX - 1) == max(-1, *wrapped)
        assert refused(batch, earliest_ms=0).code == ErrorCode.INVALID_TIMESTAMP


def test_the_payload_built_for_these_tests_equals_that_of_a_java_batch() -> None:
    assert JAVA["small none"][HEADER_BYTES:] == payload(SMALL)


def verdict(check: Callable[[], int]) -> tuple[object, ...]:
    """What a check returns, or the code and the records with which it refuses."""
    try:
        return (check(),)
    except InvalidRecords as error:
        return error.code, error.record_errors


class TestALoneRecord:
    """Most batches of small producers have one record, which is checked in one look if it is a usual one."""

    @pytest.mark.parametrize("timestamp", [T, 0, -1, -5, INT64_MAX])
    def test_the_timestamp_of_a_single_record_is_the_largest(self, timestamp: int) -> None:
        data = build_batch([Record(0, timestamp, None, b"v")])
        assert check_plain_records(data, read_header(data), RecordRules(False)) == max(timestamp, -1)

    @given(
        st.one_of(st.none(), st.binary(max_size=70)),
        st.one_of(st.none(), st.binary(max_size=70), st.integers(120, 9000).map(bytes)),
        st.sampled_from([T, 0, -1, -5]),
        st.sampled_from([(), (("h", b"v"),)]),
        st.booleans(),
        st.integers(0, 2**32),
    )
    def test_a_single_record_gets_the_same_validation_result_by_the_fast_path(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: tuple[tuple[str, bytes], ...],
        keys_required: bool,
        seed: int,
    ) -> None:
        random = Random(seed)
        batch = build_batch([Record(0, timestamp, key, value, headers)])
        rules = RecordRules(keys_required, T - 10, T + 10, any_offsets=True)
        for _ in range(8):
            header = read_header(batch)
            usual = verdict(partial(check_plain_records, batch, header, rules))
            assert usual == verdict(partial(check_records, batch, 0, header, rules))
            at = random.randrange(HEADER_BYTES, min(len(batch), HEADER_BYTES + 12))
            batch = bytearray(batch)
            batch[random.choice((at, len(batch) - 1))] = random.choice((0, 1, 2, 127, 128, 129, random.randrange(256)))
