"""A consumer group as others see it: who may commit and fetch, its state, and its records folded in any order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from minibroker.broker.groups.consumer import consumer_records
from minibroker.broker.groups.consumer.consumer_group import ConsumerGroup
from minibroker.broker.groups.consumer.member import (
    ClassicMember,
    ClassicProtocol,
    ConsumerMember,
    MemberState,
    add_epoch_to_partitions,
)
from minibroker.broker.groups.consumer.subscriptions import ResolvedPattern
from minibroker.broker.groups.group import GroupType
from minibroker.broker.groups.group_coordinator import REPLAYED, GroupCoordinator
from minibroker.broker.groups.group_entries import GroupChange, encode_group_changes
from minibroker.broker.groups.offsets_of_group import CommittedOffset
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages import group_records as messages
from tests.broker.groups.consumer.driving import GROUP
from tests.broker.harness import Harness
from tests.cases import for_each

A = bytes(15) + b"a"
OFFSET = CommittedOffset(5, -1, "", 1_700_000_000_000)
CLASSIC = ClassicMember(10_000, (ClassicProtocol("range", b"\0\1"),))
MEMBER = ConsumerMember(
    "m",
    topic_names=frozenset({"t"}),
    epoch=7,
    previous_epoch=6,
    assigned={A: {0: 5, 1: 7}},
    pending_revocation={A: {2: 4}},
)


@pytest.fixture
def group(harness: Harness) -> ConsumerGroup:
    """A group with one member of each protocol."""
    harness.coordinator(GROUP)
    group = ConsumerGroup(harness.cluster.groups, GROUP, harness.cluster.groups.find_or_make_classic_group("x").offsets)
    group.add_or_replace_member(MEMBER)
    group.add_or_replace_member(
        MEMBER._replace(member_id="c", classic=CLASSIC, assigned={A: {3: 5}}, pending_revocation={})
    )
    return group


def code_of_commit(group: ConsumerGroup, member_id: str, epoch: int, version: int = 9, **more: bool) -> ErrorCode:
    try:
        group.check_offset_commit(
            member_id, None, epoch, transactional=more.get("transactional", False), version=version
        )
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_a_member_can_commit_in_its_epoch_but_not_a_newer_one(group: ConsumerGroup) -> None:
    assert code_of_commit(group, "m", 7) == ErrorCode.NONE
    assert code_of_commit(group, "m", 8) == ErrorCode.STALE_MEMBER_EPOCH
    assert code_of_commit(group, "c", 8) == ErrorCode.ILLEGAL_GENERATION
    assert code_of_commit(group, "nobody", 7) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of_commit(group, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of_commit(group, "", -1, transactional=True) == ErrorCode.NONE
    assert code_of_commit(group, "m", 7, 8) == ErrorCode.UNSUPPORTED_VERSION
    assert code_of_commit(group, "m", 7, 8, transactional=True) == ErrorCode.NONE
    assert code_of_commit(group, "c", 7, 8) == ErrorCode.NONE


@for_each(
    ("member_id", "partition", "epoch", "code"),
    [
        ("m", 0, 5, ErrorCode.NONE),
        ("m", 0, 4, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", 1, 6, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", 2, 4, ErrorCode.NONE),  # what it has still to give up
        ("m", 3, 6, ErrorCode.STALE_MEMBER_EPOCH),
        ("c", 3, 5, ErrorCode.NONE),
        ("c", 3, 4, ErrorCode.ILLEGAL_GENERATION),
        ("c", 0, 6, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_a_commit_in_an_older_member_epoch_is_accepted_for_partitions_owned_since(
    group: ConsumerGroup, member_id: str, partition: int, epoch: int, code: ErrorCode
) -> None:
    check = group.check_offset_commit(member_id, None, epoch, transactional=False, version=9)
    assert check is not None
    found = ErrorCode.NONE
    try:
        check("t", A, partition)
    except KafkaError as error:
        found = error.code
    assert found == code


def test_offset_fetch_is_rejected_for_a_wrong_member_or_epoch(group: ConsumerGroup) -> None:
    group.check_offset_fetch(None, -1)
    group.check_offset_fetch("m", 7)
    for member_id, epoch, code in (
        ("m", 6, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("c", 6, ErrorCode.ILLEGAL_GENERATION),
        ("nobody", 7, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 7, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(KafkaError) as caught:
            group.check_offset_fetch(member_id, epoch)
        assert caught.value.code == code


def test_an_empty_group_accepts_commits_without_a_member_and_can_be_deleted(group: ConsumerGroup) -> None:
    with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
        group.check_may_be_deleted()
    for member_id in ("m", "c"):
        group.remove_member(member_id)
    assert code_of_commit(group, "", -1) == ErrorCode.NONE
    group.check_may_be_deleted()
    group.check_offsets_may_be_deleted()
    assert (group.is_empty, group.state_name, group.owners) == (True, "Empty", {})
    assert (group.type, group.protocol_type) == (GroupType.CONSUMER, "consumer")
    assert group.get_offset_retention_start_ms(OFFSET) == OFFSET.commit_timestamp_ms


def test_the_group_state_follows_the_assignment_progress(group: ConsumerGroup) -> None:
    group.epoch, group.assignment_epoch = 8, 7
    assert group.state_name == "Assigning"
    group.epoch = 7
    assert group.state_name == "Stable"
    group.add_or_replace_member(MEMBER._replace(state=MemberState.UNRELEASED_PARTITIONS))
    assert group.state_name == "Reconciling"
    assert group.is_subscribed_to("t")
    assert not group.is_subscribed_to("u")
    group.patterns["u"] = ResolvedPattern(frozenset({"u"}), 1, 1)
    assert group.is_subscribed_to("u")


def commit(coordinator: GroupCoordinator, changes: Sequence[GroupChange]) -> None:
    """Append the changes, and fold them in as a start would."""
    coordinator.append_entries(GROUP, encode_group_changes(changes))
    for key, value in changes:
        REPLAYED[type(key)](coordinator, key, value)


def fold(group: ConsumerGroup, *changes: GroupChange) -> None:
    for change in changes:
        group.apply_record_change(change)


def test_all_group_records_and_tombstones_are_replayed(harness: Harness) -> None:
    harness.coordinator(GROUP)
    coordinator = harness.cluster.groups
    member = MEMBER._replace(instance_id="i", rack_id="r", client_id="c", client_host="/h", server_assignor="range")
    resolved = ResolvedPattern(frozenset({"t"}), 9, 8)
    changes = [
        consumer_records.make_member_metadata_record(GROUP, member),
        consumer_records.make_group_epoch_record(GROUP, 7, -3),
        consumer_records.make_target_assignment_record(GROUP, "m", {A: frozenset({0, 1})}),
        consumer_records.make_target_epoch_record(GROUP, 7, 12),
        consumer_records.make_current_assignment_record(GROUP, member),
        consumer_records.make_pattern_topics_record(GROUP, "t", resolved),
        GroupChange(
            messages.ConsumerGroupPartitionMetadataKey(group_id=GROUP), messages.ConsumerGroupPartitionMetadataValue()
        ),
    ]
    commit(coordinator, changes)
    for _ in range(2):
        group = harness.cluster.groups.get_consumer_group(GROUP)
        assert group.members == {"m": member}
        assert (group.epoch, group.metadata_hash, group.has_partition_metadata) == (7, -3, True)
        assert (group.assignment_epoch, group.assignment_timestamp_ms) == (7, 12)
        assert (group.target, group.patterns, group.static) == (
            {"m": {A: frozenset({0, 1})}},
            {"t": resolved},
            {"i": "m"},
        )
        assert group.owners == {(A, 0): "m", (A, 1): "m", (A, 2): "m"}
        harness.restart()
    coordinator = harness.cluster.groups
    group = coordinator.get_consumer_group(GROUP)
    commit(coordinator, consumer_records.make_group_tombstones(GROUP, group.members, group.patterns))
    assert coordinator.groups == {}
    harness.restart()
    assert harness.cluster.groups.groups == {}


def test_a_reassigned_partition_stays_with_its_new_owner_in_any_record_order(group: ConsumerGroup) -> None:
    """A compacted log may tell of the new owner before it tells that the old one has less."""
    group.add_or_replace_member(MEMBER._replace(member_id="n", assigned={A: {0: 8}}, pending_revocation={}))
    group.add_or_replace_member(MEMBER._replace(assigned={A: {1: 7}}, pending_revocation={}))
    assert group.owners == {(A, 0): "n", (A, 1): "m", (A, 3): "c"}
    group.remove_member("n")
    assert group.owners == {(A, 1): "m", (A, 3): "c"}


def test_tombstones_of_unknown_groups_and_members_are_ignored(harness: Harness) -> None:
    harness.coordinator(GROUP)
    coordinator = harness.cluster.groups
    commit(coordinator, consumer_records.make_member_tombstones(GROUP, "m"))
    assert coordinator.groups == {}
    group = ConsumerGroup(coordinator, GROUP, coordinator.find_or_make_classic_group("x").offsets)
    fold(
        group,
        *consumer_records.make_member_tombstones(GROUP, "m"),
        consumer_records.make_pattern_topics_record(GROUP, "t", None),
    )
    assert (group.members, group.target, group.patterns) == ({}, {}, {})


def test_recorded_partitions_without_an_assignment_epoch_have_the_member_epoch(group: ConsumerGroup) -> None:
    value = MEMBER.make_current_assignment_value()
    for each in (*value.assigned_partitions, *value.partitions_pending_revocation):
        each.assignment_epochs = None
    old = ConsumerMember("m").with_recorded_assignment(value)
    assert old.assigned == add_epoch_to_partitions(7, {A: frozenset({0, 1})})
    assert old.pending_revocation == {A: {2: 7}}
    value.state = 99
    assert ConsumerMember("m").with_recorded_assignment(value).state is MemberState.UNKNOWN


def test_a_member_that_changes_its_instance_id_releases_the_old_one(group: ConsumerGroup) -> None:
    group.add_or_replace_member(MEMBER._replace(instance_id="i"))
    group.add_or_replace_member(MEMBER._replace(instance_id="j"))
    with pytest.raises(KafkaError, match="Instance id i is unknown"):
        group.get_member("m", "i")
    assert group.get_member("m", "j").instance_id == "j"
    group.add_or_replace_member(MEMBER._replace(member_id="other", instance_id="i"))
    group.remove_member("m")
    assert group.static == {"i": "other"}
