"""The state of a broker and its last requests, as text for the report of a failed test, and as values for HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from minibroker.protocol.legible import make_legible
from minibroker.testing.seen.exchange import LINE_CHARACTERS, Exchange
from minibroker.testing.seen.explained_requests import summarize_exchange
from minibroker.testing.seen.waiting import format_count
from minibroker.testing.verbs.wait_verbs import list_member_ids

if TYPE_CHECKING:
    from minibroker.broker.groups.group import Group
    from minibroker.testing.broker import Broker

MAXIMUM_LINES = 40  # of each kind
EXPLAINED_REQUESTS = 5


def collect_state(broker: Broker) -> dict[str, object]:
    """Return topics with the ends of their partitions, and groups with types, states, members and committed offsets."""
    cluster = broker.running.cluster
    topics = {
        topic.name: [each.log.log_end_offset if each.has_local_log else None for each in topic.partitions]
        for topic in cluster.image.topics.values()
        if not topic.internal
    }
    groups = {
        group.group_id: {
            "type": group.type,
            "state": group.state_name,
            "members": list_member_ids(group),
            "committed": _get_committed_offsets(group),
        }
        for group in cluster.groups.groups.values()
    }
    return {"topics": topics, "groups": groups}


def _get_committed_offsets(group: Group) -> dict[str, int]:
    """Return the committed offsets of a group by TOPIC-PARTITION."""
    return {f"{topic}-{index}": each.offset for (topic, index), each in group.offsets.by_partition.items()}


def format_report(broker: Broker, before: int = 0, link: str | None = None) -> str:
    """Return the report as text, the newest request last; the first `before` requests are only counted.

    The last lines have the fields of the newest requests, and the `link` to a page that explains them.
    """
    lines = (
        broker.call_on_loop(lambda: list(_format_broker_state(broker))) if broker.is_running else ["the broker is down"]
    )
    requests = broker.call_on_loop(
        lambda: broker.journal.list_exchanges(where=lambda exchange: exchange.number > before)
    )
    shown = requests[-MAXIMUM_LINES:]
    older = len(broker.call_on_loop(broker.journal.list_exchanges)) - len(shown) + broker.journal.dropped
    lines += [f"({older} older requests)"] if older else []
    report = [*(make_legible(line, LINE_CHARACTERS) for line in lines), *_format_requests(broker, shown, before)]
    if shown:
        report += ["what the last of them say:", *map(summarize_exchange, shown[-EXPLAINED_REQUESTS:])]
        report.append(f"each byte of them: {link or 'pytest --kafka-report=report.html'}")
    return "\n".join(report or ["no topics, no groups, no requests"])


def _format_requests(broker: Broker, shown_exchanges: list[Exchange], first_number: int) -> list[str]:
    """Return lines about requests, and those to the schema registry among them."""
    schemas = [each for each in broker.registry_requests() if each.after >= first_number][-MAXIMUM_LINES:]
    lines = [(float(each.number), str(each)) for each in shown_exchanges]
    lines += [(each.after + 0.5, make_legible(f"registry: {each}", LINE_CHARACTERS)) for each in schemas]
    return [line for _, line in sorted(lines, key=lambda each: each[0])]


def _format_broker_state(broker: Broker) -> Iterator[str]:
    """Yield lines about topics, groups and faults."""
    cluster = broker.running.cluster
    topics = [topic for topic in cluster.image.topics.values() if not topic.internal]
    for topic in topics[:MAXIMUM_LINES]:
        ends = ", ".join(str(each.log.log_end_offset) if each.has_local_log else "?" for each in topic.partitions)
        yield f"topic {topic.name}: partitions end at {ends}"
    if len(topics) > MAXIMUM_LINES:
        yield f"({len(topics) - MAXIMUM_LINES} more topics)"
    for group in list(cluster.groups.groups.values())[:MAXIMUM_LINES]:
        members, name = format_count(len(list_member_ids(group)), "member"), make_legible(group.group_id)
        if group.type == "share":
            yield f"share group {name}: {group.state_name}, {members}"
            yield from (f"  {each}" for each in broker.share_history.list_deliveries(group.group_id)[-MAXIMUM_LINES:])
        else:
            yield f"group {name}: {group.state_name}, {members}, committed {_get_committed_offsets(group)}"
    for fault in broker.faults.all():
        yield repr(fault)
