"""Where runs of records of equal layout start and end, and what in them is looked at."""

from __future__ import annotations

import pytest

from minibroker.protocol.records.columns import MAX_HEADERS, MAX_RUN, Run, find_run
from minibroker.protocol.records.record import Record
from tests.protocol.records.samples import T, payload


def equal(count: int, size: int = 10, **fields: object) -> list[Record]:
    return [Record(timestamp=T, value=bytes(size))._replace(**fields) for _ in range(count)]


def run_in(data: bytes, position: int, index: int, count: int) -> Run:
    run = find_run(data, position, index, count)
    assert run is not None
    return run


class TestLength:
    def test_a_run_covers_equal_records(self) -> None:
        data = payload(equal(50))
        run = run_in(data, 0, 0, 50)
        assert (run.length, run.length * run.size_bytes) == (50, len(data))

    def test_a_run_starts_at_any_record(self) -> None:
        data = payload(equal(50))
        run = run_in(data, len(data) // 50 * 20, 20, 50)
        assert run.length == 30

    def test_a_run_ends_with_the_count_or_the_data(self) -> None:
        data = payload(equal(50))
        assert run_in(data, 0, 0, 20).length == 20
        assert run_in(data[:-1], 0, 0, 1000).length == 49

    def test_a_run_ends_where_offset_deltas_grow_and_at_a_limit(self) -> None:
        data = payload(equal(10000, 0))
        first = run_in(data, 0, 0, 10000)
        assert first.length == 64
        second = run_in(data, 64 * first.size_bytes, 64, 10000)
        assert second.length == MAX_RUN
        third = run_in(data, 64 * first.size_bytes + MAX_RUN * second.size_bytes, 64 + MAX_RUN, 10000)
        assert third.length == 8192 - 64 - MAX_RUN

    @pytest.mark.parametrize(
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
        ids=str,
    )
    def test_a_run_ends_before_a_record_of_another_layout(self, other: dict[str, object]) -> None:
        data = payload(equal(30) + equal(1, **other) + equal(19))
        run = run_in(data, 0, 0, 50)
        assert run.length == 30

    def test_a_run_needs_three_records_that_begin_alike(self) -> None:
        assert find_run(payload(equal(2)), 0, 0, 2) is None
        assert find_run(payload(equal(1) + equal(1, 11) + equal(9)), 0, 0, 11) is None


class TestContent:
    def test_a_run_has_timestamp_deltas_of_one_and_two_bytes(self) -> None:
        for base in (0, 1000):
            data = payload([Record(timestamp=T + base + index % 7) for index in range(60)])
            run = run_in(data, 0, 0, 60)
            assert run.timestamp_deltas == {2 * (base + index) for index in range(7)}

    def test_a_run_may_have_many_different_timestamps(self) -> None:
        data = payload([Record(timestamp=T + 64 + index * 389 % 8000) for index in range(60)])
        run = run_in(data, 0, 0, 60)
        assert run.timestamp_deltas == {2 * (64 + index * 389 % 8000) for index in range(60)}

    def test_a_run_has_long_and_negative_timestamp_deltas(self) -> None:
        data = payload([Record(timestamp=T + 2**40 + index) for index in range(60)])
        run = run_in(data, 0, 0, 60)
        assert run.timestamp_deltas == {2 * (2**40 + index) for index in range(60)}
        data = payload([Record(timestamp=T - 1)] * 60)
        run = run_in(data, 0, 0, 60)
        assert run.timestamp_deltas == {1}

    def test_a_run_has_the_keys_of_its_records(self) -> None:
        for key in (None, b"", b"key"):
            run = run_in(payload(equal(20, key=key)), 0, 0, 20)
            assert run.keyed == (key is not None)

    def test_a_run_has_headers_up_to_a_limit(self) -> None:
        for count, found in ((MAX_HEADERS, True), (MAX_HEADERS + 1, False)):
            data = payload(equal(20, headers=(("h", b"v"),) * count))
            assert (find_run(data, 0, 0, 20) is not None) == found

    def test_offset_deltas_in_a_run_must_be_the_indexes(self) -> None:
        data = bytearray(payload(equal(20)))
        size = len(data) // 20
        data[9 * size + 3] += 2
        assert find_run(bytes(data), 0, 0, 20) is None
        assert find_run(bytes(data), 10 * size, 11, 21) is None

    def test_a_malformed_first_record_starts_no_run(self) -> None:
        record = b"\x0c\0\0\0\x01\x01\0"  # seven bytes, of which the first says six follow
        assert find_run(record * 3, 0, 0, 3) is None  # the offset deltas of the others are 0 too
        for position in (4, 5, 6):
            broken = record[:position] + b"\xff" + record[position + 1 :]
            assert find_run(broken * 3, 0, 0, 3) is None
