"""The broker's life and time over HTTP: where it is, reset, snapshots, restart and kill, the clock.

They do what the methods of `Broker` of the same names do.
"""

from __future__ import annotations

from fastapi import APIRouter

from minibroker.testing.broker import Broker
from minibroker.testing.control.errors import MISSING
from minibroker.testing.control.models import Advance, BrokerState, ClockState
from minibroker.testing.data import Snapshot
from minibroker.testing.seen import state_of


def life_routes(broker: Broker) -> APIRouter:
    """Their paths."""
    routes = APIRouter(tags=["life"])
    snapshots: dict[int, Snapshot] = {}

    @routes.get("/broker", response_model_exclude_unset=True)
    async def state() -> BrokerState:
        """Where the broker is, and what it holds."""
        where = {"bootstrap_servers": broker.bootstrap_servers, "nodes": broker.nodes, "running": broker.is_running}
        return BrokerState.model_validate(where | (state_of(broker) if broker.is_running else {}))

    @routes.post("/reset", status_code=204)
    async def reset() -> None:
        """Back to empty: topics, groups, transactions, configs, faults, journal. Connections and ports stay."""
        broker.reset()

    @routes.post("/snapshots")
    async def snapshot() -> dict[str, int]:
        """Keep what the logs hold now."""
        number = len(snapshots) + 1
        snapshots[number] = broker.snapshot()
        return {"snapshot": number}

    @routes.post("/snapshots/{number}/restore", status_code=204, responses=MISSING)
    async def restore(number: int) -> None:
        """Back to what the logs held then."""
        if number not in snapshots:
            raise LookupError(f"there is no snapshot {number}")
        broker.restore(snapshots[number])

    @routes.post("/restart", status_code=204)
    async def restart() -> None:
        """Stop cleanly, if it runs, and start again with the same ports and data."""
        await broker.arestart()

    @routes.post("/kill", status_code=204)
    async def kill() -> None:
        """Crash: connections are cut, ports are refused until `restart`."""
        broker.kill()

    _clock(broker, routes)
    return routes


def _clock(broker: Broker, routes: APIRouter) -> None:
    @routes.get("/clock")
    async def clock() -> ClockState:
        """The broker's time."""
        return ClockState(now_ms=broker.clock.now_ms(), frozen=broker.clock.frozen)

    @routes.post("/clock/advance")
    async def advance(asked: Advance) -> ClockState:
        """Let time pass at once; what is due has been done when this answers."""
        await broker.clock.aadvance(asked.by)
        return await clock()

    @routes.post("/clock/freeze")
    async def freeze() -> ClockState:
        """Let no time pass but by `advance`."""
        broker.clock.freeze()
        return await clock()

    @routes.post("/clock/unfreeze")
    async def unfreeze() -> ClockState:
        """Let time pass again."""
        broker.clock.unfreeze()
        return await clock()
