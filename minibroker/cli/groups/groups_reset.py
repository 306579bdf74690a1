"""`minibroker groups reset-offsets`: resets a group's offsets, after showing the changes.

A `ResetTarget` computes a new offset. It sends no requests; the ends of logs and the committed offsets are passed in.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from minibroker.cli.administration import TopicPartition, connect_client
from minibroker.cli.connecting import Bootstrap, add_connection_options
from minibroker.cli.groups.groups_facts import (
    DescribedGroup,
    fetch_committed_offsets,
    send_request_to_group_coordinator,
)
from minibroker.cli.groups.groups_share import alter_start_offsets, list_start_offsets
from minibroker.cli.groups.groups_types import describe_group
from minibroker.cli.places import RequestedTopic, clamp_offset_to_log, list_partitions, parse_topic
from minibroker.cli.shared import (
    OFFSET,
    NamedCommand,
    make_json_option,
    make_names_completer,
    make_operation_error,
    parse_duration,
    print_table,
)
from minibroker.quantities import parse_moment_ms

if TYPE_CHECKING:
    from minibroker.client.blocking import Client

INACTIVE = ("Empty", "Dead")
NAMED_TOPICS_OFFSET_COMMIT = (2, 9)  # versions that name topics, and group members
GroupPositions = dict[TopicPartition, int | None]


def parse_datetime_ms(text: str) -> int:
    """Parse a time, by default in UTC as Kafka's tool takes it, to ms since 1970. Raises click.BadParameter."""
    try:
        return parse_moment_ms(text, time.time_ns() // 1_000_000, UTC)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no time like 2026-01-31T12:00:00, 2026-01-31T12:00:00.500+01:00 or '2 hours ago'"
        ) from None


class ResetTarget(NamedTuple):
    """A way to choose the new offset; `value` is its number, if it has one."""

    how: str
    value: int = 0

    @property
    def is_limited_to_log(self) -> bool:
        """Return whether the offset can be outside the log, and is then limited to it."""
        return self.how in ("to_offset", "shift_by")

    def get_timestamp_ms(self, now_ms: int) -> int | None:
        """Return the time whose offsets are needed, in ms since 1970 as `now_ms`, or None."""
        moments = {"by_duration": now_ms - self.value, "to_datetime": self.value}
        # Negative ones have special meanings in Kafka.
        return max(0, moments[self.how]) if self.how in moments else None

    def choose_offset(
        self,
        topic_partition: tuple[str, int],
        current: int | None,
        earliest: int,
        latest: int,
        offset_at_time: int | None,
    ) -> int:
        """Return the offset for a partition. Raises click.ClickException for a shift without a committed offset."""
        if self.how == "to_offset":
            return self.value
        if self.how == "to_earliest":
            return earliest
        if self.how == "to_current":
            return latest if current is None else current
        if self.how == "shift_by":
            if current is None:
                raise make_operation_error(
                    f"cannot shift {topic_partition[0]}-{topic_partition[1]}: nothing is committed for it"
                )
            return current + self.value
        return latest if offset_at_time is None or offset_at_time < 0 else offset_at_time  # no record is that late


def choose_reset_target(given: Mapping[str, Any]) -> ResetTarget:
    """Return the target that the options name, of which only one may be given. Raises click.UsageError."""
    chosen = {how: value for how, value in given.items() if value is not None and value is not False}
    if len(chosen) != 1:
        options = ", ".join(f"--{how.replace('_', '-')}" for how in given)
        raise click.UsageError(f"choose one of {options}")
    ((how, value),) = chosen.items()
    return ResetTarget(how, int(value))


class OffsetMove(NamedTuple):
    """The current offset of a group in a partition, or None, and the new one."""

    topic: str
    partition: int
    current: int | None
    new: int


@click.command("reset-offsets", cls=NamedCommand)
@click.argument("group", shell_complete=make_names_completer("groups"))
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC[:P,...]",
    type=parse_topic,
    multiple=True,
    help="All or some of its partitions. Can be repeated.",
    shell_complete=make_names_completer("topics"),
)
@click.option("--all-topics", is_flag=True, help="All topics with offsets of the group.")
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="Past the last record.")
@click.option("--to-current", is_flag=True, help="To the present offset, or past the last record if there is none.")
@click.option("--to-offset", metavar="OFFSET", type=OFFSET, help="To this offset.")
@click.option("--shift-by", metavar="N", type=int, help="By N records from the present offset; -N goes back.")
@click.option(
    "--to-datetime",
    metavar="TIME",
    type=parse_datetime_ms,
    help="To a time like 2026-01-31T12:00:00, in UTC unless it has a zone, or '2 hours ago'.",
)
@click.option(
    "--by-duration",
    metavar="PERIOD",
    type=parse_duration,
    help="To this long ago, a period like P1DT12H, PT30M or '30 min'.",
)
@click.option("--execute", is_flag=True, help="Do it; without this, only show what would be done.")
@add_connection_options
@make_json_option("Print a JSON object.")
def reset_offsets(
    group: str,
    topics: tuple[RequestedTopic, ...],
    all_topics: bool,
    execute: bool,
    bootstrap: Bootstrap,
    as_json: bool,
    **where: Any,
) -> None:
    """Reset the offsets of a group without members. Without --execute, nothing is changed.

    These are the committed offsets, or the start offsets of a share group.

    \b
    Example:
        minibroker groups reset-offsets billing --topic orders --to-earliest --execute
    """
    target = choose_reset_target(where)
    if bool(topics) == all_topics:
        raise click.UsageError("choose partitions with --topic or --all-topics")
    with connect_client(bootstrap) as client:
        is_shared = _get_inactive_group(client, group).type == "share"
        positions = _list_start_offsets(client, group) if is_shared else _fetch_committed_offsets(client, group)
        places = sorted(positions) if all_topics else list_partitions(client, topics)
        if not places:
            raise make_operation_error(f"{group} has no offsets: choose topics with --topic")
        moves = _plan_offset_changes(client, target, places, positions)
        if execute and is_shared:
            alter_start_offsets(client, group, {(move.topic, move.partition): move.new for move in moves})
        elif execute:
            _commit_offset_changes(client, group, moves)
    _print_offset_changes(group, moves, execute, as_json)


def _get_inactive_group(client: Client, group: str) -> DescribedGroup:
    """Return the group. Raises click.ClickException if it has members, as they would go on from where they are."""
    found = describe_group(client, group)
    if found.state not in INACTIVE:
        raise make_operation_error(
            f"the offsets of {group} can only be reset while it has no members, and it is {found.state}"
        )
    return found


def _fetch_committed_offsets(client: Client, group: str) -> GroupPositions:
    """Return the group's committed offset of each partition."""
    return {place: each.offset for place, each in fetch_committed_offsets(client, group).items()}


def _list_start_offsets(client: Client, group: str) -> GroupPositions:
    """Return the share group's start offset of each partition."""
    return {place: each.offset for place, each in list_start_offsets(client, group).items()}


def _plan_offset_changes(
    client: Client, target: ResetTarget, partitions: list[TopicPartition], positions: GroupPositions
) -> list[OffsetMove]:
    """Return the current and the new offset of each of these partitions."""
    from minibroker.client.partition_offsets import EARLIEST, LATEST, list_offsets

    earliest = list_offsets(client, dict.fromkeys(partitions, EARLIEST))
    latest = list_offsets(client, dict.fromkeys(partitions, LATEST))
    timestamp_ms = target.get_timestamp_ms(round(time.time() * 1000))
    at_time = {} if timestamp_ms is None else list_offsets(client, dict.fromkeys(partitions, timestamp_ms))
    moves = []
    for place in partitions:
        current = positions.get(place)
        offset = target.choose_offset(place, current, earliest[place], latest[place], at_time.get(place))
        new = clamp_offset_to_log(place, offset, earliest[place], latest[place]) if target.is_limited_to_log else offset
        moves.append(OffsetMove(*place, current, new))
    return moves


def _commit_offset_changes(client: Client, group: str, moves: list[OffsetMove]) -> None:
    """Commit the offsets. Raises click.ClickException if any is rejected; the others are then committed."""
    from minibroker.client.client_errors import get_error_name
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
        f"{topic.name}-{each.partition_index}: {get_error_name(each.error_code)}"
        for topic in send_request_to_group_coordinator(client, group, request, *NAMED_TOPICS_OFFSET_COMMIT).topics
        for each in topic.partitions
        if each.error_code
    ]
    if refused:
        raise make_operation_error(f"cannot reset the offsets of {group}: {'; '.join(refused)}")


def _print_offset_changes(group: str, moves: list[OffsetMove], executed: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"group": group, "executed": executed, "offsets": [move._asdict() for move in moves]}))
        return
    print_table(OffsetMove._fields, moves)
    click.echo()
    click.echo(f"the offsets of {group} are reset" if executed else "nothing was changed; add --execute to do it")
