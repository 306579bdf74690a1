"""The paths of the HTTP control. Each calls the method of `Broker` with the same name.

A wait answers as soon as its condition holds, or after its timeout with 408 and the progress.
"""

from __future__ import annotations

import asyncio
import shutil
from enum import StrEnum
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from minibroker.testing.broker import Broker
from minibroker.testing.control.control_answers import (
    BrokerState,
    ClockState,
    Committed,
    Coordinator,
    FaultNumber,
    Lag,
    Leader,
    LeaderEpoch,
    Members,
    Metric,
    Offset,
    Record,
    SnapshotNumber,
    StreamsGroup,
    TopicName,
    TransactionState,
    record_model,
)
from minibroker.testing.control.delegation_routes import delegation_routes
from minibroker.testing.control.http_errors import MISSING, WAITED
from minibroker.testing.control.models import (
    CaughtUpWait,
    ClockAdvance,
    CommitWait,
    CoordinatorMove,
    Eviction,
    Expectation,
    GroupWait,
    JoinDelay,
    LeaderMove,
    MetricsAsked,
    NewRecords,
    NewTopic,
    RecordsAsked,
    Silence,
    TransactionHold,
    Truncation,
    WatermarkWait,
)
from minibroker.testing.control.registry_routes import registry_fault_routes, registry_routes
from minibroker.testing.control.request_routes import fault_routes, journal_routes
from minibroker.testing.control.security_routes import rights_routes, security_routes, token_routes, user_routes
from minibroker.testing.control.share_routes import dead_letter_routes, share_routes
from minibroker.testing.directories import Snapshot
from minibroker.testing.failure_report import state_of

MOST_SNAPSHOTS: Final = 100  # each is a copy of all logs


class NodeVerb(StrEnum):
    """What can be done to a node."""

    STOP = "stop"
    KILL = "kill"
    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    MAKE_STALE = "make-stale"
    REFRESH = "refresh"


def control_routes(broker: Broker) -> APIRouter:
    """Return all paths, for a broker in the same event loop."""
    all_routes = APIRouter()
    for tag, parts in {
        "life": (_life, _clock),
        "records": (_records, _expectations, journal_routes),
        "waits": (_waits,),
        "faults": (fault_routes,),
        "nodes": (_nodes, _leaders, _coordinators),
        "groups": (_groups, share_routes, dead_letter_routes, _transactions),
        "security": (security_routes, user_routes, rights_routes, token_routes, delegation_routes),
        "clients": (_clients,),
        "registry": (registry_routes, registry_fault_routes),
    }.items():
        routes = APIRouter(tags=[tag])
        for part in parts:
            part(broker, routes)
        all_routes.include_router(routes)
    return all_routes


def _life(broker: Broker, routes: APIRouter) -> None:
    snapshots: dict[int, Snapshot] = {}
    taken = 0

    @routes.get("/broker", response_model_exclude_unset=True)
    async def get_broker() -> BrokerState:
        """Return the broker's address, and its topics and groups."""
        where = {"bootstrap_servers": broker.bootstrap_servers, "nodes": broker.nodes, "running": broker.is_running}
        return BrokerState.model_validate(where | (state_of(broker) if broker.is_running else {}))

    @routes.post("/reset", status_code=204)
    async def reset_broker() -> None:
        """Remove topics, groups, transactions, configs, faults, and the journal. Connections and ports stay."""
        broker.reset()

    @routes.post("/snapshots")
    async def take_snapshot() -> SnapshotNumber:
        """Copy the current contents of the logs; return the snapshot's number. The newest 100 snapshots are kept."""
        nonlocal taken
        taken += 1
        number = taken
        snapshots[number] = broker.snapshot()
        while len(snapshots) > MOST_SNAPSHOTS:
            await asyncio.to_thread(shutil.rmtree, snapshots.pop(min(snapshots)).directory)
        return SnapshotNumber(snapshot=number)

    @routes.post("/snapshots/{number}/restore", status_code=204, responses=MISSING)
    async def restore_snapshot(number: int) -> None:
        """Restore the logs of the snapshot."""
        if number not in snapshots:
            raise LookupError(f"there is no snapshot {number}{' any more' if 0 < number <= taken else ''}")
        broker.restore(snapshots[number])

    _restarts(broker, routes)


def _restarts(broker: Broker, routes: APIRouter) -> None:
    @routes.post("/restart", status_code=204)
    async def restart_broker() -> None:
        """Stop cleanly, if the broker is up, and start again with the same ports and data."""
        await broker.arestart()

    @routes.post("/kill", status_code=204)
    async def kill_broker() -> None:
        """Crash: connections are cut, ports refuse connections until `restart`."""
        broker.kill()


def _clock(broker: Broker, routes: APIRouter) -> None:
    @routes.get("/clock")
    async def get_clock() -> ClockState:
        """Return the broker's time."""
        return ClockState(now_ms=broker.clock.now_ms(), frozen=broker.clock.frozen)

    @routes.post("/clock/advance")
    async def advance_clock(asked: ClockAdvance) -> ClockState:
        """Advance the broker's time; answer once everything that became due is done."""
        await broker.clock.aadvance(asked.by)
        return await get_clock()

    @routes.post("/clock/freeze")
    async def freeze_clock() -> ClockState:
        """Stop the clock; only `advance` moves it."""
        broker.clock.freeze()
        return await get_clock()

    @routes.post("/clock/unfreeze")
    async def unfreeze_clock() -> ClockState:
        """Let the clock run again."""
        broker.clock.unfreeze()
        return await get_clock()


def _records(broker: Broker, routes: APIRouter) -> None:
    @routes.post("/topics", status_code=201)
    async def create_topic(asked: NewTopic) -> TopicName:
        """Create a topic."""
        await broker.acreate_topic(asked.name, asked.partitions, **asked.config)
        return TopicName(topic=asked.name)

    @routes.post("/fill", status_code=204)
    async def fill_topics(source: dict[str, Any]) -> None:
        """Create topics with records: {"orders": ["first", {"key": "k", "value": {"id": 2}}]}."""
        await broker.afill(source)

    @routes.get("/topics/{topic}/records")
    async def list_records(topic: str, asked: Annotated[RecordsAsked, Query()]) -> list[Record]:
        """Return all records of a topic, including those of open and aborted transactions."""
        return [record_model(record) for record in broker.records(topic, asked.partition)]

    @routes.post("/topics/{topic}/records")
    async def produce_records(topic: str, asked: NewRecords) -> Offset:
        """Append records as one batch; return the first offset. A missing topic is created."""
        offset = await broker.aproduce(
            topic,
            *asked.all_values,
            key=asked.any_key,
            partition=asked.partition,
            headers=asked.headers,
            timestamp_ms=asked.timestamp_ms,
        )
        return Offset(offset=offset)


def _expectations(broker: Broker, routes: APIRouter) -> None:
    @routes.post("/topics/{topic}/expect", responses=WAITED)
    async def expect_records(topic: str, asked: Expectation | None = None) -> list[Record]:
        """Wait until a topic has this many records; return them."""
        asked = asked or Expectation()
        found = await broker.aexpect(topic, asked.count, asked.timeout, committed=asked.committed)
        return [record_model(record) for record in found]

    @routes.post("/topics/{topic}/expect-nothing", status_code=204, responses=WAITED)
    async def expect_nothing(topic: str, asked: Silence | None = None) -> None:
        """Wait for a time; answer 408 as soon as a record is appended to the topic."""
        await broker.aassert_nothing_produced(topic, (asked or Silence()).during)


def _waits(broker: Broker, routes: APIRouter) -> None:
    @routes.post("/groups/{group}/wait", responses=WAITED)
    async def wait_for_group(group: str, asked: GroupWait | None = None) -> Members:
        """Wait until the group is in this state with this many members; return their ids."""
        asked = asked or GroupWait()
        return Members(members=await broker.await_for_group(group, asked.members, asked.state, asked.timeout))

    @routes.post("/groups/{group}/wait-for-commit", responses=WAITED)
    async def wait_for_commit(group: str, asked: CommitWait) -> Offset:
        """Wait until the group has committed an offset; return it."""
        found = await broker.await_for_commit(group, asked.topic, asked.partition, asked.offset, asked.timeout)
        return Offset(offset=found)

    @routes.post("/groups/{group}/wait-until-caught-up", status_code=204, responses=WAITED)
    async def wait_until_caught_up(group: str, asked: CaughtUpWait) -> None:
        """Wait until the group has committed the ends of all partitions of the topic."""
        await broker.await_until_caught_up(group, asked.topic, asked.timeout)

    @routes.post("/topics/{topic}/wait-for-high-watermark", responses=WAITED)
    async def wait_for_high_watermark(topic: str, asked: WatermarkWait) -> Offset:
        """Wait until the high watermark is at least this offset; return it."""
        reached = await broker.await_for_high_watermark(topic, asked.offset, asked.partition, asked.timeout)
        return Offset(offset=reached)


def _nodes(broker: Broker, routes: APIRouter) -> None:
    verbs = {
        "stop": broker.stop_node,
        "kill": broker.kill_node,
        "pause": broker.pause_node,
        "resume": broker.resume_node,
        "make-stale": broker.make_stale,
        "refresh": broker.refresh,
    }

    @routes.post("/nodes/{node}/{verb}", status_code=204)
    async def change_node(node: int, verb: NodeVerb) -> None:
        """Stop, kill or start a node; pause or resume it; make its metadata stale, or refresh it."""
        if verb == "start":
            await broker.astart_node(node)
        else:
            verbs[verb](node)


def _coordinators(broker: Broker, routes: APIRouter) -> None:
    @routes.get("/groups/{group}/coordinator")
    async def get_group_coordinator(group: str) -> Coordinator:
        """Return the node that coordinates a group, or null if no node does yet."""
        return Coordinator(coordinator=broker.coordinator(group=group))

    @routes.get("/transactions/{transactional_id}/coordinator")
    async def get_transaction_coordinator(transactional_id: str) -> Coordinator:
        """Return the node that coordinates a transactional id, or null if no node does yet."""
        return Coordinator(coordinator=broker.coordinator(transactional_id=transactional_id))

    @routes.post("/groups/{group}/move-coordinator", status_code=204)
    async def move_group_coordinator(group: str, asked: CoordinatorMove) -> None:
        """Make a node the coordinator of a group."""
        broker.move_coordinator(asked.node, group=group)

    @routes.post("/transactions/{transactional_id}/move-coordinator", status_code=204)
    async def move_transaction_coordinator(transactional_id: str, asked: CoordinatorMove) -> None:
        """Make a node the coordinator of a transactional id."""
        broker.move_coordinator(asked.node, transactional_id=transactional_id)


def _groups(broker: Broker, routes: APIRouter) -> None:
    @routes.get("/groups/{group}/committed")
    async def get_committed(group: str) -> Committed:
        """Return the offsets that a group has committed, by topic and partition."""
        return Committed(committed=broker.committed(group))

    @routes.get("/groups/{group}/lag/{topic}")
    async def get_lag(group: str, topic: str) -> Lag:
        """Return how many offsets a group is behind the end of each partition of a topic."""
        return Lag(lag=broker.lag(group, topic))

    @routes.post("/groups/{group}/force-rebalance", status_code=204)
    async def force_rebalance(group: str) -> None:
        """Make the members of a group rebalance."""
        broker.force_rebalance(group)

    @routes.post("/groups/{group}/evict")
    async def evict_members(group: str, asked: Eviction | None = None) -> Members:
        """Remove a member from its group, or all members; return their ids."""
        return Members(members=broker.evict(group, (asked or Eviction()).member))

    @routes.post("/groups/{group}/slow-joins")
    async def slow_joins(group: str, asked: JoinDelay) -> FaultNumber:
        """Delay joining until the fault with the returned number is removed."""
        return FaultNumber(fault=broker.slow_joins(group, asked.delay).number)

    @routes.get("/streams-groups/{group}")
    async def get_streams_group(group: str) -> StreamsGroup:
        """Return a group of Kafka Streams, with its members and their tasks."""
        found = broker.streams_group(group)
        return StreamsGroup(**{**found._asdict(), "members": [each._asdict() for each in found.members]})


def _transactions(broker: Broker, routes: APIRouter) -> None:
    @routes.get("/transactions/{transactional_id}")
    async def get_transaction(transactional_id: str) -> TransactionState:
        """Return the state of its transaction."""
        return TransactionState(state=broker.transaction_state(transactional_id))

    @routes.post("/transactions/{transactional_id}/fence", status_code=204)
    async def fence_producer(transactional_id: str) -> None:
        """Fence the producer that has this id, and abort its ongoing transaction."""
        broker.fence(transactional_id)

    @routes.post("/transactions/{transactional_id}/hold", status_code=204)
    async def hold_transactions(transactional_id: str, asked: TransactionHold | None = None) -> None:
        """Keep transactions of this id in a state until `release`."""
        broker.hold(transactional_id, (asked or TransactionHold()).state)

    @routes.post("/transactions/{transactional_id}/release", status_code=204)
    async def release_transactions(transactional_id: str) -> None:
        """Release the transactions of this id."""
        broker.release(transactional_id)


def _clients(broker: Broker, routes: APIRouter) -> None:
    @routes.post("/client-metrics", status_code=204)
    async def collect_client_metrics(asked: MetricsAsked | None = None) -> None:
        """Ask clients that connect from now on for their metrics."""
        wanted = asked or MetricsAsked()
        broker.collect_client_metrics(*wanted.names, interval=wanted.interval)

    @routes.get("/client-metrics")
    async def list_client_metrics(client_id: str | None = None) -> list[Metric]:
        """Return the metrics that clients with this id, or all, have pushed."""
        return [Metric(**metric._asdict()) for metric in broker.client_metrics(client_id)]


def _leaders(broker: Broker, routes: APIRouter) -> None:
    @routes.get("/topics/{topic}/partitions/{partition}/leader")
    async def get_leader(topic: str, partition: int) -> Leader:
        """Return the node that leads the partition, or null."""
        return Leader(leader=broker.leader(topic, partition))

    @routes.post("/topics/{topic}/partitions/{partition}/leader")
    async def move_leader(topic: str, partition: int, asked: LeaderMove) -> Leader:
        """Make a node the partition's leader, or leave it without a leader if the node is null."""
        if asked.node is None:
            broker.leave_leaderless(topic, partition)
        else:
            broker.move_leader(topic, asked.node, partition)
        return Leader(leader=broker.leader(topic, partition))

    @routes.post("/topics/{topic}/partitions/{partition}/begin-epoch")
    async def begin_leader_epoch(topic: str, partition: int) -> LeaderEpoch:
        """Begin a new leader epoch; return it."""
        return LeaderEpoch(leader_epoch=broker.begin_epoch(topic, partition))

    @routes.post("/topics/{topic}/partitions/{partition}/truncate")
    async def truncate_partition(topic: str, partition: int, asked: Truncation) -> LeaderEpoch:
        """Drop the records from an offset on, as an unclean election does; return the new leader epoch."""
        return LeaderEpoch(leader_epoch=broker.truncate(topic, asked.offset, partition))

    @routes.post("/elect-leaders", status_code=204)
    async def elect_leaders() -> None:
        """Elect a leader for every partition that can have one."""
        broker.elect_leaders()
