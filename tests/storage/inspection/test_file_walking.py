"""A file read through one block: the right bytes, wherever they lie, and little in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.storage.files import Disk, File
from minibroker.storage.inspection import file_walking
from minibroker.storage.inspection.file_walking import BlockReader

DATA = bytes(range(200))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> File:
    path = tmp_path_factory.mktemp("blocks") / "file"
    path.write_bytes(DATA)
    return Disk().open_to_read(str(path))


@given(st.lists(st.tuples(st.integers(0, 220), st.integers(0, 80)), max_size=20), st.integers(0, 200))
def test_block_reads_in_any_order_return_the_bytes_up_to_the_end(
    file: File, reads: list[tuple[int, int]], end: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_walking, "BLOCK_BYTES", 64)
        reader = BlockReader(file, end)
        for position, size in reads:
            assert reader.read_at(position, size) == DATA[:end][position : position + min(size, 64)]


def test_a_file_that_has_become_shorter_returns_fewer_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert BlockReader(Disk().open_to_read(str(path)), 10).read_at(1, 9) == b"bc"
