"""The requests of the commands for share groups (KIP-932): the group, and the offsets where it begins to read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from minibroker.cli.administration import TopicPartition
from minibroker.cli.groups.groups_facts import (
    DescribedGroup,
    GroupMember,
    send_request_to_group_coordinator,
    sort_partitions,
)
from minibroker.cli.shared import make_operation_error

if TYPE_CHECKING:
    from minibroker.client.blocking import Client


class StartOffset(NamedTuple):
    """Where a share group begins to read; None if it has not read the partition yet. `lag` is None if unknown."""

    offset: int | None
    lag: int | None


def describe_share_group(client: Client, group: str) -> DescribedGroup:
    """Return the share group. Raises `ClientError`."""
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.share_groups import ShareGroupDescribeRequest

    (described,) = send_request_to_group_coordinator(client, group, ShareGroupDescribeRequest(group_ids=[group])).groups
    check_error_code(described.error_code, f"cannot describe {group}", described.error_message)
    members = [
        GroupMember(
            each.member_id,
            None,
            each.client_id,
            each.client_host,
            sort_partitions({part.topic_name: sorted(part.partitions) for part in each.assignment.topic_partitions}),
        )
        for each in described.members
    ]
    return DescribedGroup(
        group, described.group_state, "share", described.assignor_name, client.find_coordinator("group", group), members
    )


def list_start_offsets(client: Client, group: str) -> dict[TopicPartition, StartOffset]:
    """Return the start offset of each partition of the share group. Raises `ClientError`."""
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.share_groups import DescribeShareGroupOffsetsRequest

    wanted_group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    (answer,) = send_request_to_group_coordinator(
        client, group, DescribeShareGroupOffsetsRequest(groups=[wanted_group])
    ).groups
    check_error_code(answer.error_code, f"cannot get the offsets of {group}", answer.error_message)
    offsets = {}
    for topic in answer.topics:
        for partition in topic.partitions:
            place = topic.topic_name, partition.partition_index
            check_error_code(
                partition.error_code,
                f"cannot get the offset of {group} for {place[0]}-{place[1]}",
                partition.error_message,
            )
            offsets[place] = StartOffset(
                _convert_unknown_to_none(partition.start_offset), _convert_unknown_to_none(partition.lag)
            )
    return offsets


def _convert_unknown_to_none(number: int) -> int | None:
    """Return None for a negative number, which stands for an unknown one in responses."""
    return None if number < 0 else number


def alter_start_offsets(client: Client, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set start offsets. Raises `ClientError`, and click.ClickException if any is rejected; the others are set then."""
    from minibroker.client.client_errors import check_error_code, get_error_name
    from minibroker.protocol.messages.share_groups import AlterShareGroupOffsetsRequest

    of_topic = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    topics = defaultdict(list)
    for (topic, index), offset in offsets.items():
        partition = of_topic.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
        topics[topic].append(partition)
    request = AlterShareGroupOffsetsRequest(
        group_id=group, topics=[of_topic(topic_name=topic, partitions=parts) for topic, parts in topics.items()]
    )
    answer = send_request_to_group_coordinator(client, group, request)
    check_error_code(answer.error_code, f"cannot reset the offsets of {group}", answer.error_message)
    refused = [
        f"{topic.topic_name}-{each.partition_index}: {get_error_name(each.error_code)}"
        for topic in answer.responses
        for each in topic.partitions
        if each.error_code
    ]
    if refused:
        raise make_operation_error(f"cannot reset the offsets of {group}: {'; '.join(refused)}")


def delete_start_offsets(client: Client, group: str, topics: Iterable[str]) -> dict[str, int]:
    """Delete the group's offsets of topics; return the error code of each. Raises `ClientError`."""
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.share_groups import DeleteShareGroupOffsetsRequest

    of_topic = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
    request = DeleteShareGroupOffsetsRequest(group_id=group, topics=[of_topic(topic_name=topic) for topic in topics])
    answer = send_request_to_group_coordinator(client, group, request)
    check_error_code(answer.error_code, f"cannot delete the offsets of {group}", answer.error_message)
    return {each.topic_name: each.error_code for each in answer.responses}
