"""`minibroker groups describe`: a group's members, their partitions, committed offsets and lag.

It does not change the group.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from minibroker.cli.administration import TopicPartition, connected
from minibroker.cli.connecting import Bootstrap, client_options
from minibroker.cli.groups.groups_facts import Group, Member, committed, described, ends
from minibroker.cli.shared import failure, json_option, print_table

if TYPE_CHECKING:
    from minibroker.client.blocking import Client


class Offset(NamedTuple):
    """A group's position in a partition; None if nothing is committed, or if the partition has no leader."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    member: str | None
    metadata: str


@click.command()
@click.argument("group")
@client_options
@json_option("Print a JSON object.")
def describe(group: str, bootstrap: Bootstrap, as_json: bool) -> None:
    """Show a group's members with their partitions, its committed offsets, and the lag.

    \b
    Example:
        minibroker groups describe billing
    """
    with connected(bootstrap) as client:
        found = described(client, group)
        if found.state == "Dead":
            raise failure(f"there is no group {group}")
        offsets = _offsets(client, group, found.members)
        host, _, port = client.address(found.coordinator).rpartition(":")
    if as_json:
        click.echo(json.dumps(_as_json(found, host, int(port), offsets)))
    else:
        _print(found, f"node {found.coordinator}, {host}:{port}", offsets)


def _offsets(client: Client, group: str, members: Iterable[Member]) -> list[Offset]:
    """Return a line for each partition with a committed offset or a member."""
    owners: dict[TopicPartition, str] = {
        (topic, index): member.member
        for member in members
        for topic, indexes in member.partitions.items()
        for index in indexes
    }
    positions = committed(client, group)
    places = sorted(owners.keys() | positions.keys())
    end_offsets = ends(client, places)
    lines = []
    for place in places:
        position, end = positions.get(place), end_offsets.get(place)
        lag = None if position is None or end is None else end - position.offset
        offset, metadata = (None, "") if position is None else position
        lines.append(Offset(*place, offset, end, lag, owners.get(place), metadata))
    return lines


def _as_json(found: Group, host: str, port: int, offsets: list[Offset]) -> dict[str, Any]:
    return {
        **found._asdict(),
        "coordinator": {"id": found.coordinator, "host": host.strip("[]"), "port": port},
        "members": [member._asdict() for member in found.members],
        "offsets": [offset._asdict() for offset in offsets],
    }


def _print(found: Group, coordinator: str, offsets: list[Offset]) -> None:
    row = [found.group, found.state, found.type, found.assignor, coordinator]
    print_table(["group", "state", "type", "assignor", "coordinator"], [row])
    if found.members:
        click.echo()
        print_table(Member._fields, [[*each[:-1], _assigned(each.partitions)] for each in found.members])
    if offsets:
        click.echo()
        print_table(Offset._fields, offsets)


def _assigned(partitions: dict[str, list[int]]) -> str:
    """Like `orders:0,1 payments:3`."""
    return " ".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in partitions.items())
