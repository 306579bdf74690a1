"""The view of groups and transactions: state machines, members, offsets and lag, and the frames that changed them.

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
from minibroker.broker.transactions.transaction import REACHED_FROM, State
from minibroker.client.membership import decode_assignment
from minibroker.explorer.answers_in_threads import read_aside
from minibroker.explorer.effects import effects_of
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
from minibroker.testing.seen.subjects import NameOf, find_subjects
from minibroker.testing.verbs.own_requests import ask, get_any_node
from minibroker.testing.verbs.wait_verbs import list_member_ids
from minibroker.web.routes import Routes

MOST_LISTED: Final = 2_000
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


def _there_and_back(states: Iterable[str]) -> list[tuple[str, str]]:
    """Return the arrows of a group whose members may come, go and catch up at any time."""
    steps = list(pairwise(states))
    return [*steps, ("Stable", "Assigning"), ("Reconciling", "Assigning"), ("Stable", "Empty"), ("Empty", "Dead")]


MACHINES: Final[dict[str, list[tuple[str, str]]]] = {
    "Classic": [(str(one), str(next_)) for one, nexts in FOLLOWING.items() for next_ in sorted(nexts) if one != next_],
    "Consumer": _there_and_back(RECONCILING),
    "Share": [("Empty", "Stable"), ("Stable", "Empty"), ("Empty", "Dead")],
    "Streams": _there_and_back(STREAMS),
    "transaction": [
        (before.label, after.label)
        for after, befores in REACHED_FROM.items()
        for before in sorted(befores)
        if before is not after and State.PREPARE_EPOCH_FENCE not in (before, after)
    ],
}


def group_routes(broker: Broker, name_of: NameOf) -> Routes:
    """Return the paths of the view."""
    routes = Routes()

    @routes.get("/machines")
    async def get_machines() -> dict[str, list[tuple[str, str]]]:
        """Return the arrows between states, by the type of the group."""
        return MACHINES

    @routes.get("/groups")
    async def list_groups() -> dict[str, Any]:
        """Return all groups, and all transactional ids."""
        cluster = broker.running.cluster
        groups = sorted(cluster.groups.groups.values(), key=lambda group: group.group_id)[:MOST_LISTED]
        transactions = sorted(cluster.transactions.transactions.values(), key=lambda each: each.transactional_id)
        return {
            "groups": [_summarize_group(group) for group in groups],
            "transactions": [
                {"id": each.transactional_id, "state": each.state.label, "partitions": len(each.partitions)}
                for each in transactions[:MOST_LISTED]
            ],
        }

    @routes.get("/groups/{group}")
    async def get_group(group: str) -> dict[str, Any]:
        """Return a group with its members, its committed offsets and their lag."""
        found = _group(broker, group)
        node = broker.coordinator(group=group)
        said = _summarize_group(found) | {"coordinator": node, "lag": _lags(broker, found)}
        return said | await _describe_group(broker, found, node)

    @routes.get("/history")
    async def get_history(group: str | None = None, transactional_id: str | None = None, after: int = 0) -> Any:
        """Return the newest frames that changed a group or a transaction, the newest first."""
        return await _history(broker, name_of, group, transactional_id, after)

    _transactions(broker, routes)
    return routes


def _transactions(broker: Broker, routes: Routes) -> None:
    @routes.get("/transactions/{transactional_id}")
    async def get_transaction(transactional_id: str) -> dict[str, Any]:
        """Return a transaction with its partitions, and what its producer has written there."""
        found = broker.running.cluster.transactions.find(transactional_id)
        return {
            **{name: getattr(found, name) for name in TRANSACTION_FACTS},
            "state": found.state.label,
            "coordinator": broker.coordinator(transactional_id=transactional_id),
            "partitions": [_producer_in(broker, *each, found.producer_id) for each in sorted(found.partitions)],
        }

    @routes.get("/topics/{name}/{index}/producers")
    async def list_producers(name: str, index: int) -> list[dict[str, Any]]:
        """Return the producers that a partition knows, with their last five batches."""
        partition = _partition(broker, name, index)
        producer_ids = list(partition.log.producers.ids())[-MOST_LISTED:] if partition is not None else []
        return [_producer_in(broker, name, index, producer_id) for producer_id in producer_ids]


TRANSACTION_FACTS: Final = (
    *("transactional_id", "producer_id", "producer_epoch", "timeout_ms", "start_ms", "last_update_ms"),
)


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


def _group(broker: Broker, group: str) -> Group:
    found = broker.running.cluster.groups.groups.get(group)
    if found is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group}")
    return found


def _lags(broker: Broker, group: Group) -> list[dict[str, Any]]:
    lags = []
    for (topic, index), committed in sorted(group.offsets.by_partition.items())[:MOST_OFFSETS]:
        partition = _partition(broker, topic, index)
        end = None if partition is None else partition.log.high_watermark
        lag = None if end is None else end - committed.offset
        lags.append({"topic": topic, "partition": index, "offset": committed.offset, "end": end, "lag": lag})
    return lags


def _partition(broker: Broker, topic: str, index: int) -> Any:
    found = broker.running.cluster.image.topics.get(topic)
    partition = None if found is None else found.partition(index)
    return partition if partition is not None and partition.is_here else None


async def _describe_group(broker: Broker, group: Group, node_id: int | None) -> dict[str, Any]:
    """Return the members, as the group's coordinator describes them to clients."""
    cluster = broker.running.cluster
    node = get_any_node(cluster) if node_id is None else cluster.nodes[node_id]
    answer = (await ask(cluster, node, DESCRIBE[group.type.capitalize()](group.group_id))).groups[0]
    if answer.error_code:
        return {"members": [], "problem": ErrorCode(answer.error_code).name}
    return {"members": [_member(each) for each in answer.members]}


def _member(member: Any) -> dict[str, Any]:
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
        said["target"] = _of_topics(member.target_assignment)
    return said


def _list_assignment(member: Any) -> list[str]:
    if hasattr(member, "member_assignment"):
        with suppress(MalformedMessage, ValueError, IndexError):
            return [f"{topic}-{index}" for topic, index in sorted(decode_assignment(member.member_assignment))]
        return [f"{len(member.member_assignment)} bytes"]
    if hasattr(member.assignment, "topic_partitions"):
        return _of_topics(member.assignment)
    tasks = {role: getattr(member.assignment, f"{role}_tasks") for role in ("active", "standby", "warmup")}
    return [f"{role} {each.subtopology_id} {sorted(each.partitions)}" for role, some in tasks.items() for each in some]


def _of_topics(assignment: Any) -> list[str]:
    return [f"{each.topic_name}-{index}" for each in assignment.topic_partitions for index in sorted(each.partitions)]


BATCH: Final = ("first_sequence", "last_sequence", "last_offset", "offset_delta", "timestamp_ms")


def _producer_in(broker: Broker, topic: str, index: int, producer_id: int) -> dict[str, Any]:
    partition = _partition(broker, topic, index)
    said: dict[str, Any] = {"topic": topic, "partition": index, "producer_id": producer_id, "batches": []}
    entry = None if partition is None else partition.log.producers.find(producer_id)
    if entry is not None:
        said["epoch"], said["first_offset"] = entry.epoch, entry.transaction_first_offset
        said["batches"] = [dict(zip(BATCH, batch, strict=True)) for batch in entry.batches]
    return said


async def _history(
    broker: Broker, name_of: NameOf, group: str | None, transactional_id: str | None, after: int
) -> list[dict[str, Any]]:
    """Look at the journal from its newest request back, in slices, until there are enough."""
    found: list[dict[str, Any]] = []
    ends, until = time.monotonic() + HISTORY_SECONDS, time.perf_counter() + SLICE_SECONDS
    number = broker.journal.seen
    while number > after and len(found) < MOST_MOMENTS and time.monotonic() < ends:
        exchange = broker.journal.number(number)
        if exchange is None:
            break
        read = partial(_moment, exchange, group, transactional_id, name_of)
        found += await read_aside(exchange, read)
        number -= 1
        if time.perf_counter() > until:
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE_SECONDS
    return found


def _moment(
    exchange: Exchange, group: str | None, transactional_id: str | None, name_of: NameOf
) -> list[dict[str, Any]]:
    """Return what a frame changed of a group or a transaction, as one moment; nothing if nothing, and none refused."""
    request = exchange.request
    named = None if request is None else find_subjects(request, name_of)
    if named is None or not (group in named.groups or transactional_id in named.transactional_ids):
        return []
    effects = [effect["text"] for effect in effects_of(exchange, name_of)]
    if not effects and not exchange.errors:
        return []
    who = None if exchange.client_id is None else make_legible(exchange.client_id)
    said = {"number": exchange.number, "api": exchange.api, "at_ms": exchange.started_ms, "client_id": who}
    return [said | {"effects": effects, "errors": exchange.errors}]
