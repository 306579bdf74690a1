"""The state of a broker and its last requests, as text for the report of a failed test, and as values for HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from minibroker.protocol.legible import legible
from minibroker.testing.exchange import LINE_CHARACTERS
from minibroker.testing.wait_verbs import member_ids

if TYPE_CHECKING:
    from minibroker.broker.groups.group import Group
    from minibroker.testing.broker import Broker

MAXIMUM_LINES = 40  # of each kind


def state_of(broker: Broker) -> dict[str, object]:
    """Return topics with the ends of their partitions, and groups with states, members and committed offsets."""
    cluster = broker.running.cluster
    topics = {
        topic.name: [each.log.log_end_offset if each.is_here else None for each in topic.partitions]
        for topic in cluster.image.topics.values()
        if not topic.internal
    }
    groups = {
        group.group_id: {"state": group.state_name, "members": member_ids(group), "committed": _committed(group)}
        for group in cluster.groups.groups.values()
    }
    return {"topics": topics, "groups": groups}


def _committed(group: Group) -> dict[str, int]:
    return {f"{topic}-{index}": each.offset for (topic, index), each in group.offsets.by_partition.items()}


def seen_by(broker: Broker, before: int = 0) -> str:
    """Return the report, the newest request last; the first `before` requests are only counted."""
    lines = broker.on_loop(lambda: list(_state(broker))) if broker.is_running else ["the broker is down"]
    requests = broker.on_loop(lambda: broker.journal.found(where=lambda exchange: exchange.number > before))
    shown = requests[-MAXIMUM_LINES:]
    older = len(broker.on_loop(broker.journal.found)) - len(shown) + broker.journal.dropped
    lines += [f"({older} older requests)"] if older else []
    return "\n".join([*(legible(line, LINE_CHARACTERS) for line in lines), *map(str, shown)])


def _state(broker: Broker) -> Iterator[str]:
    cluster = broker.running.cluster
    topics = [topic for topic in cluster.image.topics.values() if not topic.internal]
    for topic in topics[:MAXIMUM_LINES]:
        ends = ", ".join(str(each.log.log_end_offset) if each.is_here else "?" for each in topic.partitions)
        yield f"topic {topic.name}: partitions end at {ends}"
    if len(topics) > MAXIMUM_LINES:
        yield f"({len(topics) - MAXIMUM_LINES} more topics)"
    for group in list(cluster.groups.groups.values())[:MAXIMUM_LINES]:
        members = len(member_ids(group))
        yield f"group {legible(group.group_id)}: {group.state_name}, {members} members, committed {_committed(group)}"
    for fault in broker.faults.all():
        yield repr(fault)
