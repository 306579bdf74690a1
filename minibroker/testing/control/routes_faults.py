"""Faults over HTTP, in the words that they have in Python and YAML.

What the words mean stands in `faults/rules`.
"""

from __future__ import annotations

from fastapi import APIRouter

from minibroker.testing.broker import Broker
from minibroker.testing.control.errors import MISSING, WAITED
from minibroker.testing.control.models import FaultState, HitWait, NewFault
from minibroker.testing.faults.engine import Fault


def fault_routes(broker: Broker) -> APIRouter:
    """Their paths."""
    routes = APIRouter(tags=["faults"])

    @routes.get("/faults")
    async def faults() -> list[FaultState]:
        """Return the faults that are at work."""
        return [_state(fault) for fault in broker.faults.all()]

    @routes.post("/faults", status_code=201)
    async def add(asked: NewFault | list[NewFault]) -> list[FaultState]:
        """Add one: {"api": "Produce", "topic": "t", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}, or a list."""
        return [_state(fault) for fault in broker.faults.add_all(asked if isinstance(asked, list) else [asked])]

    @routes.delete("/faults", status_code=204)
    async def clear() -> None:
        """Take all away."""
        broker.faults.clear()

    @routes.get("/faults/{number}", responses=MISSING)
    async def fault(number: int) -> FaultState:
        """How often it has struck."""
        return _state(_found(broker, number))

    @routes.delete("/faults/{number}", status_code=204, responses=MISSING)
    async def remove(number: int) -> None:
        """Take one away."""
        _found(broker, number).remove()

    @routes.post("/faults/{number}/wait", responses=MISSING | WAITED)
    async def wait(number: int, asked: HitWait | None = None) -> FaultState:
        """Wait until it has struck so often."""
        asked, found = asked or HitWait(), _found(broker, number)
        await found.await_hits(asked.hits, asked.timeout)
        return _state(found)

    return routes


def _found(broker: Broker, number: int) -> Fault:
    for fault in broker.faults.all():
        if fault.number == number:
            return fault
    raise LookupError(f"there is no fault {number}")


def _state(fault: Fault) -> FaultState:
    return FaultState(number=fault.number, rule=str(fault.rule), matches=fault.matches, hits=fault.hits)
