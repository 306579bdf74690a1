"""`minibroker groups describe`: a group's members, what each reads, how far they have come and how much is left.

Through confluent-kafka; the group itself is not touched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from minibroker.cli.administration import TopicPartition, admin_client
from minibroker.cli.groups_facts import committed, described, ends, state_name, type_name
from minibroker.cli.shared import Bootstrap, client_options, failure, json_option, print_table

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, MemberDescription


class Offset(NamedTuple):
    """How far the group has come in a partition; None where nothing is committed, or nobody leads the partition."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    member: str | None
    metadata: str


class Member(NamedTuple):
    """A member of the group; `partitions` are those that are assigned to it, by topic."""

    member: str
    instance: str | None
    client: str
    host: str
    partitions: dict[str, list[int]]


@click.command()
@click.argument("group")
@client_options
@json_option("Print a JSON object.")
def describe(group: str, bootstrap: Bootstrap, as_json: bool) -> None:
    """Show a group's members with their partitions, its committed offsets, and how far they are behind.

    \b
    Example:
        minibroker groups describe billing
    """
    admin = admin_client(bootstrap)
    found = described(admin, group)
    if state_name(found.state) == "Dead":
        raise failure(f"there is no group {group}")
    members = [_member(each) for each in found.members]
    offsets = _offsets(admin, group, members)
    if as_json:
        click.echo(json.dumps(_as_json(found, members, offsets)))
    else:
        _print(found, members, offsets)


def _member(member: MemberDescription) -> Member:
    partitions: dict[str, list[int]] = {}
    for each in member.assignment.topic_partitions if member.assignment else ():
        partitions.setdefault(each.topic, []).append(each.partition)
    ordered = {topic: sorted(indexes) for topic, indexes in sorted(partitions.items())}
    return Member(member.member_id, member.group_instance_id, member.client_id, member.host, ordered)


def _offsets(admin: AdminClient, group: str, members: Iterable[Member]) -> list[Offset]:
    """A line for each partition for which something is committed, or which a member has."""
    owners: dict[TopicPartition, str] = {
        (topic, index): member.member
        for member in members
        for topic, indexes in member.partitions.items()
        for index in indexes
    }
    positions = committed(admin, group)
    places = sorted(owners.keys() | positions.keys())
    end_offsets = ends(admin, places)
    lines = []
    for place in places:
        position, end = positions.get(place), end_offsets.get(place)
        lag = None if position is None or end is None else end - position.offset
        offset, metadata = (None, "") if position is None else position
        lines.append(Offset(*place, offset, end, lag, owners.get(place), metadata))
    return lines


def _as_json(found: ConsumerGroupDescription, members: list[Member], offsets: list[Offset]) -> dict[str, Any]:
    coordinator = found.coordinator
    return {
        "group": found.group_id,
        "state": state_name(found.state),
        "type": type_name(found.type),
        "assignor": found.partition_assignor,
        "coordinator": {"id": coordinator.id, "host": coordinator.host, "port": coordinator.port},
        "members": [member._asdict() for member in members],
        "offsets": [offset._asdict() for offset in offsets],
    }


def _print(found: ConsumerGroupDescription, members: list[Member], offsets: list[Offset]) -> None:
    node = found.coordinator
    coordinator = f"node {node.id}, {node.host}:{node.port}"
    row = [found.group_id, state_name(found.state), type_name(found.type), found.partition_assignor, coordinator]
    print_table(["group", "state", "type", "assignor", "coordinator"], [row])
    if members:
        click.echo()
        print_table(Member._fields, [[*each[:-1], _assigned(each.partitions)] for each in members])
    if offsets:
        click.echo()
        print_table(Offset._fields, offsets)


def _assigned(partitions: dict[str, list[int]]) -> str:
    """Like `orders:0,1 payments:3`."""
    return " ".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in partitions.items())
