"""Each state a crash can leave in a log's directory while segments are deleted or replaced, and how it is settled.

The files are put there by hand: nothing of ours writes `.cleaned` and `.swap` files yet.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.storage.files import Disk
from minibroker.storage.recovery.leftovers import find_damage_beyond_torn_write, finish_or_undo_file_swaps
from tests.cases import for_each
from tests.storage.support import batch, files_in, open_at, read_values

BATCH = bytes(batch(2, value=b"v" * 600))
OTHER = bytes(batch(1))


def name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def put(directory: Path, *names: str, content: bytes = b"") -> None:
    for each in names:
        (directory / each).write_bytes(content)


def segment(directory: Path, base_offset: int, *, value: bytes, batches: int = 2, suffix: str = "") -> None:
    """A segment of batches of two records each, with empty indexes."""
    data = b"".join(batch(2, base_offset=base_offset + 2 * i, value=value) for i in range(batches))
    put(directory, name(base_offset, f".log{suffix}"), content=data)
    put(directory, *(name(base_offset, kind + suffix) for kind in (".index", ".timeindex")))


def values(directory: Path) -> list[bytes | None]:
    return [value for _, value in read_values(open_at(directory, clean=False))]


def test_a_directory_without_leftover_files_is_unchanged(tmp_path: Path) -> None:
    segment(tmp_path, 0, value=b"a")
    put(tmp_path, "leader-epoch-checkpoint", name(4, ".snapshot"), "partition.metadata")
    before = files_in(tmp_path)
    assert finish_or_undo_file_swaps(Disk(), str(tmp_path)) == sorted(before)
    assert files_in(tmp_path) == before


def test_deleted_and_unfinished_files_are_removed(tmp_path: Path) -> None:
    segment(tmp_path, 0, value=b"a")
    kept = set(files_in(tmp_path))
    segment(tmp_path, 0, value=b"b", suffix=".deleted")
    segment(tmp_path, 0, value=b"c", suffix=".cleaned")
    put(tmp_path, name(7, ".snapshot.deleted"), "leader-epoch-checkpoint.tmp")
    assert set(finish_or_undo_file_swaps(Disk(), str(tmp_path))) == set(files_in(tmp_path)) == kept


def test_indexes_without_a_log_are_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    segment(tmp_path, 0, value=b"a")
    kept = set(files_in(tmp_path))
    put(tmp_path, name(4, ".index"), name(4, ".timeindex"), name(4, ".txnindex"))
    assert set(finish_or_undo_file_swaps(Disk(), str(tmp_path))) == set(files_in(tmp_path)) == kept
    assert "there is no log file beside it" in caplog.text


def test_a_complete_swap_replaces_all_segments_it_covers(tmp_path: Path) -> None:
    segment(tmp_path, 0, value=b"old")
    segment(tmp_path, 4, value=b"old")
    segment(tmp_path, 8, value=b"later")
    put(tmp_path, name(4, ".snapshot"), name(8, ".snapshot"))
    segment(tmp_path, 0, value=b"new", batches=4, suffix=".swap")
    finish_or_undo_file_swaps(Disk(), str(tmp_path))
    assert sorted(path.name for path in tmp_path.glob("*.log")) == [name(0, ".log"), name(8, ".log")]
    assert not (tmp_path / name(4, ".snapshot")).exists()
    assert (tmp_path / name(8, ".snapshot")).exists()
    assert values(tmp_path) == [b"new0", b"new1"] * 4 + [b"later0", b"later1"] * 2


def test_a_swap_without_aborted_transactions_removes_their_old_index(tmp_path: Path) -> None:
    segment(tmp_path, 0, value=b"old")
    put(tmp_path, name(0, ".txnindex"), name(4, ".log"), name(4, ".txnindex"))
    segment(tmp_path, 0, value=b"new", suffix=".swap")
    finish_or_undo_file_swaps(Disk(), str(tmp_path))
    assert [path.name for path in tmp_path.glob("*.txnindex")] == [name(4, ".txnindex")]


def test_a_partially_renamed_swap_is_completed(tmp_path: Path) -> None:
    segment(tmp_path, 0, value=b"new")
    (tmp_path / name(0, ".index")).rename(tmp_path / name(0, ".index.swap"))
    finish_or_undo_file_swaps(Disk(), str(tmp_path))
    assert set(files_in(tmp_path)) == {name(0, ".log"), name(0, ".index"), name(0, ".timeindex")}
    assert values(tmp_path) == [b"new0", b"new1"] * 2


def test_an_incomplete_swap_is_discarded(tmp_path: Path) -> None:
    segment(tmp_path, 0, value=b"old", batches=4)
    segment(tmp_path, 4, value=b"new", suffix=".swap")
    segment(tmp_path, 2, value=b"new", suffix=".cleaned")
    finish_or_undo_file_swaps(Disk(), str(tmp_path))
    assert values(tmp_path) == [b"old0", b"old1"] * 4


def test_an_incomplete_swap_of_later_segments_does_not_affect_earlier_ones(tmp_path: Path) -> None:
    segment(tmp_path, 0, value=b"old")
    segment(tmp_path, 4, value=b"later")
    segment(tmp_path, 0, value=b"new", suffix=".swap")
    segment(tmp_path, 4, value=b"unfinished", suffix=".cleaned")
    finish_or_undo_file_swaps(Disk(), str(tmp_path))
    assert values(tmp_path) == [b"new0", b"new1"] * 2 + [b"later0", b"later1"] * 2


def test_a_second_cleanup_of_leftover_files_changes_nothing(tmp_path: Path) -> None:
    segment(tmp_path, 0, value=b"old")
    segment(tmp_path, 0, value=b"new", suffix=".swap")
    names = finish_or_undo_file_swaps(Disk(), str(tmp_path))
    before = files_in(tmp_path)
    assert finish_or_undo_file_swaps(Disk(), str(tmp_path)) == names
    assert files_in(tmp_path) == before


def judged(tmp_path: Path, data: bytes, position: int = 0) -> str | None:
    path = tmp_path / "log"
    path.write_bytes(bytes(position) + data)
    return find_damage_beyond_torn_write(Disk().open(str(path)), position, position + len(data))


@for_each("size", [1, 60, 61, 100, len(BATCH) - 1])
@for_each("position", [0, 300, 512])
def test_a_batch_shorter_than_its_length_field_is_torn(tmp_path: Path, size: int, position: int) -> None:
    assert judged(tmp_path, BATCH[:size], position) is None


@pytest.mark.parametrize("sector", [0, 1, 2])
def test_a_batch_with_a_sector_that_was_never_written_is_torn(tmp_path: Path, sector: int) -> None:
    data = bytearray(BATCH)
    end = min(512 * (sector + 1), len(data))
    data[512 * sector : end] = bytes(end - 512 * sector)
    assert judged(tmp_path, bytes(data)) is None


def test_a_batch_of_only_zeros_is_torn(tmp_path: Path) -> None:
    assert judged(tmp_path, bytes(2000)) is None


@pytest.mark.parametrize("at", [20, 40, 300, len(BATCH) - 1])
def test_a_wrong_byte_in_a_complete_batch_is_damage(tmp_path: Path, at: int) -> None:
    data = bytearray(BATCH)
    data[at] ^= 4
    assert judged(tmp_path, bytes(data)) == "its length is right, but not its checksum"


def test_a_wrong_length_of_a_complete_batch_is_damage(tmp_path: Path) -> None:
    data = bytearray(BATCH)
    data[9] ^= 1
    assert judged(tmp_path, bytes(data)) == "only its length is wrong"


def test_a_valid_batch_after_a_torn_one_indicates_damage(tmp_path: Path) -> None:
    assert judged(tmp_path, BATCH[:700] + OTHER, 100) == "behind it there is a sound batch at 800"
