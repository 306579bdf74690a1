"""`minibroker groups describe`: a group's members, their partitions, offsets and lag.

It does not change the group.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from minibroker.cli.administration import TopicPartition, connect_client
from minibroker.cli.connecting import Bootstrap, add_connection_options
from minibroker.cli.groups.groups_facts import (
    DescribedGroup,
    GroupMember,
    fetch_committed_offsets,
    find_end_offsets,
    list_group_names,
)
from minibroker.cli.groups.groups_share import list_start_offsets
from minibroker.cli.groups.groups_types import describe_group
from minibroker.cli.shared import (
    NamedCommand,
    make_json_option,
    make_names_completer,
    make_not_found_error,
    print_table,
)

if TYPE_CHECKING:
    from minibroker.client.blocking import Client


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


@click.command(cls=NamedCommand)
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
    """Like `orders:0,1 payments:3`."""
    return " ".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in partitions.items())
