"""Splits whose files have changed since the plan, and damage: said with file, position and offset, or set apart.

What is whole is read in `test_directory_source.py`.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from minibroker.pipeline.directory import log_walking, splitting
from minibroker.pipeline.directory.directory_source import DirectorySource
from minibroker.pipeline.directory.reading_disk import ReadingDisk
from minibroker.pipeline.directory.splitting import SplitReader, SplitStretches
from minibroker.pipeline.log_source import CorruptData, DataLoss, OffsetRange, ReadRequest, Split
from minibroker.protocol.records.conversion import build_records_in_format
from minibroker.protocol.records.record import Record
from minibroker.storage.files import File
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from tests.pipeline.directory.support import (
    BATCHES,
    ORDERS,
    RECORDS,
    SMALL,
    append,
    batch_of,
    batches_in,
    fill,
    filled,
    finish,
    log_in,
    overwrite,
    records,
    rows,
    source_of,
    whole,
    written,
)
from tests.storage.compaction.support import COMPACT, clean

CARELESS = replace(RECORDS, fail_on_data_loss=False)
ONE_SEGMENT = LogSettings(index_interval_bytes=200)
FIRST = "00000000000000000000.log"


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = log_in(tmp_path)
    fill(log)
    return log


def planned(tmp_path: Path, count: int = 0) -> tuple[DirectorySource, list[Split]]:
    source = source_of(tmp_path)
    return source, source.make_splits([whole(source)], count)


# --- loss -----------------------------------------------------------------------------------


class Vanishing(ReadingDisk):
    """Files are removed as soon as they are open."""

    def open_to_read(self, path: str) -> File:
        file = super().open_to_read(path)
        os.unlink(path)
        return file


def test_a_damaged_range_in_a_vanished_file_is_a_data_loss(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(log)
    source, splits = planned(tmp_path)
    place = splits[0].place
    assert isinstance(place, SplitStretches)
    damaged = replace(place.stretches[0], first_offset=None, last_position=None)
    split = replace(splits[0], place=replace(place, stretches=(damaged,)))
    monkeypatch.setattr(splitting, "DISK", Vanishing())
    with pytest.raises(DataLoss, match="other batches are there now"):
        rows(source, [split])


def test_a_vanished_segment_is_a_data_loss(tmp_path: Path, log: Log) -> None:
    directory = finish(log)
    source, splits = planned(tmp_path)
    gone = sorted(directory.glob("*.log"))[1]
    gone.unlink()
    with pytest.raises(DataLoss, match=rf"{gone}: offsets \d+ to \d+ were .* and the file is gone"):
        records(source, splits)
    assert records(source, splits, CARELESS) == written(directory)


def test_a_shortened_segment_is_a_data_loss(tmp_path: Path, log: Log) -> None:
    directory = finish(log)
    source, splits = planned(tmp_path)
    path = max(directory.glob("*.log"))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - 50])
    with pytest.raises(DataLoss, match=rf"and the file has {len(data) - 50} bytes now"):
        records(source, splits)
    expected = [row.offset for row in records(source, splits, CARELESS)]
    assert expected == list(range(117))


def test_a_vanished_log_is_a_data_loss(tmp_path: Path, log: Log) -> None:
    directory = finish(log)
    source, splits = planned(tmp_path)
    shutil.rmtree(directory)
    with pytest.raises(DataLoss):
        records(source, splits)
    assert records(source, splits, CARELESS) == []


@pytest.mark.parametrize("count", [0, 30])
def test_a_concurrently_compacted_log_is_a_data_loss_and_its_rest_is_read(tmp_path: Path, count: int) -> None:
    log = log_in(tmp_path, settings=SMALL._replace(cleanup_policy=COMPACT, file_delete_delay_ms=0))
    fill(log, 100)
    log.roll_segment_if_used()
    source, splits = planned(tmp_path, count)
    clean(log)
    directory = finish(log)
    with pytest.raises(DataLoss):
        records(source, splits)
    assert records(source, splits, CARELESS) == written(directory)


@pytest.mark.parametrize("count", [0, 30])
def test_a_rewritten_log_is_a_data_loss(tmp_path: Path, log: Log, count: int) -> None:
    source, splits = planned(tmp_path, count)
    log.truncate_to(60)
    append(log, batch_of(60, 1, size=77))
    fill(log, 40)
    directory = finish(log)
    with pytest.raises(DataLoss, match="other batches are there now|bytes now|file is gone"):
        records(source, splits)
    expected = [row for row in written(directory) if row.offset < 120]
    assert records(source, splits, CARELESS) == expected


@pytest.mark.parametrize("careless", [False, True])
def test_a_file_truncated_during_a_read_is_a_data_loss(
    tmp_path: Path, careless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = filled(tmp_path, 100, settings=ONE_SEGMENT)
    source = source_of(tmp_path, block_bytes=500)
    (split,) = source.make_splits([whole(source)])
    path = directory / FIRST
    before = log_walking.read_exactly

    def cutting(file: File, position: int, size: int) -> bytes:
        if position > 4000:
            path.write_bytes(path.read_bytes()[:5000])
        return before(file, position, size)

    monkeypatch.setattr(log_walking, "read_exactly", cutting)
    reader = SplitReader(split, CARELESS if careless else RECORDS, source._find_stretches, 500)
    if careless:
        found = [row["offset"] for table in reader.read_rows() for row in table.to_pylist()]
        assert found == [row.offset for row in whole_records(path)]
    else:
        with pytest.raises(DataLoss, match="it now ends at 5000"):
            list(reader.read_rows())


def whole_records(path: Path) -> list[Any]:
    data, size = path.read_bytes(), 0
    while size + 12 <= len(data) and size + 12 + int.from_bytes(data[size + 8 : size + 12]) <= len(data):
        size += 12 + int.from_bytes(data[size + 8 : size + 12])
    path.write_bytes(data[:size])
    return written(path.parent)


def test_an_appended_or_copied_log_is_not_a_data_loss(tmp_path: Path, log: Log) -> None:
    source, splits = planned(tmp_path, 10)
    expected = records(source)
    fill(log, 30)
    directory = finish(log)
    shutil.copytree(directory, tmp_path / "copy")
    shutil.rmtree(directory)
    shutil.move(tmp_path / "copy", directory)
    assert records(source, splits) == expected


# --- damage ---------------------------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """The file of a log of 40 batches of three records in one segment, of which the 11th begins at offset 30."""
    return filled(tmp_path, 40, settings=ONE_SEGMENT) / FIRST


def position_of(path: Path, number: int) -> int:
    return sum(len(data) for data in list(batches_in(path.read_bytes()))[:number])


# The byte in the batch, and what is put there: each hides where the next batch begins.
HIDING = [
    pytest.param(16, b"\x05", id="magic"),
    pytest.param(8, b"\x00\x00\x00\x01", id="length too small"),
    pytest.param(8, b"\xff\xff\xff\xff", id="negative length"),
    pytest.param(8, b"\x7f\xff\xff\xff", id="length beyond the file"),
    pytest.param(8, b"\x00\x00\x00\x60", id="length that ends in the batch"),
    pytest.param(8, b"\x00\x00\x01\x77", id="length that ends in a later batch"),
    pytest.param(0, b"\xff" * 60, id="whole header"),
]


@pytest.mark.parametrize(("at", "data"), HIDING)
@pytest.mark.parametrize("block_bytes", [1 << 20, 300])
@pytest.mark.parametrize("splits", [0, 9])
def test_damage_that_hides_the_next_batch_fails_the_read_or_is_one_row(
    tmp_path: Path, damaged: Path, at: int, data: bytes, block_bytes: int, splits: int
) -> None:
    position = position_of(damaged, 10)
    overwrite(damaged, position + at, data)
    source = source_of(tmp_path, block_bytes=block_bytes)
    assert whole(source) == (ORDERS, 0, 120)
    plan = source.make_splits([whole(source)], splits)
    request = ReadRequest("records", ("offset", "value", "_corrupt"))
    with pytest.raises(CorruptData, match=rf"{damaged}: position \d+, offset"):
        rows(source, plan, request)
    found = rows(source, plan, replace(request, mode="PERMISSIVE"))
    corrupt = [row for row in found if row["_corrupt"]]
    sound = [row["offset"] for row in found if not row["_corrupt"]]
    assert f"{damaged}: position {position}, offset " in corrupt[0]["_corrupt"]
    assert len(corrupt) == 1
    assert sound == [offset for offset in range(120) if not 30 <= offset < 33]
    assert found.index(corrupt[0]) == 30
    assert rows(source, plan, replace(request, mode="DROPMALFORMED")) == [row for row in found if not row["_corrupt"]]


@pytest.mark.parametrize("table", ["records", "batches"])
def test_a_flipped_bit_within_a_batch_affects_only_that_batch(tmp_path: Path, damaged: Path, table: Any) -> None:
    position = position_of(damaged, 10)
    overwrite(damaged, position + 70, b"\xff\xff\xff\xff\xff\xff\xff")
    source = source_of(tmp_path)
    plan = source.make_splits([whole(source)], 4)
    if table == "records":
        request = ReadRequest("records", ("offset", "_corrupt"), verify_crc=True)
        with pytest.raises(CorruptData, match=rf"{damaged}: position {position}, offset 30"):
            rows(source, plan, request)
        found = rows(source, plan, replace(request, mode="PERMISSIVE"))
        assert [row["offset"] for row in found if not row["_corrupt"]] == [*range(30), *range(33, 120)]
        assert [row["offset"] for row in found if row["_corrupt"]] == [30]
    else:
        found = rows(source, plan, ReadRequest("batches", ("baseOffset", "crcValid"), verify_crc=True))
        assert [row["baseOffset"] for row in found if not row["crcValid"]] == [30]
        assert len(found) == 40


def test_the_batches_table_has_one_row_for_bytes_that_hide_the_next_batch(tmp_path: Path, damaged: Path) -> None:
    position = position_of(damaged, 10)
    overwrite(damaged, position, b"\xff" * 40)
    source = source_of(tmp_path)
    request = replace(BATCHES, columns=("baseOffset", "position", "segment", "_corrupt"), mode="PERMISSIVE")
    found = rows(source, source.make_splits([whole(source)]), request)
    (corrupt,) = [row for row in found if row["_corrupt"]]
    assert (corrupt["baseOffset"], corrupt["position"], corrupt["segment"]) == (30, position, FIRST)
    assert len(found) == 40


def test_damage_at_the_end_of_an_inner_segment_is_reported(tmp_path: Path, log: Log) -> None:
    directory = finish(log)
    path = sorted(directory.glob("*.log"))[1]
    path.write_bytes(path.read_bytes()[:-20])
    source = source_of(tmp_path)
    for count in (0, 30):
        plan = source.make_splits([whole(source)], count)
        with pytest.raises(CorruptData, match=rf"{path}: position \d+, offset"):
            records(source, plan)
        found = records(source, plan, replace(RECORDS, mode="DROPMALFORMED"))
        assert len(found) == 117


def test_a_damaged_segment_replaced_meanwhile_is_a_data_loss(tmp_path: Path, log: Log) -> None:
    path = sorted(finish(log).glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    data[16] = data[-1] = 0x7F
    last = sum(map(len, list(batches_in(path.read_bytes()))[:-1]))
    data[last + 16] = 0x7F
    path.write_bytes(data)
    source, splits = planned(tmp_path)
    careful = replace(RECORDS, mode="DROPMALFORMED")
    expected = records(source, splits, careful)
    assert len(expected) == 120 - 6
    path.write_bytes(data[: last - 7] + data[last:])
    os.utime(path)
    with pytest.raises(DataLoss, match="other batches are there now|bytes now"):
        records(source, splits, careful)
    path.write_bytes(data)
    os.utime(path, ns=(0, 0))
    with pytest.raises(DataLoss, match="other batches are there now"):
        records(source, splits, careful)


def test_damage_before_the_end_of_the_last_segment_is_not_taken_for_its_torn_end(tmp_path: Path, damaged: Path) -> None:
    for number in range(40):
        data = damaged.read_bytes()
        overwrite(damaged, position_of(damaged, number) + 16, b"\x7f")
        end = 120 if number < 39 else 117
        assert whole(source_of(tmp_path)) == OffsetRange(ORDERS, 0, end), number
        damaged.write_bytes(data)


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_adjacent_damaged_messages_are_separate_rows(tmp_path: Path, block_bytes: int) -> None:
    log = [
        bytearray(build_records_in_format([Record(offset=offset, timestamp=1, value=bytes(60))], 1))
        for offset in range(5)
    ]
    for each in log[2:4]:
        each[-1] ^= 1
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / FIRST).write_bytes(b"".join(log))
    source = source_of(tmp_path, block_bytes=block_bytes)
    found = rows(source, source.make_splits([whole(source)]), replace(BATCHES, mode="PERMISSIVE"))
    assert [(row["baseOffset"], row["lastOffset"]) for row in found] == [(offset, offset) for offset in range(5)]
