"""Share groups (KIP-932): sessions, offsets, and topics that are deleted."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.wire.batches import batch
from conformance.wire.conftest import Differing, NewTopic
from conformance.wire.connection import Connection
from conformance.wire.members import join_request
from conformance.wire.requests import LATEST, create_request, list_offset, metadata_of, produce, remove, repeated, topic
from conformance.wire.share_fixtures import NOW_MS, NewMember, member, new_share_member, topic_id, write
from conformance.wire.share_members import (
    Member,
    configure,
    describe,
    start_offset,
)
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import DeleteGroupsRequest
from minibroker.protocol.messages.share_groups import AlterShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequest
from minibroker.protocol.primitives import ZERO_UUID
from tests.clients.share_requests import ACCEPT, acknowledge_request

__all__ = ["member", "new_share_member", "topic_id"]


# --- sessions -------------------------------------------------------------------------------------------------------


def test_a_wrong_epoch_or_member_of_a_share_session_is_rejected(member: Member) -> None:
    assert member.ask_fetch().error_code == 0
    assert member.ask_fetch(share_session_epoch=7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.ask_fetch(member_id="AAAAAAAAAAAAAAAAAAAAAA").error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.acknowledge(share_session_epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.ask_fetch().error_code == 0
    assert member.ask_fetch((0, 0, [ACCEPT]), share_session_epoch=0).error_code == ErrorCode.INVALID_REQUEST


def test_the_first_response_of_a_session_lists_partitions_with_acquirable_records(
    connection: Connection, group: str, name: str, member: Member
) -> None:
    configure(connection, group, partition_max_record_locks="100")

    write(connection, name, 3)
    assert member.fetch_some() == [(0, 2, 1)]
    assert member.outcome((0, 2, [ACCEPT])) == 0
    assert member.acknowledge(share_session_epoch=-1).error_code == 0
    member.session_epoch = 0
    assert [len(member.ask_fetch().responses) for _ in range(2)] == [1, 0]
    write(connection, name, 100, 5)
    assert member.fetch_some(max_records=50) == [(3, 102, 1)]
    other = Member(connection, group, name, member.topic_id)
    other.join()
    assert [len(other.ask_fetch().responses) for _ in range(2)] == [0, 0]


def test_a_restarted_share_session_keeps_the_records_of_its_member(
    connection: Connection, name: str, member: Member, new_share_member: NewMember
) -> None:
    write(connection, name, 3)
    assert member.fetch_some() == [(0, 2, 1)]
    member.session_epoch = 0
    assert member.fetch(max_wait_ms=0) == []
    other = new_share_member()
    other.join()
    assert other.fetch(max_wait_ms=0) == []
    assert member.outcome((0, 1, [ACCEPT])) == 0
    assert member.acknowledge(share_session_epoch=-1).error_code == 0
    assert other.fetch_some() == [(2, 2, 2)]


@pytest.mark.parametrize("version", [1, 2])
def test_acknowledgements_are_validated_before_their_partition(
    connection: Connection, name: str, member: Member, version: int
) -> None:
    write(connection, name, 1)
    assert member.fetch_some() == [(0, 0, 1)]
    unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST
    for said, code in (((0, 0, [ACCEPT]), unknown), ((0, 0, [9]), invalid), ((0, 2, [ACCEPT] * 2), invalid)):
        request = acknowledge_request(member.topic_id, [said], group_id=member.group, member_id=member.member_id)
        request.topics[0].partitions[0].partition_index = 9
        request.share_session_epoch = member.session_epoch
        (topic,) = connection.ask(request, version).responses
        member.session_epoch += 1
        assert [each.error_code for each in topic.partitions] == [code]


# --- offsets --------------------------------------------------------------------------------------------------------


def altered(connection: Connection, group: str, name: str, offset: int) -> tuple[int, int | None]:
    """The codes of AlterShareGroupOffsets: of the request, and of the partition."""
    Topic = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    partition = Topic.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
    request = AlterShareGroupOffsetsRequest(group_id=group, topics=[Topic(topic_name=name, partitions=[partition])])
    answer = connection.ask(request, 0)
    codes = [part.error_code for topic in answer.responses for part in topic.partitions]
    return answer.error_code, codes[0] if codes else None


def deleted(connection: Connection, group: str, name: str) -> tuple[int, int | None]:
    """The codes of DeleteShareGroupOffsets: of the request, and of the topic."""
    Topic = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
    answer = connection.ask(DeleteShareGroupOffsetsRequest(group_id=group, topics=[Topic(topic_name=name)]), 0)
    codes = [topic.error_code for topic in answer.responses]
    return answer.error_code, codes[0] if codes else None


def test_start_offsets_are_altered_and_deleted_in_an_empty_group(
    connection: Connection, group: str, name: str, member: Member
) -> None:
    write(connection, name, 5)
    assert member.fetch_some() == [(0, 4, 1)]
    assert altered(connection, group, name, 2)[0] == ErrorCode.NON_EMPTY_GROUP
    assert deleted(connection, group, name)[0] == ErrorCode.NON_EMPTY_GROUP
    assert member.acknowledge(share_session_epoch=-1).error_code == 0
    assert member.beat(member_epoch=-1).error_code == 0
    assert altered(connection, group, name, 2) == (0, 0)
    assert altered(connection, group, "no-such-topic", 2) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert start_offset(connection, group, name) == (2, 3)
    assert deleted(connection, group, name) == (0, 0)
    assert start_offset(connection, group, name) == (-1, -1)


def test_a_share_group_without_offsets_of_a_topic_has_none_to_delete(
    connection: Connection, group: str, name: str, new_topic: NewTopic
) -> None:
    Topic = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
    assert altered(connection, group, name, 2) == (0, 0)
    other = new_topic()
    for topics in ([other], [name, other], [name]):
        request = DeleteShareGroupOffsetsRequest(group_id=group, topics=[Topic(topic_name=each) for each in topics])
        found = {each.topic_name: each for each in connection.ask(request, 0).responses}
        assert found.keys() == set(topics)
        for found_name, each in found.items():
            if found_name == name and other in found:
                assert (each.error_code, each.error_message) == (0, None)
                assert each.topic_id != ZERO_UUID
            else:
                assert each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                assert each.error_message == "There is no offset information to delete."
                assert each.topic_id == ZERO_UUID


def test_altering_share_offsets_of_a_topic_creates_the_group(connection: Connection, group: str, name: str) -> None:
    Topic = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    assert altered(connection, group, "no-such-topic", 2) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert describe(connection, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    partition = Topic.AlterShareGroupOffsetsRequestPartition(partition_index=9, start_offset=2)
    request = AlterShareGroupOffsetsRequest(group_id=group, topics=[Topic(topic_name=name, partitions=[partition])])
    (topic,) = connection.ask(request, 0).responses
    assert [each.error_code for each in topic.partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    described = describe(connection, group)
    assert (described.error_code, described.group_state, described.group_epoch) == (0, "Empty", 1)
    assert deleted(connection, group, name) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_classic_member_cannot_join_an_empty_share_group(connection: Connection, group: str, name: str) -> None:
    assert altered(connection, group, name, 2) == (0, 0)
    for version, instance in ((9, None), (9, "i-1"), (2, None)):
        answer = connection.ask(join_request(group, instance=instance), version)
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert describe(connection, group).group_state == "Empty"
    assert start_offset(connection, group, name)[0] == 2


def test_an_empty_share_group_can_be_deleted(connection: Connection, group: str, member: Member) -> None:
    def delete() -> int:
        return int(connection.ask(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code)

    assert delete() == ErrorCode.NON_EMPTY_GROUP
    assert member.beat(member_epoch=-1).error_code == 0
    assert delete() == 0
    assert describe(connection, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# --- topics ---------------------------------------------------------------------------------------------------------


def codes(answer: Any) -> list[tuple[int, int]]:
    """The error codes of the partitions: of reading, and of the acknowledgement."""
    assert answer.error_code == 0, answer
    parts = [part for topic in answer.responses for part in topic.partitions]
    return [(part.error_code, part.acknowledge_error_code) for part in parts]


def test_a_share_session_reports_a_deleted_or_recreated_topic(
    connection: Connection, name: str, member: Member, differing: Differing
) -> None:
    write(connection, name, 3)
    assert member.fetch_some() == [(0, 2, 1)]
    gone, unknown_id = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID
    remove(connection, name)
    assert [codes(member.ask_fetch(topics=[])) for _ in range(2)] == [[(gone, 0)]] * 2
    assert codes(member.ask_fetch((0, 0, [ACCEPT]))) == [(gone, unknown_id)]
    assert member.outcome((0, 0, [ACCEPT])) == unknown_id
    assert connection.ask(create_request(topic(name)), 7).topics[0].error_code == 0
    repeated(lambda: list_offset(connection, name, LATEST), lambda seen: seen.error_code == 0)
    other = differing(
        kafka=ErrorCode.UNKNOWN_SERVER_ERROR,
        minibroker=ErrorCode.INCONSISTENT_TOPIC_ID,
        because="Kafka means this error, but has no code for its exception there",
    )
    assert [codes(member.ask_fetch(topics=[])) for _ in range(2)] == [[(other, 0)]] * 2
    assert codes(member.ask_fetch((0, 0, [ACCEPT]))) == [(other, unknown_id)]
    assert member.outcome((0, 0, [ACCEPT])) == unknown_id


def test_a_share_fetch_returns_each_new_partition_with_records_alone(
    connection: Connection, group: str, new_topic: NewTopic
) -> None:
    name = new_topic(3)
    configure(connection, group, auto_offset_reset="earliest")
    member = Member(connection, group, name, metadata_of(connection, name).topic_id)
    member.join()
    repeated(member.beat, lambda _: len(member.assigned[member.topic_id]) == 3)

    def write_to_all() -> None:
        for partition in range(3):
            assert produce(connection, name, batch([b"x"], timestamp=NOW_MS), partition=partition).error_code == 0

    write_to_all()
    assert partitions_with_records(member.ask_fetch(more=[1, 2], max_wait_ms=5000)) == [0]
    others: list[int] = []
    while len(others) < 2:
        others += partitions_with_records(member.ask_fetch(topics=[], max_wait_ms=5000))
    assert sorted(others) == [1, 2]
    write_to_all()
    assert sorted(partitions_with_records(member.ask_fetch(topics=[]))) == [0, 1, 2]


def partitions_with_records(answer: Any) -> list[int]:
    assert answer.error_code == 0, answer
    return [part.partition_index for topic in answer.responses for part in topic.partitions if part.acquired_records]
