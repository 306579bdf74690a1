"""Places in topics, as the options of `consume` and `records` name them: topics, partitions and offsets.

orders  orders:0,2  'orders-*'  '^orders-[0-9]+$'     a topic, some partitions of it, or a pattern
earliest  latest  42  -10  'yesterday'  '2 hours ago'  where in each partition
0=42                                                   where in one partition
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from minibroker.cli.administration import TopicPartition, get_all_topics, get_existing_topic
from minibroker.cli.shared import describe_missing_partition, make_operation_error, suggest_file_commands
from minibroker.quantities import parse_moment_ms

if TYPE_CHECKING:
    from minibroker.client.blocking import Client

OFFSET_MAX: Final = (1 << 63) - 1
TOPICS: Final = re.compile(r"(?P<topic>[^:\s]+)(?::(?P<indexes>\d+(?:,\d+)*))?")
GLOB: Final = re.compile(r"[*?[]")  # no name of a topic has one of these
ONE_PARTITION: Final = re.compile(r"(?P<index>[0-9]{1,10})=(?P<where>.+)", re.DOTALL)
NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
# The words of Kafka, of kcat and of rpk.
WORDS: Final = {
    "earliest": "earliest",
    "beginning": "earliest",
    "start": "earliest",
    "latest": "latest",
    "end": "latest",
}
INTERNAL: Final = "__"  # a pattern that begins so, after its ^, means internal topics, too
METADATA_TOPIC: Final = "__cluster_metadata"

RequestedTopic = tuple[str, tuple[int, ...]]  # a topic or pattern, and its partitions, none for all


class PartitionPlace(NamedTuple):
    """A place in a partition. `kind` is "earliest", "latest", "offset", "back" (records from the end) or "time" (ms).

    `partition` is None for all partitions.
    """

    kind: str
    number: int = 0
    partition: int | None = None


# --- parsing ----------------------------------------------------------------------------------------------


def parse_topic(text: str) -> RequestedTopic:
    """Parse TOPIC, TOPIC:0,2 or a pattern. Raises click.BadParameter."""
    if text.startswith("^"):
        try:
            re.compile(text)
        except re.error as error:
            raise click.BadParameter(f"{text!r} is no regular expression: {error}") from None
        return text, ()
    if "/" in text:
        raise click.BadParameter(f"{text!r} is no topic; {suggest_file_commands(text)}")
    match = TOPICS.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is not TOPIC or TOPIC:PARTITION,...")
    return match["topic"], tuple(map(int, match["indexes"].split(","))) if match["indexes"] else ()


def parse_offset_or_time(text: str) -> PartitionPlace:
    """Parse [PARTITION=]WHERE. Raises click.BadParameter."""
    one = ONE_PARTITION.fullmatch(text)
    if one is not None:
        return parse_offset_or_time(one["where"])._replace(partition=int(one["index"]))
    if text in WORDS:
        return PartitionPlace(WORDS[text])
    if NUMBER.fullmatch(text) and abs(int(text)) <= OFFSET_MAX:
        return PartitionPlace("back", -int(text)) if text.startswith("-") else PartitionPlace("offset", int(text))
    try:
        return PartitionPlace("time", parse_moment_ms(text, time.time_ns() // 1_000_000))
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not earliest, latest, an offset, -N for N before the end, or a time like"
            " 2026-01-31T12:00:00 or '2 hours ago'"
        ) from None


# --- looking up -------------------------------------------------------------------------------------------


def list_partitions(client: Client, requested: Sequence[RequestedTopic]) -> list[TopicPartition]:
    """Return the partitions of these topics and patterns, in order.

    Raises click.ClickException for a topic or a partition that does not exist, and if nothing matches a pattern.
    """
    chosen: set[TopicPartition] = set()
    for name, indexes in requested:
        for topic in _list_matching_topics(client, name) if is_pattern(name) else [_find_topic(client, name)]:
            known = {each.partition_index for each in topic.partitions}
            missing = [index for index in indexes if index not in known]
            if missing:
                raise make_operation_error(describe_missing_partition(topic.name, missing[0], len(known)))
            chosen |= {(topic.name, index) for index in indexes or known}
    return sorted(chosen)


def is_pattern(name: str) -> bool:
    """Return whether this is a regular expression (^...) or a pattern of the shell, not a topic."""
    return name.startswith("^") or GLOB.search(name) is not None


def _list_matching_topics(client: Client, pattern: str) -> list[Any]:
    matches = re.compile(pattern).search if pattern.startswith("^") else lambda name: fnmatchcase(name, pattern)
    is_for_all = pattern.removeprefix("^").startswith(INTERNAL)
    found = [
        topic
        for name, topic in get_all_topics(client).items()
        if matches(name) and (is_for_all or not topic.is_internal) and topic.partitions
    ]
    if not found:
        raise make_operation_error(f"no topic matches {pattern}")
    return found


def _find_topic(client: Client, name: str) -> Any:
    """Return a topic as Metadata describes it. Raises click.ClickException, `ClientError`."""
    from minibroker.protocol.errors import ErrorCode

    if name == METADATA_TOPIC:
        raise make_operation_error(f"no broker lets clients read {name}: minibroker dump shows its files")
    (found,) = client.fetch_metadata([name]).topics
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return get_existing_topic(client, name)  # raises the error
    if found.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
        client.check(found.error_code, f"cannot read {name}")
    return found


def find_offsets_at(
    client: Client, partitions: Iterable[TopicPartition], places: Sequence[PartitionPlace], default: str
) -> dict[TopicPartition, int]:
    """Return the offset of each partition at its place: the last given for it, else the last for all, else `default`.

    Offsets outside of a log become its first or next one, with a note on stderr. If no record is as late as a time, it
    is the next one, too. Raises click.ClickException for a place in a partition that is not asked for, `ClientError`.
    """
    from minibroker.client.partition_offsets import EARLIEST, LATEST, list_offsets

    chosen = {each: _choose_place_of_partition(each[1], places, default) for each in partitions}
    indexes = {index for _, index in chosen}
    stray = [each.partition for each in places if each.partition is not None and each.partition not in indexes]
    if stray:
        raise make_operation_error(f"there is no partition {stray[0]} among those to read")
    at_time = list_offsets(client, {each: where.number for each, where in chosen.items() if where.kind == "time"})
    offsets = {each: offset for each, offset in at_time.items() if offset >= 0}
    of_first = [each for each, where in chosen.items() if where.kind in ("earliest", "offset", "back")]
    of_next = [each for each, where in chosen.items() if where.kind != "earliest" and each not in offsets]
    first = list_offsets(client, dict.fromkeys(of_first, EARLIEST))
    next_ones = list_offsets(client, dict.fromkeys(of_next, LATEST))
    for each, where in chosen.items():
        if where.kind == "earliest":
            offsets[each] = first[each]
        elif where.kind == "offset":
            offsets[each] = clamp_offset_to_log(each, where.number, first[each], next_ones[each])
        elif where.kind == "back":
            offsets[each] = max(first[each], next_ones[each] - where.number)
        else:
            offsets[each] = next_ones[each] if each in next_ones else offsets[each]
    return offsets


def _choose_place_of_partition(index: int, places: Sequence[PartitionPlace], default: str) -> PartitionPlace:
    """Return the last place given for this partition, else the last for all, else the kind `default`, like "latest"."""
    of_all = [each for each in places if each.partition is None]
    of_this = [each for each in places if each.partition == index]
    return [PartitionPlace(default), *of_all, *of_this][-1]


def clamp_offset_to_log(partition: TopicPartition, offset: int, earliest: int, latest: int) -> int:
    """Return the offset in the log that is nearest to the wanted one; if it is another, say so on stderr."""
    nearest = min(max(offset, earliest), latest)
    if nearest != offset:
        what = "before the first record" if nearest > offset else "past the last record"
        click.echo(f"minibroker: {partition[0]}-{partition[1]}: {offset} is {what}, so it is {nearest}", err=True)
    return nearest
