"""All groups together: found, folded from the log at the start, deleted, and gone with their topic."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.broker.groups import group_entries
from minibroker.broker.groups.group_coordinator import GroupCoordinator
from minibroker.broker.groups.offsets_of_group import CommittedOffset
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.group_records import (
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
)
from minibroker.protocol.messages.topics import DeleteTopicsRequest
from minibroker.protocol.records.batch import read_header
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.control import make_transaction_marker
from minibroker.protocol.records.record import Record
from tests.broker.harness import Harness

OFFSET = CommittedOffset(5, 2, "note", 1_700_000_000_000, topic_id=bytes(range(16)))
MEMBER = GroupMetadataValue.MemberMetadata(
    member_id="m-1",
    group_instance_id="static",
    client_id="c",
    client_host="/127.0.0.1",
    rebalance_timeout=60_000,
    session_timeout=10_000,
    subscription=b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff",
    assignment=b"assigned",
)
GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=4,
    protocol="range",
    leader="m-1",
    current_state_timestamp=7,
    members=[MEMBER],
)


def groups_of(harness: Harness) -> GroupCoordinator:
    harness.coordinator("g")
    return harness.cluster.groups


def test_neither_a_group_coordinator_nor_the_offsets_topic_exists_before_the_first_group(harness: Harness) -> None:
    assert harness.cluster.coordinators.made == {}
    assert harness.cluster.image.topics == {}


@pytest.mark.parametrize("crash", [True, False])
def test_groups_and_offsets_are_loaded_after_a_restart(harness: Harness, crash: bool) -> None:
    groups = groups_of(harness)
    groups.append_entries(
        "g",
        [group_entries.encode_group_metadata_entry("g", GROUP), group_entries.encode_offset_entry("g", "t", 3, OFFSET)],
    )
    groups.append_entries(
        "h",
        [
            group_entries.encode_offset_entry("h", "t", 0, OFFSET),
            group_entries.encode_offset_entry("h", "u", 0, OFFSET),
        ],
    )
    groups.append_entries("h", [group_entries.encode_offset_entry("h", "u", 0, None)])
    harness.restart(crash=crash)
    groups = harness.cluster.groups
    group = groups.find_or_make_classic_group("g")
    assert (group.state_name, group.generation, group.protocol, group.leader_id) == ("Stable", 4, "range", "m-1")
    assert (group.static, group.topics) == ({"static": "m-1"}, {"t"})
    (member,) = group.members.values()
    assert (member.assignment, member.session_timeout_ms) == (b"assigned", 10_000)
    assert group.offsets.by_partition == {("t", 3): OFFSET}
    simple = groups.find_or_make_classic_group("h")
    assert (simple.state_name, simple.protocol_type) == ("Empty", "")
    assert simple.offsets.by_partition == {("t", 0): OFFSET}


def test_a_tombstone_removes_a_group_and_keeps_its_offsets(harness: Harness) -> None:
    groups = groups_of(harness)
    groups.append_entries(
        "g",
        [group_entries.encode_group_metadata_entry("g", GROUP), group_entries.encode_offset_entry("g", "t", 3, OFFSET)],
    )
    groups.append_entries("g", [group_entries.encode_group_metadata_entry("g", None)])
    groups.append_entries(
        "h",
        [group_entries.encode_group_metadata_entry("h", GROUP), group_entries.encode_group_metadata_entry("h", None)],
    )
    harness.restart()
    group = harness.cluster.groups.find_or_make_classic_group("g")
    assert (group.state_name, group.protocol_type, len(group.offsets.by_partition)) == ("Empty", "", 1)
    assert "h" not in harness.cluster.groups.groups


def test_the_last_of_several_commits_is_loaded(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    groups = groups_of(harness)
    for offset in range(5):
        groups.append_entries(
            "g",
            [group_entries.encode_offset_entry("g", "t", index, OFFSET._replace(offset=offset)) for index in (0, 1)],
        )
    groups.append_entries("g", [group_entries.encode_offset_entry("g", "t", 1, None)])
    key, _ = group_entries.encode_offset_entry("g", "t", 2, None)
    groups.append_entries("g", [(key, b"nonsense"), (key[:2], b"")])
    harness.restart()
    offsets = harness.cluster.groups.find_or_make_classic_group("g").offsets.by_partition
    assert offsets == {("t", 0): OFFSET._replace(offset=4)}
    assert "the commit at offset 11 of partition" in caplog.text
    assert "the commit at offset 12 of partition" in caplog.text


def test_a_transaction_and_concurrent_commits_apply_in_log_order(harness: Harness) -> None:
    groups = groups_of(harness)
    partition = harness.partition("__consumer_offsets", groups.log.get_partition_index("g"))
    identity = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    key, value = group_entries.encode_offset_entry("g", "t", 0, OFFSET._replace(offset=6))
    marker = make_transaction_marker(committed=True, coordinator_epoch=0, timestamp=0)
    groups.append_entries("g", [group_entries.encode_offset_entry("g", "t", 0, OFFSET)])
    for batch in (
        build_batch([Record(key=key, value=value)], base_sequence=0, **identity),  # type: ignore[arg-type]
        build_batch([marker], control=True, **identity),  # type: ignore[arg-type]
    ):
        partition.log.append(batch, [read_header(batch)], 0)
    harness.restart()
    assert harness.cluster.groups.find_or_make_classic_group("g").offsets.by_partition["t", 0].offset == 6
    harness.cluster.groups.append_entries(
        "g", [group_entries.encode_offset_entry("g", "t", 0, OFFSET._replace(offset=7))]
    )
    harness.restart()
    assert harness.cluster.groups.find_or_make_classic_group("g").offsets.by_partition["t", 0].offset == 7


def test_offset_records_of_old_brokers_are_decoded(harness: Harness) -> None:
    groups = groups_of(harness)
    key = LegacyOffsetCommitKey(group="g", topic="t", partition=1)
    groups.append_entries(
        "g",
        [group_entries.encode_record_entry(key, LegacyOffsetCommitValue(offset=9, metadata="m", commit_timestamp=3))],
    )
    harness.restart()
    offsets = harness.cluster.groups.find_or_make_classic_group("g").offsets.by_partition
    assert offsets == {("t", 1): CommittedOffset(9, -1, "m", 3)}


@pytest.mark.parametrize("committed", [True, False])
def test_transactional_offsets_are_loaded_only_if_the_transaction_committed(harness: Harness, committed: bool) -> None:
    partition = harness.partition("__consumer_offsets", groups_of(harness).log.get_partition_index("g"))
    key, value = group_entries.encode_offset_entry("g", "t", 0, OFFSET)
    identity = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    marker = make_transaction_marker(committed=committed, coordinator_epoch=0, timestamp=0)
    for batch in (
        build_batch([Record(key=key, value=value)], base_sequence=0, **identity),  # type: ignore[arg-type]
        build_batch([marker], control=True, **identity),  # type: ignore[arg-type]
    ):
        partition.log.append(batch, [read_header(batch)], 0)
    harness.restart()
    offsets = harness.cluster.groups.groups["g"].offsets
    assert offsets.by_partition == ({("t", 0): OFFSET} if committed else {})
    assert not offsets.pending


def transactional(key: bytes, value: bytes | None) -> bytes:
    """Return a batch with one record, of the transaction of producer 7."""
    record = Record(key=key, value=value)
    return build_batch([record], producer_id=7, producer_epoch=0, transactional=True, base_sequence=0)


def test_offsets_of_an_open_transaction_survive_their_groups_tombstone(harness: Harness) -> None:
    """As when the group becomes a consumer group meanwhile."""
    groups = groups_of(harness)
    log = harness.partition("__consumer_offsets", groups.log.get_partition_index("g")).log
    batch = transactional(*group_entries.encode_offset_entry("g", "t", 0, OFFSET))
    log.append(batch, [read_header(batch)], 0)
    groups.append_entries(
        "g",
        [group_entries.encode_group_metadata_entry("g", GROUP), group_entries.encode_group_metadata_entry("g", None)],
    )
    marker = make_transaction_marker(committed=True, coordinator_epoch=0, timestamp=0)
    batch = build_batch([marker], producer_id=7, producer_epoch=0, transactional=True, control=True)
    log.append(batch, [read_header(batch)], 0)
    harness.restart()
    assert harness.cluster.groups.groups["g"].offsets.by_partition == {("t", 0): OFFSET}


def test_a_deleted_group_with_an_open_transaction_stays_deleted_after_a_restart(harness: Harness) -> None:
    groups = groups_of(harness)
    groups.append_entries("g", [group_entries.encode_group_metadata_entry("g", GROUP)])
    groups.append_entries("g", [group_entries.encode_offset_entry("g", "t", 1, OFFSET)])
    log = harness.partition("__consumer_offsets", groups.log.get_partition_index("g")).log
    batch = transactional(*group_entries.encode_offset_entry("g", "t", 0, OFFSET))
    log.append(batch, [read_header(batch)], 0)
    groups.append_entries("g", [group_entries.encode_offset_entry("g", "t", index, None) for index in (0, 1)])
    groups.append_entries("g", [group_entries.encode_group_metadata_entry("g", None)])
    harness.restart()
    assert "g" not in harness.cluster.groups.groups


def test_groups_of_an_unreadable_partition_have_no_coordinator(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    groups = groups_of(harness)
    groups.append_entries("g", [group_entries.encode_offset_entry("g", "t", 0, OFFSET)])
    partition = harness.partition("__consumer_offsets", groups.log.get_partition_index("g"))

    def read(*_: object, **__: object) -> None:
        raise OSError("the disk does not answer")

    monkeypatch.setattr(type(partition.log.segments[0].file), "read", read)
    harness.cluster.coordinators.made.clear()
    harness.cluster.groups.load_all_shards()
    assert "the disk does not answer" in caplog.text
    with pytest.raises(KafkaError) as raised:
        harness.cluster.groups.check_is_coordinator_and_group_id(harness.cluster.nodes[1], "g")
    assert raised.value.code == ErrorCode.NOT_COORDINATOR


def test_only_the_coordinator_of_a_group_accepts_its_requests(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        node = harness.coordinator("g")
        harness.cluster.groups.check_is_coordinator_and_group_id(harness.cluster.nodes[node], "g")
        with pytest.raises(KafkaError) as raised:
            harness.cluster.groups.check_is_coordinator_and_group_id(harness.cluster.nodes[3 - node], "g")
        assert raised.value.code == ErrorCode.NOT_COORDINATOR


def test_an_empty_group_id_is_invalid(harness: Harness) -> None:
    groups, node = groups_of(harness), harness.cluster.nodes[1]
    groups.check_is_coordinator(node, "")
    with pytest.raises(KafkaError) as raised:
        groups.check_is_coordinator_and_group_id(node, "")
    assert raised.value.code == ErrorCode.INVALID_GROUP_ID


def test_a_deleted_group_and_its_offsets_stay_deleted(harness: Harness) -> None:
    groups = groups_of(harness)
    groups.append_entries(
        "g",
        [
            group_entries.encode_offset_entry("g", "t", 0, OFFSET),
            group_entries.encode_offset_entry("g", "t", 1, OFFSET),
        ],
    )
    harness.restart()
    groups = harness.cluster.groups
    groups.delete_group(groups.groups["g"])
    assert groups.groups == {}
    harness.restart()
    assert harness.cluster.groups.groups == {}


def test_a_group_is_unknown_after_the_offsets_topic_is_deleted(harness: Harness) -> None:
    groups = groups_of(harness)
    groups.append_entries("g", [group_entries.encode_offset_entry("g", "t", 0, OFFSET)])
    harness.restart()
    groups = harness.cluster.groups
    group = groups.groups["g"]
    harness.create_topic("t")
    harness.request(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")]))
    assert list(groups.groups) == ["g"]
    harness.request(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="__consumer_offsets")]))
    assert groups.groups == {}
    assert group.state_name == "Dead"
    with pytest.raises(KafkaError) as raised:
        groups.append_entries("g", [group_entries.encode_offset_entry("g", "t", 0, OFFSET)])
    assert raised.value.code == ErrorCode.NOT_COORDINATOR
    harness.coordinator("g")
    groups.check_is_coordinator_and_group_id(harness.cluster.nodes[1], "g")
