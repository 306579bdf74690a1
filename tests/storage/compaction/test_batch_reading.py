"""Reading a segment for the cleaner: every batch once, whatever the blocks, and what is said of a damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.storage.compaction.batch_reading import StoredBatch, UncleanableLog, iterate_stored_batches
from minibroker.storage.files import Disk, File
from tests.cases import for_each
from tests.storage.support import batch

SIZES = [1, 5, 300, 2, 40, 1, 900, 3]


def written(directory: Path, data: bytes) -> File:
    (directory / "00000000000000000010.log").write_bytes(data)
    return Disk().open(str(directory / "00000000000000000010.log"))


def batches() -> list[bytes]:
    made, offset = [], 10
    for size in SIZES:
        made.append(bytes(batch(size, base_offset=offset, value=b"v" * 20)))
        offset += size
    return made


def read(file: File, block_bytes: int = 4096) -> list[StoredBatch]:
    return list(iterate_stored_batches(file, file.size_bytes(), 10, block_bytes))


@pytest.mark.parametrize("block_bytes", [1, 4096, 5000, 1 << 20])
def test_every_batch_is_read_completely_for_any_block_size(tmp_path: Path, block_bytes: int) -> None:
    made = batches()
    found = read(written(tmp_path, b"".join(made)), block_bytes)
    assert [each.data for each in found] == made
    assert [each.position for each in found] == [sum(map(len, made[:index])) for index in range(len(made))]
    assert [each.header.base_offset for each in found] == [10 + sum(SIZES[:index]) for index in range(len(made))]


def test_an_empty_file_contains_no_batches(tmp_path: Path) -> None:
    assert read(written(tmp_path, b"")) == []


@for_each("which", [0, 2, 6, 7])
@for_each("byte", [8, 16, 20, 30, 64])
def test_a_flipped_bit_is_reported_with_file_position_and_offset(tmp_path: Path, which: int, byte: int) -> None:
    made = batches()
    position, offset = sum(map(len, made[:which])), 10 + sum(SIZES[:which])
    data = bytearray(b"".join(made))
    data[position + byte] ^= 0x40
    file = written(tmp_path, bytes(data))
    with pytest.raises(UncleanableLog) as raised:
        read(file)
    assert str(raised.value).startswith(
        f"{file.path}: the batch at position {position}, offset {offset}, cannot be read"
    )
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("cut", [1, 30, 70])
def test_a_truncated_file_is_reported(tmp_path: Path, cut: int) -> None:
    data = b"".join(batches())
    with pytest.raises(UncleanableLog):
        read(written(tmp_path, data[:-cut]))


def test_decreasing_offsets_are_reported(tmp_path: Path) -> None:
    data = bytes(batch(2, base_offset=12)) + bytes(batch(2, base_offset=13))
    with pytest.raises(UncleanableLog, match="has the offset 13"):
        read(written(tmp_path, data))
    with pytest.raises(UncleanableLog):
        read(written(tmp_path, bytes(batch(2, base_offset=9))))


def test_a_batch_with_an_excessive_size_allocates_no_memory(tmp_path: Path) -> None:
    data = bytearray(batch(2, base_offset=10))
    data[8:12] = (0x7FFFFFF0).to_bytes(4, "big")
    with pytest.raises(UncleanableLog):
        read(written(tmp_path, bytes(data)))


def test_an_older_message_format_is_reported(tmp_path: Path) -> None:
    data = bytearray(batch(2, base_offset=10))
    data[16] = 1
    with pytest.raises(UncleanableLog):
        read(written(tmp_path, bytes(data)))
