"""Nodes, leaders, coordinators, groups and transactions over HTTP.

They do what the methods of `Broker` of the same names do.
"""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter

from minibroker.testing.broker import Broker
from minibroker.testing.control.models import CoordinatorMove, Delay, Eviction, Hold, LeaderMove, Truncation

NodeVerb = Literal["stop", "kill", "start", "pause", "resume", "make-stale", "refresh"]


def node_routes(broker: Broker) -> APIRouter:
    """Their paths."""
    routes = APIRouter(tags=["nodes"])
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
        """Stop, kill or start a node; pause it, or let it go on; let it serve old metadata, or the new again."""
        if verb == "start":
            await broker.astart_node(node)
        else:
            verbs[verb](node)

    _coordinators(broker, routes)
    _leaders(broker, routes)
    _groups(broker, routes)
    return routes


def _coordinators(broker: Broker, routes: APIRouter) -> None:
    @routes.get("/groups/{group}/coordinator")
    async def coordinator_of_group(group: str) -> dict[str, int | None]:
        """The node that coordinates a group; null for nobody yet."""
        return {"coordinator": broker.coordinator(group=group)}

    @routes.get("/transactions/{transactional_id}/coordinator")
    async def coordinator_of_transactions(transactional_id: str) -> dict[str, int | None]:
        """The node that coordinates a transactional id; null for nobody yet."""
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
        """Make the members of a group share out its partitions anew."""
        broker.force_rebalance(group)

    @routes.post("/groups/{group}/evict")
    async def evict(group: str, asked: Eviction | None = None) -> dict[str, list[str]]:
        """Put a member out of its group, or all of them."""
        return {"members": broker.evict(group, (asked or Eviction()).member)}

    @routes.post("/groups/{group}/slow-joins")
    async def slow_joins(group: str, asked: Delay) -> dict[str, int]:
        """Make joining take this long, until the fault with this number is removed."""
        return {"fault": broker.slow_joins(group, asked.delay).number}

    @routes.get("/transactions/{transactional_id}")
    async def state(transactional_id: str) -> dict[str, str]:
        """The state of its transaction."""
        return {"state": broker.transaction_state(transactional_id)}

    @routes.post("/transactions/{transactional_id}/fence", status_code=204)
    async def fence(transactional_id: str) -> None:
        """Fence the producer that has this id."""
        broker.fence(transactional_id)

    @routes.post("/transactions/{transactional_id}/hold", status_code=204)
    async def hold(transactional_id: str, asked: Hold | None = None) -> None:
        """Keep transactions of this id in a state until they are released."""
        broker.hold(transactional_id, (asked or Hold()).state)

    @routes.post("/transactions/{transactional_id}/release", status_code=204)
    async def release(transactional_id: str) -> None:
        """Let what was held go on."""
        broker.release(transactional_id)


def _leaders(broker: Broker, routes: APIRouter) -> None:
    @routes.get("/topics/{topic}/partitions/{partition}/leader")
    async def leader(topic: str, partition: int) -> dict[str, int | None]:
        """The node that leads the partition; null for nobody."""
        return {"leader": broker.leader(topic, partition)}

    @routes.post("/topics/{topic}/partitions/{partition}/leader")
    async def move(topic: str, partition: int, asked: LeaderMove) -> dict[str, int | None]:
        """Make a node the partition's leader, or, with null, leave it without one."""
        if asked.node is None:
            broker.leave_leaderless(topic, partition)
        else:
            broker.move_leader(topic, asked.node, partition)
        return {"leader": broker.leader(topic, partition)}

    @routes.post("/topics/{topic}/partitions/{partition}/begin-epoch")
    async def begin_epoch(topic: str, partition: int) -> dict[str, int]:
        """Begin another epoch of the leader."""
        return {"leader_epoch": broker.begin_epoch(topic, partition)}

    @routes.post("/topics/{topic}/partitions/{partition}/truncate")
    async def truncate(topic: str, partition: int, asked: Truncation) -> dict[str, int]:
        """Lose the records from an offset on, as an unclean election does."""
        return {"leader_epoch": broker.truncate(topic, asked.offset, partition)}

    @routes.post("/elect-leaders", status_code=204)
    async def elect() -> None:
        """Elect a leader for every partition that can have one."""
        broker.elect_leaders()
