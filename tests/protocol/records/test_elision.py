"""Batches whose records have no attributes byte: written, read as any other, and turned back."""

from __future__ import annotations

import contextlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.errors import InvalidRecords, KafkaError
from minibroker.protocol.records.batch import ELIDED_BIT, HEADER_BYTES, check_batch
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.control import make_transaction_marker
from minibroker.protocol.records.elision import elide_attributes, restore_attributes_in_steps
from minibroker.protocol.records.formats import check_batch_or_message, iterate_records_in_any_format
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record
from minibroker.protocol.records.restarting import elide_attributes_of_payload as elide_records
from minibroker.protocol.records.restarting import restore_attributes_of_payload
from minibroker.protocol.steps import run_all_steps
from tests.cases import for_each
from tests.protocol.records.samples import CODECS, SMALL, T, damaged, payload, recompress, records, similar_records
from tests.protocol.records.test_conversion import down_converted, records_of_data


def elided_batch(batch: bytearray) -> bytearray:
    found = elide_attributes(batch, check_batch(batch))
    assert found is not None
    return found


@given(records(), st.sampled_from(CODECS))
def test_a_batch_with_elided_attributes_has_the_same_records(batch: list[Record], codec: int) -> None:
    data = build_batch(batch, base_offset=7, compression=codec, producer_id=5, producer_epoch=1, base_sequence=2)
    found = elided_batch(data)
    before, after = check_batch(data), check_batch(found)
    assert after.attributes == before.attributes | ELIDED_BIT
    unchanged = {"batch_length": 0, "crc": 0, "attributes": 0}
    assert after._replace(**unchanged) == before._replace(**unchanged)
    assert list(iterate_records_of_batch(found)) == list(iterate_records_of_batch(data))
    restored_batch = run_all_steps(restore_attributes_in_steps(found, after))
    assert list(iterate_records_of_batch(restored_batch)) == list(iterate_records_of_batch(data))
    if codec == Compression.NONE:
        assert restored_batch == data


@pytest.mark.parametrize("count", [1, 3, 100])
def test_elision_saves_one_byte_per_record(count: int) -> None:
    data = build_batch([Record(index, T, b"key", b"value") for index in range(count)])
    assert len(data) - len(elided_batch(data)) == count


def test_elision_saves_two_bytes_where_the_length_gets_shorter() -> None:
    # 0x80 and more, zigzag, takes two bytes: a record of 64 bytes and one of 63.
    data = build_batch([Record(0, T, None, b"x" * (64 - 6))])
    assert data[HEADER_BYTES] > 0x7F
    assert len(data) - len(elided_batch(data)) == 2


def test_a_batch_with_elided_attributes_has_the_documented_bytes() -> None:
    assert elide_records(bytes((14, 0, 2, 4, 1, 1, 0)) + b"?", 0) == bytes((14, 0, 2, 4, 1, 1, 0)) + b"?"
    record = bytes((12, 0, 2, 4, 1, 1, 0))
    assert elide_records(record * 2, 2) == bytes((10, 2, 4, 1, 1, 0)) * 2
    assert restore_attributes_of_payload(bytes((10, 2, 4, 1, 1, 0)) * 2, 2) == record * 2


def test_records_with_nonzero_attributes_are_not_elided() -> None:
    assert elide_records(bytes((12, 0, 2, 4, 1, 1, 0)) + bytes((12, 1, 2, 4, 1, 1, 0)), 2) is None


def test_control_batches_elided_batches_and_old_messages_are_unchanged_by_elision() -> None:
    marker = make_transaction_marker(committed=True, coordinator_epoch=0, timestamp=T)
    control = build_batch([marker], control=True, transactional=True, producer_id=1, producer_epoch=0)
    assert elide_attributes(control, check_batch(control)) is None
    once = elided_batch(build_batch(SMALL))
    assert elide_attributes(once, check_batch(once)) is None
    old = build_message_set(SMALL, 1)

    assert elide_attributes(old, check_batch_or_message(old)) is None


@given(records(), st.sampled_from(CODECS[:4]), st.sampled_from([0, 1]))
def test_elided_batches_are_down_converted_like_others(batch: list[Record], codec: int, magic: int) -> None:
    data = build_batch(batch, compression=codec)
    found = elided_batch(data)
    expected = down_converted(data, check_batch(data), magic)
    assert records_of_data(down_converted(found, check_batch(found), magic)) == records_of_data(expected)


def test_recompressing_restores_the_attributes() -> None:
    data = elided_batch(build_batch(SMALL))
    found = recompress(data, Compression.GZIP)
    assert check_batch(found).attributes == Compression.GZIP
    assert list(iterate_records_in_any_format(found)) == SMALL


@for_each("seed", range(40))
def test_arbitrary_elided_bytes_are_decoded_or_rejected(seed: int) -> None:
    random = Random(seed)
    batch = similar_records(random)
    whole = payload(batch)
    there = elide_records(whole, len(batch))
    assert there is not None
    assert restore_attributes_of_payload(there, len(batch)) == whole
    with contextlib.suppress(InvalidRecords):
        restore_attributes_of_payload(damaged(random, there), len(batch))
    with contextlib.suppress(KafkaError):
        elide_records(damaged(random, whole), len(batch))
