"""What a crash may leave of the last write, and what must have been damaged later."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.storage.files import Disk
from minibroker.storage.recovery.leftovers import damage_behind
from tests.storage.support import batch

BATCH = bytes(batch(2, value=b"v" * 600))
OTHER = bytes(batch(1))


def judged(tmp_path: Path, data: bytes, position: int = 0) -> str | None:
    path = tmp_path / "log"
    path.write_bytes(bytes(position) + data)
    return damage_behind(Disk().open(str(path)), position, position + len(data))


@pytest.mark.parametrize("size", [1, 60, 61, 100, len(BATCH) - 1])
@pytest.mark.parametrize("position", [0, 300, 512])
def test_a_batch_that_is_shorter_than_it_says_is_torn(tmp_path: Path, size: int, position: int) -> None:
    assert judged(tmp_path, BATCH[:size], position) is None


@pytest.mark.parametrize("sector", [0, 1, 2])
def test_a_sector_that_was_never_written_is_torn(tmp_path: Path, sector: int) -> None:
    data = bytearray(BATCH)
    end = min(512 * (sector + 1), len(data))
    data[512 * sector : end] = bytes(end - 512 * sector)
    assert judged(tmp_path, bytes(data)) is None


def test_zeros_alone_are_torn(tmp_path: Path) -> None:
    assert judged(tmp_path, bytes(2000)) is None


@pytest.mark.parametrize("at", [20, 40, 300, len(BATCH) - 1])
def test_a_wrong_byte_in_a_whole_batch_is_damage(tmp_path: Path, at: int) -> None:
    data = bytearray(BATCH)
    data[at] ^= 4
    assert judged(tmp_path, bytes(data)) == "it is as long as it says"


def test_a_wrong_length_of_a_whole_batch_is_damage(tmp_path: Path) -> None:
    data = bytearray(BATCH)
    data[9] ^= 1
    assert judged(tmp_path, bytes(data)) == "it is whole but for its length"


def test_a_sound_batch_behind_shows_that_there_is_damage_before(tmp_path: Path) -> None:
    assert judged(tmp_path, BATCH[:700] + OTHER, 100) == "behind it there is a sound batch at 800"
