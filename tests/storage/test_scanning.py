"""Walking through `.log` files of any size of batch, with any damage.

What a log does about a damage is tested in `test_recovery.py`.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.errors import CorruptBatch
from minibroker.storage.files import Disk, File
from minibroker.storage.scanning import OldMessageFormat, headers, sound_batches, spans
from tests.storage.support import batch


def file_of(directory: Path, data: bytes) -> File:
    path = directory / "00000000000000000000.log"
    path.write_bytes(data)
    return Disk().open(str(path))


def chain(*counts: int, value: bytes = b"v") -> bytes:
    data, offset = b"", 0
    for count in counts:
        data += batch(count, base_offset=offset, value=value)
        offset += count
    return data


@pytest.mark.parametrize("value_bytes", [1, 100, 3000, 9000, 100_000])
@pytest.mark.parametrize("block_bytes", [61, 1000, 8192])
def test_every_batch_is_found_whatever_the_size_of_batches_and_blocks(
    tmp_path: Path, value_bytes: int, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minibroker.storage.scanning.SCAN_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr("minibroker.storage.scanning.RECOVERY_BLOCK_BYTES", block_bytes)
    data = chain(1, 3, 2, 1, 5, value=bytes(value_bytes))
    file = file_of(tmp_path, data)
    lean = list(spans(file, 0, len(data)))
    full = list(headers(file, 0, len(data), block_bytes))
    sound = list(sound_batches(file, 0, len(data)))
    assert [(first, last) for _, _, first, last in lean] == [(0, 0), (1, 3), (4, 5), (6, 6), (7, 11)]
    assert [position + size for position, size, _, _ in lean] == [position for position, *_ in lean[1:]] + [len(data)]
    assert [position for position, _ in full] == [position for position, *_ in lean]
    assert full == sound


def test_scanning_may_begin_and_end_at_any_batch(tmp_path: Path) -> None:
    data = chain(1, 1, 1, 1)
    size = len(data) // 4
    file = file_of(tmp_path, data)
    assert [position for position, _ in headers(file, size, 3 * size)] == [size, 2 * size]
    assert list(spans(file, size, size)) == []


@pytest.mark.parametrize("scan", [headers, spans, sound_batches])
@pytest.mark.parametrize("cut", [1, 8, 12, 17, 60, 61, 65])
def test_a_torn_batch_is_reported_by_its_position_after_those_before_it(tmp_path: Path, scan, cut: int) -> None:  # type: ignore[no-untyped-def]
    data = chain(2, 2)
    data, size = data + chain(1)[:cut], len(data)
    found = []
    with pytest.raises(CorruptBatch, match="00000000000000000000.log") as raised:
        for position, *_ in scan(file_of(tmp_path, data), 0, len(data)):
            found.append(position)
    assert found == [0, size // 2]
    assert raised.value.position == size


@pytest.mark.parametrize("length", [-1, 0, 9, 10, 48, 1 << 30, (1 << 31) - 1, -(1 << 31)])
@pytest.mark.parametrize("crc", [0, None])
def test_an_impossible_length_is_a_damage_and_takes_no_memory(tmp_path: Path, length: int, crc: int | None) -> None:
    data = bytearray(chain(1, 1))
    struct.pack_into(">i", data, len(data) // 2 + 8, length)
    if crc is not None:
        struct.pack_into(">I", data, len(data) // 2 + 17, crc)
    for scan in (headers, spans, sound_batches):
        with pytest.raises(CorruptBatch) as raised:
            list(scan(file_of(tmp_path, bytes(data)), 0, len(data)))
        assert raised.value.position == len(data) // 2


@given(st.integers(12, 10_000), st.integers(1, 255))
def test_a_damage_after_the_first_fields_is_always_found(
    tmp_path_factory: pytest.TempPathFactory, at: int, flip: int
) -> None:
    data = bytearray(chain(3, 3, 3))
    at %= len(data)
    if at % (len(data) // 3) < 8 or 12 <= at % (len(data) // 3) < 16:
        return  # base offset and leader epoch are not covered by the checksum
    data[at] ^= flip
    file = file_of(tmp_path_factory.mktemp("damaged"), bytes(data))
    with pytest.raises(CorruptBatch) as raised:
        list(sound_batches(file, 0, len(data)))
    assert raised.value.position == at - at % (len(data) // 3)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_sound_batch_of_an_old_format_is_no_damage(tmp_path: Path, magic: int) -> None:
    body = (
        struct.pack(">bb", magic, 0)
        + (struct.pack(">q", 5) if magic else b"")
        + struct.pack(">i3si3s", 3, b"key", 3, b"val")
    )
    message = struct.pack(">I", zlib.crc32(body)) + body
    data = chain(1) + struct.pack(">qi", 1, len(message)) + message + bytes(100)
    with pytest.raises(OldMessageFormat, match=f"message format {magic} at"):
        list(sound_batches(file_of(tmp_path, data), 0, len(data)))


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_a_damaged_magic_is_a_damage(tmp_path: Path, magic: int) -> None:
    data = bytearray(chain(1))
    data[16] = magic & 0xFF
    with pytest.raises(CorruptBatch, match=f"magic {magic}"):
        list(sound_batches(file_of(tmp_path, bytes(data)), 0, len(data)))


def test_a_file_that_is_shorter_than_it_was_is_a_damage(tmp_path: Path) -> None:
    data = chain(1, 1)
    file = file_of(tmp_path, data[: len(data) // 2])
    for scan in (headers, spans, sound_batches):
        with pytest.raises(CorruptBatch, match="0 bytes at"):
            list(scan(file, 0, len(data)))
