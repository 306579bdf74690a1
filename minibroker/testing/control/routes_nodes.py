"""Nodes, leaders and coordinators over HTTP.

What these do is told by the methods of `Broker` of the same names.
"""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter

from minibroker.testing.broker import Broker
from minibroker.testing.control.models import CoordinatorMove, LeaderMove, Truncation

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
        """Stop, kill or start a node; have it stand still and go on; have it tell old metadata, and the new again."""
        if verb == "start":
            await broker.astart_node(node)
        else:
            verbs[verb](node)

    @routes.post("/groups/{group}/move-coordinator", status_code=204)
    async def move_group(group: str, asked: CoordinatorMove) -> None:
        """Have a node coordinate a group."""
        broker.move_coordinator(asked.node, group=group)

    @routes.post("/transactions/{transactional_id}/move-coordinator", status_code=204)
    async def move_transactions(transactional_id: str, asked: CoordinatorMove) -> None:
        """Have a node coordinate a transactional id."""
        broker.move_coordinator(asked.node, transactional_id=transactional_id)

    _leaders(broker, routes)
    return routes


def _leaders(broker: Broker, routes: APIRouter) -> None:
    @routes.get("/topics/{topic}/partitions/{partition}/leader")
    async def leader(topic: str, partition: int) -> dict[str, int | None]:
        """The node that leads the partition; null for nobody."""
        return {"leader": broker.leader(topic, partition)}

    @routes.post("/topics/{topic}/partitions/{partition}/leader")
    async def move(topic: str, partition: int, asked: LeaderMove) -> dict[str, int | None]:
        """Have a node lead the partition, or, with null, nobody."""
        if asked.node is None:
            broker.leave_leaderless(topic, partition)
        else:
            broker.move_leader(topic, asked.node, partition)
        return {"leader": broker.leader(topic, partition)}

    @routes.post("/topics/{topic}/partitions/{partition}/begin-epoch")
    async def begin_epoch(topic: str, partition: int) -> dict[str, int]:
        """Have the leader begin another epoch."""
        return {"leader_epoch": broker.begin_epoch(topic, partition)}

    @routes.post("/topics/{topic}/partitions/{partition}/truncate")
    async def truncate(topic: str, partition: int, asked: Truncation) -> dict[str, int]:
        """Lose the records from an offset on, as an unclean election does."""
        return {"leader_epoch": broker.truncate(topic, asked.offset, partition)}

    @routes.post("/elect-leaders", status_code=204)
    async def elect() -> None:
        """Have every partition led that can be."""
        broker.elect_leaders()
