"""Serving the HTTP control in the broker's event loop. Without a token only addresses of this machine are allowed."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator
from typing import NamedTuple

from minibroker.broker.lifecycle import StartError
from minibroker.testing.broker import Broker

LOOPBACK = "127.0.0.1"
PORT_MAX = 65_535
REMEDY = "the HTTP control needs FastAPI and uvicorn: python3 -m pip install 'minibroker[control]'"


class Address(NamedTuple):
    """The address on which the control listens; port 0 is any free one."""

    host: str
    port: int


def address_of(text: str, token: str | None) -> Address:
    """Parse "HOST:PORT" or "PORT". Raises StartError, also for an address that other machines reach without a token.

    An empty token counts as none.
    """
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or LOOPBACK
    if not port.isdecimal() or int(port) > PORT_MAX:
        raise StartError(f"--control {text}: HOST:PORT or PORT is expected")
    if token == "":
        raise StartError("--control-token is empty, which protects nothing")
    if token is None and not _is_loopback(host):
        raise StartError(f"--control {text} is open to other machines, which needs a token: --control-token")
    return Address(host, int(port))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextlib.asynccontextmanager
async def controlled(broker: Broker, address: Address, token: str | None) -> AsyncIterator[str]:
    """Serve inside the block; yield the URL. Raises StartError."""
    try:
        import uvicorn

        from minibroker.testing.control.app import control_app
    except ImportError:
        raise StartError(REMEDY) from None
    bound = _bound(address)
    config = uvicorn.Config(
        control_app(broker, token), log_level="warning", lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server._serve([bound]))  # `serve` would take the process's signals
    try:
        yield f"http://{_host(address.host)}:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


def _bound(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen()
    except OSError as error:
        bound.close()
        raise StartError(f"cannot listen on {address.host}:{address.port}: {error.strerror}") from None
    bound.setblocking(False)
    return bound


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
