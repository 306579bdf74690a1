"""Whatever byte of a log that is not compacted is changed, it is found; and no garbage makes the judgement fail."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from minibroker.storage.checkpoints.checkpoint_texts import format_offset_checkpoint
from tests.pipeline.verifying.support import judge, put_bytes, written
from tests.pipeline.verifying.test_clean import History

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "-checkpoint")
TIMES = 8


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("clean")
    written(directory, 14)
    assert judge(directory) == []
    return directory


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of messages of formats 0 and 1, in wrappers of all codecs and plain."""
    directory = tmp_path_factory.mktemp("old")
    history = History(directory, 1, compacted=False, preallocate=False)
    for _ in range(60):
        history.now_ms += 10
        history.write_old()
    history.log.close()
    assert judge(directory) == []
    return directory


def files(directory: Path, suffix: str) -> list[Path]:
    return [file for file in sorted(directory.glob(f"orders-0/*{suffix}")) if file.stat().st_size]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("seed", range(TIMES))
def test_a_changed_byte_is_found(suffix: str, seed: int, clean: Path, tmp_path: Path) -> None:
    file, at, before, byte = with_a_changed_byte(clean, tmp_path, suffix, Random(f"{suffix} {seed}"))
    # An entry of the index that has a later batch's offset still leads to where that is found: old brokers wrote such.
    harmless = suffix == ".index" and at % 8 == 3 and byte > before
    assert judge(tmp_path / "copy") != [] or harmless, f"byte {at} of {file.name}: {byte} instead of {before}"


def with_a_changed_byte(source: Path, tmp_path: Path, suffix: str, chance: Random) -> tuple[Path, int, int, int]:
    """Copy a directory and change a byte of one of these files: the file, where, what was there, and what is."""
    file = chance.choice(files(shutil.copytree(source, tmp_path / "copy"), suffix))
    data = file.read_bytes()
    at = chance.randrange(len(data))
    byte = data[at] ^ chance.randrange(1, 256)
    put_bytes(file, at, bytes((byte,)))
    return file, at, data[at], byte


@pytest.mark.parametrize("seed", range(TIMES))
def test_verifying_random_garbage_never_fails(seed: int, tmp_path: Path) -> None:
    """Many bytes at once, in all files, of a log of all formats that was also compacted and cut."""
    history = History(tmp_path, seed, compacted=seed % 2 == 0, preallocate=False)
    for _ in range(40):
        history.step()
    history.log.close()
    (tmp_path / "cleaner-offset-checkpoint").write_bytes(
        format_offset_checkpoint({("orders", 0): history.log.log_end_offset})
    )
    chance = Random(seed)
    damaged = [file for suffix in SUFFIXES for file in files(tmp_path, suffix)]
    for file in damaged:
        data = bytearray(file.read_bytes())
        for _ in range(1 + len(data) // 150):
            at = chance.randrange(len(data))
            data[at : at + chance.randrange(4)] = chance.randbytes(chance.randrange(6))
        file.write_bytes(data)
    assert len(judge(tmp_path, compacted=["orders"])) >= len(files(tmp_path, ".snapshot"))


@pytest.mark.parametrize("seed", range(2 * TIMES))
def test_a_changed_byte_of_an_old_format_is_found(seed: int, old: Path, tmp_path: Path) -> None:
    file, at, before, byte = with_a_changed_byte(old, tmp_path, ".log", Random(seed))
    assert judge(tmp_path / "copy") != [], f"byte {at} of {file.name}: {byte} instead of {before}"
