"""Files of the explorer: each byte, index entries and their batches, damage, retention, and no other file."""

from __future__ import annotations

import os
import struct
import urllib.request
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from minibroker.explorer.files_view import (
    WINDOW_BYTES,
    WINDOW_ENTRIES,
    describe_segment,
    find_damage,
    find_file_below,
    show_file_content,
)
from minibroker.storage.inspection.inspected_files import InspectedFile
from minibroker.testing import Broker
from tests.explorer.asking import ask
from tests.test_readme import environment

LOG = "orders-0/00000000000000000000.log"


def inspected(broker: Broker, path: str = LOG) -> InspectedFile:
    return find_file_below(broker.directory, path)


def test_all_files_are_listed(explored: Broker) -> None:
    explored.produce("orders", "first")
    files = {f"{each['folder']}/{each['name']}": each for each in ask(explored, "files")["files"]}
    assert files[LOG]["kind"] == "segment"
    assert {"/meta.properties", "orders-0/leader-epoch-checkpoint", "orders-0/partition.metadata"} <= files.keys()


def test_a_log_is_shown_byte_by_byte(explored: Broker) -> None:
    explored.produce("orders", "first", "second")
    content = ask(explored, f"files/content?path={LOG}")
    assert [row["name"] for row in content["tree"]["rows"] if row["depth"] == 1] == ["batch [0]"]
    assert "second" in str(content["tree"]["rows"])
    assert (content["start"], content["next"]) == (0, None)


def test_a_large_log_is_shown_from_any_batch(explored: Broker) -> None:
    for number in range(6):
        explored.produce("orders", f"{number}" * 100_000)
    first = show_file_content(inspected(explored))
    assert first["next"] is not None and first["size"] > WINDOW_BYTES
    following = show_file_content(inspected(explored), first["next"])
    assert following["start"] == first["next"]
    assert following["tree"]["rows"][1]["name"] == "batch [0]"
    inside = show_file_content(inspected(explored), first["next"] + 10)
    assert inside["start"] == first["next"]


def test_shown_index_entries_have_the_position_and_last_offset_of_a_batch(explored: Broker) -> None:
    explored.create_topic("orders", index_interval_bytes=100)
    for number in range(20):
        explored.produce("orders", f"{number}" * 50)
    explored.restart()  # which writes the index
    segment = describe_segment(inspected(explored))
    positions = {batch["position"]: batch for batch in segment["batches"]}
    assert len(segment["index"]) > 3
    assert [positions[position]["last"] for _, position in segment["index"]] == [
        offset for offset, _ in segment["index"]
    ]


def test_damage_in_a_log_file_is_listed(explored: Broker) -> None:
    explored.produce("orders", "first")
    assert ask(explored, f"files/damage?path={LOG}") == []
    path = explored.directory / LOG
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    damage = ask(explored, f"files/damage?path={LOG}")
    assert (0, 0) in [(each["position"], each["offset"]) for each in damage]


def test_a_damaged_file_is_shown_up_to_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(os.urandom(1000))
    found = find_file_below(tmp_path, path.name)
    assert "problem" in str(show_file_content(found)["tree"]["rows"])
    assert find_damage(found)


def test_segments_that_retention_would_delete_are_listed_with_the_reason(explored: Broker) -> None:
    explored.create_topic("orders", retention_ms=1000, segment_bytes=1 << 20)
    for number in range(3):
        explored.produce("orders", f"{number}" * 600_000, timestamp_ms=1)
    taken = ask(explored, f"files/retention?path={LOG}")
    assert taken[:1] == ["00000000000000000000: its records are older than retention.ms"]


def test_records_that_compaction_would_remove_are_listed(explored: Broker) -> None:
    explored.create_topic("orders", cleanup_policy="compact", segment_bytes=1 << 20, min_cleanable_dirty_ratio=1)
    for value in ("old", "new", "last"):
        explored.produce("orders", value, "x" * 600_000, key="k")
    found = ask(explored, f"files/compaction?path={LOG}")
    assert (found["offsets"], found["is_due"]) == ([0, 1], False)
    assert [(each["path"], each["taken_records"], each["records"]) for each in found["segments"]] == [
        ("00000000000000000000", 2, 2),
        ("00000000000000000002", 1, 2),
    ]
    assert 0 < found["segments"][1]["taken_bytes"] < 1_000 < found["segments"][0]["taken_bytes"]
    assert len(explored.records("orders")) == 6


def test_only_compacted_topics_show_what_compaction_would_remove(explored: Broker) -> None:
    explored.produce("orders", "first")
    assert ask(explored, f"files/compaction?path={LOG}") is None


def test_removals_of_compaction_in_a_corrupt_log_are_unknown(explored: Broker) -> None:
    explored.create_topic("orders", cleanup_policy="compact", segment_bytes=1 << 20)
    for _ in range(2):
        explored.produce("orders", "x" * 600_000, key="k")
    path = explored.directory / LOG
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert "cannot be read" in ask(explored, f"files/compaction?path={LOG}")["why"]


@pytest.mark.parametrize(
    "path", ["../secret.log", "/etc/passwd", "orders-0/../../secret.log", "orders-0", "", "link.log"]
)
def test_files_outside_the_log_directory_are_not_shown(tmp_path: Path, path: str) -> None:
    (tmp_path / "secret.log").write_bytes(b"secret")
    root = tmp_path / "logs"
    (root / "orders-0").mkdir(parents=True)
    (root / "link.log").symlink_to(tmp_path / "secret.log")
    with pytest.raises(LookupError, match="there is no file"):
        find_file_below(root, path)


def test_a_single_file_is_explored_without_its_neighbours(tmp_path: Path) -> None:
    for name in ("00000000000000000000.log", "00000000000000000007.log"):
        (tmp_path / name).write_bytes(b"")
    assert find_file_below(tmp_path / "00000000000000000007.log", "00000000000000000007.log")
    with pytest.raises(LookupError):
        find_file_below(tmp_path / "00000000000000000007.log", "00000000000000000000.log")


def test_a_directory_is_explored_without_a_broker(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker:
        broker.produce("orders", "first")
    with Popen(["minibroker", "explore", str(tmp_path)], stdout=PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split(" is explored at ")[1].strip()
        with urllib.request.urlopen(f"{url}api/files/content?path={LOG}", timeout=30) as answer:
            assert b"first" in answer.read()
        process.terminate()
        assert process.wait(30) == 0


@pytest.mark.parametrize(("suffix", "entry"), [("index", ">ii"), ("timeindex", ">qi"), ("txnindex", ">hqqqq")])
def test_a_large_index_is_shown_in_portions(tmp_path: Path, suffix: str, entry: str) -> None:
    """All entries at once would be as many rows, and parts that take a hundred times the memory."""
    size, count = struct.calcsize(entry), WINDOW_ENTRIES + 3
    path = tmp_path / f"00000000000000000000.{suffix}"
    path.write_bytes(b"".join(struct.pack(entry, *[number + 1] * len(entry[1:])) for number in range(count)))
    found = find_file_below(tmp_path, path.name)
    first = show_file_content(found)
    assert (first["size"], first["next"]) == (count * size, WINDOW_ENTRIES * size)
    assert len([row for row in first["tree"]["rows"] if row["depth"] == 1]) == WINDOW_ENTRIES
    last = show_file_content(found, first["next"] + 1)
    assert (last["start"], last["next"]) == (first["next"], None)
    names = [row["name"] for row in last["tree"]["rows"] if row["depth"] == 1]
    assert names == [f"entry [{number}]" for number in range(WINDOW_ENTRIES, count)]


def test_a_long_checkpoint_file_is_read_only_once(tmp_path: Path) -> None:
    path = tmp_path / "replication-offset-checkpoint"
    path.write_text("".join(["0\n30000\n", *(f"topic {number} 7\n" for number in range(30_000))]))
    rows = show_file_content(find_file_below(tmp_path, path.name))["tree"]["rows"]
    assert (rows[3]["value"], rows[3]["meaning"]) == ('"topic 0 7"', "topic topic, partition 0, offset 7")
