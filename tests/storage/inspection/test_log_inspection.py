"""Reading a damaged log: every flipped bit is found at its batch, and the other batches are shown as they were."""

from __future__ import annotations

import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.records import walking
from minibroker.protocol.records.batch import read_header, set_checksum, set_offset_and_epoch
from minibroker.protocol.records.walking import FoundBatch
from minibroker.storage.checkpoints.leader_epochs import LeaderEpochs
from minibroker.storage.files import Disk
from minibroker.storage.inspection.log_inspection import DamagedBytes, InspectionFinding, InspectionNote, LogInspection
from minibroker.storage.names import make_segment_name
from tests.storage.support import NOW_MS, batch

COUNTS = (1, 2, 3, 2, 1)  # records in each batch of the segment that the tests damage


def placed(offset: int, count: int = 1, *, epoch: int = 0, value: bytes = b"v") -> bytes:
    """A batch as it lies in a log."""
    data = batch(count, value=value)
    set_offset_and_epoch(data, 0, offset, epoch)
    return bytes(data)


def segment(*counts: int, base_offset: int = 0) -> list[bytes]:
    """Batches of so many records, one after the other."""
    starts = [base_offset + sum(counts[:index]) for index in range(len(counts))]
    return [placed(start, count, value=b"%d" % start) for start, count in zip(starts, counts, strict=True)]


BATCHES = segment(*COUNTS)
STARTS = [sum(map(len, BATCHES[:index])) for index in range(len(BATCHES) + 1)]


def old_message(offset: int, magic: int, value: bytes) -> bytes:
    """A message of format 0 or 1, without key."""
    body = (
        bytes((magic, 0)) + (b"" if magic == 0 else NOW_MS.to_bytes(8)) + b"\xff" * 4 + len(value).to_bytes(4) + value
    )
    return offset.to_bytes(8) + (len(body) + 4).to_bytes(4) + zlib.crc32(body).to_bytes(4) + body


def inspect(directory: Path, data: bytes, base_offset: int | None = 0, **more: Any) -> list[InspectionFinding]:
    path = directory / f"{make_segment_name(base_offset or 0)}.log"
    path.write_bytes(data)
    file = Disk().open_to_read(str(path))
    return list(LogInspection(file, base_offset=base_offset, **more).iterate_findings())


def batches_in(findings: list[InspectionFinding]) -> list[int]:
    """The positions of the batches that nothing is said against."""
    return [each.position for each in findings if isinstance(each, FoundBatch) and each.is_credible]


def damages_in(findings: list[InspectionFinding]) -> list[DamagedBytes]:
    return [each for each in findings if isinstance(each, DamagedBytes)]


def test_the_inspection_of_a_valid_log_lists_its_batches(tmp_path: Path) -> None:
    findings = inspect(tmp_path, b"".join(BATCHES))
    assert findings == [
        FoundBatch(start, read_header(data), read_header(data).crc)
        for start, data in zip(STARTS, BATCHES, strict=False)
    ]


def test_an_empty_log_has_no_batches(tmp_path: Path) -> None:
    assert inspect(tmp_path, b"") == []


@pytest.mark.parametrize("mask", [0x01, 0x02, 0x40, 0x80, 0xFF])
def test_damage_at_any_byte_is_reported_only_at_its_batch(tmp_path: Path, mask: int) -> None:
    good = b"".join(BATCHES)
    for position in range(STARTS[-2]):  # of the last batch, nothing behind it tells that its offset or epoch is wrong
        data = bytearray(good)
        data[position] ^= mask
        hit = max(index for index, start in enumerate(STARTS) if start <= position)
        findings = inspect(tmp_path, bytes(data))
        (damage,) = damages_in(findings)
        assert damage.position == STARTS[hit], position
        assert damage.offset == sum(COUNTS[:hit])
        assert batches_in(findings) == [start for start in STARTS[:-1] if start != STARTS[hit]]


@given(damaged=st.sets(st.integers(0, STARTS[-1] - 1), min_size=1, max_size=6), byte=st.integers(1, 255))
def test_valid_batches_are_shown_however_many_bytes_are_damaged(
    tmp_path_factory: pytest.TempPathFactory, damaged: set[int], byte: int
) -> None:
    data = bytearray(b"".join(BATCHES))
    for position in damaged:
        data[position] ^= byte
    findings = inspect(tmp_path_factory.mktemp("segment"), bytes(data))
    told = {each.position for each in findings if isinstance(each, FoundBatch) and each.is_sound}
    untouched = {start for start, end in zip(STARTS, STARTS[1:], strict=False) if not damaged & {*range(start, end)}}
    assert untouched <= told
    assert len(findings) > len(told) or untouched < told
    passed_over = [each for each in damages_in(findings) if each.size_bytes]
    assert all(each.position + each.size_bytes <= STARTS[-1] for each in passed_over)


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_shown_in_order_and_completely(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    end = 0
    for finding in inspect(tmp_path_factory.mktemp("bytes"), data):
        assert finding.position >= end or (isinstance(finding, DamagedBytes) and not finding.size_bytes)
        if isinstance(finding, FoundBatch):
            end = finding.position + finding.header.size_bytes
        elif isinstance(finding, DamagedBytes) and finding.size_bytes:
            end = finding.position + finding.size_bytes
    assert end == len(data)


@pytest.mark.parametrize("cut", [1, 20, 60, 61, 70])
def test_a_torn_end_is_reported_with_what_is_missing(tmp_path: Path, cut: int) -> None:
    *whole, last = BATCHES
    findings = inspect(tmp_path, b"".join(whole) + last[:cut])
    expected = f"a batch of {len(last)} bytes" if cut >= 61 else "the 61 bytes of a batch's header"
    found = f"the end of the file after {cut}"
    path = str(tmp_path / f"{make_segment_name(0)}.log")
    assert damages_in(findings) == [DamagedBytes(path, STARTS[-2], cut, 8, expected, found)]
    assert batches_in(findings) == STARTS[:-2]


def test_zeros_are_reported_as_such_and_skipped(tmp_path: Path) -> None:
    first, second = segment(1, 1)
    (damage,) = damages_in(inspect(tmp_path, first + bytes(5000) + second))
    assert (damage.position, damage.size_bytes, damage.found) == (len(first), 5000, "zeros")


def test_batches_after_damage_that_spans_several_blocks_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minibroker.storage.inspection.file_walking.BLOCK_BYTES", 256)
    monkeypatch.setattr(walking, "BLOCK_BYTES", 256)
    first, second, third = segment(1, 20, 1)
    for junk in range(190, 330):
        findings = inspect(tmp_path, first + b"\x02" * junk + second + third)
        assert batches_in(findings) == [0, len(first) + junk, len(first) + junk + len(second)]


def test_a_wrong_magic_or_length_is_named(tmp_path: Path) -> None:
    first, second = segment(1, 1)
    magic, short, long = bytearray(first), bytearray(first), bytearray(first)
    magic[16] = 7
    short[11] = 5
    long[8] = 1
    for data, expected, found in (
        (magic, "magic 2 at 16", "7"),
        (short, "a batch of at least 61 bytes", "one of 17"),
        (long, f"a batch of {(1 << 24) + len(first)} bytes", f"the end of the file after {len(first + second)}"),
    ):
        (damage,) = damages_in(inspect(tmp_path, bytes(data) + second))
        assert (damage.expected, damage.found, damage.size_bytes) == (expected, found, len(first))


def test_a_batch_with_a_wrong_checksum_is_still_shown(tmp_path: Path) -> None:
    data = bytearray(BATCHES[0])
    data[-1] ^= 1
    found, damage = inspect(tmp_path, bytes(data))
    assert isinstance(found, FoundBatch) and not found.is_sound and isinstance(damage, DamagedBytes)
    stored = read_header(data).crc
    assert (damage.found, damage.size_bytes) == (f"{stored:#010x}, as stored", 0)
    assert damage.expected == f"checksum {found.computed_crc:#010x}, as computed"


def test_offsets_removed_by_compaction_are_only_a_note(tmp_path: Path) -> None:
    data = placed(0, 2) + placed(7) + placed(8)
    path = str(tmp_path / f"{make_segment_name(0)}.log")
    notes = [each for each in inspect(tmp_path, data) if isinstance(each, InspectionNote)]
    assert notes == [InspectionNote(path, len(placed(0, 2)), 2, "no offsets 2 to 6, as compaction leaves it")]


def test_offsets_must_lie_between_those_of_the_segment_and_the_next(tmp_path: Path) -> None:
    early = inspect(tmp_path, placed(99), base_offset=100)
    late = inspect(tmp_path, placed(100, 3), base_offset=100, end_offset=102)
    far = inspect(tmp_path, placed(100 + (1 << 31)), base_offset=100)
    for findings in (early, late, far):
        (damage,) = damages_in(findings)
        assert damage.expected.startswith("offsets from 100 on")
    assert damages_in(inspect(tmp_path, placed(100, 3), base_offset=100, end_offset=103)) == []


def test_a_batch_with_offsets_above_those_of_the_next_is_reported(tmp_path: Path) -> None:
    first, misplaced, last = placed(0, 2), placed(10), placed(2)
    (damage,) = damages_in(inspect(tmp_path, first + misplaced + last))
    assert (damage.position, damage.found) == (len(first), "offsets 10 to 10")


def test_a_decreasing_epoch_is_reported_where_it_is_wrong(tmp_path: Path) -> None:
    high = placed(0, epoch=1) + placed(1, epoch=9) + placed(2, epoch=2)
    low = placed(0, epoch=3) + placed(1, epoch=3) + placed(2, epoch=1) + placed(3, epoch=3)
    (damage,) = damages_in(inspect(tmp_path, high))
    assert (damage.offset, damage.expected) == (1, "a leader epoch from 1 to 2")
    (damage,) = damages_in(inspect(tmp_path, low))
    assert (damage.offset, damage.expected) == (2, "a leader epoch of at least 3")


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_shown_as_single_batches(tmp_path: Path, magic: int) -> None:
    first, second = old_message(0, magic, b"abc"), old_message(1, magic, b"abcd")
    findings = inspect(tmp_path, first + second + placed(2))
    assert batches_in(findings) == [0, len(first), len(first + second)]
    assert [(each.header.magic, each.header.last_offset) for each in findings if isinstance(each, FoundBatch)] == [
        (magic, 0),
        (magic, 1),
        (2, 2),
    ]
    assert damages_in(findings) == []


@pytest.mark.parametrize("magic", [0, 1])
def test_a_decreasing_offset_of_an_old_message_is_reported(tmp_path: Path, magic: int) -> None:
    first, second = old_message(5, magic, b"abc"), old_message(4, magic, b"abc")
    (damage,) = damages_in(inspect(tmp_path, first + second))
    assert (damage.position, damage.size_bytes, damage.found) == (len(first), 0, "offset 4")


def test_a_corrupt_message_of_an_old_format_does_not_hide_the_next(tmp_path: Path) -> None:
    messages = [old_message(offset, 1, b"value") for offset in range(3)]
    damaged = messages[1][:-1] + b"?"
    findings = inspect(tmp_path, messages[0] + damaged + messages[2])
    assert batches_in(findings) == [0, 2 * len(damaged)]
    (damage,) = damages_in(findings)
    assert (damage.position, damage.size_bytes) == (len(damaged), len(damaged))


def test_a_batch_inside_a_record_value_is_not_treated_as_one_of_the_log(tmp_path: Path) -> None:
    """Programs that mirror logs write such values: the batch around, or the index, shows where the next batch is."""
    inner = placed(5)
    first, second = bytearray(placed(0, 1, value=inner)), placed(1, 3)
    first[16] = 9
    assert batches_in(inspect(tmp_path, bytes(first) + second)) == [len(first)]
    first[8] = 1
    known = [(3, len(first))]
    assert batches_in(inspect(tmp_path, bytes(first) + second, known=known)) == [len(first)]
    across = bytearray(placed(0, 1, value=inner[:80]))
    across[8] = 1
    assert batches_in(inspect(tmp_path, bytes(across) + second, known=[(3, len(across))])) == [len(across)]


def test_a_wrong_index_does_not_affect_the_inspection_of_the_log(tmp_path: Path) -> None:
    data = bytearray(b"".join(BATCHES))
    data[STARTS[1] + 16] = 9
    nonsense = [(0, 3), (5, STARTS[1] + 5), (4, STARTS[3]), (9, 1 << 30)]
    findings = inspect(tmp_path, bytes(data), known=nonsense)
    assert batches_in(findings) == [STARTS[0], *STARTS[2:-1]]


def test_bytes_that_look_like_large_batches_do_not_cost_quadratic_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walking, "SEARCH_CRC_LEAST_BYTES", 0)
    header = bytearray(placed(0)[:61])
    count = 200
    computed = 0

    def counted(data: memoryview, crc: int = 0) -> int:
        nonlocal computed
        computed += len(data)
        return 1

    heads = []
    for index in range(count):
        header[8:12] = ((count - index) * 61 - 12).to_bytes(4)
        heads.append(bytes(header))
    data = b"?" + b"".join(heads)
    monkeypatch.setattr(walking, "crc32c", counted)
    (damage,) = damages_in(inspect(tmp_path, data))
    assert damage.size_bytes == len(data)
    assert damage.found.endswith("the search for the next one was given up")
    assert computed <= walking.SEARCH_CRC_FACTOR * len(data)


def test_memory_does_not_grow_with_the_file_size(tmp_path: Path) -> None:
    one = bytearray(placed(0, 1, value=bytes(4 << 20)))
    path = tmp_path / f"{make_segment_name(0)}.log"
    with path.open("wb") as out:
        for offset in range(8):
            set_offset_and_epoch(one, 0, offset, 0)
            out.write(one)
        out.write(bytes(4 << 20))
    file = Disk().open_to_read(str(path))
    tracemalloc.start()
    try:
        for _ in LogInspection(file, base_offset=0).iterate_findings():
            pass
        assert tracemalloc.get_traced_memory()[1] < 6 << 20
    finally:
        tracemalloc.stop()


def test_a_negative_offset_delta_is_reported(tmp_path: Path) -> None:
    data = bytearray(placed(5))
    data[23:27] = (-3).to_bytes(4, signed=True)
    set_checksum(data, 0, len(data))
    (damage,) = damages_in(inspect(tmp_path, bytes(data), base_offset=5))
    assert damage.found == "offsets 5 to 2"


def test_an_epoch_must_match_that_of_the_epoch_checkpoint(tmp_path: Path) -> None:
    data = placed(0, epoch=1) + placed(1, epoch=1) + placed(2, epoch=4)
    assert damages_in(inspect(tmp_path, data, epochs=LeaderEpochs([(1, 0), (4, 2)]))) == []
    (damage,) = damages_in(inspect(tmp_path, data, epochs=LeaderEpochs([(1, 0), (5, 2)])))
    assert (damage.offset, damage.expected) == (2, "leader epoch 5, which leader-epoch-checkpoint says")
