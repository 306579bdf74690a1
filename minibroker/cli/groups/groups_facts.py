"""The requests of the commands for groups: the group, its committed offsets, and the ends of the logs.

The commands show and use the results.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minibroker.cli.administration import TopicPartition, get_all_topics

if TYPE_CHECKING:
    from minibroker.client.blocking import Client
    from minibroker.protocol.declare import Message

NO_OFFSET: Final = -1
CONSUMER: Final = "consumer"  # the protocol type of groups whose members are consumers
NAMED_TOPICS_OFFSET_FETCH: Final = (2, 7)  # versions that take one group, and null for all topics
ASSIGNMENT_VERSION: Final = struct.Struct(">h")


class CommittedOffset(NamedTuple):
    """An offset that a group has committed for a partition."""

    offset: int
    metadata: str


class GroupMember(NamedTuple):
    """A member of the group; `partitions` are those assigned to it, by topic."""

    member: str
    instance: str | None
    client: str
    host: str
    partitions: dict[str, list[int]]


class DescribedGroup(NamedTuple):
    """A group; one that does not exist has the state "Dead". `coordinator` is a node's id.

    Members are `GroupMember`s, or have fields of their own in a group of Kafka Streams.
    """

    group: str
    state: str
    type: str
    assignor: str
    coordinator: int
    members: Sequence[Any]


def send_request_to_group_coordinator(
    client: Client, group: str, request: Message, lowest: int = 0, highest: int = 32_767
) -> Any:
    """Return the answer of the group's coordinator. Raises `ClientError`; other errors stay in the answer."""
    from minibroker.client import coordinator_requests

    return coordinator_requests.send_request_to_coordinator(client, "group", group, request, lowest, highest)


def list_group_names(client: Client) -> list[str]:
    """Return the names of all groups, for a suggestion: none if a node does not tell them."""
    from minibroker.client.client_errors import ClientError
    from minibroker.protocol.messages.groups import ListGroupsRequest

    try:
        answers = [client.request(ListGroupsRequest(), node) for node in client.fetch_node_ids()]
    except ClientError:
        return []
    return sorted(each.group_id for answer in answers for each in answer.groups)


def describe_consumer_group(client: Client, group: str) -> DescribedGroup:
    """Return the consumer group of the newer protocol (KIP-848). Raises `ClientError`."""
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest

    (found,) = send_request_to_group_coordinator(client, group, ConsumerGroupDescribeRequest(group_ids=[group])).groups
    check_error_code(found.error_code, f"cannot describe {group}", found.error_message)
    members = [_make_consumer_member(each) for each in found.members]
    node = client.find_coordinator("group", group)
    return DescribedGroup(group, found.group_state, "consumer", found.assignor_name, node, members)


def describe_classic_group(client: Client, group: str) -> DescribedGroup:
    """Return the classic group. Raises `ClientError`."""
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.errors import ErrorCode
    from minibroker.protocol.messages.groups import DescribeGroupsRequest

    (found,) = send_request_to_group_coordinator(client, group, DescribeGroupsRequest(groups=[group])).groups
    if found.error_code != ErrorCode.GROUP_ID_NOT_FOUND:  # its state is Dead
        check_error_code(found.error_code, f"cannot describe {group}", found.error_message)
    members = [_make_classic_member(each, found.protocol_type) for each in found.members]
    node = client.find_coordinator("group", group)
    return DescribedGroup(group, found.group_state, "classic", found.protocol_data, node, members)


def _make_consumer_member(member: Any) -> GroupMember:
    partitions = {each.topic_name: sorted(each.partitions) for each in member.assignment.topic_partitions}
    return GroupMember(
        member.member_id, member.instance_id, member.client_id, member.client_host, sort_partitions(partitions)
    )


def _make_classic_member(member: Any, protocol_type: str) -> GroupMember:
    partitions: dict[str, list[int]] = {}
    if member.member_assignment and protocol_type == CONSUMER:
        from minibroker.protocol.messages.consumer_protocol import ConsumerProtocolAssignment

        (version,) = ASSIGNMENT_VERSION.unpack_from(member.member_assignment)
        known = min(version, ConsumerProtocolAssignment.versions[-1])  # newer ones only add to the end
        assignment, _ = ConsumerProtocolAssignment.decode_from(member.member_assignment, known, ASSIGNMENT_VERSION.size)
        partitions = {each.topic: sorted(each.partitions) for each in assignment.assigned_partitions}
    return GroupMember(
        member.member_id, member.group_instance_id, member.client_id, member.client_host, sort_partitions(partitions)
    )


def sort_partitions(partitions: dict[str, list[int]]) -> dict[str, list[int]]:
    """Return the partitions in the order of their topics."""
    return dict(sorted(partitions.items()))


def fetch_committed_offsets(client: Client, group: str) -> dict[TopicPartition, CommittedOffset]:
    """Return all committed offsets of the group. Raises `ClientError`."""
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.offsets import OffsetFetchRequest

    request = OffsetFetchRequest(group_id=group, topics=None)
    answer = send_request_to_group_coordinator(client, group, request, *NAMED_TOPICS_OFFSET_FETCH)
    check_error_code(answer.error_code, f"cannot get the offsets of {group}")
    committed = {}
    for topic in answer.topics:
        for partition in topic.partitions:
            check_error_code(
                partition.error_code, f"cannot get the offset of {group} for {topic.name}-{partition.partition_index}"
            )
            if partition.committed_offset > NO_OFFSET:
                committed[topic.name, partition.partition_index] = CommittedOffset(
                    partition.committed_offset, partition.metadata or ""
                )
    return committed


def find_end_offsets(client: Client, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the end offset of each partition that exists and has a leader. Raises `ClientError`."""
    from minibroker.client.partition_offsets import LATEST, list_offsets

    led = set(_iterate_partitions_with_leader(get_all_topics(client).values()))
    return list_offsets(client, dict.fromkeys((each for each in partitions if each in led), LATEST))


def _iterate_partitions_with_leader(topics: Iterable[Any]) -> Iterator[TopicPartition]:
    for topic in topics:
        for partition in topic.partitions:
            if partition.leader_id >= 0:
                yield topic.name, partition.partition_index
