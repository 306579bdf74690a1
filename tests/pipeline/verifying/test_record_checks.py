"""Records against headers: all at once with numpy, and the same verdict as the broker's own strict reader has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.pipeline.verifying import record_checks
from minibroker.pipeline.verifying.record_checks import CheckedBlock, check_records
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.batch import read_header, set_checksum
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.elision import elide_attributes
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record
from tests.pipeline.verifying.support import block_of

blobs = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), blobs), max_size=3).map(tuple)
records = st.lists(
    st.builds(Record, st.just(0), st.integers(-1, 1 << 45), blobs, blobs, headers), min_size=1, max_size=30
)
CODECS = range(5)


def checked(batches: list[bytes], *, compacted: bool = False) -> CheckedBlock:
    """The batches side by side in a block, as sound ones."""
    return check_records(block_of(b"".join(batches)), compacted=compacted)


def built(number: int, given: list[Record], codec: int, *, elided: bool = False) -> bytes:
    batch = build_batch(given, base_offset=1000 * number, compression=codec)
    short = elide_attributes(batch, read_header(batch)) if elided else None
    return bytes(short or batch)


@given(st.lists(st.tuples(records, st.sampled_from(CODECS), st.booleans()), min_size=1, max_size=20))
def test_batches_of_the_brokers_codec_have_no_findings(given: list[tuple[list[Record], int, bool]]) -> None:
    batches = [built(number, *each[:2], elided=each[2]) for number, each in enumerate(given)]
    found = checked(batches)
    assert found.problems == []
    read = [
        (int(offset), None if size < 0 else each.data[start : start + size], bool(has_value))
        for each in found.records
        for offset, start, size, has_value in zip(
            each.offset.tolist(), each.key_start.tolist(), each.key_size.tolist(), each.has_value, strict=True
        )
    ]
    expected = [
        (record.offset, record.key, record.value is not None)
        for batch in batches
        for record in iterate_records_of_batch(batch)
    ]
    assert read == expected


def reads_well(batch: bytes) -> bool:
    """Whether the broker's strict reader takes the batch, and it is what its header says."""
    header = read_header(batch)
    try:
        found = list(iterate_records_of_batch(batch))
    except KafkaError:
        return False
    offsets = list(range(header.base_offset, header.base_offset + len(found)))
    largest = max(record.timestamp for record in found)
    return [record.offset for record in found] == offsets and largest == header.max_timestamp


@given(records, st.booleans(), st.data())
def test_the_verdict_on_a_changed_byte_is_that_of_the_brokers_reader(
    given: list[Record], elided: bool, data: st.DataObject
) -> None:
    whole = [built(number, given, 0, elided=elided) for number in range(14)]
    changed = bytearray(whole[5])
    at = data.draw(st.integers(61, len(changed) - 1))
    changed[at] = data.draw(st.integers(0, 255))
    set_checksum(changed, 0, len(changed))
    problems = checked([*whole[:5], bytes(changed), *whole[6:]]).problems
    assert (problems == []) == reads_well(bytes(changed))
    assert {problem.offset for problem in problems} <= {5000}


def test_the_records_of_a_giant_batch_are_checked(one: bytes = b"k") -> None:
    batch = built(1, [Record(timestamp=number, key=one) for number in range(50_000)], 4)
    (found,) = checked([batch]).records
    assert found.offset.tolist() == list(range(1000, 51_000))


def test_offset_gaps_are_accepted_only_in_a_compacted_log() -> None:
    batch = bytearray(built(0, [Record(timestamp=1, key=b"k"), Record(timestamp=1, key=b"k")], 0))
    second = 61 + 1 + (batch[61] >> 1)
    batch[second + 3] = 5 << 1  # the offset delta
    batch[26] = 5  # the last offset delta
    set_checksum(batch, 0, len(batch))
    assert [problem.kind for problem in checked([bytes(batch)]).problems] == ["record-offset"]
    assert checked([bytes(batch)], compacted=True).problems == []


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_records_that_cannot_be_decompressed_are_found(codec: int) -> None:
    batch = bytearray(built(0, [Record(timestamp=1, value=b"x" * 500)], codec))
    batch[61:] = b"\xff" * (len(batch) - 61)
    set_checksum(batch, 0, len(batch))
    assert [problem.kind for problem in checked([bytes(batch)]).problems] == ["codec"]


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_records_too_large_to_be_read_are_a_note_and_not_an_error(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_checks, "MAX_BATCH_BYTES", 10_000)
    large = built(0, [Record(value=bytes(20_000))], codec)
    found = checked([large, built(1, [Record(value=b"v")], codec)])
    assert [(problem.kind, problem.offset) for problem in found.problems] == ([("large", 0)] if codec else [])
    assert sum(len(each.offset) for each in found.records) == (1 if codec else 2)
