"""How far some bytes go: whole batches of every format, torn ends, and what hides where the next batch begins."""

from __future__ import annotations

from minibroker.pipeline.decode.batch_headers import measure_whole_batches
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.message import MIN_MESSAGE_BYTES
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Record
from tests.protocol.records.samples import SMALL, T

MOVED = [record._replace(offset=record.offset + 10) for record in SMALL]
ONE = bytes(build_batch([Record(0, T, None, b"v")]))


def test_complete_batches_of_every_format_are_measured() -> None:
    for data in (
        build_batch(SMALL, base_offset=10),
        build_message_set(MOVED, 0),
        build_message_set(MOVED, 1, compression=1),
    ):
        assert measure_whole_batches(data) == (len(data), 15)


def test_a_message_of_the_smallest_size_is_measured_as_complete() -> None:
    for magic, smallest in enumerate(MIN_MESSAGE_BYTES):
        data = bytes(build_message_set([Record(7, T, None, None)], magic))
        assert len(data) == smallest
        assert measure_whole_batches(data) == (smallest, 8)


def test_a_torn_batch_is_incomplete() -> None:
    assert [measure_whole_batches(ONE + ONE[:cut]) for cut in (0, 5, 60, 61, len(ONE) - 1)] == [(len(ONE), 1)] * 5
    data = bytes(build_message_set(MOVED, 1))
    assert measure_whole_batches(data + data[:30]) == (len(data), 15)


def test_data_without_a_complete_batch_is_measured_as_zero_bytes() -> None:
    assert measure_whole_batches(b"") == measure_whole_batches(ONE[:5]) == measure_whole_batches(ONE[:-1]) == (0, None)


def test_bytes_without_a_recognizable_batch_start_are_measured_up_to_the_end_of_the_data() -> None:
    for nonsense in (ONE[:8] + b"\0\0\0\1" + ONE[12:], ONE[:16] + b"\x07" + ONE[17:]):
        assert measure_whole_batches(ONE + nonsense) == (len(ONE + nonsense), None)


def test_data_is_measured_to_its_end_after_a_batch_with_a_negative_last_offset_delta() -> None:
    backwards = ONE[:23] + b"\xff\xff\xff\xfe" + ONE[27:]
    assert measure_whole_batches(ONE + backwards) == (2 * len(ONE), None)
