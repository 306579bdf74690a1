"""Walking through a `.log` file: from batch to batch, over damage, in blocks of any size."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.pipeline.verifying.log_blocks import LogFileReader
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.conversion import build_records_in_format
from minibroker.protocol.records.record import Record


def batch(offset: int, size: int = 20) -> bytes:
    return bytes(build_batch([Record(timestamp=1, value=b"x" * size)], base_offset=offset))


def message(offset: int, magic: int, codec: int = 0) -> bytes:
    return bytes(
        build_records_in_format([Record(offset=offset, timestamp=5, value=b"x" * 40)], magic, compression=codec)
    )


def walked(
    path: Path, data: bytes, block_bytes: int = 1 << 20, *, is_last: bool = False
) -> tuple[list[int], list[str]]:
    """(offsets of the sound batches, what was found)."""
    path.write_bytes(data)
    file = LogFileReader(str(path), block_bytes=block_bytes, is_last=is_last)
    try:
        offsets = [
            offset
            for block in file.iterate_blocks()
            for offset, sound in zip(block.headers.base_offset.tolist(), block.sound.tolist(), strict=True)
            if sound
        ]
        return offsets, [problem.kind for problem in file.problems]
    finally:
        file.close()


@pytest.mark.parametrize("block_bytes", [1, 90, 91, 500, 1 << 20])
def test_blocks_of_any_size_return_all_batches(block_bytes: int, tmp_path: Path) -> None:
    parts = [batch(0), message(1, 0), message(2, 1), batch(3, 5000), message(4, 1, codec=1), batch(5)]
    assert walked(tmp_path / "a.log", b"".join(parts), block_bytes) == ([0, 1, 2, 3, 4, 5], [])


@pytest.mark.parametrize("block_bytes", [100, 1 << 20])
def test_reading_continues_after_garbage(block_bytes: int, tmp_path: Path) -> None:
    data = batch(0) + b"\xff" * 1000 + batch(7) + message(8, 1)
    assert walked(tmp_path / "a.log", data, block_bytes) == ([0, 7, 8], ["magic"])


def test_zeros_are_accepted_only_at_the_end_of_a_file_in_use(tmp_path: Path) -> None:
    data = batch(0) + bytes(5000)
    assert walked(tmp_path / "a.log", data, is_last=True) == ([0], [])
    assert walked(tmp_path / "a.log", data) == ([0], ["torn-tail"])
    assert walked(tmp_path / "a.log", data + batch(1), is_last=True) == ([0, 1], ["length"])


def test_empty_log_files_are_clean_and_garbage_is_a_torn_tail(tmp_path: Path) -> None:
    assert walked(tmp_path / "a.log", b"") == ([], [])
    assert walked(tmp_path / "a.log", b"\x01" * 3000) == ([], ["torn-tail"])
    for size in range(1, 30):
        assert walked(tmp_path / "a.log", batch(0)[:size]) == ([], ["torn-tail"])


@given(magics=st.lists(st.sampled_from([0, 1, 2]), min_size=2, max_size=12), data=st.data())
def test_a_missing_byte_affects_only_its_own_batch(
    magics: list[int], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    parts = [batch(n) if magic == 2 else message(n, magic) for n, magic in enumerate(magics)]
    hit = data.draw(st.integers(0, len(parts) - 2))
    size = data.draw(st.integers(1, len(parts[hit]) - 1))
    whole = b"".join([*parts[:hit], parts[hit][:size], *parts[hit + 1 :]])
    offsets, kinds = walked(
        tmp_path_factory.getbasetemp() / "cut.log", whole, data.draw(st.sampled_from([64, 1 << 20]))
    )
    assert offsets == [number for number in range(len(parts)) if number != hit]
    assert len(kinds) == 1
