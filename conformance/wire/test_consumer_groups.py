"""Groups of the next generation (KIP-848): how members join, are given and give up partitions, and every code.

Every literal is what Apache Kafka 4.3 answers. It makes another target at most once a second and looks for topics of
patterns in the background, so that the tests beat until they see what they wait for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.consumer_members import REBALANCE_MS, Member, TopicPartitions, describe, settle
from conformance.wire.members import Member as ClassicMember
from conformance.wire.members import look_up
from conformance.wire.requests import create_request, metadata_of, repeated, topic
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import (
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from minibroker.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from minibroker.protocol.messages.groups import DescribeGroupsRequest, ListGroupsRequest
from minibroker.protocol.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest

GROUP_RESOURCE = 32
SET, DELETE = 0, 1

ErrorAnswer = tuple[int, str | None]


@pytest.fixture
def group(connection: Connection, new_name: Callable[[], str]) -> str:
    """A group id that nobody else has, of a group that does not exist."""
    name = f"group-{new_name()}"
    look_up(connection, name)
    return name


def told(answer: Any) -> ErrorAnswer:
    return answer.error_code, answer.error_message


# --- joining ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_one_member_from_joining_to_leaving(
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
    assert (empty.group_state, empty.group_epoch, empty.assignment_epoch, empty.members) == ("Empty", 3, 2, [])


def test_a_member_of_version_0_is_given_an_id(connection: Connection, new_topic: NewTopic, group: str) -> None:
    joined = Member(connection, group, "", new_topic()).join(0)
    assert (joined.error_code, len(joined.member_id)) == (0, 22)


def test_a_member_that_wants_nothing_is_in_the_first_epoch(connection: Connection, group: str) -> None:
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
def test_a_request_that_does_not_say_what_it_must_is_refused(
    connection: Connection, group: str, version: int, fields: dict[str, Any], expected: ErrorAnswer
) -> None:
    answer = Member(connection, group, "m-1", "t").join(version, **fields)
    assert told(answer) == expected
    assert (answer.member_id, answer.member_epoch, answer.assignment) == (None, 0, None)
    assert describe(connection, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_who_is_no_member_is_told(connection: Connection, new_topic: NewTopic, group: str) -> None:
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


def test_a_wrong_epoch_is_fenced_and_0_joins_again(connection: Connection, new_topic: NewTopic, group: str) -> None:
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


def test_partitions_are_given_up_before_they_are_given(connection: Connection, new_topic: NewTopic, group: str) -> None:
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


def test_the_previous_epoch_is_good_with_no_more_than_the_member_has(
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


def test_whoever_tells_everything_is_told_everything(connection: Connection, new_topic: NewTopic, group: str) -> None:
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


def test_a_static_member_leaves_for_a_while_and_comes_back(
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


# --- topics and patterns --------------------------------------------------------------------------


def test_topics_that_grow_and_go(connection: Connection, new_topic: NewTopic, group: str) -> None:
    name, kept = new_topic(1), new_topic(1)
    member = Member(connection, group, "m-1", name, kept)
    member.join()
    settle(member, total=2)
    grown = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=3, assignments=None)
    connection.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=10_000), 3)
    settle(member, total=4)
    assert describe(connection, group).group_epoch == 3
    topic_id = metadata_of(connection, name).topic_id
    state = DeleteTopicsRequest.DeleteTopicState(name=name)
    connection.ask(DeleteTopicsRequest(topics=[state], timeout_ms=10_000), 6)

    def beat() -> Any:
        member.owned.pop(topic_id, None)  # what is gone nobody has
        return member.beat()

    repeated(beat, lambda seen: seen.member_epoch == 4)
    settle(member, total=1)
    assert describe(connection, group).group_epoch == 4


def test_a_pattern_gets_the_topics_whose_whole_names_it_matches(
    connection: Connection, new_name: Callable[[], str], new_topic: NewTopic, group: str
) -> None:
    prefix = new_name()
    for ending, partitions in (("-1", 2), ("-2", 1), ("-2x", 1)):
        assert connection.ask(create_request(topic(prefix + ending, partitions)), 7).topics[0].error_code == 0
    member = Member(
        connection, group, "m-1", subscribed_topic_names=None, subscribed_topic_regex=f"{prefix}-[12]|nothing"
    )
    joined = member.join()
    assert joined.error_code == 0
    settle(member, total=3)
    (seen,) = describe(connection, group).members
    assert (seen.subscribed_topic_names, seen.subscribed_topic_regex) == ([], f"{prefix}-[12]|nothing")
    member.said = {"subscribed_topic_names": [f"{prefix}-2x"], "subscribed_topic_regex": ""}
    assert member.beat(**member.said).error_code == 0
    settle(member, total=1)


def test_a_pattern_finds_topics_of_the_broker_too(connection: Connection, group: str) -> None:
    member = Member(connection, group, "m-1", subscribed_topic_names=None, subscribed_topic_regex="__consumer_off.*")
    member.join()
    (internal,) = [metadata_of(connection, "__consumer_offsets")]
    settle(member, total=len(internal.partitions))


@pytest.mark.parametrize("regex", ["(", "[z-a]", "a**", r"(a)\1", "(?=a)", "a{1001}", "a{2,1}", r"\8", "*"])
def test_a_pattern_that_is_none_is_told(connection: Connection, group: str, regex: str) -> None:
    member = Member(connection, group, "m-1", subscribed_topic_names=None, subscribed_topic_regex=regex)
    answer = member.join()
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    start = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: "
    assert (answer.error_message or "").startswith(start)
    assert describe(connection, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# --- what administrators ask ------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_a_group_that_is_not_there_is_told(connection: Connection, group: str, version: int) -> None:
    answer = describe(connection, group, version)
    assert told(answer) == (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group} not found.")
    assert (answer.group_id, answer.group_state, answer.members) == (group, "", [])
    assert describe(connection, "", version).error_code == ErrorCode.INVALID_GROUP_ID


def test_the_apis_of_classic_groups_know_it_as_far_as_they_can(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    Member(connection, group, "m-1", new_topic()).join()
    listed = connection.ask(ListGroupsRequest(), 5).groups
    assert [(each.protocol_type, each.group_state, each.group_type) for each in listed if each.group_id == group] == [
        ("consumer", "Stable", "consumer")
    ]
    for types, is_there in (["consumer"], True), (["Consumer"], True), (["classic"], False):
        found = connection.ask(ListGroupsRequest(types_filter=types), 5).groups
        assert (group in [each.group_id for each in found]) is is_there
    (old,) = connection.ask(DescribeGroupsRequest(groups=[group]), 5).groups
    assert (old.error_code, old.group_state, old.members) == (0, "Dead", [])
    (new,) = connection.ask(DescribeGroupsRequest(groups=[group]), 6).groups
    assert (new.error_code, new.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {group} is not a classic group.",
    )


# --- settings of a group --------------------------------------------------------------------------


def alter(connection: Connection, group: str, operation: int = SET, **configs: str | None) -> ErrorAnswer:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    lines = [
        resource.AlterableConfig(name=name.replace("_", "."), config_operation=operation, value=value)
        for name, value in configs.items()
    ]
    asked = resource(resource_type=GROUP_RESOURCE, resource_name=group, configs=lines)
    (answer,) = connection.ask(IncrementalAlterConfigsRequest(resources=[asked]), 1).responses
    return told(answer)


def configs(connection: Connection, group: str) -> dict[str, tuple[str, int]]:
    """By name (value, source) of what a group has for consumers."""
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configuration_keys=None
    )
    (answer,) = connection.ask(DescribeConfigsRequest(resources=[asked]), 4).results
    assert told(answer) == (0, "")
    return {
        each.name: (each.value, each.config_source)
        for each in answer.configs
        if each.name.startswith("consumer.") and "assignment" not in each.name
    }


def test_a_group_has_settings_of_its_own(connection: Connection, new_topic: NewTopic, group: str) -> None:
    default = {"consumer.heartbeat.interval.ms": ("5000", 5), "consumer.session.timeout.ms": ("45000", 5)}
    assert configs(connection, group) == default
    assert alter(connection, group, consumer_heartbeat_interval_ms="6000") == (0, None)
    expected = {**default, "consumer.heartbeat.interval.ms": ("6000", 8)}
    assert repeated(lambda: configs(connection, group), lambda seen: seen == expected) == expected
    joined = Member(connection, group, "m-1", new_topic()).join()
    assert joined.heartbeat_interval_ms == 6000
    listed = connection.ask(ListConfigResourcesRequest(resource_types=[GROUP_RESOURCE]), 1).config_resources
    assert (group, GROUP_RESOURCE) in [(each.resource_name, each.resource_type) for each in listed]
    assert alter(connection, group, DELETE, consumer_heartbeat_interval_ms=None) == (0, None)
    assert repeated(lambda: configs(connection, group), lambda seen: seen == default) == default


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"consumer_heartbeat_interval_ms": "4999"}, ErrorCode.INVALID_CONFIG),
        ({"consumer_heartbeat_interval_ms": "15001"}, ErrorCode.INVALID_CONFIG),
        ({"consumer_session_timeout_ms": "44999"}, ErrorCode.INVALID_CONFIG),
        ({"consumer_session_timeout_ms": "60001"}, ErrorCode.INVALID_CONFIG),
        ({"consumer_session_timeout_ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ({"consumer_session_timeout_ms": "0"}, ErrorCode.INVALID_CONFIG),
        ({"session_timeout_ms": "45000"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_setting_beyond_the_brokers_bounds_is_refused(
    connection: Connection, group: str, config: dict[str, str], code: ErrorCode
) -> None:
    assert alter(connection, group, **config)[0] == code


def test_a_group_without_a_name_has_no_settings(connection: Connection) -> None:
    assert alter(connection, "", consumer_session_timeout_ms="50000")[0] == ErrorCode.INVALID_REQUEST


# --- groups that go over ----------------------------------------------------------------------------


def subscription(*topics: str) -> bytes:
    return b"\0\1" + bytes(ConsumerProtocolSubscription(topics=list(topics)).encode(1))


def assignment(topic_name: str, *partitions: int, user_data: bytes | None = None) -> bytes:
    part = ConsumerProtocolAssignment.TopicPartition(topic=topic_name, partitions=list(partitions))
    return b"\0\1" + bytes(ConsumerProtocolAssignment(assigned_partitions=[part], user_data=user_data).encode(1))


def partitions_in(data: bytes) -> dict[str, list[int]]:
    given = ConsumerProtocolAssignment.decode_from(data, 1, 2)[0]
    return {each.topic: sorted(each.partitions) for each in given.assigned_partitions}


def test_a_classic_group_goes_over_and_back(
    connection: Connection, connect: Callable[[], Connection], new_topic: NewTopic, group: str
) -> None:
    name = new_topic(2)
    with connect() as own:
        old = ClassicMember(own, group, protocols=(("range", subscription(name)),))
        old.join()
        old.sync({old.member_id: assignment(name, 0, 1)})
        new = Member(connection, group, "m-1", name)
        assert new.join().error_code == 0
        assert new.count == 0
        described = describe(connection, group)
        assert {each.member_id: each.member_type for each in described.members} == {old.member_id: 0, "m-1": 1}
        assert old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS

        def step() -> Any:
            if old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
                joined = old.join()
                assert (joined.error_code, joined.protocol_name, joined.members) == (0, "range", [])
                assert joined.leader == ""
            new.beat()
            return describe(connection, group)

        assert repeated(step, lambda seen: seen.group_state == "Stable" and new.count == 1).group_state == "Stable"
        synced = old.sync()
        assert (synced.error_code, synced.protocol_type, synced.protocol_name) == (0, "consumer", "range")
        assert len(partitions_in(synced.assignment)[name]) == 1
        assert old.heartbeat(generation_id=old.generation + 1) == ErrorCode.ILLEGAL_GENERATION
        assert old.heartbeat(member_id="m-1", generation_id=new.epoch) == ErrorCode.UNKNOWN_MEMBER_ID
        assert new.ask(member_epoch=-1).error_code == 0
        (classic,) = connection.ask(DescribeGroupsRequest(groups=[group]), 6).groups
        assert (classic.error_code, classic.group_state) == (0, "PreparingRebalance")
        assert [each.member_id for each in classic.members] == [old.member_id]
        assert describe(connection, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_classic_member_joins_a_group_of_the_new_generation(
    connection: Connection, connect: Callable[[], Connection], new_topic: NewTopic, group: str
) -> None:
    name = new_topic(2)
    new = Member(connection, group, "m-1", name)
    new.join()
    with connect() as own:
        old = ClassicMember(own, group, protocols=(("range", subscription(name)),))
        joined = old.join()
        assert (joined.error_code, joined.protocol_type, joined.leader) == (0, "consumer", "")
        described = describe(connection, group)
        assert sorted(each.member_type for each in described.members) == [0, 1]
        wrong = ClassicMember(own, group, protocols=(("roundrobin", subscription(name)),))
        wrong.member_id = "x"
        assert wrong.joining()().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        connects = ClassicMember(own, group, kind="connect", protocols=(("range", subscription(name)),))
        connects.member_id = "x"
        assert connects.joining()().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        left = old.leave()
        assert left.error_code == 0
        assert describe(connection, group).group_state != "Dead"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (assignment("t", 0, user_data=b"mine"), "an unsupported custom assignor is in use"),
        (b"\0", "the embedded consumer protocol is malformed"),
    ],
)
def test_a_classic_group_whose_assignment_cannot_be_taken_over_stays_one(
    connection: Connection, connect: Callable[[], Connection], group: str, given: bytes, reason: str
) -> None:
    with connect() as own:
        old = ClassicMember(own, group)
        old.join()
        old.sync({old.member_id: given})
        answer = Member(connection, group, "m-1", "t").join()
        assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert (answer.error_message or "").startswith(
            f"Cannot upgrade classic group {group} to consumer group because {reason}."
        )
        assert old.heartbeat() == 0


def test_a_group_of_others_than_consumers_stays_one(
    connection: Connection, connect: Callable[[], Connection], group: str
) -> None:
    with connect() as own:
        old = ClassicMember(own, group, kind="connect")
        old.join()
        old.sync({old.member_id: b""})
        assert told(Member(connection, group, "m-1", "t").join()) == (
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group} to consumer group because the group does not use the consumer "
            "embedded protocol.",
        )
        assert told(Member(connection, group, "m-1").ask(member_epoch=1)) == (
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {group} is not a consumer group.",
        )
