"""Which files are judged: those of logs, of a directory or of one partition, and not what is on its way out or in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from minibroker.pipeline.verifying.findings import MAX_OF_A_KIND, Findings, Problem
from minibroker.pipeline.verifying.log_files import plan_verification_of_directory
from minibroker.protocol.messages.topics import DeleteTopicsRequest
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from minibroker.storage.checkpoints.checkpoint_texts import (
    format_leader_epochs,
    format_offset_checkpoint,
    format_partition_metadata,
)
from tests.broker.harness import Harness
from tests.pipeline.verifying.support import judge, kinds, put_bytes, written


def test_a_partition_directory_is_verified_alone_with_its_checkpoints(tmp_path: Path) -> None:
    written(tmp_path)
    shutil.copytree(tmp_path / "orders-0", tmp_path / "orders-1")
    for partition in ("orders-0", "orders-1"):
        put_bytes(tmp_path / partition / f"{0:020d}.log", 70, b"\xff")
    (tmp_path / "log-start-offset-checkpoint").write_bytes(
        format_offset_checkpoint({("orders", 1): 20, ("orders", 0): 7})
    )
    assert [finding.file for finding in judge(tmp_path / "orders-1")] == [f"orders-1/{0:020d}.log"]
    assert {finding.partition for finding in judge(tmp_path)} == {0, 1}
    (plan,) = plan_verification_of_directory(str(tmp_path / "orders-1")).partitions
    assert plan.log_start == 20


def test_temporary_and_deleted_files_are_not_verified(tmp_path: Path) -> None:
    path = written(tmp_path)
    garbage = b"garbage" * 100
    for name in (f"{5:020d}.log.deleted", f"{5:020d}.log.cleaned", f"{5:020d}.index.swap", "moved"):
        (path / name).write_bytes(garbage)
    for suffix in ("delete", "stray", "future"):
        shutil.copytree(path, tmp_path / f"gone-0.{'0' * 32}-{suffix}")
        (tmp_path / f"gone-0.{'0' * 32}-{suffix}" / f"{0:020d}.log").write_bytes(garbage)
    assert judge(tmp_path) == []
    assert len(plan_verification_of_directory(str(tmp_path)).partitions) == 1


def test_topics_are_selected_and_their_names_may_have_dashes(tmp_path: Path) -> None:
    written(tmp_path)
    shutil.copytree(tmp_path / "orders-0", tmp_path / "orders-eu-3")
    found = plan_verification_of_directory(str(tmp_path), topics=["orders-eu"]).partitions
    assert [(each.topic, each.partition) for each in found] == [("orders-eu", 3)]


def test_a_corrupt_metadata_snapshot_is_found(tmp_path: Path) -> None:
    written(tmp_path)
    metadata = tmp_path / "__cluster_metadata-0"
    metadata.mkdir()
    batch = bytes(build_batch([Record(timestamp=1, value=b"metadata")]))
    (metadata / f"{0:020d}.log").write_bytes(b"")
    (metadata / f"{9:020d}-{1:010d}.checkpoint").write_bytes(batch)
    assert judge(tmp_path) == []
    (metadata / f"{9:020d}-{1:010d}.checkpoint").write_bytes(batch[:-1])
    assert kinds(judge(tmp_path)) == {"torn-tail": 1}
    (metadata / f"{9:020d}-{1:010d}.checkpoint").write_bytes(batch[:-1] + b"\xff")
    (finding,) = judge(tmp_path)
    assert (finding.kind, finding.file) == ("crc", f"__cluster_metadata-0/{9:020d}-{1:010d}.checkpoint")


def test_a_checkpointed_offset_of_a_partition_without_segments_is_found(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    assert judge(tmp_path) == []
    (tmp_path / "replication-offset-checkpoint").write_bytes(format_offset_checkpoint({("orders", 0): 9}))
    (finding,) = judge(tmp_path)
    assert (finding.kind, finding.file, finding.offset) == ("checkpoint-beyond-log", "replication-offset-checkpoint", 9)


def test_at_most_a_thousand_findings_of_a_kind_are_listed_per_file() -> None:
    findings = Findings("orders", 0, "orders-0", frozenset({"crc"}))
    for position in range(MAX_OF_A_KIND + 5):
        findings.add_problem("a.log", Problem("crc", position, -1, "wrong"))
        findings.add_problem("a.log", Problem("crc", position, -1, "wrong"))
        findings.add_problem("a.log", Problem("gap", position, -1, "not asked for"))
    listed = list(findings)
    assert len(listed) == MAX_OF_A_KIND
    assert listed[-1].detail == "wrong; further ones of this kind are not listed"


@pytest.mark.parametrize("name", ["nothing", "file"])
def test_directories_that_are_not_log_directories_are_rejected(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ValueError, match="Not a directory|No such file"):
        judge(tmp_path / name)


@pytest.mark.parametrize("start", [1, 5])
def test_an_epoch_that_begins_after_the_log_start_is_found_after_a_stop(tmp_path: Path, start: int) -> None:
    path = written(tmp_path)
    (path / "leader-epoch-checkpoint").write_bytes(format_leader_epochs([(0, start)]))
    (note,) = judge(tmp_path)
    assert (note.kind, note.severity) == ("leader-epoch-late", "note")  # a kill may have left it so
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b"")
    (finding,) = judge(tmp_path)
    assert (finding.kind, finding.offset) == ("leader-epoch-checkpoint", 0)
    assert finding.detail == f"its first epoch begins at {start}, and the log has epoch 0 at 0"


def test_a_missing_snapshot_at_the_log_end_is_found_only_after_a_clean_stop(tmp_path: Path) -> None:
    path = written(tmp_path)
    newest = sorted(path.glob("*.snapshot"))[-1]
    newest.unlink()
    assert judge(tmp_path) == []
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b"")
    (finding,) = judge(tmp_path)
    assert (finding.kind, finding.file) == ("snapshot-missing", f"orders-0/{newest.name}")


def test_a_topic_id_must_match_the_metadata(tmp_path: Path) -> None:
    with Harness(tmp_path) as harness:
        harness.create_topic("orders")
        harness.stop()
    assert judge(tmp_path / "data") == []
    for directory in ("orders-0", "__cluster_metadata-0"):
        file = tmp_path / "data" / directory / "partition.metadata"
        right = file.read_bytes()
        file.write_bytes(format_partition_metadata(b"\1" * 16))
        (finding,) = judge(tmp_path / "data")
        assert (finding.kind, finding.file) == ("partition-metadata", f"{directory}/partition.metadata")
        file.write_bytes(right)


def test_a_log_of_a_known_topic_without_its_id_is_found(tmp_path: Path) -> None:
    with Harness(tmp_path) as harness:
        harness.create_topic("orders")
        harness.stop()
    shutil.copy(next(written(tmp_path / "other").glob("*.log")), tmp_path / "data" / "orders-0" / f"{0:020d}.log")
    (tmp_path / "data" / "orders-0" / "partition.metadata").unlink()
    found = judge(tmp_path / "data", checks=["checkpoints"])
    assert [(each.kind, each.file) for each in found] == [("partition-metadata", "orders-0/partition.metadata")]


def test_a_missing_partition_is_found_if_the_metadata_has_it(tmp_path: Path) -> None:
    with Harness(tmp_path) as harness:
        harness.create_topic("orders")
        harness.stop()
    data = tmp_path / "data"
    (data / "recovery-point-offset-checkpoint").write_bytes(
        format_offset_checkpoint({("orders", 0): 7, ("deleted", 0): 3})
    )
    assert judge(data, topics=["orders"], checks=["layout"]) == []
    shutil.rmtree(data / "orders-0")
    (finding,) = judge(data, topics=["orders"])
    assert (finding.kind, finding.topic, finding.partition, finding.offset) == ("partition-missing", "orders", 0, 7)
    assert [each for each in judge(data) if each.topic == "deleted"] == []


def stopped_directory(tmp_path: Path) -> Path:
    """The directory of a broker with the topic orders, after a clean stop."""
    with Harness(tmp_path) as harness:
        harness.create_topic("orders")
        harness.stop()
    return tmp_path / "data"


def test_a_directory_without_meta_properties_is_found(tmp_path: Path) -> None:
    data = stopped_directory(tmp_path)
    properties = data / "meta.properties"
    right = properties.read_text()
    properties.unlink()
    assert [(each.kind, each.file) for each in judge(data)] == [("meta-properties", "meta.properties")]
    assert judge(data / "orders-0") == []  # a partition's directory has none
    foreign = "".join(
        f"directory.id={'A' * 22}\n" if "directory.id" in line else line for line in right.splitlines(True)
    )
    for text, said in (
        ("garbage\n", "line 1 is not key=value"),
        ("version=1\n", "it has no cluster.id, node.id"),
        (right.replace("node.id=", "node.id=x"), "node.id=x1 is not a number"),
        (right.replace("node.id=1", "node.id=77"), "it is of another cluster: the metadata log has no node 77"),
        (right.replace("directory.id=", "directory.id=A"), "is not an id of 22 characters"),
        (foreign, "it is of another cluster or node: no broker in the metadata log has directory.id=AAAA"),
    ):
        properties.write_text(text)
        (finding,) = judge(data)
        assert finding.kind == "meta-properties" and said in finding.detail
    properties.write_text(right)
    assert judge(data) == []


def test_a_directory_of_an_unknown_topic_is_found(tmp_path: Path) -> None:
    data = stopped_directory(tmp_path)
    for name in ("orders-7", "others-0"):
        shutil.copytree(data / "orders-0", data / name)
    found = judge(data)
    assert [(each.kind, each.file) for each in found] == [
        ("partition-unknown", "orders-7/partition.metadata"),
        ("partition-unknown", "others-0/partition.metadata"),
    ]
    assert [each.detail.split(":")[0] for each in found] == [
        "the metadata log does not have this partition",
        "the metadata log does not have this topic",
    ]


def test_a_topic_deleted_just_before_a_kill_is_not_a_finding(tmp_path: Path) -> None:
    data = stopped_directory(tmp_path)
    shutil.copytree(data / "orders-0", tmp_path / "kept")
    with Harness(tmp_path) as harness:
        harness.request(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 5)
        harness.stop()
    shutil.copytree(tmp_path / "kept", data / "orders-0", dirs_exist_ok=True)
    assert judge(data) == []


def test_a_first_segment_that_retention_just_removed_is_not_a_finding(tmp_path: Path) -> None:
    path = written(tmp_path)
    first, second = sorted(path.glob("*.log"))[:2]
    for file in path.glob(f"{first.stem}.*"):
        file.rename(f"{file}.deleted")
    assert judge(tmp_path) == []  # a kill came before the epochs were written
    for file in path.glob("*.deleted"):
        file.unlink()
    assert kinds(judge(tmp_path)) == {"log-start": 1}
    start = int(second.stem)
    (tmp_path / "log-start-offset-checkpoint").write_bytes(format_offset_checkpoint({("orders", 0): start}))
    assert judge(tmp_path) == []
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b"")
    assert kinds(judge(tmp_path))["log-start"] == 1
    (path / "leader-epoch-checkpoint").write_bytes(format_leader_epochs([(0, start)]))
    assert "log-start" not in kinds(judge(tmp_path))
    (tmp_path / "log-start-offset-checkpoint").write_bytes(format_offset_checkpoint({("orders", 0): start - 1}))
    assert kinds(judge(tmp_path))["log-start"] == 1
