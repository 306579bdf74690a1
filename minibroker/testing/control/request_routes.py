"""The paths of the HTTP control that a proxy has, too: what the journal has seen, and faults."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Annotated, Any, Protocol, Unpack

from fastapi import APIRouter, Query

from minibroker.quantities import Duration
from minibroker.testing.control.control_answers import FaultState, JournalState, SeenRequest, request_model
from minibroker.testing.control.http_errors import MISSING, WAITED
from minibroker.testing.control.models import HitWait, JournalSwitch, NewFault, RequestsAsked, RequestWait
from minibroker.testing.exchange import Exchange
from minibroker.testing.faults.engine import Fault, Faults
from minibroker.testing.hosting import Host
from minibroker.testing.journal import Journal, Which


class Observed(Host, Protocol):
    """A broker or a proxy: its requests are seen, and disturbed."""

    @property
    def bootstrap_servers(self) -> str:
        """Return its addresses."""

    @property
    def journal(self) -> Journal:
        """Return its journal."""

    @property
    def faults(self) -> Faults:
        """Return its faults."""

    def await_for_requests(
        self, api: str | None, count: int, timeout: Duration, **which: Unpack[Which]
    ) -> Coroutine[Any, Any, list[Exchange]]:
        """Wait until the journal has `count` such requests; return all of them. Raises RuntimeError if it is off."""


def request_routes(observed: Observed) -> APIRouter:
    """Return the paths for a host in the same event loop, which has these alone."""
    all_routes = APIRouter()
    for tag, part in {"records": journal_routes, "faults": fault_routes}.items():
        routes = APIRouter(tags=[tag])
        part(observed, routes)
        all_routes.include_router(routes)
    return all_routes


def journal_routes(observed: Observed, routes: APIRouter) -> None:
    """Add what the journal has."""

    @routes.get("/requests")
    async def list_requests(asked: Annotated[RequestsAsked, Query()]) -> list[SeenRequest]:
        """Return the requests that the journal has, oldest first."""
        found = observed.journal.requests(asked.api, **_which(asked))
        return [request_model(exchange, asked.raw) for exchange in found]

    @routes.delete("/requests", status_code=204)
    async def clear_requests() -> None:
        """Drop all requests."""
        observed.journal.clear()

    @routes.get("/journal")
    async def get_journal() -> JournalState:
        """Return whether the journal is on, and how many requests it has."""
        kept = observed.on_loop(observed.journal.found)
        return JournalState(on=observed.journal.is_on, kept=len(kept), dropped=observed.journal.dropped)

    @routes.post("/journal")
    async def switch_journal(asked: JournalSwitch) -> JournalState:
        """Turn the journal on or off."""
        if asked.on:
            observed.journal.on()
        else:
            observed.journal.off()
        return await get_journal()

    @routes.post("/requests/wait", responses=WAITED)
    async def wait_for_requests(asked: RequestWait) -> list[SeenRequest]:
        """Wait until the journal has this many requests; return them."""
        found = await observed.await_for_requests(asked.api, asked.count, asked.timeout, **_which(asked))
        return [request_model(exchange, False) for exchange in found]


def _which(asked: RequestsAsked | RequestWait) -> Which:
    """Return the conditions for requests."""
    return {
        "client_id": asked.client_id,
        "user": asked.user,
        "mechanism": asked.mechanism,
        "group": asked.group,
        "node": asked.node,
        "error": asked.error,
    }


def fault_routes(observed: Observed, routes: APIRouter) -> None:
    """Add what faults do."""

    @routes.get("/faults")
    async def list_faults() -> list[FaultState]:
        """Return all faults."""
        return [_state(fault) for fault in observed.faults.all()]

    @routes.post("/faults", status_code=201)
    async def add_faults(asked: NewFault | list[NewFault]) -> list[FaultState]:
        """Add a fault: {"api": "Produce", "topic": "t", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}, or a list."""
        words = [each.words for each in (asked if isinstance(asked, list) else [asked])]
        return [_state(fault) for fault in observed.faults.add_all(words)]

    @routes.delete("/faults", status_code=204)
    async def clear_faults() -> None:
        """Remove all faults."""
        observed.faults.clear()

    @routes.get("/faults/{number}", responses=MISSING)
    async def get_fault(number: int) -> FaultState:
        """Return how often the fault has struck."""
        return _state(_find_fault(observed, number))

    @routes.delete("/faults/{number}", status_code=204, responses=MISSING)
    async def remove_fault(number: int) -> None:
        """Remove the fault."""
        _find_fault(observed, number).remove()

    @routes.post("/faults/{number}/wait", responses=MISSING | WAITED)
    async def wait_for_hits(number: int, asked: HitWait | None = None) -> FaultState:
        """Wait until the fault has this many hits."""
        asked, found = asked or HitWait(), _find_fault(observed, number)
        await found.await_for_hits(asked.hits, asked.timeout)
        return _state(found)


def _find_fault(observed: Observed, number: int) -> Fault:
    for fault in observed.faults.all():
        if fault.number == number:
            return fault
    raise LookupError(f"there is no fault {number}")


def _state(fault: Fault) -> FaultState:
    return FaultState(number=fault.number, rule=str(fault.rule), matches=fault.matches, hits=fault.hits)
