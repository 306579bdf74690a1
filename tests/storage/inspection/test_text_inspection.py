"""Reading text files that may be damaged: every good line is shown, and the bad one named by its position."""

from __future__ import annotations

from pathlib import Path

from minibroker.storage.checkpoints.checkpoint_texts import (
    format_leader_epochs,
    format_offset_checkpoint,
    format_partition_metadata,
    format_properties,
)
from minibroker.storage.files import Disk, File
from minibroker.storage.inspection.log_inspection import DamagedBytes
from minibroker.storage.inspection.text_inspection import (
    EPOCH_COLUMNS,
    MAX_LINE_BYTES,
    OFFSET_COLUMNS,
    TextLine,
    iterate_checkpoint_lines,
    iterate_json_lines,
    iterate_property_lines,
)
from tests.cases import for_each


def file_of(directory: Path, data: bytes) -> File:
    (directory / "file").write_bytes(data)
    return Disk().open_to_read(str(directory / "file"))


def test_checkpoint_rows_written_by_the_broker_are_shown(tmp_path: Path) -> None:
    file = file_of(tmp_path, format_offset_checkpoint({("orders", 0): 17, ("orders", 1): 0}))
    assert list(iterate_checkpoint_lines(file, OFFSET_COLUMNS)) == [
        TextLine(4, {"topic": "orders", "partition": 0, "offset": 17}),
        TextLine(16, {"topic": "orders", "partition": 1, "offset": 0}),
    ]
    file = file_of(tmp_path, format_leader_epochs([(4, 120)]))
    assert list(iterate_checkpoint_lines(file, EPOCH_COLUMNS)) == [TextLine(4, {"epoch": 4, "start_offset": 120})]


def test_a_checkpoint_that_was_never_written_has_no_rows(tmp_path: Path) -> None:
    assert list(iterate_checkpoint_lines(file_of(tmp_path, b""), OFFSET_COLUMNS)) == []


@for_each(
    ("data", "position", "expected", "found"),
    [
        (b"1\n1\n0 0\n", 0, "version 0 in the first line", "'1'"),
        (b"0\n2\n0 0\n", 2, "1 rows, as there are, in the second line", "'2'"),
        (b"0\nx\n0 0\n", 2, "1 rows, as there are, in the second line", "'x'"),
        (b"0", 1, "0 rows, as there are, in the second line", "''"),
        (b"0\n2\n0 0\n1\n", 8, "epoch and start_offset", "'1'"),
        (b"0\n2\n0 0\n1 x5\n", 8, "epoch and start_offset", "'1 x5'"),
        (b"0\n2\n0 0\n1 \xff\n", 8, "epoch and start_offset", r"'1 \\xff'"),
        (b"0\n2\n3 5\n2 9\n", 8, "an epoch above 3 and a start offset above 5", "'2 9'"),
        (b"0\n2\n3 5\n4 5\n", 8, "an epoch above 3 and a start offset above 5", "'4 5'"),
        (b"0\n2\n7 5\n6 9\n", 8, "an epoch above 7 and a start offset above 5", "'6 9'"),
        (b"0\n2\n0 0\n" + b"1" * 80 + b"\n", 8, "epoch and start_offset", repr("1" * 80)),
    ],
)
def test_an_invalid_checkpoint_line_is_reported(
    tmp_path: Path, data: bytes, position: int, expected: str, found: str
) -> None:
    file = file_of(tmp_path, data)
    (damage,) = (each for each in iterate_checkpoint_lines(file, EPOCH_COLUMNS) if isinstance(each, DamagedBytes))
    assert (damage.position, damage.expected, damage.found) == (position, expected, found)
    assert damage.size_bytes == 0 or damage.expected == "epoch and start_offset"


def test_the_lines_after_an_invalid_one_are_shown(tmp_path: Path) -> None:
    file = file_of(tmp_path, b"0\n3\n0 0\n?\n2 7\n")
    lines = [each for each in iterate_checkpoint_lines(file, EPOCH_COLUMNS) if isinstance(each, TextLine)]
    assert [line.fields["epoch"] for line in lines] == [0, 2]


def test_a_very_long_line_uses_little_memory_and_hides_no_later_line(tmp_path: Path) -> None:
    data = b"0\n2\n" + b"1" * (MAX_LINE_BYTES * 3) + b"\n2 7\n"
    damage, line = iterate_checkpoint_lines(file_of(tmp_path, data), EPOCH_COLUMNS)
    assert isinstance(damage, DamagedBytes) and damage.found == repr("1" * 80 + "...")
    assert line == TextLine(len(data) - 4, {"epoch": 2, "start_offset": 7})


def test_properties_are_shown_without_their_comments(tmp_path: Path) -> None:
    file = file_of(tmp_path, format_properties({"version": "1", "node.id": "0"}, 0))
    lines = list(iterate_property_lines(file, "=", ("version", "node.id")))
    assert [each.fields for each in lines if isinstance(each, TextLine)] == [{"version": "1"}, {"node.id": "0"}]
    file = file_of(tmp_path, format_partition_metadata(bytes(16)))
    fields = [
        each.fields
        for each in iterate_property_lines(file, ": ", ("version", "topic_id"))
        if isinstance(each, TextLine)
    ]
    assert fields == [{"version": "0"}, {"topic_id": "AAAAAAAAAAAAAAAAAAAAAA"}]


def test_a_missing_property_and_an_invalid_line_are_reported(tmp_path: Path) -> None:
    file = file_of(tmp_path, b"version=1\nnonsense\n")
    assert list(iterate_property_lines(file, "=", ("version", "node.id"))) == [
        TextLine(0, {"version": "1"}),
        DamagedBytes(file.path, 10, 8, None, "a key, '=' and a value", "'nonsense'"),
        DamagedBytes(file.path, 19, 0, None, "a line for node.id", "the end of the file"),
    ]


def test_the_fields_of_a_json_object_are_shown_with_their_positions(tmp_path: Path) -> None:
    file = file_of(tmp_path, b' { "version":0 , "brokerEpoch" : 12}\n')
    assert list(iterate_json_lines(file, ("version", "brokerEpoch"))) == [
        TextLine(3, {"version": "0"}),
        TextLine(17, {"brokerEpoch": "12"}),
    ]


def test_an_empty_json_file_has_no_fields(tmp_path: Path) -> None:
    assert (
        list(iterate_json_lines(file_of(tmp_path, b""), ("version",))) == []
    )  # Kafka before 3.7 left the marker empty


def test_invalid_json_and_missing_fields_are_reported(tmp_path: Path) -> None:
    (damage,) = iterate_json_lines(file_of(tmp_path, b'{"version":'), ())
    assert isinstance(damage, DamagedBytes)
    assert (damage.position, damage.size_bytes, damage.expected) == (0, 11, "a JSON object")
    _, damage = iterate_json_lines(file_of(tmp_path, b'{"version":0}'), ("version", "brokerEpoch"))
    assert isinstance(damage, DamagedBytes) and (damage.position, damage.expected) == (13, "a field brokerEpoch")
