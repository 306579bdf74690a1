"""Segments that lost their end while nobody looked: what is left is served, and for the rest there is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.log import Log
from tests.storage.support import NOW_MS, SMALL, append, batch, code_of, log_of, open_at

COMPACT = SMALL._replace(cleanup_policy=frozenset({"compact"}))


def second_segment(directory: Path) -> tuple[Path, int, int]:
    """The file of the second segment of a closed log; its first offset, and that of the third."""
    log = log_of(directory)
    _, first, third, *_ = [segment.base_offset for segment in log.segments]
    log.close()
    return directory / f"{first:020d}.log", first, third


def outcome(log: Log, offset: int) -> int | ErrorCode:
    """The first offset that a reader who asks for `offset` is given, or the error."""
    try:
        region = log.read(offset, 1)
    except KafkaError as error:
        return error.code
    assert region is not None
    return int.from_bytes(region.read()[:8], "big")


@pytest.mark.parametrize("settings", [SMALL, COMPACT])
@pytest.mark.parametrize("left", [0, 1, 52, 80, 100, 2 * 81 + 5])
def test_the_lost_end_of_a_closed_segment_is_an_error_for_its_offsets_only(
    tmp_path: Path, settings: object, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    file, first, third = second_segment(tmp_path)
    size = file.stat().st_size // ((third - first) // 2)
    file.write_bytes(file.read_bytes()[:left])
    log = open_at(tmp_path, settings)  # type: ignore[arg-type]
    there = left // size
    for offset in range(first, first + 2 * there):
        assert outcome(log, offset) == offset - offset % 2
    for offset in range(first + 2 * there, third):
        assert outcome(log, offset) is ErrorCode.KAFKA_STORAGE_ERROR
    assert outcome(log, third) == third
    assert outcome(log, 0) == 0
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert f"{file} is damaged: it can be read up to position {there * size}, offset {first + 2 * there}" in errors[0]


def test_batches_before_a_damaged_indexed_batch_are_served(tmp_path: Path) -> None:
    file, first, third = second_segment(tmp_path)
    position = int.from_bytes(file.with_suffix(".index").read_bytes()[-4:])  # of the last entry
    data = bytearray(file.read_bytes())
    damaged = int.from_bytes(data[position : position + 8])
    data[position + 8 : position + 12] = b"\xff" * 4  # its length
    file.write_bytes(data)
    log = open_at(tmp_path, SMALL)
    assert first < damaged < third
    for offset in range(first, damaged):
        assert outcome(log, offset) == offset - offset % 2
    assert {outcome(log, offset) for offset in range(damaged, third)} == {ErrorCode.CORRUPT_MESSAGE}
    assert outcome(log, third) == third


def test_a_region_ends_before_a_lost_segment_end(tmp_path: Path) -> None:
    file, first, _ = second_segment(tmp_path)
    file.write_bytes(file.read_bytes()[:100])
    region = open_at(tmp_path).read(first, 1 << 20)
    assert region is not None and region.next_offset == first + 2 and len(region.read()) == region.size_bytes < 100


def test_reading_a_missing_segments_offsets_is_an_error(tmp_path: Path) -> None:
    file, first, third = second_segment(tmp_path)
    file.unlink()
    log = open_at(tmp_path)
    assert [outcome(log, offset) for offset in (first - 1, first, third - 1, third)] == [
        first - 2,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.KAFKA_STORAGE_ERROR,
        third,
    ]


def test_an_offset_gap_left_by_compaction_is_not_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_at(tmp_path, COMPACT)
    append(log, batch(2, timestamp=NOW_MS))
    log.roll_segment_if_used()
    log.log_end_offset += 10  # as if the end of the first segment had been compacted away
    log.roll_segment_if_used()
    append(log, batch(2, timestamp=NOW_MS + 1))
    assert outcome(log, 5) == 12
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_batch_with_offsets_of_another_segment_is_damage(tmp_path: Path) -> None:
    file, first, third = second_segment(tmp_path)
    data = bytearray(file.read_bytes())
    size = len(data) // ((third - first) // 2)
    data[-size + 2] ^= 1  # of the last batch's base offset, which no checksum covers
    file.write_bytes(data)
    with pytest.raises(KafkaError) as raised:
        open_at(tmp_path).read(third - 1, 1)
    assert code_of(raised) is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("length", [-1, 0, 13])
def test_a_batch_shorter_than_its_header_is_corrupt_for_consumers(tmp_path: Path, length: int) -> None:
    file, first, third = second_segment(tmp_path)
    file.write_bytes(first.to_bytes(8, "big") + length.to_bytes(4, "big", signed=True) + file.read_bytes())
    log = open_at(tmp_path)
    assert [outcome(log, offset) for offset in (first, third - 1)] == [ErrorCode.CORRUPT_MESSAGE] * 2
    assert outcome(log, third) == third


def test_the_lost_end_of_a_message_of_the_smallest_size_is_a_storage_error(tmp_path: Path) -> None:
    file, first, third = second_segment(tmp_path)
    file.write_bytes(first.to_bytes(8) + (14).to_bytes(4))
    assert [outcome(open_at(tmp_path), offset) for offset in (first, third - 1)] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2


# --- what a recovery says --------------------------------------------------------------------------


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_recovery_reports_a_compacted_segment_that_lost_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, first, third = second_segment(tmp_path)
    file.write_bytes(b"")
    open_at(tmp_path, COMPACT, clean=False)
    assert told(caplog) == [f"{file} ends at offset {first}, but had reached {third}: what followed is lost"]


def test_a_recovery_reports_decreasing_leader_epochs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_at(tmp_path)
    for _ in range(3):
        append(log, batch(1), leader_epoch=2)
    log.close_without_flush()
    file = tmp_path / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[len(data) // 3 + 15] ^= 8  # of the second batch's leader epoch, which no checksum covers
    file.write_bytes(data)
    open_at(tmp_path, clean=False)
    (line,) = told(caplog)
    assert line.endswith("offset 2, has leader epoch 2, and one before it 10")


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_ends_before_fsynced_offsets_is_reported(
    tmp_path: Path, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_at(tmp_path)
    append(log, batch(3))
    log.close()
    (tmp_path / f"{0:020d}.log").write_bytes(b"")
    open_at(tmp_path, clean=clean, recovery_point=3)
    assert told(caplog)[-1] == f"the log in {tmp_path} ends at offset 0, but had reached 3: what followed is lost"


EPOCH_AT_THE_END = b"0\n1\n0 0\n"  # as Kafka notes it when a broker becomes the leader


@pytest.mark.parametrize("index", [bytes(80), b"", None, bytes(72) + b"\0\0\0\1\0\0\0\1"])
def test_a_leader_epoch_at_the_log_end_is_a_loss_unless_kafka_preallocated_the_index(
    tmp_path: Path, index: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / f"{0:020d}.log").touch()
    (tmp_path / "leader-epoch-checkpoint").write_bytes(EPOCH_AT_THE_END)
    if index is not None:
        (tmp_path / f"{0:020d}.index").write_bytes(index)
    open_at(tmp_path, clean=False)
    lines = told(caplog)
    assert ["leader epoch 0 began at 0" in line for line in lines] == ([] if index == bytes(80) else [True])


def test_a_leader_epoch_that_kafka_recorded_for_an_empty_log_is_not_a_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / f"{0:020d}.log").touch()
    (tmp_path / "leader-epoch-checkpoint").write_bytes(EPOCH_AT_THE_END)
    (tmp_path / f"{0:020d}.index").touch()
    open_at(tmp_path).close_without_flush()
    open_at(tmp_path, clean=False)
    assert told(caplog) == []
