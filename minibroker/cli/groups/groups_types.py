"""The types of groups: which one a group has is found out by asking its coordinator for each.

Groups of Kafka Streams (KIP-1071) are described here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minibroker.cli.groups.groups_facts import (
    DescribedGroup,
    describe_classic_group,
    describe_consumer_group,
    send_request_to_group_coordinator,
)
from minibroker.cli.groups.groups_share import describe_share_group

if TYPE_CHECKING:
    from minibroker.client.blocking import Client

TYPES: Final = ("classic", "consumer", "share", "streams")  # by their names in ListGroups


def describe_group(client: Client, group: str) -> DescribedGroup:
    """Return the group, of any type. Raises `ClientError`."""
    from minibroker.client.client_errors import ClientError
    from minibroker.protocol.errors import ErrorCode

    for describe in (describe_consumer_group, describe_share_group, describe_streams_group):
        try:
            return describe(client, group)
        except ClientError as error:
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
    return describe_classic_group(client, group)


class StreamsMember(NamedTuple):
    """A member of the group, and its tasks by role: partitions by the id of the subtopology."""

    member: str
    instance: str | None
    client: str
    host: str
    process: str
    active: dict[str, list[int]]
    standby: dict[str, list[int]]
    warmup: dict[str, list[int]]


def describe_streams_group(client: Client, group: str) -> DescribedGroup:
    """Return the streams group. Raises `ClientError`."""
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.streams_groups import StreamsGroupDescribeRequest

    (described,) = send_request_to_group_coordinator(
        client, group, StreamsGroupDescribeRequest(group_ids=[group])
    ).groups
    check_error_code(described.error_code, f"cannot describe {group}", described.error_message)
    members = [
        StreamsMember(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            each.process_id,
            _group_tasks_by_subtopology(each.assignment.active_tasks),
            _group_tasks_by_subtopology(each.assignment.standby_tasks),
            _group_tasks_by_subtopology(each.assignment.warmup_tasks),
        )
        for each in described.members
    ]
    node = client.find_coordinator("group", group)
    return DescribedGroup(group, described.group_state, "streams", described.assignor_name or "", node, members)


def _group_tasks_by_subtopology(tasks: Any) -> dict[str, list[int]]:
    return {each.subtopology_id: sorted(each.partitions) for each in tasks}
