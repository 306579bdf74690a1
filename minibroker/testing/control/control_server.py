"""Serving the HTTP control in the broker's event loop. Without a token only addresses of this machine are allowed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from minibroker.addresses import HostPort, bound, bracketed, host_port, is_loopback
from minibroker.broker.lifecycle import StartError
from minibroker.testing.broker import Broker

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

NOWHERE = {"type": "http", "method": "GET", "path": "/v1/-", "root_path": "", "query_string": b"", "headers": []}
REMEDY = "the HTTP control needs the extra control: python3 -m pip install fastapi uvicorn pyyaml"


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

    def made() -> FastAPI:
        from minibroker.testing.control.app import control_app

        return control_app(broker, token, closing if explorer else None)

    async with served(made, address, closing) as url:
        yield url


@contextlib.asynccontextmanager
async def served(made: Callable[[], FastAPI], address: HostPort, closing: asyncio.Event) -> AsyncIterator[str]:
    """Serve the application that `made` returns; yield the URL. Set `closing` at the end. Raises StartError."""
    try:
        import uvicorn

        app = made()
    except ImportError:
        raise StartError(REMEDY) from None
    try:
        listening = bound(address)
    except OSError as error:
        raise StartError(str(error)) from None
    config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(_serve(server, app, listening))
    try:
        yield f"http://{bracketed(address.host)}:{listening.getsockname()[1]}"
    finally:
        closing.set()
        server.should_exit = True
        await serving


async def _serve(server: uvicorn.Server, app: FastAPI, listening: socket.socket) -> None:
    """Serve once a thread has prepared all paths. Meanwhile clients can connect, and wait."""
    await asyncio.to_thread(_prepare, app)
    await server._serve([listening])  # `serve` would take the process's signals


def _prepare(app: FastAPI) -> None:
    """Ask for a path that there is not: FastAPI prepares a path when a request is compared with it first."""

    async def nothing() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def ignored(message: Any) -> None:
        pass

    asyncio.run(app(dict(NOWHERE), nothing, ignored))
