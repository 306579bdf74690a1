"""Topics, partitions and configs in the metadata log of a directory."""

from __future__ import annotations

from pathlib import Path

from minibroker.pipeline.directory.cluster_metadata import read_metadata
from minibroker.protocol.messages.control_records import LeaderChangeMessage
from minibroker.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.control import make_control_record
from minibroker.protocol.records.metadata_values import encode_metadata_record
from tests.pipeline.verifying.metadata_logs import config, metadata, topic

ALWAYS = {"__consumer_offsets", "__transaction_state"}


def test_only_coordinator_topics_are_compacted_without_metadata(tmp_path: Path) -> None:
    assert read_metadata(tmp_path).compacted == ALWAYS


def test_the_last_cleanup_policy_in_the_metadata_applies(tmp_path: Path) -> None:
    values = (
        config("a", "compact"), config("b", "delete"), config("c", "compact,delete"), config("d", "compact"),
        config("d", None), config("e", "compact", "other.policy"), config("f", "compact"), topic("f"),
    )  # fmt: skip
    assert read_metadata(metadata(tmp_path, *values)).compacted == {"a", "c"} | ALWAYS


def test_a_metadata_snapshot_is_read_and_garbage_ignored(tmp_path: Path) -> None:
    metadata(tmp_path, config("a", "compact"), config("b", "compact"), name=f"{7:020d}-{1:010d}.checkpoint")
    metadata(tmp_path, config("b", "delete"), bytes((1, 4, 0, 2, 99)), b"", bytes((1, 99, 0, 5)))
    found = read_metadata(tmp_path)
    assert found.compacted == {"a"} | ALWAYS
    assert found.unreadable == 1  # nobody needs to read records of other kinds


def test_an_aborted_metadata_transaction_changes_nothing(tmp_path: Path) -> None:
    begin, end, abort = (
        encode_metadata_record(kind, 0)
        for kind in (BeginTransactionRecord(name="t"), EndTransactionRecord(), AbortTransactionRecord(reason="r"))
    )
    metadata(
        tmp_path,
        begin,
        config("a", "compact"),
        end,
        begin,
        config("b", "compact"),
        abort,
        begin,
        config("c", "compact"),
    )
    assert read_metadata(tmp_path).compacted == {"a"} | ALWAYS


def test_damage_in_the_metadata_is_skipped(tmp_path: Path) -> None:
    metadata(tmp_path, config("a", "compact"), config("b", "compact"), config("c", "compact"))
    log = tmp_path / "__cluster_metadata-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    found = read_metadata(tmp_path)
    assert found.compacted == {"a", "c"} | ALWAYS
    assert found.unreadable == 1


def test_the_voters_of_the_metadata_log_are_those_of_the_last_leader_change(tmp_path: Path) -> None:
    assert read_metadata(metadata(tmp_path, config("a", "compact"))).voters == set()
    voters = [LeaderChangeMessage.Voter(voter_id=number, voter_directory_id=bytes(16)) for number in (1, 2, 3)]
    change = LeaderChangeMessage(version=0, leader_id=1, voters=voters, granting_voters=[])
    batch = build_batch([make_control_record(change, timestamp=1)], control=True)
    (tmp_path / "__cluster_metadata-0" / f"{0:020d}.log").write_bytes(batch)
    assert read_metadata(tmp_path).voters == {1, 2, 3}
