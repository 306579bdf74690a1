"""Serving the HTTP control in the broker's event loop. Without a token only addresses of this machine are allowed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from minibroker.addresses import HostPort, bracketed, host_port, is_loopback
from minibroker.broker.lifecycle import StartError
from minibroker.testing.broker import Broker

if TYPE_CHECKING:
    from minibroker.web.application import Application

REMEDY = "the HTTP control needs the extra control: python3 -m pip install msgspec uvicorn pyyaml"


def address_of(text: str, token: str | None, option: str = "--control") -> HostPort:
    """Parse "HOST:PORT" or "PORT". Raises StartError, also for an address that other machines reach without a token.

    An empty token counts as none. `option` is named in errors.
    """
    try:
        address = host_port(text)
    except ValueError as error:
        raise StartError(f"{option} {text}: {error}") from None
    if token == "":
        raise StartError("--control-token is empty, which protects nothing")
    if token is None and not is_loopback(address.host):
        remedy = ", which needs a token: --control-token" if option == "--control" else ""
        raise StartError(f"{option} {text} is open to other machines{remedy}")
    return address


@contextlib.asynccontextmanager
async def controlled(
    broker: Broker, address: HostPort, token: str | None, *, explorer: bool = False
) -> AsyncIterator[str]:
    """Serve inside the block, with the explorer if it is wanted; yield the URL. Raises StartError."""
    closing = asyncio.Event()

    def made() -> Application:
        from minibroker.testing.control.app import control_app

        return control_app(broker, token, closing if explorer else None)

    async with served(made, address, closing) as url:
        yield url


@contextlib.asynccontextmanager
async def served(made: Callable[[], Application], address: HostPort, closing: asyncio.Event) -> AsyncIterator[str]:
    """Serve the application that `made` returns; yield the URL. Set `closing` at the end. Raises StartError."""
    try:
        import uvicorn  # noqa: F401 - says whether the extra is there

        from minibroker.web.asgi import Asgi
        from minibroker.web.server import Server

        app = made()
    except ImportError:
        raise StartError(REMEDY) from None
    try:
        server = Server(address)
        await server.start(Asgi(app.answer))
    except OSError as error:
        raise StartError(str(error)) from None
    try:
        yield f"http://{bracketed(address.host)}:{server.port}"
    finally:
        closing.set()
        await server.stop()
        server.close()
