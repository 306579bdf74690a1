"""The fast pass over records gives the strict reader's verdict, whichever of its ways it takes."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.errors import InvalidRecords
from minibroker.protocol.records import scanning
from minibroker.protocol.records.batch import BatchHeader, read_header
from minibroker.protocol.records.record import Record, parse_records
from minibroker.protocol.records.scanning import (
    MAX_HEADERS,
    MAX_RUN,
    MAX_WALK,
    MIN_RUN,
    RecordRun,
    RecordScan,
    find_run_of_records,
)
from minibroker.protocol.records.strides import scan_short_records
from minibroker.protocol.records.varints import convert_from_zigzag, encode_zigzag
from tests.cases import for_each
from tests.protocol.records.samples import JAVA, T, damaged, payload, similar_records


def header_for(count: int) -> BatchHeader:
    return read_header(JAVA["small none"])._replace(record_count=count)


def strictly_read(data: bytes, count: int) -> list[Record] | None:
    """The records, or None if the strict reader refuses them or their offsets are not 0 to n-1."""
    try:
        found = list(parse_records(data, header_for(count)))
    except InvalidRecords:
        return None
    return found if [record.offset for record in found] == list(range(count)) else None


def assert_same_verdict(data: bytes, count: int) -> None:
    """Compare the verdict of a scan, and also of one as where nothing is compiled, with the strict reader's."""
    expected = strictly_read(data, count)
    for is_compiled in {scanning.IS_COMPILED, False}:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scanning, "IS_COMPILED", is_compiled)
            assert_verdict(RecordScan(data, count), data, count, expected)


def assert_verdict(scan: RecordScan, data: bytes, count: int, expected: list[Record] | None) -> None:
    assert scan.scan_all_records() == (expected is not None)
    if expected is not None:
        assert (scan.index, scan.position) == (count, len(data))
        assert scan.saw_null_key == any(record.key is None for record in expected)
        assert {T + convert_from_zigzag(raw) for raw in scan.timestamp_deltas} == {
            record.timestamp for record in expected
        }
        return
    assert strictly_read(data[: scan.position], scan.index) is not None


def equal_records(count: int, *, step_ms: int = 0, key: bytes | None = None, size: int = 100) -> list[Record]:
    return [Record(index, T + index * step_ms, key, bytes(size)) for index in range(count)]


class TestSameVerdictAsTheStrictReader:
    @given(st.integers(0, 2**32))
    def test_scanner_and_strict_reader_agree_on_produced_batches(self, seed: int) -> None:
        sent = similar_records(Random(seed))
        data = payload(sent)
        assert strictly_read(data, len(sent)) == sent
        assert_same_verdict(data, len(sent))

    @given(st.integers(0, 2**32))
    def test_scanner_and_strict_reader_agree_on_corrupt_batches(self, seed: int) -> None:
        random = Random(seed)
        sent = similar_records(random)
        data = payload(sent)
        for _ in range(5):
            assert_same_verdict(damaged(random, data), len(sent))

    @given(st.integers(0, 2**32), st.sampled_from([0, 30, 8170]))
    def test_scanner_and_strict_reader_agree_on_values_of_unequal_sizes(self, seed: int, first: int) -> None:
        random = Random(seed)
        sizes = [*range(60, 70), *(random.randrange(0, 9000) for _ in range(3)), *range(8185, 8195)]
        random.shuffle(sizes)
        sent = [Record(index, T, None, bytes(size)) for index, size in enumerate(first * [1] + sizes)]
        data = payload(sent)
        assert_same_verdict(data, len(sent))
        start = len(payload(sent[:first]))
        for _ in range(4):
            at = random.randrange(start, len(data))
            spoilt = data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]
            assert_same_verdict(spoilt, len(sent))

    @pytest.mark.parametrize("size", [1, 63, 64, 100])
    def test_scanner_and_strict_reader_agree_on_every_changed_byte(self, size: int) -> None:
        sent = [Record(index, T + 3, None, bytes(size + index % 3)) for index in range(20)]
        data = payload(sent)
        for at in range(len(payload(sent[:2])), len(payload(sent[:4]))):
            for value in (*range(16), 63, 64, 126, 127, 128, 129, 130, 200, 255):
                assert_same_verdict(data[:at] + bytes([value]) + data[at + 1 :], len(sent))

    @given(st.integers(0, 2**32), st.sampled_from([-1, 1, 5, 2**31 - 1]))
    def test_scanner_and_strict_reader_agree_on_wrong_counts(self, seed: int, difference: int) -> None:
        sent = similar_records(Random(seed))
        count = min(len(sent) + difference, 2**31 - 1)
        assert_same_verdict(payload(sent), count)

    @given(st.binary(max_size=60), st.integers(1, 40))
    def test_scanner_and_strict_reader_agree_on_arbitrary_bytes(self, data: bytes, count: int) -> None:
        assert_same_verdict(data, count)
        assert_same_verdict(data * MIN_RUN, count)

    @for_each("cut", range(8))
    def test_scanner_and_strict_reader_agree_on_truncated_batches(self, cut: int) -> None:
        data = payload(equal_records(300))
        assert_same_verdict(data[: len(data) - cut], 300)

    @for_each("index", [0, 1, 15, 16, 17, 63, 64, 65, 150, 298, 299])
    def test_scanner_and_strict_reader_report_the_same_error_for_a_changed_byte(self, index: int) -> None:
        sent = equal_records(300, key=b"k" * 5, size=10)
        data = payload(sent)
        start, end = len(payload(sent[:index])), len(payload(sent[: index + 1]))
        for position in range(start, end):
            for value in (data[position] ^ 1, data[position] ^ 0x80, data[position] ^ 2, 0, 1, 0xFF):
                assert_same_verdict(data[:position] + bytes((value,)) + data[position + 1 :], 300)


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scan as where nothing is compiled."""
    monkeypatch.setattr(scanning, "IS_COMPILED", False)


def test_the_compiled_scanner_walks_every_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "IS_COMPILED", True)
    monkeypatch.setattr(scanning, "find_run_of_records", lambda *_: pytest.fail("a run was sought"))
    data = payload(equal_records(3000, step_ms=1))
    assert RecordScan(data, 3000).scan_all_records()
    scan = RecordScan(data, 3000)
    while scan.scan_next_records():
        pass
    assert scan.index == 3000


@pytest.mark.usefixtures("in_python")
@pytest.mark.skipif(scanning.IS_COMPILED, reason="a compiled class takes no other method")
class TestRuns:
    """Runs of equal layout are not walked, which is what makes them cheap."""

    @pytest.fixture
    def walked(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """The number of records of each walk that was done."""
        walks: list[int] = []
        walk = RecordScan._scan_records_until

        def noted(scan: RecordScan, end_index: int, stop: int) -> bool:
            walks.append(end_index - scan.index)
            return walk(scan, end_index, stop)

        monkeypatch.setattr(RecordScan, "_scan_records_until", noted)
        return walks

    @for_each(
        "sent",
        [
            equal_records(64),
            equal_records(6000),
            equal_records(20000, size=1),  # offset deltas of one, two and three bytes
            equal_records(64, key=b"key", size=8000),
            [Record(index, T, b"k", b"v", (("trace", bytes(16)), ("none", None))) for index in range(500)],
            [Record(index, T, None, None) for index in range(500)],
            [Record(index, T + 2**61, b"", b"") for index in range(500)],
        ],
    )
    def test_the_scanner_skips_runs_of_similar_records(self, sent: list[Record], walked: list[int]) -> None:
        assert RecordScan(payload(sent), len(sent)).scan_all_records()
        assert sum(walked) < MIN_RUN

    def test_the_scanner_continues_runs_of_similar_records_where_offset_deltas_get_more_bytes(
        self, walked: list[int]
    ) -> None:
        sent = equal_records(9000, step_ms=1, size=10)
        assert RecordScan(payload(sent), len(sent)).scan_all_records()
        assert sum(walked) < 3 * MIN_RUN

    def test_the_scanner_finds_runs_of_similar_records_between_other_records(self, walked: list[int]) -> None:
        sent = [
            Record(index, T, None, bytes(index % 50 if index // 1000 % 2 else 7)) for index in range(6000)
        ]  # a thousand equal ones, a thousand of rising size, and so on
        assert RecordScan(payload(sent), len(sent)).scan_all_records()
        assert 3000 <= sum(walked) < 3000 + 3 * MAX_WALK

    def test_the_scanner_rarely_searches_runs_of_similar_records_where_there_are_none(self, walked: list[int]) -> None:
        sent = [Record(index, T, None, bytes(index % 50)) for index in range(6000)]
        assert RecordScan(payload(sent), len(sent)).scan_all_records()
        assert len(walked) < 20

    def test_the_scanner_finds_runs_of_similar_records_after_the_millionth_record(self) -> None:
        """Where offset deltas need four bytes, and records are stepped over one by one."""
        count = 2**20 + 20
        body = [b"\0\0" + encode_zigzag(index) + b"\x01\x01\0" for index in range(count)]
        data = b"".join(bytes((2 * len(record),)) + record for record in body)
        assert RecordScan(data, count).scan_all_records()
        assert not RecordScan(data[:-1] + b"\x02", count).scan_all_records()


def test_huge_record_and_header_counts_are_rejected_quickly() -> None:
    """2^30 headers in a record of a few bytes, and 2^31 records in a batch of one."""
    headers = encode_zigzag(2**30)
    record = b"\0\0\0\x01\x01" + headers
    data = bytes((2 * len(record),)) + record
    assert not RecordScan(data + bytes(100), 1).scan_all_records()
    assert not RecordScan(data, 2**31 - 1).scan_all_records()


def test_the_compiled_walk_stops_before_a_record_that_ends_beyond_its_limit() -> None:
    data = payload(equal(5))
    size = len(data) // 5
    for stop, passed in ((3 * size - 1, 2), (3 * size, 3), (len(data), 5)):
        assert scan_short_records(data, 0, stop, 0, 5, set())[:2] == (passed, passed * size)


def equal(count: int, size: int = 10, **fields: object) -> list[Record]:
    return [Record(timestamp=T, value=bytes(size))._replace(**fields) for _ in range(count)]


def run_in(data: bytes, position: int, index: int, count: int) -> RecordRun:
    run = find_run_of_records(data, position, index, count)
    assert run is not None
    return run


class TestLength:
    def test_a_run_of_similar_records_covers_all_equal_records(self) -> None:
        data = payload(equal(50))
        run = run_in(data, 0, 0, 50)
        assert (run.length, run.length * run.size_bytes) == (50, len(data))

    def test_a_run_of_similar_records_may_start_at_any_record(self) -> None:
        data = payload(equal(50))
        run = run_in(data, len(data) // 50 * 20, 20, 50)
        assert run.length == 30

    def test_a_run_of_similar_records_ends_at_the_record_count_or_the_end_of_the_data(self) -> None:
        data = payload(equal(50))
        assert run_in(data, 0, 0, 20).length == 20
        assert run_in(data[:-1], 0, 0, 1000).length == 49

    def test_a_run_of_similar_records_ends_where_offset_deltas_get_longer_and_at_the_maximum_length(self) -> None:
        data = payload(equal(10000, 0))
        first = run_in(data, 0, 0, 10000)
        assert first.length == 64
        second = run_in(data, 64 * first.size_bytes, 64, 10000)
        assert second.length == MAX_RUN
        third = run_in(data, 64 * first.size_bytes + MAX_RUN * second.size_bytes, 64 + MAX_RUN, 10000)
        assert third.length == 8192 - 64 - MAX_RUN

    @for_each(
        "other",
        [
            {"value": bytes(11)},
            {"value": bytes(9)},
            {"value": None},
            {"key": b"", "value": bytes(10)},
            {"key": bytes(3), "value": bytes(7)},  # of the same size as a whole
            {"value": bytes(7), "headers": (("h", None),)},  # this one too
            {"timestamp": T + 64},
        ],
    )
    def test_a_run_of_similar_records_ends_before_a_record_of_another_layout(self, other: dict[str, object]) -> None:
        data = payload(equal(30) + equal(1, **other) + equal(19))
        run = run_in(data, 0, 0, 50)
        assert run.length == 30

    def test_a_run_of_similar_records_begins_with_at_least_three(self) -> None:
        assert find_run_of_records(payload(equal(2)), 0, 0, 2) is None
        assert find_run_of_records(payload(equal(1) + equal(1, 11) + equal(9)), 0, 0, 11) is None


class TestContent:
    def test_a_run_of_similar_records_lists_its_timestamp_deltas_of_one_and_two_bytes(self) -> None:
        for base in (0, 1000):
            data = payload([Record(timestamp=T + base + index % 7) for index in range(60)])
            run = run_in(data, 0, 0, 60)
            assert run.timestamp_deltas == {2 * (base + index) for index in range(7)}

    def test_a_run_of_similar_records_lists_many_different_timestamp_deltas(self) -> None:
        data = payload([Record(timestamp=T + 64 + index * 389 % 8000) for index in range(60)])
        run = run_in(data, 0, 0, 60)
        assert run.timestamp_deltas == {2 * (64 + index * 389 % 8000) for index in range(60)}

    def test_scanning_similar_records_returns_large_and_negative_timestamp_deltas(self) -> None:
        data = payload([Record(timestamp=T + 2**40 + index) for index in range(60)])
        run = run_in(data, 0, 0, 60)
        assert run.timestamp_deltas == {2 * (2**40 + index) for index in range(60)}
        data = payload([Record(timestamp=T - 1)] * 60)
        run = run_in(data, 0, 0, 60)
        assert run.timestamp_deltas == {1}

    def test_a_run_of_similar_records_tells_whether_its_records_have_keys(self) -> None:
        for key in (None, b"", b"key"):
            run = run_in(payload(equal(20, key=key)), 0, 0, 20)
            assert run.keyed == (key is not None)

    def test_records_with_too_many_headers_are_no_run_of_similar_records(self) -> None:
        for count, found in ((MAX_HEADERS, True), (MAX_HEADERS + 1, False)):
            data = payload(equal(20, headers=(("h", b"v"),) * count))
            assert (find_run_of_records(data, 0, 0, 20) is not None) == found

    def test_records_with_wrong_offset_deltas_are_no_run_of_similar_records(self) -> None:
        data = bytearray(payload(equal(20)))
        size = len(data) // 20
        data[9 * size + 3] += 2
        assert find_run_of_records(bytes(data), 0, 0, 20) is None
        assert find_run_of_records(bytes(data), 10 * size, 11, 21) is None

    def test_a_malformed_record_starts_no_run_of_similar_records(self) -> None:
        record = b"\x0c\0\0\0\x01\x01\0"  # seven bytes, of which the first says six follow
        assert find_run_of_records(record * 3, 0, 0, 3) is None  # the offset deltas of the others are 0 too
        for position in (4, 5, 6):
            broken = record[:position] + b"\xff" + record[position + 1 :]
            assert find_run_of_records(broken * 3, 0, 0, 3) is None
