"""Share groups (KIP-932): heartbeats, acquisition, acknowledgements, and every code."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.wire.conftest import Differing, NewTopic
from conformance.wire.connection import Connection
from conformance.wire.requests import metadata_of, remove, repeated
from conformance.wire.share_fixtures import NewMember, member, new_share_member, topic_id, write
from conformance.wire.share_members import (
    Member,
    configure,
    describe,
    start_offset,
)
from conformance.wire.transactional import TransactionalProducer, settle
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import ListGroupsRequest
from minibroker.protocol.primitives import ZERO_UUID
from tests.clients.share_requests import ACCEPT, GAP, REJECT, RELEASE, RENEW

__all__ = ["member", "new_share_member", "topic_id"]


# --- heartbeats -----------------------------------------------------------------------------------------------------


def test_a_share_member_joins_and_leaves(
    connection: Connection, group: str, name: str, member: Member, differing: Differing
) -> None:
    at_once = "the state of the partitions is there when the first heartbeat is answered"
    assert member.epoch == differing(kafka=3, minibroker=2, because=at_once)
    assert member.assigned == {member.topic_id: {0}}
    described = describe(connection, group)
    assert (described.error_code, described.group_state, described.assignor_name) == (0, "Stable", "simple")
    (seen,) = described.members
    assert (seen.member_id, seen.rack_id, seen.member_epoch) == (member.member_id, None, member.epoch)
    assert (seen.client_id, seen.client_host, seen.subscribed_topic_names) == ("wire", "/127.0.0.1", [name])
    (part,) = seen.assignment.topic_partitions
    assert (part.topic_id, part.topic_name, part.partitions) == (member.topic_id, name, [0])
    left = member.beat(member_epoch=-1)
    assert (left.error_code, left.member_id, left.member_epoch, left.assignment) == (0, member.member_id, -1, None)
    empty = describe(connection, group)
    assert (empty.group_state, empty.assignment_epoch) == ("Empty", empty.group_epoch)
    listed = connection.ask(ListGroupsRequest(types_filter=["share"]), 5).groups
    assert (group, "share", "Empty", "share") in [
        (each.group_id, each.protocol_type, each.group_state, each.group_type) for each in listed
    ]


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"member_epoch": 77}, ErrorCode.FENCED_MEMBER_EPOCH, None),
        ({"member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID, "Member unknown is not a member of group {group}."),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST, None),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST, "GroupId can't be empty."),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST, "RackId can't be empty."),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid."),
        (
            {"member_epoch": 0, "subscribed_topic_names": None},
            ErrorCode.INVALID_REQUEST,
            "SubscribedTopicNames must be set in first request.",
        ),
    ],
)
def test_invalid_share_heartbeats_are_rejected(
    member: Member, group: str, fields: dict[str, object], code: ErrorCode, message: str | None
) -> None:
    answer = member.beat(**fields)
    assert answer.error_code == code
    if message is not None:
        assert answer.error_message == message.format(group=group)


def test_a_group_of_another_type_is_not_a_share_group(connection: Connection, group: str, name: str) -> None:
    assert describe(connection, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    member = Member(connection, group, name, ZERO_UUID)
    member.epoch = 3
    answer = member.beat()
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Share group {group} not found.",
    )


def test_two_members_share_the_partitions_of_a_topic(
    connection: Connection, new_topic: NewTopic, connect: Callable[[], Connection], group: str
) -> None:
    name = new_topic(4)
    topic_id = metadata_of(connection, name).topic_id
    with connect() as other:
        members = [Member(opened, group, name, topic_id) for opened in (connection, other)]
        for member in members:
            member.join()

        def beat() -> list[int]:
            for member in members:
                assert member.beat().error_code == 0
            return [len(member.assigned.get(topic_id, ())) for member in members]

        assert repeated(beat, lambda counts: counts == [2, 2]) == [2, 2]
        assert members[0].assigned[topic_id] | members[1].assigned[topic_id] == {0, 1, 2, 3}


@pytest.mark.parametrize("how", ["unsubscribed", "deleted"])
def test_an_unsubscribed_topic_is_revoked_before_the_next_target_assignment(
    connection: Connection, new_topic: NewTopic, group: str, how: str
) -> None:
    first, second = new_topic(), new_topic()
    ids = {name: metadata_of(connection, name).topic_id for name in (first, second)}
    member = Member(connection, group, first, ids[first])
    configure(connection, group, assignment_interval_ms="0")
    member.beat(subscribed_topic_names=[first, second])
    repeated(member.beat, lambda _: len(member.assigned) == 2)
    configure(connection, group, assignment_interval_ms="15000")
    epoch = member.epoch
    if how == "deleted":
        remove(connection, first)
    names = [second] if how == "unsubscribed" else None
    repeated(lambda: member.beat(subscribed_topic_names=names), lambda _: len(member.assigned) == 1)
    assert (member.epoch, member.assigned) == (epoch, {ids[second]: {0}})
    described = describe(connection, group)
    assert (described.group_epoch, described.assignment_epoch) == (epoch + 1, epoch)
    assert member.beat().assignment is None


# --- acquiring and acknowledging ------------------------------------------------------------------------------------


def test_an_accepted_record_is_never_redelivered(connection: Connection, group: str, name: str, member: Member) -> None:
    write(connection, name, 3, 4)
    assert member.fetch_some() == [(0, 6, 1)]
    assert member.outcome((0, 6, [ACCEPT])) == 0
    assert member.fetch() == []
    assert start_offset(connection, group, name) == (0, 0)  # it moves with the next change


def test_a_share_partition_has_no_start_offset_before_an_acknowledgement(
    connection: Connection, group: str, name: str, member: Member
) -> None:
    assert member.fetch() == []
    assert start_offset(connection, group, name) == (-1, -1)
    write(connection, name, 3)
    assert member.fetch_some() == [(0, 2, 1)]
    assert start_offset(connection, group, name) == (-1, -1)
    assert member.outcome((0, 0, [ACCEPT])) == 0
    assert start_offset(connection, group, name) == (0, 2)


def test_released_records_are_redelivered_to_any_member(
    connection: Connection, name: str, member: Member, new_share_member: NewMember
) -> None:
    write(connection, name, 5)
    assert member.fetch_some() == [(0, 4, 1)]
    other = new_share_member()
    other.join()
    assert other.fetch() == []
    assert member.outcome((0, 4, [ACCEPT, RELEASE, REJECT, RELEASE, GAP])) == 0
    assert other.fetch_some() == [(1, 1, 2), (3, 3, 2)]
    assert member.outcome((1, 1, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    assert other.outcome((1, 1, [ACCEPT]), (3, 3, [ACCEPT])) == 0


def test_a_share_fetch_can_contain_acknowledgements(
    connection: Connection, group: str, name: str, member: Member
) -> None:
    write(connection, name, 2)
    assert member.fetch_some() == [(0, 1, 1)]
    write(connection, name, 2)
    assert member.fetch((0, 1, [ACCEPT])) == [(2, 3, 1)]
    answer = member.ask_fetch((0, 1, [ACCEPT]))
    (topic,) = answer.responses
    assert topic.partitions[0].acknowledge_error_code == 0  # before the start: passed over
    assert start_offset(connection, group, name)[0] == 0


def test_whole_batches_are_acquired_unless_the_limit_is_strict(
    connection: Connection, name: str, member: Member
) -> None:
    write(connection, name, 4, 4, 4)
    assert member.fetch_some(max_records=5) == [(0, 7, 1)]
    assert member.fetch(max_records=2, share_acquire_mode=1) == [(8, 9, 1)]
    assert member.fetch() == [(10, 11, 1)]


def test_new_records_are_acquired_in_ranges_of_the_batch_size(
    connection: Connection, name: str, member: Member
) -> None:
    write(connection, name, 4, 4, 4, 4)
    assert member.fetch_some(batch_size=4, max_records=8) == [(0, 3, 1), (4, 7, 1)]
    strict = {"batch_size": 1, "share_acquire_mode": 1}
    assert member.fetch(max_records=6, **strict) == [(8, 13, 1)]
    assert member.fetch(max_records=6, **strict) == [(14, 15, 1)]


def test_the_rest_of_a_batch_after_a_strict_limit_is_acquired_separately(
    connection: Connection, name: str, member: Member
) -> None:
    write(connection, name, 4, 4, 4)
    assert member.fetch_some(max_records=6, share_acquire_mode=1) == [(0, 5, 1)]
    assert member.fetch(max_records=5, share_acquire_mode=1) == [(6, 7, 1), (8, 10, 1)]
    assert member.fetch() == [(11, 11, 1)]


def test_records_acquired_in_ranges_are_redelivered_in_the_same_ranges(
    connection: Connection, name: str, member: Member
) -> None:
    write(connection, name, 4, 4, 4)
    assert member.fetch_some(batch_size=4) == [(0, 3, 1), (4, 7, 1), (8, 11, 1)]
    assert member.outcome((0, 11, [RELEASE])) == 0
    assert member.fetch() == [(0, 3, 2), (4, 7, 2), (8, 11, 2)]


def test_records_acquired_together_are_redelivered_together_even_beyond_max_records(
    connection: Connection, name: str, member: Member
) -> None:
    write(connection, name, 4, 4, 4, 4)
    assert member.fetch_some(max_records=12, batch_size=100) == [(0, 11, 1)]
    assert member.outcome((0, 11, [RELEASE])) == 0
    assert member.fetch(max_records=1) == [(0, 11, 2)]
    assert member.outcome((0, 11, [RELEASE, ACCEPT, RELEASE] * 4)) == 0
    again = [(0, 0, 3), (2, 3, 3), (5, 6, 3), (8, 9, 3), (11, 11, 3)]
    assert member.fetch(max_records=1) == again
    assert member.fetch(max_records=1) == [(12, 15, 1)]


def test_a_batch_with_an_often_delivered_record_is_acquired_alone(
    connection: Connection, group: str, name: str, member: Member
) -> None:
    configure(connection, group, delivery_count_limit="4")
    write(connection, name, 2, 6, 2)
    assert member.fetch_some(batch_size=1) == [(0, 1, 1), (2, 7, 1), (8, 9, 1)]
    assert member.outcome((7, 7, [RELEASE])) == 0
    assert member.fetch() == [(7, 7, 2)]
    assert member.outcome((0, 9, [RELEASE])) == 0
    assert member.fetch() == [(0, 1, 2)]
    assert member.fetch() == [(2, 6, 2), (7, 7, 3)]
    assert member.fetch() == [(8, 9, 2)]


def test_often_delivered_records_that_are_locked_are_skipped(
    connection: Connection, group: str, name: str, member: Member
) -> None:
    configure(connection, group, delivery_count_limit="4")
    write(connection, name, 2, 2, 2)
    assert member.fetch_some(batch_size=1) == [(0, 1, 1), (2, 3, 1), (4, 5, 1)]
    assert member.outcome((2, 3, [RELEASE])) == 0
    assert member.fetch() == [(2, 3, 2)]
    assert member.outcome((0, 1, [RELEASE]), (4, 5, [RELEASE])) == 0
    assert member.fetch() == [(0, 1, 2), (4, 5, 2)]


def test_often_delivered_records_are_acquired_in_smaller_parts_of_their_batch(
    connection: Connection, group: str, name: str, member: Member
) -> None:
    configure(connection, group, delivery_count_limit="4")
    write(connection, name, 6, 4)
    assert member.fetch_some(batch_size=1) == [(0, 5, 1), (6, 9, 1)]
    assert member.outcome((0, 5, [RELEASE, ACCEPT, RELEASE, RELEASE, ACCEPT, RELEASE]), (6, 9, [RELEASE])) == 0
    for expected in (
        [(0, 0, 2), (2, 3, 2), (5, 5, 2), (6, 9, 2)],
        [(0, 0, 3), (2, 3, 3)],
        [(0, 0, 4)],
        [(2, 2, 4)],
        [(3, 3, 4)],
        [(5, 5, 3)],
        [(5, 5, 4)],
        [(6, 7, 3)],
    ):
        assert member.fetch() == expected
        assert member.outcome(*((first, last, [RELEASE]) for first, last, _ in expected)) == 0


def test_a_closed_share_session_releases_its_records(
    connection: Connection, name: str, member: Member, new_share_member: NewMember
) -> None:
    write(connection, name, 3)
    assert member.fetch_some() == [(0, 2, 1)]
    ended = member.acknowledge((0, 0, [ACCEPT]), share_session_epoch=-1)
    assert ended.error_code == 0
    other = new_share_member()
    other.join()
    assert other.fetch_some() == [(1, 2, 2)]


def test_a_lost_connection_releases_its_records(
    connection: Connection, name: str, new_share_member: NewMember, connect: Callable[[], Connection]
) -> None:
    write(connection, name, 3)
    with connect() as lost:
        gone = new_share_member()
        gone.connection = lost
        gone.join()
        assert gone.fetch_some() == [(0, 2, 1)]
    other = new_share_member()
    other.join()
    assert other.fetch_some() == [(0, 2, 2)]


def test_acquisition_locks_are_renewed(connection: Connection, name: str, member: Member) -> None:
    write(connection, name, 3)
    assert member.fetch_some() == [(0, 2, 1)]
    assert member.outcome((0, 2, [RENEW]), is_renew_ack=True) == 0
    assert member.outcome((0, 2, [ACCEPT])) == 0


def test_a_record_is_delivered_up_to_the_delivery_limit(
    connection: Connection, group: str, name: str, member: Member
) -> None:
    configure(connection, group, delivery_count_limit="2")
    write(connection, name, 1)
    for count in (1, 2):
        assert member.fetch_some() == [(0, 0, count)]
        assert member.outcome((0, 0, [RELEASE])) == 0
    assert member.fetch() == []
    assert start_offset(connection, group, name) == (0, 0)


def test_read_committed_share_groups_get_no_aborted_records(
    connection: Connection, group: str, name: str, member: Member, producer: TransactionalProducer
) -> None:
    configure(connection, group, isolation_level="read_committed")
    for committed in (False, True):
        assert producer.add((name, 0)) == [0]
        assert producer.write(name) == 0
        assert producer.end(commit=committed) == 0
    settle(producer)
    found = repeated(member.fetch, bool)
    assert found == [(1, 3, 1)]  # the records are at 0 and 2, the markers at 1 and 3


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ((0, 9, [ACCEPT]), ErrorCode.INVALID_REQUEST),
        ((2, 0, [ACCEPT]), ErrorCode.INVALID_REQUEST),
        ((0, 2, [ACCEPT, ACCEPT]), ErrorCode.INVALID_REQUEST),
        ((0, 2, []), ErrorCode.INVALID_REQUEST),
        ((0, 2, [7]), ErrorCode.INVALID_REQUEST),
        ((0, 2, [RENEW]), ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_acknowledgements_are_rejected(
    connection: Connection, name: str, member: Member, said: tuple[int, int, list[int]], code: ErrorCode
) -> None:
    write(connection, name, 3)
    assert member.fetch_some() == [(0, 2, 1)]
    assert member.outcome(said) == code
    assert member.outcome((0, 2, [ACCEPT])) == 0


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ([(0, 1, [ACCEPT]), (1, 2, [ACCEPT])], ErrorCode.INVALID_RECORD_STATE),
        ([(0, 2, [ACCEPT]), (1, 2, [ACCEPT])], ErrorCode.INVALID_REQUEST),
        ([(2, 2, [ACCEPT]), (0, 0, [ACCEPT])], ErrorCode.INVALID_REQUEST),
    ],
)
def test_overlapping_acknowledgements_are_rejected(
    connection: Connection, name: str, member: Member, said: list[tuple[int, int, list[int]]], code: ErrorCode
) -> None:
    write(connection, name, 3)
    assert member.fetch_some() == [(0, 2, 1)]
    assert member.outcome(*said) == code
    assert member.outcome((0, 2, [ACCEPT])) == 0


def test_acknowledging_undelivered_offsets_is_invalid_only_while_records_are_in_flight(
    connection: Connection, name: str, member: Member
) -> None:
    write(connection, name, 3)
    assert member.fetch_some() == [(0, 2, 1)]
    for said in ((3, 3, [ACCEPT]), (2, 3, [ACCEPT])):
        assert member.outcome(said) == ErrorCode.INVALID_REQUEST
    assert member.outcome((0, 2, [ACCEPT])) == 0
    for said in ((3, 3, [ACCEPT]), (7, 9, [ACCEPT])):
        assert member.outcome(said) == ErrorCode.INVALID_RECORD_STATE
    assert member.outcome((0, 2, [ACCEPT])) == 0


def test_refused_acknowledgements_say_whether_a_batch_or_an_offset_is_wrong(
    connection: Connection, name: str, member: Member, new_share_member: NewMember
) -> None:
    other = new_share_member()
    other.join()
    write(connection, name, 3)
    assert member.fetch_some() == [(0, 2, 1)]
    assert other.fetch() == []
    assert other.message((0, 2, [ACCEPT])) == "Member is not the owner of batch record"
    assert other.message((0, 0, [ACCEPT])) == "Member is not the owner of batch record"
    assert member.outcome((0, 2, [RELEASE])) == 0
    not_acquired = "The batch cannot be acknowledged. The batch is not in the acquired state."
    assert member.message((0, 2, [ACCEPT])) == not_acquired
    assert member.message((1, 1, [ACCEPT])) == not_acquired
    assert member.fetch_some() == [(0, 2, 2)]
    assert member.outcome((0, 0, [RELEASE])) == 0
    assert member.message((0, 0, [ACCEPT])) == "The offset cannot be acknowledged. The offset is not acquired."
    assert other.message((1, 1, [ACCEPT])) == "Member is not the owner of offset"
    assert member.outcome((1, 2, [ACCEPT])) == 0


def test_locks_cannot_be_renewed_if_the_group_does_not_allow_it(
    connection: Connection, group: str, name: str, member: Member
) -> None:
    configure(connection, group, renew_acknowledge_enable="false")
    write(connection, name, 3)
    assert member.fetch_some() == [(0, 2, 1)]
    assert member.outcome((0, 2, [RENEW, ACCEPT, ACCEPT]), is_renew_ack=True) == ErrorCode.INVALID_RECORD_STATE
    assert member.outcome((0, 2, [ACCEPT])) == 0


def test_an_unknown_acquire_mode_is_rejected(member: Member) -> None:
    assert member.ask_fetch(share_acquire_mode=7).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    renewal = member.ask_fetch(share_acquire_mode=7, is_renew_ack=True, max_records=1)
    assert renewal.error_code == ErrorCode.INVALID_REQUEST
    unknown = member.ask_fetch(share_acquire_mode=7, share_session_epoch=9, member_id="another")
    assert unknown.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
