"""Walking through `.log` files of any size of batch, with any damage.

What a log does about a damage is tested in `test_recovery.py`.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.formats import iterate_batches_in_any_format
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Record
from minibroker.storage.batch_scanning import (
    iterate_batch_spans,
    iterate_headers,
    iterate_sound_batches,
    read_stored_batch,
)
from minibroker.storage.files import Disk, File
from tests.cases import for_each
from tests.storage.support import NOW_MS, batch


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


@for_each("value_bytes", [1, 100, 3000, 9000, 100_000])
@for_each("block_bytes", [61, 1000, 8192])
def test_every_batch_is_found_for_any_size_of_batches_and_blocks(
    tmp_path: Path, value_bytes: int, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minibroker.storage.batch_scanning.SCAN_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr("minibroker.storage.batch_scanning.RECOVERY_BLOCK_BYTES", block_bytes)
    data = chain(1, 3, 2, 1, 5, value=bytes(value_bytes))
    file = file_of(tmp_path, data)
    lean = list(iterate_batch_spans(file, 0, len(data)))
    full = list(iterate_headers(file, 0, len(data), block_bytes))
    sound = list(iterate_sound_batches(file, 0, len(data)))
    assert [(first, last) for _, _, first, last in lean] == [(0, 0), (1, 3), (4, 5), (6, 6), (7, 11)]
    assert [position + size for position, size, _, _ in lean] == [position for position, *_ in lean[1:]] + [len(data)]
    assert [position for position, _ in full] == [position for position, *_ in lean]
    assert full == sound


def test_scanning_may_begin_and_end_at_any_batch(tmp_path: Path) -> None:
    data = chain(1, 1, 1, 1)
    size = len(data) // 4
    file = file_of(tmp_path, data)
    assert [position for position, _ in iterate_headers(file, size, 3 * size)] == [size, 2 * size]
    assert list(iterate_batch_spans(file, size, size)) == []


@for_each("scan", [iterate_headers, iterate_batch_spans, iterate_sound_batches])
@for_each("cut", [1, 8, 12, 17, 60, 61, 65])
def test_a_torn_batch_is_reported_by_its_position_after_those_before_it(tmp_path: Path, scan, cut: int) -> None:  # type: ignore[no-untyped-def]
    data = chain(2, 2)
    data, size = data + chain(1)[:cut], len(data)
    found = []
    with pytest.raises(CorruptBatch, match="00000000000000000000.log") as raised:
        for position, *_ in scan(file_of(tmp_path, data), 0, len(data)):
            found.append(position)
    assert found == [0, size // 2]
    assert raised.value.position == size


@for_each("length", [-1, 0, 9, 10, 48, 1 << 30, (1 << 31) - 1, -(1 << 31)])
@for_each("crc", [0, None])
def test_an_invalid_length_is_damage_and_allocates_no_memory(tmp_path: Path, length: int, crc: int | None) -> None:
    data = bytearray(chain(1, 1))
    struct.pack_into(">i", data, len(data) // 2 + 8, length)
    if crc is not None:
        struct.pack_into(">I", data, len(data) // 2 + 17, crc)
    for scan in (iterate_headers, iterate_batch_spans, iterate_sound_batches):
        with pytest.raises(CorruptBatch) as raised:
            list(scan(file_of(tmp_path, bytes(data)), 0, len(data)))
        assert raised.value.position == len(data) // 2


@given(st.integers(12, 10_000), st.integers(1, 255))
def test_any_damage_covered_by_the_checksum_is_found(
    tmp_path_factory: pytest.TempPathFactory, at: int, flip: int
) -> None:
    data = bytearray(chain(3, 3, 3))
    at %= len(data)
    if at % (len(data) // 3) < 8 or 12 <= at % (len(data) // 3) < 16:
        return  # base offset and leader epoch are not covered by the checksum
    data[at] ^= flip
    file = file_of(tmp_path_factory.mktemp("damaged"), bytes(data))
    with pytest.raises(CorruptBatch) as raised:
        list(iterate_sound_batches(file, 0, len(data)))
    assert raised.value.position == at - at % (len(data) // 3)


def mixed(value_bytes: int) -> bytes:
    """Batches of all formats, two of format 0 last: the last offsets are 0, 1, 3, 5, 6, 8, 9, 10."""
    kept = [Record(offset, NOW_MS, b"", bytes(value_bytes)) for offset in range(11)]
    return bytes(
        build_message_set(kept[:2], 0)
        + build_batch(kept[2:4], base_offset=2)
        + build_message_set(kept[4:6], 1, compression=Compression.GZIP)
        + build_message_set(kept[6:7], 1)
        + build_batch(kept[7:9], base_offset=7)
        + build_message_set(kept[9:], 0)
    )


@for_each("value_bytes", [0, 1, 30, 3000, 9000])
@for_each("block_bytes", [61, 100, 1000, 8192])
def test_batches_of_all_formats_are_found_side_by_side(
    tmp_path: Path, value_bytes: int, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minibroker.storage.batch_scanning.SCAN_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr("minibroker.storage.batch_scanning.RECOVERY_BLOCK_BYTES", block_bytes)
    data = mixed(value_bytes)
    file = file_of(tmp_path, data)
    expected = list(iterate_batches_in_any_format(data))
    assert [header.last_offset for _, header in expected] == [0, 1, 3, 5, 6, 8, 9, 10]
    assert list(iterate_headers(file, 0, len(data), block_bytes)) == expected
    assert list(iterate_sound_batches(file, 0, len(data))) == expected
    lean = list(iterate_batch_spans(file, 0, len(data)))
    assert [(position, size, last) for position, size, _, last in lean] == [
        (position, header.size_bytes, header.last_offset) for position, header in expected
    ]
    for position, header in expected:
        assert read_stored_batch(file, position, header) == data[position : position + header.size_bytes]


@for_each("scan", [iterate_headers, iterate_batch_spans, iterate_sound_batches])
@for_each("cut", range(1, 26))
def test_a_torn_message_of_an_old_format_is_reported(tmp_path: Path, scan, cut: int) -> None:  # type: ignore[no-untyped-def]
    whole = mixed(0)
    data = whole[:-cut]
    with pytest.raises(CorruptBatch) as raised:
        list(scan(file_of(tmp_path, data), 0, len(data)))
    assert raised.value.position == list(iterate_batches_in_any_format(whole))[-1][0]


def test_damage_in_any_format_is_found(tmp_path: Path) -> None:
    whole = mixed(3)
    for position, header in iterate_batches_in_any_format(whole):
        at = position + header.size_bytes - 1
        data = whole[:at] + bytes((whole[at] ^ 4,)) + whole[at + 1 :]
        with pytest.raises(CorruptBatch) as raised:
            list(iterate_sound_batches(file_of(tmp_path, data), 0, len(data)))
        assert raised.value.position == position


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_a_wrong_magic_byte_is_damage(tmp_path: Path, magic: int) -> None:
    data = bytearray(chain(1))
    data[16] = magic & 0xFF
    with pytest.raises(CorruptBatch, match="checksum" if magic in (0, 1) else f"magic {magic}"):
        list(iterate_sound_batches(file_of(tmp_path, bytes(data)), 0, len(data)))


def test_a_file_that_has_shrunk_is_damage(tmp_path: Path) -> None:
    data = chain(1, 1)
    file = file_of(tmp_path, data[: len(data) // 2])
    for scan in (iterate_headers, iterate_batch_spans, iterate_sound_batches):
        with pytest.raises(CorruptBatch, match="0 bytes at"):
            list(scan(file, 0, len(data)))
