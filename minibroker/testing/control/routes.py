"""The paths of the HTTP control. Each calls the method of `Broker` with the same name.

A wait answers as soon as its condition holds, or after its timeout with 408 and the progress.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from minibroker.testing.broker import Broker
from minibroker.testing.control.delegation_routes import delegation_routes
from minibroker.testing.control.http_errors import MISSING, WAITED
from minibroker.testing.control.models import (
    Advance,
    BrokerState,
    CaughtUpWait,
    ClockState,
    CommitWait,
    CoordinatorMove,
    Delay,
    Eviction,
    Expectation,
    FaultState,
    GroupWait,
    HitWait,
    Hold,
    JournalState,
    LeaderMove,
    MetricsAsked,
    NewFault,
    NewRecords,
    NewTopic,
    Record,
    RecordsAsked,
    Request,
    RequestsAsked,
    RequestWait,
    Silence,
    Switch,
    Truncation,
    WatermarkWait,
    record_model,
    request_model,
)
from minibroker.testing.control.security_routes import rights_routes, security_routes, token_routes
from minibroker.testing.directories import Snapshot
from minibroker.testing.failure_report import state_of
from minibroker.testing.faults.engine import Fault

NodeVerb = Literal["stop", "kill", "start", "pause", "resume", "make-stale", "refresh"]


def control_routes(broker: Broker) -> APIRouter:
    """Return all paths, for a broker in the same event loop."""
    all_routes = APIRouter()
    for tag, parts in {
        "life": (_life, _clock),
        "records": (_records, _expectations, _journal),
        "waits": (_waits,),
        "faults": (_faults,),
        "nodes": (_nodes, _leaders, _coordinators),
        "groups": (_groups, _transactions),
        "security": (security_routes, rights_routes, token_routes, delegation_routes),
        "clients": (_clients,),
    }.items():
        routes = APIRouter(tags=[tag])
        for part in parts:
            part(broker, routes)
        all_routes.include_router(routes)
    return all_routes


def _life(broker: Broker, routes: APIRouter) -> None:
    snapshots: dict[int, Snapshot] = {}

    @routes.get("/broker", response_model_exclude_unset=True)
    async def state() -> BrokerState:
        """Return the broker's address, and its topics and groups."""
        where = {"bootstrap_servers": broker.bootstrap_servers, "nodes": broker.nodes, "running": broker.is_running}
        return BrokerState.model_validate(where | (state_of(broker) if broker.is_running else {}))

    @routes.post("/reset", status_code=204)
    async def reset() -> None:
        """Remove topics, groups, transactions, configs, faults, and the journal. Connections and ports stay."""
        broker.reset()

    @routes.post("/snapshots")
    async def snapshot() -> dict[str, int]:
        """Copy the current contents of the logs; return the snapshot's number."""
        number = len(snapshots) + 1
        snapshots[number] = broker.snapshot()
        return {"snapshot": number}

    @routes.post("/snapshots/{number}/restore", status_code=204, responses=MISSING)
    async def restore(number: int) -> None:
        """Restore the logs of the snapshot."""
        if number not in snapshots:
            raise LookupError(f"there is no snapshot {number}")
        broker.restore(snapshots[number])

    @routes.post("/restart", status_code=204)
    async def restart() -> None:
        """Stop cleanly, if the broker is up, and start again with the same ports and data."""
        await broker.arestart()

    @routes.post("/kill", status_code=204)
    async def kill() -> None:
        """Crash: connections are cut, ports refuse connections until `restart`."""
        broker.kill()


def _clock(broker: Broker, routes: APIRouter) -> None:
    @routes.get("/clock")
    async def clock() -> ClockState:
        """Return the broker's time."""
        return ClockState(now_ms=broker.clock.now_ms(), frozen=broker.clock.frozen)

    @routes.post("/clock/advance")
    async def advance(asked: Advance) -> ClockState:
        """Advance the broker's time; answer once everything that became due is done."""
        await broker.clock.aadvance(asked.by)
        return await clock()

    @routes.post("/clock/freeze")
    async def freeze() -> ClockState:
        """Stop the clock; only `advance` moves it."""
        broker.clock.freeze()
        return await clock()

    @routes.post("/clock/unfreeze")
    async def unfreeze() -> ClockState:
        """Let the clock run again."""
        broker.clock.unfreeze()
        return await clock()


def _records(broker: Broker, routes: APIRouter) -> None:
    @routes.post("/topics", status_code=201)
    async def create(asked: NewTopic) -> dict[str, str]:
        """Create a topic."""
        await broker.acreate_topic(asked.name, asked.partitions, **asked.config)
        return {"topic": asked.name}

    @routes.post("/fill", status_code=204)
    async def fill(source: dict[str, Any]) -> None:
        """Create topics with records: {"orders": ["first", {"key": "k", "value": {"id": 2}}]}."""
        await broker.afill(source)

    @routes.get("/topics/{topic}/records")
    async def records(topic: str, asked: Annotated[RecordsAsked, Query()]) -> list[Record]:
        """Return all records of a topic, including those of open and aborted transactions."""
        return [record_model(record) for record in broker.records(topic, asked.partition)]

    @routes.post("/topics/{topic}/records")
    async def produce(topic: str, asked: NewRecords) -> dict[str, int]:
        """Append records as one batch; return the first offset. A missing topic is created."""
        offset = await broker.aproduce(
            topic,
            *asked.all_values,
            key=asked.any_key,
            partition=asked.partition,
            headers=asked.headers,
            timestamp_ms=asked.timestamp_ms,
        )
        return {"offset": offset}


def _expectations(broker: Broker, routes: APIRouter) -> None:
    @routes.post("/topics/{topic}/expect", responses=WAITED)
    async def expect(topic: str, asked: Expectation | None = None) -> list[Record]:
        """Wait until a topic has this many records; return them."""
        asked = asked or Expectation()
        found = await broker.aexpect(topic, asked.count, asked.timeout, committed=asked.committed)
        return [record_model(record) for record in found]

    @routes.post("/topics/{topic}/expect-nothing", status_code=204, responses=WAITED)
    async def expect_nothing(topic: str, asked: Silence | None = None) -> None:
        """Wait for a time; answer 408 as soon as a record is appended to the topic."""
        await broker.aassert_nothing_produced(topic, (asked or Silence()).during)


def _journal(broker: Broker, routes: APIRouter) -> None:
    @routes.get("/requests")
    async def requests(asked: Annotated[RequestsAsked, Query()]) -> list[Request]:
        """Return the requests that the journal has, oldest first."""
        found = broker.requests(asked.api, client_id=asked.client_id, node=asked.node, error=asked.error)
        return [request_model(exchange, asked.raw) for exchange in found]

    @routes.delete("/requests", status_code=204)
    async def forget() -> None:
        """Drop all requests."""
        broker.journal.clear()

    @routes.get("/journal")
    async def journal() -> JournalState:
        """Return whether the journal is on, and how many requests it has."""
        kept = broker.on_loop(broker.journal.found)
        return JournalState(on=broker.journal.is_on, kept=len(kept), dropped=broker.journal.dropped)

    @routes.post("/journal")
    async def switch(asked: Switch) -> JournalState:
        """Turn the journal on or off."""
        if asked.on:
            broker.journal.on()
        else:
            broker.journal.off()
        return await journal()


def _waits(broker: Broker, routes: APIRouter) -> None:
    @routes.post("/groups/{group}/wait", responses=WAITED)
    async def group_wait(group: str, asked: GroupWait | None = None) -> dict[str, list[str]]:
        """Wait until the group is in this state with this many members; return their ids."""
        asked = asked or GroupWait()
        return {"members": await broker.await_for_group(group, asked.members, asked.state, asked.timeout)}

    @routes.post("/groups/{group}/wait-for-commit", responses=WAITED)
    async def commit_wait(group: str, asked: CommitWait) -> dict[str, int]:
        """Wait until the group has committed an offset; return it."""
        found = await broker.await_for_commit(group, asked.topic, asked.partition, asked.offset, asked.timeout)
        return {"offset": found}

    @routes.post("/groups/{group}/wait-until-caught-up", status_code=204, responses=WAITED)
    async def caught_up_wait(group: str, asked: CaughtUpWait) -> None:
        """Wait until the group has committed the ends of all partitions of the topic."""
        await broker.await_until_caught_up(group, asked.topic, asked.timeout)

    @routes.post("/topics/{topic}/wait-for-high-watermark", responses=WAITED)
    async def watermark_wait(topic: str, asked: WatermarkWait) -> dict[str, int]:
        """Wait until the high watermark is at least this offset; return it."""
        return {"offset": await broker.await_for_high_watermark(topic, asked.offset, asked.partition, asked.timeout)}

    @routes.post("/requests/wait", responses=WAITED)
    async def request_wait(asked: RequestWait) -> list[Request]:
        """Wait until the journal has this many requests; return them."""
        found = await broker.await_for_requests(
            asked.api, asked.count, asked.timeout, client_id=asked.client_id, node=asked.node, error=asked.error
        )
        return [request_model(exchange, False) for exchange in found]


def _faults(broker: Broker, routes: APIRouter) -> None:
    @routes.get("/faults")
    async def faults() -> list[FaultState]:
        """Return all faults."""
        return [_state(fault) for fault in broker.faults.all()]

    @routes.post("/faults", status_code=201)
    async def add(asked: NewFault | list[NewFault]) -> list[FaultState]:
        """Add a fault: {"api": "Produce", "topic": "t", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}, or a list."""
        return [_state(fault) for fault in broker.faults.add_all(asked if isinstance(asked, list) else [asked])]

    @routes.delete("/faults", status_code=204)
    async def clear() -> None:
        """Remove all faults."""
        broker.faults.clear()

    @routes.get("/faults/{number}", responses=MISSING)
    async def fault(number: int) -> FaultState:
        """Return how often the fault has struck."""
        return _state(_found(broker, number))

    @routes.delete("/faults/{number}", status_code=204, responses=MISSING)
    async def remove(number: int) -> None:
        """Remove the fault."""
        _found(broker, number).remove()

    @routes.post("/faults/{number}/wait", responses=MISSING | WAITED)
    async def wait(number: int, asked: HitWait | None = None) -> FaultState:
        """Wait until the fault has this many hits."""
        asked, found = asked or HitWait(), _found(broker, number)
        await found.await_for_hits(asked.hits, asked.timeout)
        return _state(found)


def _found(broker: Broker, number: int) -> Fault:
    for fault in broker.faults.all():
        if fault.number == number:
            return fault
    raise LookupError(f"there is no fault {number}")


def _state(fault: Fault) -> FaultState:
    return FaultState(number=fault.number, rule=str(fault.rule), matches=fault.matches, hits=fault.hits)


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
    async def do(node: int, verb: NodeVerb) -> None:
        """Stop, kill or start a node; pause or resume it; make its metadata stale, or refresh it."""
        if verb == "start":
            await broker.astart_node(node)
        else:
            verbs[verb](node)


def _coordinators(broker: Broker, routes: APIRouter) -> None:
    @routes.get("/groups/{group}/coordinator")
    async def coordinator_of_group(group: str) -> dict[str, int | None]:
        """Return the node that coordinates a group, or null if no node does yet."""
        return {"coordinator": broker.coordinator(group=group)}

    @routes.get("/transactions/{transactional_id}/coordinator")
    async def coordinator_of_transactions(transactional_id: str) -> dict[str, int | None]:
        """Return the node that coordinates a transactional id, or null if no node does yet."""
        return {"coordinator": broker.coordinator(transactional_id=transactional_id)}

    @routes.post("/groups/{group}/move-coordinator", status_code=204)
    async def move_group(group: str, asked: CoordinatorMove) -> None:
        """Make a node the coordinator of a group."""
        broker.move_coordinator(asked.node, group=group)

    @routes.post("/transactions/{transactional_id}/move-coordinator", status_code=204)
    async def move_transactions(transactional_id: str, asked: CoordinatorMove) -> None:
        """Make a node the coordinator of a transactional id."""
        broker.move_coordinator(asked.node, transactional_id=transactional_id)


def _groups(broker: Broker, routes: APIRouter) -> None:
    @routes.post("/groups/{group}/force-rebalance", status_code=204)
    async def force_rebalance(group: str) -> None:
        """Make the members of a group rebalance."""
        broker.force_rebalance(group)

    @routes.post("/groups/{group}/evict")
    async def evict(group: str, asked: Eviction | None = None) -> dict[str, list[str]]:
        """Remove a member from its group, or all members; return their ids."""
        return {"members": broker.evict(group, (asked or Eviction()).member)}

    @routes.post("/groups/{group}/slow-joins")
    async def slow_joins(group: str, asked: Delay) -> dict[str, int]:
        """Delay joining until the fault with the returned number is removed."""
        return {"fault": broker.slow_joins(group, asked.delay).number}


def _transactions(broker: Broker, routes: APIRouter) -> None:
    @routes.get("/transactions/{transactional_id}")
    async def state(transactional_id: str) -> dict[str, str]:
        """Return the state of its transaction."""
        return {"state": broker.transaction_state(transactional_id)}

    @routes.post("/transactions/{transactional_id}/fence", status_code=204)
    async def fence(transactional_id: str) -> None:
        """Fence the producer that has this id, and abort its ongoing transaction."""
        broker.fence(transactional_id)

    @routes.post("/transactions/{transactional_id}/hold", status_code=204)
    async def hold(transactional_id: str, asked: Hold | None = None) -> None:
        """Keep transactions of this id in a state until `release`."""
        broker.hold(transactional_id, (asked or Hold()).state)

    @routes.post("/transactions/{transactional_id}/release", status_code=204)
    async def release(transactional_id: str) -> None:
        """Release the transactions of this id."""
        broker.release(transactional_id)


def _clients(broker: Broker, routes: APIRouter) -> None:
    @routes.post("/client-metrics", status_code=204)
    async def collect(asked: MetricsAsked | None = None) -> None:
        """Ask clients that connect from now on for their metrics."""
        wanted = asked or MetricsAsked()
        broker.collect_client_metrics(*wanted.names, interval=wanted.interval)

    @routes.get("/client-metrics")
    async def metrics(client_id: str | None = None) -> list[dict[str, Any]]:
        """Return the metrics that clients with this id, or all, have pushed."""
        return [metric._asdict() for metric in broker.client_metrics(client_id)]


def _leaders(broker: Broker, routes: APIRouter) -> None:
    @routes.get("/topics/{topic}/partitions/{partition}/leader")
    async def leader(topic: str, partition: int) -> dict[str, int | None]:
        """Return the node that leads the partition, or null."""
        return {"leader": broker.leader(topic, partition)}

    @routes.post("/topics/{topic}/partitions/{partition}/leader")
    async def move(topic: str, partition: int, asked: LeaderMove) -> dict[str, int | None]:
        """Make a node the partition's leader, or leave it without a leader if the node is null."""
        if asked.node is None:
            broker.leave_leaderless(topic, partition)
        else:
            broker.move_leader(topic, asked.node, partition)
        return {"leader": broker.leader(topic, partition)}

    @routes.post("/topics/{topic}/partitions/{partition}/begin-epoch")
    async def begin_epoch(topic: str, partition: int) -> dict[str, int]:
        """Begin a new leader epoch; return it."""
        return {"leader_epoch": broker.begin_epoch(topic, partition)}

    @routes.post("/topics/{topic}/partitions/{partition}/truncate")
    async def truncate(topic: str, partition: int, asked: Truncation) -> dict[str, int]:
        """Drop the records from an offset on, as an unclean election does; return the new leader epoch."""
        return {"leader_epoch": broker.truncate(topic, asked.offset, partition)}

    @routes.post("/elect-leaders", status_code=204)
    async def elect() -> None:
        """Elect a leader for every partition that can have one."""
        broker.elect_leaders()
