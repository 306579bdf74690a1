"""Groups of the next generation (KIP-848): how members join, beat and leave, in which epochs, and every code.

Every literal is what Apache Kafka 4.4 answers. It makes another target at most once a second, so that the tests beat
until they see what they wait for. Which topics members get is in `test_consumer_group_topics.py`, what others ask of a
group in `test_consumer_group_administration.py`, classic members in `test_consumer_group_migration.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.consumer_members import REBALANCE_MS, ErrorAnswer, Member, TopicPartitions, describe, settle, told
from conformance.wire.requests import metadata_of, repeated
from minibroker.protocol.errors import ErrorCode

# --- joining ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_a_consumer_group_member_joins_and_leaves(
    connection: Connection, new_topic: NewTopic, group: str, version: int
) -> None:
    name = new_topic(3)
    member = Member(connection, group, "m-1", name)
    joined = member.join(version)
    assert (joined.error_code, joined.error_message, joined.throttle_time_ms) == (0, None, 0)
    assert (joined.member_id, joined.member_epoch, joined.heartbeat_interval_ms) == ("m-1", 2, 5000)
    topic_id = metadata_of(connection, name).topic_id
    assert member.owned == {topic_id: {0, 1, 2}}
    again = member.beat()
    assert (again.member_epoch, again.assignment) == (2, None)
    described = describe(connection, group)
    assert (described.error_code, described.group_state, described.assignor_name) == (0, "Stable", "uniform")
    assert (described.group_epoch, described.assignment_epoch) == (2, 2)
    assert described.authorized_operations == -(1 << 31)
    (seen,) = described.members
    assert (seen.member_id, seen.instance_id, seen.rack_id, seen.member_epoch) == ("m-1", None, None, 2)
    assert (seen.client_id, seen.client_host, seen.member_type) == ("wire", "/127.0.0.1", 1)
    assert (seen.subscribed_topic_names, seen.subscribed_topic_regex) == ([name], "")
    for assignment in (seen.assignment, seen.target_assignment):
        (each,) = assignment.topic_partitions
        assert (each.topic_id, each.topic_name, sorted(each.partitions)) == (topic_id, name, [0, 1, 2])
    left = member.ask(version, member_epoch=-1)
    assert (left.error_code, left.member_id, left.member_epoch) == (0, "m-1", -1)
    assert (left.heartbeat_interval_ms, left.assignment) == (0, None)
    empty = describe(connection, group)
    assert (empty.group_state, empty.group_epoch, empty.assignment_epoch, empty.members) == ("Empty", 3, 3, [])


def test_a_member_that_joins_in_version_0_without_an_id_is_given_one(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    joined = Member(connection, group, "", new_topic()).join(0)
    assert (joined.error_code, len(joined.member_id)) == (0, 22)


def test_a_member_without_subscriptions_joins_in_epoch_1_without_partitions(connection: Connection, group: str) -> None:
    joined = Member(connection, group, "m-1").join()
    assert (joined.error_code, joined.member_epoch) == (0, 1)
    assert joined.assignment is not None
    assert joined.assignment.topic_partitions == []
    described = describe(connection, group)
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 1, 1)


EMPTY_MEMBER_ID = (ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
NOT_EMPTY = (ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")


@pytest.mark.parametrize(
    ("version", "fields", "expected"),
    [
        (1, {"member_id": ""}, EMPTY_MEMBER_ID),
        (1, {"member_id": " \t"}, EMPTY_MEMBER_ID),
        (0, {"member_id": "", "member_epoch": 1}, EMPTY_MEMBER_ID),
        (0, {"member_id": "", "member_epoch": -1}, EMPTY_MEMBER_ID),
        (1, {"member_id": "", "group_id": "", "instance_id": ""}, EMPTY_MEMBER_ID),
        (1, {"group_id": ""}, (ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")),
        (1, {"instance_id": ""}, (ErrorCode.INVALID_REQUEST, "InstanceId can't be empty.")),
        (1, {"rack_id": " "}, (ErrorCode.INVALID_REQUEST, "RackId can't be empty.")),
        (
            1,
            {"rebalance_timeout_ms": -1, "topic_partitions": None},
            (ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request."),
        ),
        (1, {"topic_partitions": None, "subscribed_topic_names": None}, NOT_EMPTY),
        (1, {"topic_partitions": [TopicPartitions(topic_id=bytes(15) + b"\1", partitions=[])]}, NOT_EMPTY),
        (
            1,
            {"subscribed_topic_names": None},
            (
                ErrorCode.INVALID_REQUEST,
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
            ),
        ),
        (1, {"member_epoch": -2}, (ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")),
        (1, {"member_epoch": -3}, (ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")),
        (
            1,
            {"server_assignor": "sticky"},
            (
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                "ServerAssignor sticky is not supported. Supported assignors: uniform, range.",
            ),
        ),
    ],
)
def test_a_heartbeat_without_required_fields_is_rejected(
    connection: Connection, group: str, version: int, fields: dict[str, Any], expected: ErrorAnswer
) -> None:
    answer = Member(connection, group, "m-1", "t").join(version, **fields)
    assert told(answer) == expected
    assert (answer.member_id, answer.member_epoch, answer.assignment) == (None, 0, None)
    assert describe(connection, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_heartbeat_of_an_unknown_member_is_rejected(connection: Connection, new_topic: NewTopic, group: str) -> None:
    stranger = Member(connection, group, "m-2")
    unknown = (ErrorCode.UNKNOWN_MEMBER_ID, f"Member m-2 is not a member of group {group}.")
    assert told(stranger.ask(member_epoch=1)) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Consumer group {group} not found.",
    )
    assert told(stranger.ask(member_epoch=-1)) == (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group} not found.")
    Member(connection, group, "m-1", new_topic()).join()
    assert told(stranger.ask(member_epoch=1)) == unknown
    assert told(stranger.ask(member_epoch=-1)) == unknown


# --- epochs -------------------------------------------------------------------------------------


def test_a_wrong_epoch_is_fenced_and_epoch_0_rejoins(connection: Connection, new_topic: NewTopic, group: str) -> None:
    member = Member(connection, group, "m-1", new_topic(2))
    member.join()
    words = "member epoch ({}) than the one known by the group coordinator (2). "
    rejoin = "The member must abandon all its partitions and rejoin."
    start = "The consumer group member has a"
    assert told(member.ask(member_epoch=3)) == (
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"{start} greater {words.format(3)}{rejoin}",
    )
    assert told(member.ask(member_epoch=1)) == (
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"{start} smaller {words.format(1)}{rejoin}",
    )
    assert member.join().error_code == 0
    assert (member.epoch, member.count) == (2, 2)


def test_partitions_are_revoked_before_they_are_assigned(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    name = new_topic(4)
    first, second = Member(connection, group, "m-1", name), Member(connection, group, "m-2", name)
    first.join()
    second.join()
    assert second.count == 0
    had = first.reported()

    def keep() -> Any:
        return first.ask(topic_partitions=had)

    less = first.taken(repeated(keep, lambda seen: seen.assignment is not None))
    assert less.member_epoch == first.epoch
    (left,) = less.assignment.topic_partitions
    assert len(left.partitions) == 2
    second.beat()
    assert second.count == 0
    reconciling = describe(connection, group)
    assert reconciling.group_state == "Reconciling"
    members = {member.member_id: member for member in reconciling.members}
    owned = [sorted(each.partitions) for each in members["m-1"].assignment.topic_partitions]
    assert owned == [[0, 1, 2, 3]]  # with what it has still to give up
    assert sum(len(each.partitions) for each in members["m-2"].target_assignment.topic_partitions) == 2
    settle(first, second, total=4)
    assert first.epoch == second.epoch == 3
    assert {first.count, second.count} == {2}


def test_a_heartbeat_in_the_previous_epoch_may_own_only_partitions_still_assigned(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    name = new_topic(4)
    first, second = Member(connection, group, "m-1", name), Member(connection, group, "m-2", name)
    first.join()
    everything = first.reported()
    second.join()
    settle(first, second, total=4)
    less = first.reported()
    assert told(first.ask(member_epoch=2, topic_partitions=less)) == (0, None)
    for owned in (None, everything):
        answer = first.ask(member_epoch=2, topic_partitions=owned)
        assert answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_an_unchanged_assignment_is_returned_only_to_a_heartbeat_with_all_fields(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    member = Member(connection, group, "m-1", new_topic(2))
    member.join()
    for fields, is_told in (
        ({}, False),
        ({"rebalance_timeout_ms": REBALANCE_MS}, False),
        ({"rebalance_timeout_ms": REBALANCE_MS, **member.said}, True),
    ):
        assert (member.beat(**fields).assignment is not None) is is_told
    assert member.count == 2


# --- static members -----------------------------------------------------------------------------


def test_a_static_member_leaves_temporarily_and_rejoins(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    name = new_topic(2)
    member = Member(connection, group, "s-1", name, instance_id="i")
    member.join()
    other = Member(connection, group, "s-2", name, instance_id="i")
    assert told(other.join()) == (
        ErrorCode.UNRELEASED_INSTANCE_ID,
        "Static member s-2 with instance id i cannot join the group because the instance id is owned by s-1 member.",
    )
    fenced = (ErrorCode.FENCED_INSTANCE_ID, "Static member s-2 with instance id i was fenced by member s-1.")
    for epoch in (2, -1, -2):
        assert told(other.ask(member_epoch=epoch)) == fenced
    stranger = Member(connection, group, "s-3", name, instance_id="j")
    for epoch in (2, -1, -2):
        assert told(stranger.ask(member_epoch=epoch)) == (
            ErrorCode.UNKNOWN_MEMBER_ID,
            "Instance id j is unknown.",
        )
    away = member.ask(member_epoch=-2)
    assert (away.error_code, away.member_id, away.member_epoch) == (0, "s-1", -2)
    (seen,) = describe(connection, group).members
    assert (seen.member_id, seen.instance_id, seen.member_epoch) == ("s-1", "i", -2)
    assert other.join().member_epoch == 2
    assert other.count == 2
    described = describe(connection, group)
    assert (described.group_epoch, described.group_state) == (2, "Stable")
    assert [each.member_id for each in described.members] == ["s-2"]
    assert member.ask().error_code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("away", [False, True])
def test_a_member_that_rejoins_with_another_instance_id_releases_the_old_one(
    connection: Connection, new_topic: NewTopic, group: str, away: bool
) -> None:
    name = new_topic()
    before = Member(connection, group, "s-1", name, instance_id="i")
    before.join()
    if away:
        before.ask(member_epoch=-2)
    after = Member(connection, group, "s-1", name, instance_id="j")
    assert told(after.join()) == (0, None)
    unknown = (ErrorCode.UNKNOWN_MEMBER_ID, "Instance id i is unknown.")
    for epoch in (after.epoch, -1, -2):
        assert told(before.ask(member_epoch=epoch)) == unknown
    assert told(after.ask()) == (0, None)
    assert told(Member(connection, group, "s-2", name, instance_id="i").join()) == (0, None)
    members = {(each.member_id, each.instance_id) for each in describe(connection, group).members}
    assert members == {("s-1", "j"), ("s-2", "i")}


def test_described_members_are_sorted_by_their_hashes(connection: Connection, name: str, group: str) -> None:
    for number in range(1, 8):
        Member(connection, group, f"member-{number}", name).join()
    listed = [each.member_id for each in describe(connection, group).members]
    assert listed == [f"member-{number}" for number in (3, 5, 7, 2, 4, 6, 1)]


def test_another_preferred_assignor_begins_a_group_epoch(connection: Connection, name: str, group: str) -> None:
    first = Member(connection, group, "m-1", name)
    first.join()
    settle(first, total=1)
    epoch = describe(connection, group).group_epoch
    other = Member(connection, group, "m-2")
    assert other.join().error_code == 0
    assert describe(connection, group).group_epoch == epoch
    for assignor, preferred, bump in (("range", "range", 1), (None, "range", 0), ("uniform", "uniform", 1)):
        assert other.beat(server_assignor=assignor).error_code == 0
        epoch += bump
        described = describe(connection, group)
        assert (described.group_epoch, described.assignor_name) == (epoch, preferred)
    alone = Member(connection, f"{group}-2", "m-1")
    assert alone.join(server_assignor="range").member_epoch == 2
