"""The paths of the HTTP control. Each calls the method of `Broker` that it names, or one with the same name.

A wait answers as soon as its condition holds, or after its timeout with 408 and the progress.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Final

from minibroker.quantities import Duration
from minibroker.testing.broker import Broker
from minibroker.testing.control.http_errors import MISSING, WAITED
from minibroker.testing.control.models import (
    KINDS,
    NOTHING,
    POSITIVE,
    BrokerState,
    ClockState,
    DeadLetter,
    DeliveredRecord,
    Delivery,
    Metric,
    NewRecords,
    Record,
    StreamsGroup,
)
from minibroker.testing.control.registry_routes import add_registry_fault_routes, add_registry_routes
from minibroker.testing.control.request_routes import add_fault_routes, add_journal_routes
from minibroker.testing.control.security_routes import (
    add_acl_and_quota_routes,
    add_delegation_routes,
    add_security_routes,
    add_token_routes,
    add_user_routes,
)
from minibroker.testing.embedded.directories import Snapshot
from minibroker.testing.reports.failure_report import collect_state
from minibroker.testing.verbs.share_verbs import ShareGroupVerbs as Verbs
from minibroker.web.routes import Route, Routes

PATH = "/share-groups/{group}"
MOST_SNAPSHOTS: Final = 100  # each is a copy of all logs
ROOT: Final = "/v1"


def add_share_routes(broker: Broker, routes: Routes) -> None:
    """Add the routes of share groups: their configs, deliveries, locks, waits and dead letters."""
    get = partial(routes.add_route, "GET", owner=broker.share_group)
    post = partial(routes.add_route, "POST", owner=broker.share_group)
    about = 'Set configs of the group, by Kafka\'s names: {"share.auto.offset.reset": "earliest"}.'
    post(f"{PATH}/configure", Verbs.aconfigure, "configure_share_group", about=about)
    get(f"{PATH}/deliveries", Verbs.deliveries, "list_deliveries", answer=list[Delivery])
    post(f"{PATH}/expire-locks", Verbs.expire_locks, "expire_locks", answer="LockedRecords.records")
    waits: list[tuple[str, Any, str, Any]] = [
        ("wait-until-assigned", Verbs.await_until_assigned, "AssignmentWait", "AssignedPartitions.members"),
        ("wait-until-settled", Verbs.await_until_settled, "SettledWait", "Offset.offset"),
        ("expect-redelivered", Verbs.aexpect_redelivered, "Redelivery", list[DeliveredRecord]),
        ("expect-dead-letters", Verbs.aexpect_dead_letters, "DeadLetterWait", list[DeadLetter]),
    ]
    wait = partial(post, errors=WAITED, kinds={"members": POSITIVE})
    for path, verb, body, answer in waits:
        wait(f"{PATH}/{path}", verb, path.replace("-", "_"), body=body, answer=answer)
    get(f"{PATH}/dead-letters", Verbs.dead_letters, "list_dead_letters", answer=list[DeadLetter])
    collect = partial(post, body="DeadLetterQueue", answer="TopicName.topic")
    collect(f"{PATH}/collect-dead-letters", Verbs.acollect_dead_letters, "collect_dead_letters")


class NodeVerb(StrEnum):
    """What can be done to a node."""

    STOP = "stop"
    KILL = "kill"
    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    MAKE_STALE = "make-stale"
    REFRESH = "refresh"


def make_control_routes(broker: Broker) -> list[Route]:
    """Return all routes, for a broker in the same event loop."""
    found: list[Route] = []
    for tag, parts in {
        "life": (_add_lifecycle_routes, _add_clock_routes),
        "records": (_add_record_routes, _add_expectation_routes, add_journal_routes),
        "waits": (_add_wait_routes,),
        "faults": (add_fault_routes,),
        "nodes": (_add_node_routes, _add_leader_routes, _add_coordinator_routes),
        "groups": (_add_group_routes, add_share_routes, _add_transaction_routes),
        "security": (
            add_security_routes,
            add_user_routes,
            add_acl_and_quota_routes,
            add_token_routes,
            add_delegation_routes,
        ),
        "clients": (_add_client_routes,),
        "registry": (add_registry_routes, add_registry_fault_routes),
    }.items():
        routes = Routes(ROOT, tag=tag, kinds=KINDS)
        for part in parts:
            part(broker, routes)
        found += routes
    return found


def _add_lifecycle_routes(broker: Broker, routes: Routes) -> None:
    """Add the routes that show, reset, restart and kill the broker, and those of snapshots."""
    snapshots: dict[int, Snapshot] = {}
    taken = 0

    @routes.get("/broker")
    def get_broker() -> BrokerState:
        """Return the broker's address, and its topics and groups."""
        state: dict[str, Any] = dict(collect_state(broker)) if broker.is_running else {}
        return BrokerState(broker.bootstrap_servers, broker.nodes, broker.is_running, **state)

    @routes.post("/snapshots", answer="SnapshotNumber.snapshot")
    async def take_snapshot() -> int:
        """Copy the current contents of the logs; return the snapshot's number. The newest 100 snapshots are kept."""
        nonlocal taken
        taken += 1
        number = taken
        snapshots[number] = broker.snapshot()
        while len(snapshots) > MOST_SNAPSHOTS:
            await asyncio.to_thread(shutil.rmtree, snapshots.pop(min(snapshots)).directory)
        return number

    @routes.post("/snapshots/{number}/restore", errors=MISSING)
    def restore_snapshot(number: int) -> None:
        """Restore the logs of the snapshot."""
        if number not in snapshots:
            raise LookupError(f"there is no snapshot {number}{' any more' if 0 < number <= taken else ''}")
        broker.restore(snapshots[number])

    routes.add_route("POST", "/reset", broker.reset, "reset_broker")
    routes.add_route("POST", "/restart", broker.arestart, "restart_broker")
    routes.add_route("POST", "/kill", broker.kill, "kill_broker")


def _add_clock_routes(broker: Broker, routes: Routes) -> None:
    """Add the routes of the clock."""

    @routes.get("/clock")
    def get_clock() -> ClockState:
        """Return the broker's time."""
        return ClockState(broker.clock.now_ms(), broker.clock.frozen)

    @routes.post("/clock/advance", body="ClockAdvance")
    async def advance_clock(by: Duration) -> ClockState:
        """Advance the broker's time; answer once everything that became due is done."""
        await broker.clock.aadvance(by)
        return get_clock()

    @routes.post("/clock/freeze")
    def freeze_clock() -> ClockState:
        """Stop the clock; only `advance` moves it."""
        broker.clock.freeze()
        return get_clock()

    @routes.post("/clock/unfreeze")
    def unfreeze_clock() -> ClockState:
        """Let the clock run again."""
        broker.clock.unfreeze()
        return get_clock()


def _add_record_routes(broker: Broker, routes: Routes) -> None:
    """Add the routes that create topics, produce records and list them."""

    @routes.post("/topics", body="NewTopic", status=201, answer="TopicName.topic", kinds={"partitions": POSITIVE})
    async def create_topic(name: str, partitions: int | None = None, config: Mapping[str, Any] = NOTHING) -> str:
        """Create a topic, with configs by Kafka's names, such as retention.ms."""
        await broker.acreate_topic(name, partitions, **config)
        return name

    @routes.post("/topics/{topic}/records", answer="Offset.offset")
    async def produce_records(topic: str, asked: NewRecords) -> int:
        """Append records as one batch; return the first offset. A missing topic is created."""
        return await broker.aproduce(
            topic,
            *asked.all_values,
            key=asked.any_key,
            partition=asked.partition,
            headers=asked.headers,
            timestamp_ms=asked.timestamp_ms,
        )

    about = 'Create topics with records: {"orders": ["first", {"key": "k", "value": {"id": 2}}]}.'
    fill = partial(routes.add_route, "POST", "/fill", about=about, whole="source", kinds={"source": dict[str, Any]})
    fill(broker.afill, "fill_topics")
    listed = partial(routes.add_route, "GET", answer=list[Record], without=("decoded",))
    listed("/topics/{topic}/records", broker.records, "list_records")


def _add_expectation_routes(broker: Broker, routes: Routes) -> None:
    """Add the routes that wait for records, or for their absence."""
    on = partial(routes.add_route, "POST", errors=WAITED)
    about = "Wait until a topic has this many records; return them."
    expect = partial(on, "/topics/{topic}/expect", about=about, answer=list[Record], without=("decoded",))
    expect(broker.aexpect, "expect_records", body="Expectation")
    about = "Wait for a time; answer 408 as soon as a record is appended to the topic."
    expect_nothing = partial(on, "/topics/{topic}/expect-nothing", about=about)
    expect_nothing(broker.aassert_nothing_produced, "expect_nothing", body="Silence")


def _add_wait_routes(broker: Broker, routes: Routes) -> None:
    """Add the routes that wait for groups, commits and high watermarks."""
    on = partial(routes.add_route, "POST", errors=WAITED)
    on("/groups/{group}/wait", broker.await_for_group, "wait_for_group", body="GroupWait", answer="Members.members")
    path, caught_up = "/groups/{group}/wait-until-caught-up", broker.await_until_caught_up
    on(path, caught_up, "wait_until_caught_up", body="CaughtUpWait")
    on = partial(on, answer="Offset.offset")
    on("/groups/{group}/wait-for-commit", broker.await_for_commit, "wait_for_commit", body="CommitWait")
    path, reached = "/topics/{topic}/wait-for-high-watermark", broker.await_for_high_watermark
    on(path, reached, "wait_for_high_watermark", body="WatermarkWait")


def _add_node_routes(broker: Broker, routes: Routes) -> None:
    """Add the routes that stop, start, pause and resume nodes, and make their metadata stale."""
    verbs = {
        "stop": broker.stop_node,
        "kill": broker.kill_node,
        "pause": broker.pause_node,
        "resume": broker.resume_node,
        "make-stale": broker.make_stale,
        "refresh": broker.refresh,
    }

    @routes.post("/nodes/{node}/{verb}")
    async def change_node(node: int, verb: NodeVerb) -> None:
        """Stop, kill or start a node; pause or resume it; make its metadata stale, or refresh it."""
        if verb == "start":
            await broker.astart_node(node)
        else:
            verbs[verb](node)


def _add_leader_routes(broker: Broker, routes: Routes) -> None:
    """Add the routes of a partition's leader and leader epoch."""
    path = "/topics/{topic}/partitions/{partition}"
    routes.add_route("GET", f"{path}/leader", broker.leader, "get_leader", answer="Leader.leader")

    @routes.post(f"{path}/leader", body="LeaderMove", answer="Leader.leader")
    def move_leader(topic: str, partition: int, node: int | None) -> int | None:
        """Make a node the partition's leader, or leave it without a leader if the node is null."""
        if node is None:
            broker.leave_leaderless(topic, partition)
        else:
            broker.move_leader(topic, node, partition)
        return broker.leader(topic, partition)

    on = partial(routes.add_route, "POST", answer="LeaderEpoch.leader_epoch")
    on(f"{path}/begin-epoch", broker.begin_epoch, "begin_leader_epoch")
    on(f"{path}/truncate", broker.truncate, "truncate_partition", body="Truncation")
    routes.add_route("POST", "/elect-leaders", broker.elect_leaders, "elect_leaders")


def _add_coordinator_routes(broker: Broker, routes: Routes) -> None:
    """Add the routes that return and move coordinators."""
    for path, kind, other in (
        ("/groups/{group}", "group", "transactional_id"),
        ("/transactions/{transactional_id}", "transaction", "group"),
    ):
        get = partial(routes.add_route, "GET", answer="Coordinator.coordinator", without=(other,))
        get(f"{path}/coordinator", broker.coordinator, f"get_{kind}_coordinator")
        move = partial(routes.add_route, "POST", body="CoordinatorMove", without=(other,))
        move(f"{path}/move-coordinator", broker.move_coordinator, f"move_{kind}_coordinator")


def _add_group_routes(broker: Broker, routes: Routes) -> None:
    """Add the routes of groups: offsets, lag, rebalances, eviction."""
    routes.add_route(
        "GET", "/groups/{group}/committed", broker.committed, "get_committed", answer="Committed.committed"
    )
    routes.add_route("GET", "/groups/{group}/lag/{topic}", broker.lag, "get_lag", answer="Lag.lag")
    routes.add_route("POST", "/groups/{group}/force-rebalance", broker.force_rebalance, "force_rebalance")
    routes.add_route(
        "POST", "/groups/{group}/evict", broker.evict, "evict_members", body="Eviction", answer="Members.members"
    )

    @routes.post("/groups/{group}/slow-joins", body="JoinDelay", answer="FaultNumber.fault")
    def slow_joins(group: str, delay: Duration) -> int:
        """Delay joining until the fault with the returned number is removed."""
        return broker.slow_joins(group, delay).number

    routes.add_route("GET", "/streams-groups/{group}", broker.streams_group, "get_streams_group", answer=StreamsGroup)


def _add_transaction_routes(broker: Broker, routes: Routes) -> None:
    """Add the routes that show, fence, hold and release transactions."""
    path = "/transactions/{transactional_id}"
    routes.add_route("GET", path, broker.transaction_state, "get_transaction", answer="TransactionState.state")
    routes.add_route("POST", f"{path}/fence", broker.fence, "fence_producer")
    routes.add_route("POST", f"{path}/hold", broker.hold, "hold_transactions", body="TransactionHold")
    routes.add_route("POST", f"{path}/release", broker.release, "release_transactions")


def _add_client_routes(broker: Broker, routes: Routes) -> None:
    """Add the routes of the metrics that clients push."""

    @routes.post("/client-metrics", body="MetricsAsked")
    def collect_client_metrics(names: tuple[str, ...] = (), interval: Duration = "1 s") -> None:
        """Ask clients that connect from now on for their metrics: those with such beginnings of their names, or all."""
        broker.collect_client_metrics(*names, interval=interval)

    routes.add_route("GET", "/client-metrics", broker.client_metrics, "list_client_metrics", answer=list[Metric])
