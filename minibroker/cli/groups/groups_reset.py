"""`minibroker groups reset-offsets`: resets a group's offsets, after showing the changes.

`groups_targets` computes the new offsets.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from minibroker.cli.administration import TopicPartition, all_topics, connected
from minibroker.cli.connecting import Bootstrap, client_options
from minibroker.cli.groups.groups_facts import Committed, ask_coordinator, committed, described
from minibroker.cli.groups.groups_targets import Target, Topics, moment_of, target_of, topics_of, within
from minibroker.cli.shared import duration_of, failure, json_option, print_table

if TYPE_CHECKING:
    from minibroker.client.blocking import Client

INACTIVE = ("Empty", "Dead")
NAMED_TOPICS_OFFSET_COMMIT = (2, 9)  # versions that name topics, and group members


class Move(NamedTuple):
    """The current offset of a group in a partition, or None, and the new one."""

    topic: str
    partition: int
    current: int | None
    new: int


@click.command("reset-offsets")
@click.argument("group")
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC[:P,...]",
    type=topics_of,
    multiple=True,
    help="All or some of its partitions. Can be repeated.",
)
@click.option("--all-topics", is_flag=True, help="All topics with committed offsets of the group.")
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="Past the last record.")
@click.option("--to-current", is_flag=True, help="To the committed offset, or past the last record if there is none.")
@click.option("--to-offset", metavar="OFFSET", type=click.IntRange(0), help="To this offset.")
@click.option("--shift-by", metavar="N", type=int, help="By N records from the committed offset; -N goes back.")
@click.option(
    "--to-datetime",
    metavar="TIME",
    type=moment_of,
    help="To a time like 2026-01-31T12:00:00, in UTC unless it has a zone.",
)
@click.option(
    "--by-duration",
    metavar="PERIOD",
    type=duration_of,
    help="To this long ago, a period like P1DT12H, PT30M or '30 min'.",
)
@click.option("--execute", is_flag=True, help="Do it; without this, only show what would be done.")
@client_options
@json_option("Print a JSON object.")
def reset_offsets(
    group: str,
    topics: tuple[Topics, ...],
    all_topics: bool,
    execute: bool,
    bootstrap: Bootstrap,
    as_json: bool,
    **where: Any,
) -> None:
    """Reset the committed offsets of a group without members. Without --execute, nothing is changed.

    \b
    Example:
        minibroker groups reset-offsets billing --topic orders --to-earliest --execute
    """
    target = target_of(where)
    if bool(topics) == all_topics:
        raise click.UsageError("choose partitions with --topic or --all-topics")
    with connected(bootstrap) as client:
        _check_inactive(client, group)
        positions = committed(client, group)
        places = sorted(positions) if all_topics else _places(client, topics)
        if not places:
            raise failure(f"{group} has no committed offsets: choose topics with --topic")
        moves = _moves(client, target, places, positions)
        if execute:
            _commit(client, group, moves)
    _show(group, moves, execute, as_json)


def _check_inactive(client: Client, group: str) -> None:
    """Raises click.ClickException for a group with members, as they would commit their own positions again."""
    state = described(client, group).state
    if state not in INACTIVE:
        raise failure(f"the offsets of {group} can only be reset while it has no members, and it is {state}")


def _places(client: Client, asked: tuple[Topics, ...]) -> list[TopicPartition]:
    """Return the named partitions. Raises click.ClickException if one does not exist."""
    known = all_topics(client)
    places: set[TopicPartition] = set()
    for topic, indexes in asked:
        if topic not in known:
            raise failure(f"there is no topic {topic}")
        partitions = {each.partition_index for each in known[topic].partitions}
        missing = [index for index in indexes if index not in partitions]
        if missing:
            raise failure(f"{topic} has no partition {missing[0]}")
        places |= {(topic, index) for index in indexes or partitions}
    return sorted(places)


def _moves(
    client: Client, target: Target, places: list[TopicPartition], positions: dict[TopicPartition, Committed]
) -> list[Move]:
    from minibroker.client.partition_offsets import EARLIEST, LATEST, list_offsets

    earliest = list_offsets(client, dict.fromkeys(places, EARLIEST))
    latest = list_offsets(client, dict.fromkeys(places, LATEST))
    timestamp_ms = target.timestamp_ms(round(time.time() * 1000))
    at_time = {} if timestamp_ms is None else list_offsets(client, dict.fromkeys(places, timestamp_ms))
    moves = []
    for place in places:
        position = positions.get(place)
        current = None if position is None else position.offset
        wanted = target.wanted(place, current, earliest[place], latest[place], at_time.get(place))
        new = within(wanted, earliest[place], latest[place]) if target.is_bounded else wanted
        if new != wanted:
            what = "before the first record" if new > wanted else "past the last record"
            click.echo(f"minibroker: {place[0]}-{place[1]}: {wanted} is {what}, so it is {new}", err=True)
        moves.append(Move(*place, current, new))
    return moves


def _commit(client: Client, group: str, moves: list[Move]) -> None:
    """Commit the offsets. Raises click.ClickException if any is rejected; the others are then committed."""
    from minibroker.client.client_errors import error_name
    from minibroker.protocol.messages.offsets import OffsetCommitRequest

    of_topic = OffsetCommitRequest.OffsetCommitRequestTopic
    topics = {move.topic: of_topic(name=move.topic, partitions=[]) for move in moves}
    for move in moves:
        offset = of_topic.OffsetCommitRequestPartition(
            partition_index=move.partition, committed_offset=move.new, committed_metadata=""
        )
        topics[move.topic].partitions.append(offset)
    request = OffsetCommitRequest(group_id=group, topics=list(topics.values()))
    refused = [
        f"{topic.name}-{each.partition_index}: {error_name(each.error_code)}"
        for topic in ask_coordinator(client, group, request, *NAMED_TOPICS_OFFSET_COMMIT).topics
        for each in topic.partitions
        if each.error_code
    ]
    if refused:
        raise failure(f"cannot reset the offsets of {group}: {'; '.join(refused)}")


def _show(group: str, moves: list[Move], executed: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"group": group, "executed": executed, "offsets": [move._asdict() for move in moves]}))
        return
    print_table(Move._fields, moves)
    click.echo()
    click.echo(f"the offsets of {group} are reset" if executed else "nothing was changed; add --execute to do it")
