"""The view of groups: state machines, members, offsets and lag, and the frames that changed them.

Members are described by the requests with which clients ask for them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, Final

from minibroker.broker.groups.classic.classic_states import FOLLOWING
from minibroker.broker.groups.group import Group
from minibroker.broker.metadata.partitions import Partition
from minibroker.broker.transactions.transaction import REACHED_FROM, TransactionState
from minibroker.client.membership import decode_assignment
from minibroker.explorer.answers_in_threads import read_in_thread_if_large
from minibroker.explorer.effects import describe_effects
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.legible import make_legible
from minibroker.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from minibroker.protocol.messages.groups import DescribeGroupsRequest
from minibroker.protocol.messages.share_groups import ShareGroupDescribeRequest
from minibroker.protocol.messages.streams_groups import StreamsGroupDescribeRequest
from minibroker.protocol.primitives import MalformedMessage
from minibroker.testing.broker import Broker
from minibroker.testing.seen.exchange import Exchange
from minibroker.testing.seen.subjects import GetTopicName, find_subjects
from minibroker.testing.verbs.own_requests import execute_request, get_any_node
from minibroker.testing.verbs.wait_verbs import list_member_ids
from minibroker.web.routes import Routes

MOST_LISTED: Final = 2_000
COMMIT: Final = "OffsetCommit"
MOST_OFFSETS: Final = 500
MOST_MOMENTS: Final = 60
SLICE_SECONDS: Final = 0.005
HISTORY_SECONDS: Final = 2.0

DESCRIBE: Final[dict[str, Callable[[str], Message]]] = {
    "Classic": lambda group: DescribeGroupsRequest(groups=[group]),
    "Consumer": lambda group: ConsumerGroupDescribeRequest(group_ids=[group]),
    "Share": lambda group: ShareGroupDescribeRequest(group_ids=[group]),
    "Streams": lambda group: StreamsGroupDescribeRequest(group_ids=[group]),
}
RECONCILING: Final = ("Empty", "Assigning", "Reconciling", "Stable")
STREAMS: Final = ("Empty", "NotReady", "Assigning", "Reconciling", "Stable")


def _make_state_transitions(states: Iterable[str]) -> list[tuple[str, str]]:
    """Return the transitions (from, to) of a group through these states, and back when members come and go."""
    steps = list(pairwise(states))
    return [*steps, ("Stable", "Assigning"), ("Reconciling", "Assigning"), ("Stable", "Empty"), ("Empty", "Dead")]


MACHINES: Final[dict[str, list[tuple[str, str]]]] = {
    "Classic": [(str(one), str(next_)) for one, nexts in FOLLOWING.items() for next_ in sorted(nexts) if one != next_],
    "Consumer": _make_state_transitions(RECONCILING),
    "Share": [("Empty", "Stable"), ("Stable", "Empty"), ("Empty", "Dead")],
    "Streams": _make_state_transitions(STREAMS),
    "transaction": [
        (before.api_name, after.api_name)
        for after, befores in REACHED_FROM.items()
        for before in sorted(befores)
        if before is not after and TransactionState.PREPARE_EPOCH_FENCE not in (before, after)
    ],
}


def make_group_routes(broker: Broker, get_topic_name: GetTopicName) -> Routes:
    """Return the routes of the groups view."""
    routes = Routes()

    @routes.get("/machines")
    async def get_machines() -> dict[str, list[tuple[str, str]]]:
        """Return the arrows between states, by the type of the group."""
        return MACHINES

    @routes.get("/groups")
    async def list_groups() -> dict[str, Any]:
        """Return all groups."""
        groups = sorted(broker.running.cluster.groups.groups.values(), key=lambda group: group.group_id)[:MOST_LISTED]
        return {"groups": [_summarize_group(group) for group in groups]}

    @routes.get("/groups/{group}")
    async def get_group(group: str) -> dict[str, Any]:
        """Return a group with its members, its committed offsets and their lag."""
        found = _find_group(broker, group)
        node = broker.coordinator(group=group)
        said = _summarize_group(found) | await _describe_group(broker, found, node)
        assigned = {one for each in said["members"] for one in each["assigned"]}
        return said | {"coordinator": node, "lag": _list_lags(broker, found, assigned)}

    @routes.get("/history")
    async def get_history(
        group: str | None = None, transactional_id: str | None = None, after: int = 0
    ) -> dict[str, Any]:
        """Return the newest frames that changed a group or a transaction, the newest first, and the last one seen."""
        seen = broker.journal.seen
        return {
            "moments": await _list_changes_of_group_or_transaction(
                broker, get_topic_name, group, transactional_id, after
            ),
            "seen": seen,
        }

    return routes


def _summarize_group(group: Group) -> dict[str, Any]:
    names = ("epoch", "assignment_epoch", "generation")
    return {
        "id": group.group_id,
        "type": group.type,
        "state": group.state_name,
        "protocol": group.protocol_type,
        "count": len(list_member_ids(group)),
        **{name: getattr(group, name) for name in names if hasattr(group, name)},
    }


def _find_group(broker: Broker, group: str) -> Group:
    found = broker.running.cluster.groups.groups.get(group)
    if found is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group}")
    return found


def _list_lags(broker: Broker, group: Group, assigned_partitions: set[str]) -> list[dict[str, Any]]:
    """Return the lag of each partition with a committed offset, and those that are assigned to a member without one."""
    committed = {place: found.offset for place, found in group.offsets.by_partition.items()}
    places = {
        (name, int(index))
        for name, _, index in (each.rpartition("-") for each in assigned_partitions)
        if index.isdigit()
    }
    lags = []
    for topic, index in sorted(committed.keys() | places)[:MOST_OFFSETS]:
        partition = find_local_partition(broker, topic, index)
        end, offset = None if partition is None else partition.log.high_watermark, committed.get((topic, index))
        lag = None if end is None or offset is None else end - offset
        lags.append({"topic": topic, "partition": index, "offset": offset, "end": end, "lag": lag})
    return lags


def find_local_partition(broker: Broker, topic: str, index: int) -> Partition | None:
    """Return a partition that has a log here, or None."""
    found = broker.running.cluster.image.topics.get(topic)
    partition = None if found is None else found.find_partition(index)
    return partition if partition is not None and partition.has_local_log else None


async def _describe_group(broker: Broker, group: Group, node_id: int | None) -> dict[str, Any]:
    """Return the members, as the group's coordinator describes them to clients."""
    cluster = broker.running.cluster
    node = get_any_node(cluster) if node_id is None else cluster.nodes[node_id]
    answer = (await execute_request(cluster, node, DESCRIBE[group.type.capitalize()](group.group_id))).groups[0]
    if answer.error_code:
        return {"members": [], "problem": ErrorCode(answer.error_code).name}
    return {"members": [_describe_member(each) for each in answer.members]}


def _describe_member(member: Any) -> dict[str, Any]:
    said = {
        "id": make_legible(member.member_id),
        "instance": getattr(member, "group_instance_id", None) or getattr(member, "instance_id", None),
        "client_id": make_legible(member.client_id),
        "host": member.client_host,
        "epoch": getattr(member, "member_epoch", None),
        "assigned": _list_assignment(member),
        "target": [],
    }
    if hasattr(member, "target_assignment") and hasattr(member.target_assignment, "topic_partitions"):
        said["target"] = _list_partitions(member.target_assignment)
    return said


def _list_assignment(member: Any) -> list[str]:
    """Return what a member is assigned: TOPIC-PARTITION each, or the tasks of a streams group."""
    if hasattr(member, "member_assignment"):
        with suppress(MalformedMessage, ValueError, IndexError):
            return [f"{topic}-{index}" for topic, index in sorted(decode_assignment(member.member_assignment))]
        return [f"{len(member.member_assignment)} bytes"]
    if hasattr(member.assignment, "topic_partitions"):
        return _list_partitions(member.assignment)
    tasks = {role: getattr(member.assignment, f"{role}_tasks") for role in ("active", "standby", "warmup")}
    return [f"{role} {each.subtopology_id} {sorted(each.partitions)}" for role, some in tasks.items() for each in some]


def _list_partitions(assignment: Any) -> list[str]:
    """Return TOPIC-PARTITION for each assigned partition."""
    return [f"{each.topic_name}-{index}" for each in assignment.topic_partitions for index in sorted(each.partitions)]


async def _list_changes_of_group_or_transaction(
    broker: Broker, get_topic_name: GetTopicName, group: str | None, transactional_id: str | None, after: int
) -> list[dict[str, Any]]:
    """Return what requests in the journal have changed, the newest first, without holding the event loop.

    Of commits that repeat the one before, which clients send at intervals, only the first one changed something.
    """
    found: list[dict[str, Any]] = []
    commits: dict[str | None, dict[str, Any]] = {}
    ends, until = time.monotonic() + HISTORY_SECONDS, time.perf_counter() + SLICE_SECONDS
    number = broker.journal.seen
    while number > after and len(found) < MOST_MOMENTS and time.monotonic() < ends:
        exchange = broker.journal.get_exchange(number)
        if exchange is None:
            break
        read = partial(_describe_change, exchange, group, transactional_id, get_topic_name)
        for moment in await read_in_thread_if_large(exchange, read):
            newer = commits.get(moment["client_id"]) if moment["api"] == COMMIT else None
            if newer is not None and newer["effects"] == moment["effects"]:
                found.remove(newer)
            found.append(moment)
            commits |= {moment["client_id"]: moment} if moment["api"] == COMMIT else {}
        number -= 1
        if time.perf_counter() > until:
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE_SECONDS
    return found


def _describe_change(
    exchange: Exchange, group: str | None, transactional_id: str | None, get_topic_name: GetTopicName
) -> list[dict[str, Any]]:
    """Return a list of what a request changed of a group or a transaction: one object, or none."""
    request = exchange.request
    named = None if request is None else find_subjects(request, get_topic_name)
    if named is None or not (group in named.groups or transactional_id in named.transactional_ids):
        return []
    effects = [effect["text"] for effect in describe_effects(exchange, get_topic_name)]
    if not effects or getattr(exchange.answer, "error_code", False):
        return []
    who = None if exchange.client_id is None else make_legible(exchange.client_id)
    said = {"number": exchange.number, "api": exchange.api, "at_ms": exchange.started_ms, "client_id": who}
    return [said | {"effects": effects, "errors": exchange.errors}]
