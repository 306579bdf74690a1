"""`minibroker dump`: what it prints of the files of a log, word for word, and how it ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from minibroker.cli.dump import dump_command
from minibroker.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue
from minibroker.protocol.messages.metadata_records import FeatureLevelRecord, TopicRecord
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.control import make_transaction_marker
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Header, Record
from minibroker.storage.inspection.index_inspection import TRANSACTION_ENTRY
from minibroker.storage.log_settings import LogSettings
from tests.cli.conftest import Run
from tests.storage.support import NOW_MS, append, batch, open_at, validate_records

BASE = "00000000000000000000"
SEGMENT = f"{BASE}.log"

GOLDEN = """\
{0}/00000000000000000000.index: offset index from offset 0, 8 bytes
  entry at 0: the batch that ends with offset 3 is at 112
1 entry, no damage
{0}/00000000000000000000.log: segment from offset 0, 267 bytes
batch at 0, 112 bytes: offsets 0 to 1, 2 records, codec none, create time 2023-11-14T22:13:20.000Z to \
2023-11-14T22:13:20.007Z, leader epoch 0, no producer id, crc 0x238eb10a ok
  record at 61, 38 bytes: offset 0, 2023-11-14T22:13:20.000Z, key "k\\x1b", value "caf\u00e9 \\"au lait\\"", \
header lang "fr", header none null
  record at 99, 13 bytes: offset 1, 2023-11-14T22:13:20.007Z, key null, value null, header mark ""
batch at 112, 77 bytes: offsets 2 to 3, 2 records, codec none, append time 2023-11-14T22:13:20.000Z, leader epoch 0, \
producer 7 epoch 1 sequences 5 to 6, transactional, crc 0x347a0358 ok
  record at 173, 8 bytes: offset 2, 2023-11-14T22:13:20.000Z, key null, value "a"
  record at 181, 8 bytes: offset 3, 2023-11-14T22:13:20.000Z, key null, value "b"
batch at 189, 78 bytes: offset 4, 1 record, codec none, create time 2023-11-14T22:13:20.000Z, leader epoch 1, \
producer 7 epoch 1, transactional, control, crc 0x00a17979 ok
  record at 250, 17 bytes: offset 4, 2023-11-14T22:13:20.000Z, ABORT v0 {{"coordinator_epoch": 3}}
3 batches, 5 records, no damage
{0}/00000000000000000000.timeindex: time index from offset 0, 12 bytes
  entry at 0: the largest time up to offset 1 is 2023-11-14T22:13:20.007Z
1 entry, no damage
{0}/00000000000000000000.txnindex: index of aborted transactions from offset 0, 34 bytes
  entry at 0: producer 7 aborted offsets 2 to 4, last stable offset 5
1 entry, no damage
{0}/00000000000000000005.snapshot: snapshot of producer states from offset 5, 56 bytes
  entry at 10: producer 7 epoch 1, last batch up to offset 3 with sequences 5 to 6, 2023-11-14T22:13:20.000Z, \
coordinator epoch 3
1 entry, no damage
{0}/aborted-transactions-checkpoint: sizes of the indexes of aborted transactions, 19 bytes
  line at 4: base offset 0, entries 1, crc 1195615733
1 line, no damage
{0}/leader-epoch-checkpoint: leader epochs, 12 bytes
  line at 4: epoch 0, start offset 0
  line at 8: epoch 1, start offset 4
2 lines, no damage
{0}/partition.metadata: partition's topic id, 43 bytes
  line at 0: version 0
  line at 11: topic id AAAAAAAAAAAAAAAAAAAAAQ
2 lines, no damage
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The directory of a log with an aborted transaction, closed."""
    directory = tmp_path / "orders-0"
    made = open_at(directory, LogSettings(index_interval_bytes=100))
    headers = (Header("lang", b"fr"), Header("none", None))
    told = [
        Record(0, NOW_MS, b"k\x1b", 'café "au lait"'.encode(), headers),
        Record(0, NOW_MS + 7, None, None, (Header("mark", b""),)),
    ]
    append(made, build_batch(told))
    ours = {"producer_id": 7, "producer_epoch": 1, "transactional": True}
    values = [Record(0, NOW_MS, None, value) for value in (b"a", b"b")]
    append(made, build_batch(values, base_sequence=5, timestamp_type=1, **ours))  # type: ignore[arg-type]
    marker = make_transaction_marker(committed=False, coordinator_epoch=3, timestamp=NOW_MS)
    append(made, build_batch([marker], control=True, **ours), leader_epoch=1)  # type: ignore[arg-type]
    made.close()
    (directory / f"{BASE}.txnindex").write_bytes(TRANSACTION_ENTRY.pack(0, 7, 2, 4, 5))
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    (directory / "notes.log").write_text("not Kafka's")
    return directory


def segment(directory: Path, *batches: bytes) -> Path:
    """A `.log` file of these batches as they are."""
    directory.mkdir(parents=True)
    (directory / SEGMENT).write_bytes(b"".join(batches))
    return directory / SEGMENT


def objects(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_a_directory_is_dumped_file_by_file(run: Run, log: Path) -> None:
    result = run("dump", "--verify", str(log))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == GOLDEN.format(log) + "8 files: 3 batches, 4 entries, 5 lines, 5 records, no damage\n"


def test_batches_are_dumped_without_their_records_on_request(run: Run, log: Path) -> None:
    lines = run("dump", "--no-records", str(log / SEGMENT)).stdout.splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == ["batch at 0", "batch at 112", "batch at 189", "3 batches"]


def test_json_output_has_one_object_per_line(run: Run, log: Path) -> None:
    result = run("dump", "--json", str(log / SEGMENT))
    head, first, record, *_, marker = objects(result.stdout)
    assert head == {
        "type": "file",
        "path": str(log / SEGMENT),
        "kind": "log",
        "size_bytes": 267,
        "topic": "orders",
        "partition": 0,
        "base_offset": 0,
    }
    assert first == {
        "type": "batch",
        "position": 0,
        "size_bytes": 112,
        "base_offset": 0,
        "last_offset": 1,
        "record_count": 2,
        "leader_epoch": 0,
        "magic": 2,
        "codec": "none",
        "timestamp_type": "CreateTime",
        "base_timestamp": NOW_MS,
        "max_timestamp": NOW_MS + 7,
        "delete_horizon_ms": None,
        "transactional": False,
        "control": False,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "last_sequence": -1,
        "crc": 0x238EB10A,
        "computed_crc": 0x238EB10A,
    }
    assert record["headers"] == [{"name": "lang", "value": "fr"}, {"name": "none", "value": None}]
    assert record["value"] == 'café "au lait"'
    assert marker["value_says"] == {"name": "ABORT", "version": 0, "fields": {"coordinator_epoch": 3}}
    assert (marker["key"], marker["value"]) == ("\0\0\0\0", "\0\0\0\0\0\x03")


def test_indexes_and_checkpoints_are_dumped_as_json(run: Run, log: Path) -> None:
    names = [f"{BASE}.index", f"{BASE}.timeindex", "leader-epoch-checkpoint"]
    found = objects(run("dump", "--json", *(str(log / name) for name in names)).stdout)
    assert [each for each in found if each["type"] not in ("file", "total")] == [
        {"type": "entry", "position": 0, "offset": 3, "log_position": 112},
        {"type": "entry", "position": 0, "timestamp": NOW_MS + 7, "offset": 1},
        {"type": "line", "position": 4, "fields": {"epoch": 0, "start_offset": 0}},
        {"type": "line", "position": 8, "fields": {"epoch": 1, "start_offset": 4}},
    ]


def test_damage_is_shown_with_its_position_and_the_dump_continues(run: Run, log: Path) -> None:
    path = log / SEGMENT
    data = bytearray(path.read_bytes())
    data[112 + 16] = 7
    path.write_bytes(data)
    result = run("dump", str(path))
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[4] == f"DAMAGE in {path} at 112, offset 2: expected magic 2 at 128, found 7; 77 bytes passed over"
    assert lines[5].startswith("batch at 189, 78 bytes: offset 4")
    assert lines[-1] == "2 batches, 3 records, 1 damage"
    (damage,) = (each for each in objects(run("dump", "--json", str(path)).stdout) if each["type"] == "damage")
    assert damage == {
        "type": "damage",
        "path": str(path),
        "position": 112,
        "size_bytes": 77,
        "offset": 2,
        "expected": "magic 2 at 128",
        "found": "7",
    }


def test_a_batch_with_a_wrong_checksum_is_shown_as_far_as_possible(run: Run, log: Path) -> None:
    path = log / SEGMENT
    data = bytearray(path.read_bytes())
    data[112 + 77 - 2] ^= 0x20
    path.write_bytes(data)
    result = run("dump", str(path))
    assert result.exit_code == 1
    assert ", crc 0x347a0358 WRONG, computed 0x" in result.stdout
    assert 'value "B"' in result.stdout
    assert "as computed, found 0x347a0358, as stored" in result.stdout


def test_an_index_is_compared_with_the_log_only_on_request(run: Run, log: Path) -> None:
    (log / f"{BASE}.index").write_bytes(bytes((0, 0, 0, 2, 0, 0, 0, 112)))
    assert run("dump", str(log)).exit_code == 0
    for paths in ([log], [log / SEGMENT], [log / f"{BASE}.index"], [log / SEGMENT, log / f"{BASE}.index"]):
        result = run("dump", "--verify", *map(str, paths))
        assert result.exit_code == 1
        damages = [line for line in result.stdout.splitlines() if line.startswith("DAMAGE")]
        where = f"DAMAGE in {log / BASE}.index at 0, offset 2"
        assert damages == [f"{where}: expected offset 3, the last of the batch at 112, found 2"]


def test_compressed_records_are_shown_decompressed(run: Run, tmp_path: Path) -> None:
    for codec in Compression:
        path = segment(tmp_path / f"{codec.name}-0", batch(2, compression=codec))
        output = run("dump", str(path)).stdout
        assert f"codec {codec.name.lower()}," in output
        assert ("  record at 0 decompressed, 10 bytes: offset 0" in output) == (codec != Compression.NONE)


def test_metadata_records_are_shown_with_their_fields(run: Run, tmp_path: Path) -> None:
    messages = (FeatureLevelRecord(name="group.version", feature_level=1), TopicRecord(name="t", topic_id=bytes(16)))
    framed = [bytes((1, message.api_key, 0)) + message.encode(0) for message in messages]
    records = [Record(0, NOW_MS, None, value) for value in framed]
    unknown = Record(0, NOW_MS, None, b"\x01\x7f\x00")
    path = segment(tmp_path / "__cluster_metadata-0", build_batch([*records, unknown, Record(0, NOW_MS)]))
    result = run("dump", str(path))
    assert result.exit_code == 0
    assert 'FeatureLevelRecord v0 {"name": "group.version", "feature_level": 1}' in result.stdout
    assert 'TopicRecord v0 {"name": "t", "topic_id": "AAAAAAAAAAAAAAAAAAAAAA"}' in result.stdout
    assert "its meaning is unknown: metadata record 127 version 0 in frame version 1" in result.stdout
    assert result.stdout.count("its meaning is unknown") == 2


def test_records_can_be_decoded_as_those_of_another_topic(run: Run, tmp_path: Path) -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    value = OffsetCommitValue(offset=9, metadata="")
    records = [Record(0, NOW_MS, b"\0\1" + key.encode(0), b"\0\3" + value.encode(3)), Record(0, NOW_MS, b"\0\2\0\1g")]
    copy = segment(tmp_path / "copy", build_batch(records))
    assert "OffsetCommitKey" not in run("dump", str(copy)).stdout
    output = run("dump", str(copy), "--topic", "__consumer_offsets").stdout
    assert (
        'OffsetCommitKey v0 {"group": "g", "topic": "t", "partition": 1}, OffsetCommitValue v3 {"offset": 9' in output
    )
    assert 'GroupMetadataKey v0 {"group": "g"}, tombstone' in output
    first = objects(run("dump", "--json", str(copy), "--topic", "__consumer_offsets").stdout)[2]
    assert first["key_says"]["name"] == "OffsetCommitKey"
    assert first["value_says"]["fields"]["offset"] == 9


def test_control_characters_are_escaped(run: Run, tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_bytes(b"version=1\ncluster.id=\x1b[2J\n\x1b[2J=x\nnode.id=\xff\n\x1b[2J\n")
    path = segment(tmp_path / "odd-0", build_batch([Record(0, NOW_MS, b"\x1b", b"\x1b", (Header("\x1b", b"\x1b"),))]))
    result = run("dump", str(tmp_path), str(path))
    assert result.exit_code == 1
    assert "\x1b" not in result.stdout and result.stdout.count("\\x1b") >= 6


def test_long_values_are_shortened_only_in_text_output(run: Run, tmp_path: Path) -> None:
    path = segment(tmp_path / "long-0", batch(1, value=b"x" * 1000))
    output = run("dump", str(path)).stdout
    assert f'value "{"x" * 200}"... (1001 bytes)' in output
    assert objects(run("dump", "--json", str(path)).stdout)[2]["value"] == "x" * 1000 + "0"


def test_a_nested_directory_is_dumped_completely(run: Run, log: Path) -> None:
    (log.parent / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 5\n")
    output = run("dump", str(log.parent)).stdout
    assert output == (
        f"{log.parent}/recovery-point-offset-checkpoint: offsets of partitions, 15 bytes\n"
        "  line at 4: topic orders, partition 0, offset 5\n1 line, no damage\n"
        + GOLDEN.format(log)
        + "9 files: 3 batches, 4 entries, 6 lines, 5 records, no damage\n"
    )


def test_an_empty_file_or_directory_dumps_nothing(run: Run, tmp_path: Path) -> None:
    path = segment(tmp_path / "orders-0")
    assert run("dump", str(path)).stdout.splitlines()[1:] == ["nothing, no damage"]
    (tmp_path / "empty").mkdir()
    result = run("dump", str(tmp_path / "empty"))
    assert (result.exit_code, result.stdout) == (0, "")


def test_invalid_arguments_of_dump_are_reported_in_one_line_with_status_2(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("x")
    for arguments, complaint in (
        ([str(other)], f"{other} has no name of a file of a log"),
        ([str(tmp_path / "none.log")], f"FILE...: Path '{tmp_path}/none.log' does not exist"),
        ([], "FILE... is missing; usage: minibroker dump [OPTIONS] FILE..."),
    ):
        result = run("dump", *arguments)
        assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"minibroker: {complaint}\n")


def test_a_large_file_has_a_progress_bar_on_a_terminal(
    run: Run, log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dump_command, "BIG_BYTES", 1)
    monkeypatch.setattr(dump_command, "PROGRESS_BYTES", 1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    with dump_command._show_progress(SEGMENT, 267) as advance:
        advance(138)
        advance(138)
    assert SEGMENT in capsys.readouterr().err
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with dump_command._show_progress(SEGMENT, 267) as advance:
        advance(138)
    assert capsys.readouterr().err == ""


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """The directory of a log with messages of formats 0 and 1 and a batch of format 2, and indexes of all."""
    directory = tmp_path / "old-0"
    made = open_at(directory, LogSettings(index_interval_bytes=0))
    records = [Record(index, NOW_MS + index, b"k", b"v%d" % index) for index in range(2)]
    for version, codec in ((0, 0), (0, 1), (1, 0), (1, 2), (2, 0)):
        made.update_settings(LogSettings(index_interval_bytes=0, message_format_version=version))
        data = memoryview(build_message_set(records, min(version, 1), compression=codec))
        made.append(*validate_records(made, data, api_version=2, now_ms=NOW_MS), 0)
    made.close()
    return directory


def test_messages_of_old_formats_are_shown_with_their_records(run: Run, mixed: Path) -> None:
    result = run("dump", str(mixed / SEGMENT))
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[1].startswith("message at 0, 29 bytes: format 0, offset 0, create time no time, crc 0x")
    assert lines[2] == '  record at 0, 29 bytes: offset 0, no time, key "k", value "v0"'
    assert [line for line in lines if "wrapper up to offset 3, codec gzip" in line]
    assert '  record at 29 decompressed, 29 bytes: offset 3, no time, key "k", value "v1"' in lines
    assert lines[-1] == "7 batches, 10 records, no damage"


def test_the_indexes_of_old_formats_agree_with_their_log(run: Run, mixed: Path) -> None:
    result = run("dump", "--verify", "--json", str(mixed))
    assert result.exit_code == 0
    found = objects(result.stdout)
    assert [each for each in found if each["type"] == "damage"] == []
    counts = [(each["magic"], each["record_count"]) for each in found if each["type"] == "batch"]
    assert counts == [(0, 1), (0, 1), (0, None), (1, 1), (1, 1), (1, None), (2, 2)]
    assert [each["offset"] for each in found if each["type"] == "record"] == list(range(10))


def test_a_dump_of_several_files_ends_with_totals_and_damage(run: Run, tmp_path: Path) -> None:
    for name in ("orders-0", "orders-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / SEGMENT).write_bytes(bytes(build_batch([Record(0, 1), Record(1, 2)])) * 1)
    whole = run("dump", str(tmp_path))
    assert (whole.exit_code, whole.stdout.splitlines()[-1]) == (0, "2 files: 2 batches, 4 records, no damage")
    damaged = tmp_path / "orders-1" / SEGMENT
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\xff")
    broken = run("dump", str(tmp_path))
    assert (broken.exit_code, broken.stdout.splitlines()[-2:]) == (
        1,
        ["2 files: 2 batches, 3 records, 2 damages", f"  {damaged}: 2 damages"],
    )
    *_, total = map(json.loads, run("dump", "--json", str(tmp_path)).stdout.splitlines())
    assert total == {
        "type": "total",
        "files": 2,
        "batches": 2,
        "records": 3,
        "damages": 2,
        "damaged": {str(damaged): 2},
    }
    assert " files: " not in run("dump", str(tmp_path / "orders-0" / SEGMENT)).stdout
