"""The metadata log: all or nothing, and damage that is reported with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.broker.metadata.metadata_log import MetadataError, MetadataLog
from minibroker.broker.metadata.metadata_snapshots import iterate_record_values_in
from minibroker.broker.metadata.quorum_state import QuorumState, parse_quorum_state
from minibroker.protocol.declare import Message
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.messages.control_records import LeaderChangeMessage
from minibroker.protocol.records.batch import iterate_batches, read_header
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.control import decode_control_message
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record
from tests.broker.harness import Harness
from tests.broker.metadata_writing import LEVEL, snapshot_of, write_snapshot

ID = bytes(15) + b"\x07"
LEVEL_RECORD = records.FeatureLevelRecord(name="metadata.version", feature_level=LEVEL)
TOPIC = records.TopicRecord(name="t", topic_id=ID)


def replayed(log: MetadataLog) -> list[Message]:
    seen: list[Message] = []
    log.replay_all_records(seen.append)
    return seen


def metadata_file(harness: Harness) -> Path:
    return harness.directory / "data" / "__cluster_metadata-0" / "00000000000000000000.log"


@pytest.fixture
def log(harness: Harness) -> MetadataLog:
    """The log of a new cluster."""
    return harness.cluster.metadata_log


def append_value(log: MetadataLog, value: bytes | None) -> None:
    batch = memoryview(build_batch([Record(0, 0, None, value, ())]))
    log.storage.append(batch, [read_header(batch)], 1)


def test_appended_records_are_replayed_in_order(log: MetadataLog) -> None:
    before = replayed(log)
    appended = [TOPIC, records.RemoveTopicRecord(topic_id=ID), records.NoOpRecord()]
    log.append_messages(appended, 5, LEVEL)
    log.append_messages([TOPIC], 6, LEVEL)
    assert replayed(log) == [*before, *appended, TOPIC]


def test_an_empty_list_of_records_appends_no_batch(log: MetadataLog) -> None:
    end_offset = log.storage.log_end_offset
    log.append_messages([], 5, LEVEL)
    assert log.storage.log_end_offset == end_offset


def test_a_metadata_log_of_several_segments_is_replayed_completely(log: MetadataLog) -> None:
    for name in ("a", "b", "c"):
        log.append_messages([records.TopicRecord(name=name, topic_id=ID)], 5, LEVEL)
        log.storage.roll_segment_if_used()
    assert [record.name for record in replayed(log) if isinstance(record, records.TopicRecord)] == ["a", "b", "c"]


def test_control_batches_are_skipped(log: MetadataLog) -> None:
    before = replayed(log)
    batch = memoryview(build_batch([Record(0, 0, b"\0\0\0\2", b"\0\0", ())], control=True))
    log.storage.append(batch, [read_header(batch)], 1)
    assert replayed(log) == before


@pytest.mark.parametrize("crash", [False, True])
def test_metadata_records_survive_a_restart(harness: Harness, crash: bool) -> None:
    harness.cluster.metadata_log.append_messages([TOPIC], 5, LEVEL)
    harness.restart(crash=crash)
    assert TOPIC in replayed(harness.cluster.metadata_log)


# --- transactions (KIP-868) ---------------------------------------------------------------------

BEGIN, END, ABORT = records.BeginTransactionRecord(), records.EndTransactionRecord(), records.AbortTransactionRecord()


def topics(*names: str) -> list[Message]:
    return [records.TopicRecord(name=name, topic_id=ID) for name in names]


def names_in(messages: list[Message]) -> list[str]:
    return [message.name for message in messages if isinstance(message, records.TopicRecord)]


def test_a_metadata_transaction_applies_at_its_end_even_over_several_batches(log: MetadataLog) -> None:
    log.append_messages([*topics("a"), BEGIN, *topics("b")], 5, LEVEL)
    log.append_messages([*topics("c"), END, *topics("d")], 5, LEVEL)
    assert names_in(replayed(log)) == ["a", "b", "c", "d"]


def test_an_aborted_metadata_transaction_is_not_applied(log: MetadataLog) -> None:
    log.append_messages([*topics("a"), BEGIN, *topics("b"), ABORT, *topics("c")], 5, LEVEL)
    assert names_in(replayed(log)) == ["a", "c"]


def test_an_unfinished_metadata_transaction_is_aborted_by_the_next_leader(harness: Harness) -> None:
    log = harness.cluster.metadata_log
    log.append_messages([*topics("a"), BEGIN, *topics("b")], 5, LEVEL)
    assert names_in(replayed(log)) == ["a"]
    harness.restart(crash=True)
    assert list(harness.cluster.image.topics) == ["a"]
    harness.create_topic("c")
    harness.restart()
    assert list(harness.cluster.image.topics) == ["a", "c"]


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([BEGIN, BEGIN], "a transaction begins within another"),
        ([END], "a transaction ends that has not begun"),
        ([ABORT], "a transaction ends that has not begun"),
    ],
)
def test_metadata_transactions_that_nest_or_end_without_a_begin_are_rejected(
    log: MetadataLog, messages: list[Message], reason: str
) -> None:
    log.append_messages(messages, 5, LEVEL)
    with pytest.raises(MetadataError, match=reason):
        replayed(log)


def test_a_contradicting_record_of_a_metadata_transaction_is_reported_with_its_own_offset(harness: Harness) -> None:
    log = harness.cluster.metadata_log
    offset = log.storage.log_end_offset + 1
    log.append_messages([BEGIN, records.RemoveTopicRecord(topic_id=ID), records.NoOpRecord(), END], 5, LEVEL)
    with pytest.raises(MetadataError, match=f"offset {offset}: there is no topic with the id"):
        log.replay_all_records(harness.cluster.image.apply_record)


# --- leader epochs ------------------------------------------------------------------------------


def control_messages(log: MetadataLog) -> list[object]:
    found = []
    data = log.storage.segments[0].file.read(0, 1 << 20)
    for position, header in iterate_batches(data):
        if header.is_control:
            records_in = iterate_records_of_batch(data[position : position + header.size_bytes])
            found += [(header.partition_leader_epoch, decode_control_message(record)) for record in records_in]
    return found


def test_every_start_begins_and_records_an_epoch(harness: Harness) -> None:
    harness.restart()
    harness.restart(crash=True)
    voter = [LeaderChangeMessage.Voter(voter_id=1)]
    change = LeaderChangeMessage(leader_id=1, voters=voter, granting_voters=voter)
    assert control_messages(harness.cluster.metadata_log) == [(1, change), (2, change), (3, change)]
    assert harness.cluster.metadata_log.storage.leader_epoch == 3


def test_the_quorum_state_file_contains_the_epoch(harness: Harness) -> None:
    harness.restart()
    file = metadata_file(harness).parent / "quorum-state"
    assert parse_quorum_state(file.read_bytes()) == QuorumState(1, 2, (1,), 0)


def test_a_new_epoch_exceeds_that_of_the_quorum_state_file(harness: Harness) -> None:
    harness.stop()
    (metadata_file(harness).parent / "quorum-state").write_bytes(QuorumState(-1, 17, (1, 2, 3), 0).encode_as_json())
    harness.start()
    assert harness.cluster.metadata_log.leader_epoch == 18
    file = metadata_file(harness).parent / "quorum-state"
    assert parse_quorum_state(file.read_bytes()) == QuorumState(1, 18, (1, 2, 3), 0)


def test_an_invalid_quorum_state_file_is_replaced(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    harness.stop()
    file = metadata_file(harness).parent / "quorum-state"
    file.write_bytes(b"nonsense")
    harness.start()
    assert harness.cluster.metadata_log.leader_epoch == 2
    assert f"{file} cannot be used" in caplog.text


# --- snapshots and what Kafka's format command leaves -------------------------------------------


def test_a_snapshot_replaces_the_records_before_its_end(harness: Harness) -> None:
    log = harness.cluster.metadata_log
    log.append_messages(topics("before"), 5, LEVEL)
    end = log.storage.log_end_offset
    log.append_messages(topics("after"), 5, LEVEL)
    write_snapshot(metadata_file(harness).parent, end, 7, snapshot_of([LEVEL_RECORD, *topics("of the snapshot")]))
    assert names_in(replayed(log)) == ["of the snapshot", "after"]


def test_a_log_that_starts_after_a_snapshot_end_is_incomplete(harness: Harness) -> None:
    log = harness.cluster.metadata_log
    write_snapshot(metadata_file(harness).parent, 1, 1, snapshot_of([LEVEL_RECORD]))
    log.storage.roll_segment_if_used()
    log.append_messages(topics("a"), 5, LEVEL)
    log.storage.delete_records_before(log.storage.log_end_offset - 1)
    with pytest.raises(MetadataError, match=r"offset 1: the log begins at \d+, and no snapshot ends there"):
        replayed(log)


def test_a_log_that_ends_before_a_snapshot_is_rejected(harness: Harness) -> None:
    path = write_snapshot(metadata_file(harness).parent, 100, 1, snapshot_of([LEVEL_RECORD]))
    with pytest.raises(MetadataError, match=f"the log ends before the snapshot {path}"):
        replayed(harness.cluster.metadata_log)


def test_a_broker_starts_from_a_metadata_snapshot_without_a_log(harness: Harness) -> None:
    harness.create_topic("t")
    log = harness.cluster.metadata_log.storage
    topic_id, end = harness.cluster.image.topics["t"].topic_id, log.log_end_offset
    harness.stop(crash=True)
    metadata_file(harness).rename(metadata_file(harness).with_name(f"{end:020d}.log")).write_bytes(b"")
    partition = records.PartitionRecord(partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=1)
    topic = records.TopicRecord(name="t", topic_id=topic_id)
    write_snapshot(metadata_file(harness).parent, end, 9, snapshot_of([LEVEL_RECORD, topic, partition]))
    harness.start()
    log = harness.cluster.metadata_log.storage
    assert (log.log_start_offset, harness.cluster.metadata_log.leader_epoch) == (end, 10)
    assert harness.produce("t", "v") == 0


def test_a_formatted_directory_starts_with_the_bootstrap_records(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    config = records.ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1")
    level = records.FeatureLevelRecord(name="metadata.version", feature_level=17)
    (tmp_path / "data" / "bootstrap.checkpoint").write_bytes(snapshot_of([level, config]))
    with Harness(tmp_path) as harness:
        assert harness.cluster.image.features == {"metadata.version": 17}
        assert harness.cluster.image.get_configs(4, "") == {"min.insync.replicas": "1"}
        harness.create_topic("t")  # with records that a Kafka of that level can read
        harness.restart()
        assert list(harness.cluster.image.topics) == ["t"]
        versions = {message for message in control_and_versions(harness.cluster.metadata_log)}
        assert {(0, 3), (3, 1)} <= versions


def control_and_versions(log: MetadataLog) -> list[tuple[int, int]]:
    """(type, version) of each record in the first segment."""
    return [
        (value[1], value[2]) for _, value in iterate_record_values_in(log.storage.segments[0].file.read(0, 1 << 20))
    ]


def test_an_incomplete_bootstrap_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "bootstrap.checkpoint").write_bytes(snapshot_of([LEVEL_RECORD])[:-1])
    with pytest.raises(MetadataError, match="bootstrap.checkpoint cannot be used: its last batch"):
        Harness(tmp_path)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("quorum-state", "quorum-state cannot be read: "),
        ("00000000000000000001-0000000001.checkpoint", "__cluster_metadata-0 cannot be read: "),
    ],
)
def test_an_unreadable_metadata_log_file_is_reported(harness: Harness, name: str, reason: str) -> None:
    harness.stop()
    path = metadata_file(harness).parent / name
    path.unlink(missing_ok=True)
    path.mkdir()
    with pytest.raises(MetadataError, match=reason):
        harness.start()


def test_an_unreadable_bootstrap_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data" / "bootstrap.checkpoint").mkdir(parents=True)
    with pytest.raises(MetadataError, match="bootstrap.checkpoint cannot be read: "):
        Harness(tmp_path)


@pytest.mark.parametrize("level", [6, 34])
def test_an_unknown_metadata_version_is_rejected_and_nothing_is_written(harness: Harness, level: int) -> None:
    raised = records.FeatureLevelRecord(name="metadata.version", feature_level=level)
    harness.cluster.metadata_log.append_messages([raised], 5, LEVEL)
    harness.stop()
    before = metadata_file(harness).read_bytes()
    with pytest.raises(
        MetadataError, match=f"the cluster has metadata.version {level}, and this broker supports 7 to 33"
    ):
        harness.start()
    assert metadata_file(harness).read_bytes() == before


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [b"", None, b"\x01\x63\x00", b"\x01\x02\x00\x02t"])
def test_an_unreadable_record_is_reported_with_its_offset(log: MetadataLog, value: bytes | None) -> None:
    log.append_messages([TOPIC], 5, LEVEL)
    offset = log.storage.log_end_offset
    append_value(log, value)
    with pytest.raises(MetadataError, match=f"__cluster_metadata-0 cannot be used, offset {offset}: ") as raised:
        replayed(log)
    assert "\n" not in str(raised.value)


def test_a_metadata_record_that_contradicts_earlier_ones_is_reported_with_its_offset(
    harness: Harness, log: MetadataLog
) -> None:
    offset = log.storage.log_end_offset
    log.append_messages([records.RemoveTopicRecord(topic_id=ID)], 5, LEVEL)
    with pytest.raises(MetadataError, match=f"offset {offset}: there is no topic with the id"):
        log.replay_all_records(harness.cluster.image.apply_record)


def test_a_flipped_byte_of_the_metadata_log_is_detected_after_a_clean_stop(harness: Harness) -> None:
    harness.create_topic("t")
    harness.stop()
    file = metadata_file(harness)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(MetadataError, match="cannot be used, offset"):
        harness.start()


def test_a_torn_end_is_truncated_after_a_crash_and_earlier_records_are_kept(harness: Harness) -> None:
    harness.create_topic("t")
    size = metadata_file(harness).stat().st_size
    harness.create_topic("u")
    harness.stop(crash=True)
    with metadata_file(harness).open("r+b") as file:
        file.truncate(size + 30)
    harness.start()
    assert list(harness.cluster.image.topics) == ["t"]


def test_a_metadata_log_that_begins_after_a_missing_snapshot_is_rejected(log: MetadataLog) -> None:
    log.append_messages([TOPIC], 5, LEVEL)
    log.storage.roll_segment_if_used()
    log.storage.delete_records_before(1)
    with pytest.raises(MetadataError, match="the log begins at 1, and no snapshot ends there"):
        replayed(log)
