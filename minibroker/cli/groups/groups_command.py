"""`minibroker groups`: list, describe and delete groups of any Kafka, of all types, and their offsets.

`groups_reset` moves the offsets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from minibroker.cli.administration import TopicPartition, connect_client, delete_each_by_name
from minibroker.cli.connecting import Bootstrap, add_connection_options
from minibroker.cli.groups.groups_facts import (
    DescribedGroup,
    GroupMember,
    fetch_committed_offsets,
    find_end_offsets,
    list_group_names,
    send_request_to_group_coordinator,
)
from minibroker.cli.groups.groups_reset import reset_offsets
from minibroker.cli.groups.groups_share import delete_start_offsets, list_start_offsets
from minibroker.cli.groups.groups_types import TYPES, describe_group
from minibroker.cli.shared import (
    WholeHelpGroup,
    make_json_option,
    make_names_completer,
    make_not_found_error,
    make_operation_error,
    print_table,
)

if TYPE_CHECKING:
    from minibroker.client.blocking import Client

STATES: Final = (
    "Stable",
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
)


class GroupOffset(NamedTuple):
    """A group's position in a partition; None if nothing is committed, or if the partition has no leader."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    member: str | None
    metadata: str


class SharedOffset(NamedTuple):
    """Where a share group begins to read a partition; None if it has not read it yet, or for an unknown lag."""

    topic: str
    partition: int
    start: int | None
    lag: int | None


GroupOffsets = list[GroupOffset] | list[SharedOffset]


@click.group(cls=WholeHelpGroup)
def groups() -> None:
    """List, describe, reset and delete groups.

    \b
    Example:
        minibroker groups describe billing
    """


@groups.command()
@click.argument("group", shell_complete=make_names_completer("groups"))
@add_connection_options
@make_json_option("Print a JSON object.")
def describe(group: str, bootstrap: Bootstrap, as_json: bool) -> None:
    """Show a group's members with their partitions, its offsets, and the lag.

    These are the committed offsets, or the start offsets of a share group.

    \b
    Example:
        minibroker groups describe billing
    """
    with connect_client(bootstrap) as client:
        described = describe_group(client, group)
        if described.state == "Dead":
            raise make_not_found_error("group", group, list_group_names(client))
        offsets = (
            _list_share_group_offsets(client, group) if described.type == "share" else _list_offsets(client, described)
        )
        host, _, port = client.address(described.coordinator).rpartition(":")
    if as_json:
        click.echo(json.dumps(_make_group_object(described, host, int(port), offsets)))
    else:
        _print_group(described, f"node {described.coordinator}, {host}:{port}", offsets)


def _list_offsets(client: Client, group: DescribedGroup) -> list[GroupOffset]:
    """Return a line for each partition with a committed offset or a member."""
    owners: dict[TopicPartition, str] = {
        (topic, index): member.member
        for member in group.members
        if isinstance(member, GroupMember)
        for topic, indexes in member.partitions.items()
        for index in indexes
    }
    positions = fetch_committed_offsets(client, group.group)
    places = sorted(owners.keys() | positions.keys())
    end_offsets = find_end_offsets(client, places)
    lines = []
    for place in places:
        position, end = positions.get(place), end_offsets.get(place)
        lag = None if position is None or end is None else end - position.offset
        offset, metadata = (None, "") if position is None else position
        lines.append(GroupOffset(*place, offset, end, lag, owners.get(place), metadata))
    return lines


def _list_share_group_offsets(client: Client, group: str) -> list[SharedOffset]:
    return [SharedOffset(*place, *each) for place, each in sorted(list_start_offsets(client, group).items())]


def _make_group_object(group: DescribedGroup, host: str, port: int, offsets: GroupOffsets) -> dict[str, Any]:
    return {
        **group._asdict(),
        "coordinator": {"id": group.coordinator, "host": host.strip("[]"), "port": port},
        "members": [member._asdict() for member in group.members],
        "offsets": [offset._asdict() for offset in offsets],
    }


def _print_group(group: DescribedGroup, coordinator: str, offsets: GroupOffsets) -> None:
    row = [group.group, group.state, group.type, group.assignor, coordinator]
    print_table(["group", "state", "type", "assignor", "coordinator"], [row])
    if group.members:
        click.echo()
        rows = [
            [_format_assignment(cell) if isinstance(cell, dict) else cell for cell in each] for each in group.members
        ]
        print_table(group.members[0]._fields, rows)
    if offsets:
        click.echo()
        print_table(offsets[0]._fields, offsets)


def _format_assignment(partitions: dict[str, list[int]]) -> str:
    """Return partitions as text, like `orders:0,1 payments:3`."""
    return " ".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in partitions.items())


@groups.command("delete-offsets")
@click.argument("group", shell_complete=make_names_completer("groups"))
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, required=True, help="Can be repeated.",
              shell_complete=make_names_completer("topics"))  # fmt: skip
@add_connection_options
@make_json_option("Print a JSON object.")
def delete_offsets(group: str, topics: tuple[str, ...], bootstrap: Bootstrap, as_json: bool) -> None:
    """Delete a group's offsets of topics that it does not read, without confirmation.

    These are the committed offsets, or the start offsets of a share group, which must have no members.

    \b
    Example:
        minibroker groups delete-offsets billing --topic orders
    """
    from minibroker.client.client_errors import get_error_name

    with connect_client(bootstrap) as client:
        described = describe_group(client, group)
        if described.state == "Dead":
            raise make_not_found_error("group", group, list_group_names(client))
        delete = delete_start_offsets if described.type == "share" else _delete_committed_offsets
        codes = delete(client, group, dict.fromkeys(topics))
    deleted = [topic for topic, code in codes.items() if not code]
    if as_json:
        click.echo(json.dumps({"group": group, "deleted": deleted}))
    elif deleted:
        click.echo(f"deleted the offsets of {group} in {', '.join(deleted)}")
    refused = [f"{topic}: {get_error_name(code)}" for topic, code in codes.items() if code]
    if refused:
        raise make_operation_error(f"cannot delete the offsets of {group}: {'; '.join(refused)}")


def _delete_committed_offsets(client: Client, group: str, topics: Iterable[str]) -> dict[str, int]:
    """Delete the committed offsets of topics; return an error code for each. Raises `ClientError`."""
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.errors import ErrorCode
    from minibroker.protocol.messages.offsets import OffsetDeleteRequest

    of_topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    places = fetch_committed_offsets(client, group)
    indexes = {topic: [index for name, index in sorted(places) if name == topic] for topic in topics}
    wanted_topics = [
        of_topic(
            name=topic,
            partitions=[of_topic.OffsetDeleteRequestPartition(partition_index=index) for index in partitions],
        )
        for topic, partitions in indexes.items()
        if partitions
    ]
    codes = {topic: 0 if indexes[topic] else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for topic in topics}
    if wanted_topics:
        answer = send_request_to_group_coordinator(
            client, group, OffsetDeleteRequest(group_id=group, topics=wanted_topics)
        )
        check_error_code(answer.error_code, f"cannot delete the offsets of {group}")
        for each in answer.topics:
            codes[each.name] = next((part.error_code for part in each.partitions if part.error_code), 0)
    return codes


@groups.command("list")
@click.option("--state", "states", type=click.Choice(STATES, False), multiple=True, help="Only groups in this state.")
@click.option("--type", "types", type=click.Choice(TYPES, False), multiple=True, help="Only groups of this type.")
@add_connection_options
@make_json_option("Print a JSON array.")
def list_groups(
    states: tuple[str, ...],
    types: tuple[str, ...],
    bootstrap: Bootstrap,
    as_json: bool,
) -> None:
    """List groups: those of consumers (classic and consumer), share groups, streams groups, and others.

    \b
    Example:
        minibroker groups list --state Empty --json
    """
    from minibroker.client.client_errors import ClientError

    rows, problems = [], []
    with connect_client(bootstrap) as client:
        for node in client.fetch_node_ids():
            try:
                rows += list_groups_of_node(client, node, states, types)
            except ClientError as error:
                problems.append(str(error))
    rows.sort(key=lambda row: row["group"])
    if as_json:
        click.echo(json.dumps(rows))
    else:
        print_table(["group", "type", "protocol", "state"], [list(row.values()) for row in rows])
    if problems:
        raise make_operation_error(f"not all groups are listed: {'; '.join(problems)}")


def list_groups_of_node(
    client: Client, node: int, states: tuple[str, ...] = (), types: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """Return the groups that a node coordinates. Old brokers know no states, and only classic groups."""
    from minibroker.protocol.messages.groups import ListGroupsRequest

    def request_groups() -> Any:
        answer = client.request(ListGroupsRequest(states_filter=list(states), types_filter=list(types)), node)
        client.check(answer.error_code, "listing groups", node)
        return answer

    rows = [
        {
            "group": each.group_id,
            "type": (each.group_type or "classic").lower(),
            "protocol": each.protocol_type,
            "state": each.group_state or "Unknown",
        }
        for each in client.retry(request_groups).groups
    ]
    return [row for row in rows if not types or row["type"] in types]


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", shell_complete=make_names_completer("groups"))
@add_connection_options
@make_json_option("Print a JSON object.")
def delete(names: tuple[str, ...], bootstrap: Bootstrap, as_json: bool) -> None:
    """Delete groups without members, with their committed offsets, without confirmation.

    \b
    Example:
        minibroker groups delete billing
    """
    with connect_client(bootstrap) as client:
        delete_each_by_name(names, lambda name: _delete_group(client, name), as_json)


def _delete_group(client: Client, name: str) -> None:
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.errors import ErrorCode
    from minibroker.protocol.messages.groups import DeleteGroupsRequest

    (answer,) = send_request_to_group_coordinator(client, name, DeleteGroupsRequest(groups_names=[name])).results
    if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise make_not_found_error("group", name, list_group_names(client))
    check_error_code(answer.error_code, f"cannot delete {name}")


groups.add_command(reset_offsets)
