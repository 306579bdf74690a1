"""Serving the HTTP control in the broker's event loop. Without a token only addresses of this machine are allowed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from minibroker.addresses import HostPort, format_host, is_loopback, parse_host_port
from minibroker.broker.lifecycle import StartError
from minibroker.testing.broker import Broker

if TYPE_CHECKING:
    from minibroker.web.application import Application
    from minibroker.web.messages import Answer, Request

REMEDY = "the HTTP control needs the extra control: python3 -m pip install msgspec h11 pyyaml"


def parse_address(text: str, token: str | None, option: str = "--control") -> HostPort:
    """Parse "HOST:PORT" or "PORT". Raises StartError, also for an address that other machines reach without a token.

    An empty token counts as none. `option` is named in errors.
    """
    try:
        address = parse_host_port(text)
    except ValueError as error:
        raise StartError(f"{option} {text}: {error}") from None
    if token == "":
        raise StartError("--control-token is empty, which protects nothing")
    if token is None and not is_loopback(address.host):
        remedy = ", which needs a token: --control-token" if option == "--control" else ""
        raise StartError(f"{option} {text} is open to other machines{remedy}")
    return address


@contextlib.asynccontextmanager
async def serve_control(
    broker: Broker, address: HostPort, token: str | None, *, explorer: bool = False
) -> AsyncIterator[str]:
    """Serve inside the block, with the explorer if it is wanted; yield the URL. Raises StartError.

    The application is made a moment later, or for its first request, so that no start waits for what it imports.
    """
    closing = asyncio.Event()
    if explorer:
        broker.journal.on()  # here, as clients may be faster than the application, and may want it off again

    def make_application() -> Application:
        from minibroker.testing.control.app import make_control_app

        return make_control_app(broker, token, closing if explorer else None)

    from minibroker.web.server import MOMENT_SECONDS

    late = LateApplication(make_application)
    async with serve_application(lambda: late, address, closing) as url:
        making = asyncio.get_running_loop().call_later(MOMENT_SECONDS, late.make_application)
        yield url
        making.cancel()


class AnsweringApplication(Protocol):
    """An application, as a server needs it."""

    async def answer(self, request: Request) -> Answer:
        """Answer a request."""
        ...


class LateApplication:
    """An application that is made after the start, at the latest for its first request."""

    def __init__(self, make_application: Callable[[], Application]) -> None:
        self._made = make_application

    @cached_property
    def _application(self) -> Application:
        """Return the application, which the first access makes."""
        return self._made()

    def make_application(self) -> None:
        """Make the application now, unless a request has made it."""
        _ = self._application

    async def answer(self, request: Request) -> Answer:
        """Answer a request by the application, which the first request makes."""
        return await self._application.answer(request)


@contextlib.asynccontextmanager
async def serve_application(
    make_application: Callable[[], AnsweringApplication], address: HostPort, closing_event: asyncio.Event
) -> AsyncIterator[str]:
    """Make and serve an application; yield the URL. Set `closing_event` at the end. Raises StartError."""
    from minibroker.web.asgi import AsgiApplication
    from minibroker.web.server import Server, is_library_missing

    if any(map(is_library_missing, ("msgspec", "h11", "yaml"))):
        raise StartError(REMEDY)
    app = make_application()
    try:
        server = Server(address)
        await server.start(AsgiApplication(app.answer))
    except OSError as error:
        raise StartError(str(error)) from None
    try:
        yield f"http://{format_host(address.host)}:{server.port}"
    finally:
        closing_event.set()
        await server.stop()
        server.close()
