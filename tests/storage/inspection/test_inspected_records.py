"""The records of a batch that may be damaged: where each lies, and what keeps the rest from being read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.records.batch import HEADER_BYTES, read_header
from minibroker.protocol.records.building import assemble_batch, build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record
from minibroker.protocol.records.walking import FoundBatch
from minibroker.storage.files import Disk, File
from minibroker.storage.inspection.inspected_records import FoundRecord, iterate_inspected_records
from minibroker.storage.inspection.log_inspection import DamagedBytes, InspectionNote
from tests.storage.support import NOW_MS, batch, records

BEFORE = b"something before"


def written(directory: Path, data: bytes) -> tuple[File, FoundBatch]:
    """A batch in a file, not at its start."""
    path = directory / "file"
    path.write_bytes(BEFORE + data)
    header = read_header(data)
    return Disk().open_to_read(str(path)), FoundBatch(len(BEFORE), header, header.crc)


def found_in(directory: Path, data: bytes) -> list[FoundRecord | InspectionNote | DamagedBytes]:
    return list(iterate_inspected_records(*written(directory, data)))


def test_records_are_shown_with_their_positions_in_the_file(tmp_path: Path) -> None:
    data = build_batch(records(3, value=b"value"), base_offset=40)
    found = found_in(tmp_path, data)
    assert [each.record for each in found if isinstance(each, FoundRecord)] == list(iterate_records_of_batch(data))
    position = len(BEFORE) + HEADER_BYTES
    for each in found:
        assert isinstance(each, FoundRecord) and not each.is_decompressed
        assert each.position == position
        position += each.size_bytes
    assert position == len(BEFORE) + len(data)


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_records_of_a_compressed_batch_have_positions_in_the_decompressed_data(tmp_path: Path, codec: int) -> None:
    first, second = found_in(tmp_path, batch(2, compression=codec))
    assert isinstance(first, FoundRecord) and isinstance(second, FoundRecord)
    assert (first.position, first.is_decompressed, second.position) == (0, True, first.size_bytes)


def test_a_batch_emptied_by_compaction_has_no_records(tmp_path: Path) -> None:
    header = read_header(batch(2))._replace(record_count=0)
    assert found_in(tmp_path, assemble_batch(header, b"")) == []


@given(position=st.integers(HEADER_BYTES, HEADER_BYTES + 40), byte=st.integers(0, 255))
def test_a_corrupt_record_is_reported_after_those_before_it(
    tmp_path_factory: pytest.TempPathFactory, position: int, byte: int
) -> None:
    good = batch(4, value=b"value")
    data = bytearray(good)
    data[position] = byte
    found = found_in(tmp_path_factory.mktemp("records"), data)
    expected = list(iterate_records_of_batch(good))
    told = [each.record for each in found if isinstance(each, FoundRecord)]
    intact = (position - HEADER_BYTES) // ((len(good) - HEADER_BYTES) // 4)
    assert told[:intact] == expected[:intact]
    assert len(told) == 4 or isinstance(found[-1], DamagedBytes)


def test_a_record_that_cannot_be_parsed_ends_the_list_of_records(tmp_path: Path) -> None:
    data = batch(3)
    size = (len(data) - HEADER_BYTES) // 3
    data[HEADER_BYTES + size] = 0x7E  # a length of 63, more than is left
    first, damage = found_in(tmp_path, data)
    assert isinstance(first, FoundRecord) and isinstance(damage, DamagedBytes)
    assert damage.position == len(BEFORE) + HEADER_BYTES + size
    assert (damage.expected, damage.offset) == ("record 2 of 3", 0)


def test_bytes_after_the_last_record_are_reported(tmp_path: Path) -> None:
    data = batch(2)
    longer = assemble_batch(read_header(data), data[HEADER_BYTES:] + b"more")
    *told, damage = found_in(tmp_path, longer)
    assert len(told) == 2 and isinstance(damage, DamagedBytes)
    assert (damage.position, damage.found) == (len(BEFORE) + len(data), "4 bytes more")


def test_offsets_that_do_not_increase_are_reported(tmp_path: Path) -> None:
    kept = [Record(offset, NOW_MS, None, b"v") for offset in (0, 2, 1, 7)]
    data = build_batch(kept, keep_offsets=True)
    header = read_header(data)._replace(last_offset_delta=3)
    found = found_in(tmp_path, assemble_batch(header, data[HEADER_BYTES:]))
    damages = [each for each in found if isinstance(each, DamagedBytes)]
    assert [(each.expected, each.found) for each in damages] == [
        ("an offset from 3 to 3", "1"),
        ("an offset from 2 to 3", "7"),
    ]


@pytest.mark.parametrize("codec", [*(codec for codec in Compression if codec), 6])
def test_records_that_cannot_be_decompressed_are_reported(tmp_path: Path, codec: int) -> None:
    data = batch(2)
    header = read_header(data)._replace(attributes=codec)
    (damage,) = found_in(tmp_path, assemble_batch(header, b"no compressed data"))
    assert isinstance(damage, DamagedBytes)
    assert (damage.position, damage.expected) == (len(BEFORE) + HEADER_BYTES, "records that can be decompressed")


def test_a_note_replaces_the_records_of_a_batch_too_large_for_memory(tmp_path: Path) -> None:
    (note,) = iterate_inspected_records(*written(tmp_path, batch(5, value=bytes(50))), 100)
    assert isinstance(note, InspectionNote)
    assert note.text.endswith("are not shown: 100 is the most")


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_records_too_large_to_be_shown_are_not_damage(tmp_path: Path, codec: Compression) -> None:
    data = build_batch([Record(timestamp=NOW_MS, value=bytes(101 << 20))], compression=codec)
    (found,) = found_in(tmp_path, bytes(data))
    assert isinstance(found, InspectionNote)
    assert found.text == "the records of this batch are not shown: they decompress to more than 104857600 bytes"


def test_a_caller_may_limit_the_size_of_shown_records(tmp_path: Path) -> None:
    data = batch(2, value=b"x" * 1000, compression=Compression.ZSTD)
    file, found = written(tmp_path, data)
    (note,) = iterate_inspected_records(file, found, 1000)
    assert isinstance(note, InspectionNote) and note.text.endswith("they decompress to more than 1000 bytes")
    assert len(list(iterate_inspected_records(file, found, 3000))) == 2
