"""Records found by their bytes alone: the same ones that the strict reader finds, in batches that anybody wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.errors import InvalidRecords
from minibroker.protocol.records.batch import read_header
from minibroker.protocol.records.payload import get_uncompressed_payload
from minibroker.protocol.records.record import Record, parse_records
from minibroker.protocol.records.slicing import add_to_timestamp, iterate_record_slices
from minibroker.protocol.records.varints import convert_from_zigzag
from tests.cases import for_each
from tests.protocol.records.samples import CLIENTS, LARGE, SMALL, golden, payload, records

BASE = 1700000000000


def seen(data: bytes, count: int) -> list[tuple[int, int, bytes | None, bool]]:
    """(offset delta, timestamp delta, key, whether the value is null) of each record."""
    found = list(iterate_record_slices(data, count))
    assert [start for start, *_ in found] == [0, *(end for _, end, *_ in found[:-1])]
    return [(convert_from_zigzag(o), convert_from_zigzag(t), key, is_null) for _, _, o, t, key, is_null in found]


def expected(batch: list[Record]) -> list[tuple[int, int, bytes | None, bool]]:
    return [(r.offset, r.timestamp - BASE, r.key, r.value is None) for r in batch]


@pytest.mark.parametrize("batch", [SMALL, LARGE], ids=["small", "large"])
def test_each_record_is_found_with_its_key(batch: list[Record]) -> None:
    assert seen(payload(batch), len(batch)) == expected(batch)


@given(records())
def test_records_of_any_layout_are_found(batch: list[Record]) -> None:
    assert seen(payload(batch), len(batch)) == expected(batch)


def test_varints_of_every_length_are_decoded() -> None:
    batch = [Record(index, BASE + (1 << shift), b"k" * shift * 20, b"v") for index, shift in enumerate(range(0, 62, 3))]
    batch.append(Record(1 << 30, BASE - (1 << 40), b"far", None))
    data = b"".join(payload([record._replace(offset=0)]) for record in batch[:-1])
    assert [key for _, _, key, _ in seen(data, len(batch) - 1)] == [record.key for record in batch[:-1]]


@pytest.mark.parametrize("client", CLIENTS)
def test_batches_of_other_clients_are_sliced_as_by_the_strict_reader(client: str) -> None:
    for batch in golden(client).values():
        header = read_header(batch)
        data = bytes(get_uncompressed_payload(batch, 0, header))
        strict = [
            (record.offset - header.base_offset, record.key, record.value is None)
            for record in parse_records(data, header)
        ]
        assert [(offset, key, is_null) for offset, _, key, is_null in seen(data, header.record_count)] == strict


@given(records(), st.data())
def test_arbitrary_bytes_are_rejected_or_read_within_bounds(batch: list[Record], data: st.DataObject) -> None:
    mutable = bytearray(payload(batch))
    at = data.draw(st.integers(0, len(mutable) - 1))
    mutable[at] = data.draw(st.integers(0, 255))
    cut = bytes(mutable[: data.draw(st.integers(0, len(mutable)))])
    try:
        found = list(iterate_record_slices(cut, len(batch)))
    except InvalidRecords:
        return
    assert found[-1][1] == len(cut)


@for_each(
    ("data", "count"),
    [
        (b"", 1),
        (payload(SMALL) + b"x", len(SMALL)),
        (payload(SMALL), len(SMALL) + 1),
        (payload(SMALL), len(SMALL) - 1),
        (payload(SMALL)[:-1], len(SMALL)),
        (b"\x01" + payload(SMALL)[1:], len(SMALL)),
        (b"\xff" * 20, 1),
        (b"\x04\x00\x00", 1),
        (b"\x0c\x00\x00\x00\x20key", 1),
    ],
)
def test_a_malformed_batch_is_rejected(data: bytes, count: int) -> None:
    with pytest.raises(InvalidRecords):
        list(iterate_record_slices(data, count))


@given(records(), st.integers(-(2**40), 2**40))
def test_shifting_timestamps_changes_nothing_else(batch: list[Record], by_ms: int) -> None:
    data = payload(batch)
    moved = b"".join(add_to_timestamp(data, record, by_ms) for record in iterate_record_slices(data, len(batch)))
    assert moved == payload(batch, BASE - by_ms)
