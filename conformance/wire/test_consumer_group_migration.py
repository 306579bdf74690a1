"""Groups that go over from the classic protocol to that of the next generation (KIP-848) and back, and those that stay.

Every literal is what Apache Kafka 4.4 answers. Groups of one protocol alone are in `test_group_joining.py` and
`test_consumer_groups.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.consumer_members import Member, describe, told
from conformance.wire.members import Member as ClassicMember
from conformance.wire.members import join_request
from conformance.wire.requests import configure_group, repeated
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from minibroker.protocol.messages.groups import DescribeGroupsRequest


def subscription(*topics: str) -> bytes:
    return b"\0\1" + bytes(ConsumerProtocolSubscription(topics=list(topics)).encode(1))


def assignment(topic_name: str, *partitions: int, user_data: bytes | None = None) -> bytes:
    part = ConsumerProtocolAssignment.TopicPartition(topic=topic_name, partitions=list(partitions))
    return b"\0\1" + bytes(ConsumerProtocolAssignment(assigned_partitions=[part], user_data=user_data).encode(1))


def partitions_in(data: bytes) -> dict[str, list[int]]:
    given = ConsumerProtocolAssignment.decode_from(data, 1, 2)[0]
    return {each.topic: sorted(each.partitions) for each in given.assigned_partitions}


def test_a_classic_group_is_upgraded_and_downgraded(
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


def test_a_static_member_keeps_its_epoch_and_partitions_in_the_new_protocol(
    connection: Connection, connect: Callable[[], Connection], new_topic: NewTopic, group: str
) -> None:
    name = new_topic(3)
    with connect() as own:
        old = ClassicMember(own, group, instance="i-1", protocols=(("range", subscription(name)),))
        old.join()
        old.sync({old.member_id: assignment(name, 0, 1)})
        new = Member(connection, group, "m-1", name, instance_id="i-1")
        assert new.join().error_code == 0
        assert (new.epoch, new.count) == (1, 2)
        described = describe(connection, group)
        assert (described.group_epoch, described.assignment_epoch, described.group_state) == (1, 1, "Stable")
        assert [each.member_id for each in described.members] == ["m-1"]


def test_a_consumer_group_gives_a_classic_member_its_id_with_the_error(
    connection: Connection, connect: Callable[[], Connection], new_topic: NewTopic, group: str
) -> None:
    name = new_topic()
    assert Member(connection, group, "m-1", name).join().error_code == 0
    for version, protocol_name in ((9, None), (7, None), (6, "")):
        request = join_request(group, protocols=(("range", subscription(name)),))
        answer = connection.ask(request, version)
        assert (answer.error_code, answer.protocol_name) == (ErrorCode.MEMBER_ID_REQUIRED, protocol_name)
        assert answer.member_id


def test_a_classic_member_joins_a_consumer_group(
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
        refused = wrong.joining()()
        assert (refused.error_code, refused.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        connects = ClassicMember(own, group, kind="connect", protocols=(("range", subscription(name)),))
        connects.member_id = "x"
        assert connects.joining()().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        left = old.leave()
        assert left.error_code == 0
        assert describe(connection, group).group_state != "Dead"


def test_a_classic_member_does_not_wait_for_a_new_target_assignment(
    connection: Connection, connect: Callable[[], Connection], new_topic: NewTopic, group: str
) -> None:
    name = new_topic(2)
    configure_group(connection, group, consumer_assignment_interval_ms="15000")
    Member(connection, group, "m-1", name).join()
    with connect() as own:
        old = ClassicMember(own, group, protocols=(("range", subscription(name)),))
        assert (old.join().error_code, old.generation) == (0, 2)
        described = describe(connection, group)
        assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Assigning", 3, 2)
        synced = old.sync()
        assert (synced.error_code, partitions_in(synced.assignment)) == (0, {})
        assert old.heartbeat() == 0


@pytest.mark.parametrize(
    ("more_topics", "generation", "state", "heartbeat"),
    [(0, 2, "Stable", 0), (1, 0, "PreparingRebalance", ErrorCode.ILLEGAL_GENERATION)],
)
def test_a_static_member_that_rejoins_with_the_classic_protocol_downgrades_the_group(
    connection: Connection,
    connect: Callable[[], Connection],
    new_topic: NewTopic,
    group: str,
    more_topics: int,
    generation: int,
    state: str,
    heartbeat: int,
) -> None:
    name = new_topic(2)
    configure_group(connection, group, consumer_assignment_interval_ms="15000")
    Member(connection, group, "m-1", name, instance_id="i").join()
    topics = [name, *(new_topic() for _ in range(more_topics))]
    with connect() as own:
        old = ClassicMember(own, group, instance="i", protocols=(("range", subscription(*topics)),))
        joined = old.join()
        assert (joined.error_code, joined.generation_id, joined.leader) == (0, generation, "")
        assert (joined.protocol_type, joined.protocol_name, joined.members) == ("consumer", "range", [])
        (classic,) = connection.ask(DescribeGroupsRequest(groups=[group]), 6).groups
        assert (classic.error_code, classic.group_state) == (0, state)
        (member,) = classic.members
        assert (member.member_id, member.group_instance_id) == (old.member_id, "i")
        assert old.heartbeat() == heartbeat
        if state == "Stable":
            assert partitions_in(old.sync().assignment) == {name: [0, 1]}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (assignment("t", 0, user_data=b"mine"), "an unsupported custom assignor is in use"),
        (b"\0", "the embedded consumer protocol is malformed"),
    ],
)
def test_a_classic_group_with_an_unconvertible_assignment_stays_classic(
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


def test_a_group_of_another_protocol_type_stays_classic(
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
