"""The paths of the HTTP control that a proxy has, too: what the journal has seen, and faults."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, Unpack

from minibroker.quantities import Duration
from minibroker.testing.control.http_errors import MISSING, WAITED
from minibroker.testing.control.models import KINDS, FaultState, JournalState, NewFaults, SeenRequest, show_request
from minibroker.testing.faults.engine import Fault, Faults
from minibroker.testing.seen.exchange import Exchange
from minibroker.testing.seen.hosting import InterceptedHost
from minibroker.testing.seen.journal import ExchangeConditions, Journal
from minibroker.testing.seen.waiting import DEFAULT_TIMEOUT
from minibroker.web.routes import Route, Routes


class ObservedServer(InterceptedHost, Protocol):
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
        self, api: str | None, count: int, timeout: Duration, **conditions: Unpack[ExchangeConditions]
    ) -> Coroutine[Any, Any, list[Exchange]]:
        """Wait until the journal has `count` such requests; return all of them. Raises RuntimeError if it is off."""


def make_request_routes(server: ObservedServer) -> list[Route]:
    """Return the routes of the journal and the faults, for a broker or proxy in the same event loop."""
    found: list[Route] = []
    for tag, part in {"records": add_journal_routes, "faults": add_fault_routes}.items():
        routes = Routes("/v1", tag=tag, kinds=KINDS)
        part(server, routes)
        found += routes
    return found


def add_journal_routes(server: ObservedServer, routes: Routes) -> None:
    """Add the routes of the journal."""

    @routes.get("/requests", without=("where",))
    def list_requests(
        api: str | None = None, raw: bool = False, **conditions: Unpack[ExchangeConditions]
    ) -> list[SeenRequest]:
        """Return the requests that the journal has, oldest first."""
        return [show_request(exchange, raw) for exchange in server.journal.requests(api, **conditions)]

    @routes.get("/journal")
    def get_journal() -> JournalState:
        """Return whether the journal is on, and how many requests it has."""
        kept = server.call_on_loop(server.journal.list_exchanges)
        return JournalState(server.journal.is_on, len(kept), server.journal.dropped)

    @routes.post("/journal", body="JournalSwitch")
    def switch_journal(on: bool) -> JournalState:
        """Turn the journal on or off."""
        if on:
            server.journal.on()
        else:
            server.journal.off()
        return get_journal()

    routes.add_route("DELETE", "/requests", server.journal.clear, "clear_requests")

    @routes.post("/requests/wait", body="RequestWait", is_wanted=True, without=("where",), errors=WAITED)
    async def wait_for_requests(
        api: str | None = None,
        count: int = 1,
        timeout: Duration = DEFAULT_TIMEOUT,
        **conditions: Unpack[ExchangeConditions],
    ) -> list[SeenRequest]:
        """Wait until the journal has this many requests; return them."""
        return list(map(show_request, await server.await_for_requests(api, count, timeout, **conditions)))


def add_fault_routes(server: ObservedServer, routes: Routes) -> None:
    """Add the routes that add, list, await and remove faults."""

    routes.add_route("GET", "/faults", server.faults.all, "list_faults", answer=list[FaultState])
    routes.add_route("DELETE", "/faults", server.faults.clear, "clear_faults")

    def find_fault(number: int) -> Fault:
        find_fault = next((each for each in server.faults.all() if each.number == number), None)
        if find_fault is None:
            raise LookupError(f"there is no fault {number}")
        return find_fault

    @routes.post("/faults", status=201, whole="asked", answer=list[FaultState])
    def add_faults(asked: NewFaults) -> list[Fault]:
        """Add a fault: {"api": "Produce", "topic": "t", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}, or a list."""
        return server.faults.add_all(asked)

    @routes.get("/faults/{number}", answer=FaultState, errors=MISSING)
    def get_fault(number: int) -> Fault:
        """Return how often the fault has struck."""
        return find_fault(number)

    routes.add_route("DELETE", "/faults/{number}", Fault.remove, "remove_fault", owner=find_fault, errors=MISSING)

    @routes.post("/faults/{number}/wait", body="HitWait", answer=FaultState, errors=MISSING | WAITED)
    async def wait_for_hits(number: int, hits: int = 1, timeout: Duration = DEFAULT_TIMEOUT) -> Fault:
        """Wait until the fault has this many hits."""
        struck = find_fault(number)
        await struck.await_for_hits(hits, timeout)
        return struck
