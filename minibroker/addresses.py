"""Addresses of the servers beside the broker's listeners, as options name them: HOST:PORT, or PORT of this machine.

What parses addresses and URLs is imported where it is needed: it would slow each start by 2 ms.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from typing import Final

from minibroker.named_tuples import NamedTuple
from minibroker.operating_system import reuse_address

LOOPBACK: Final = "127.0.0.1"
PORT_MAX: Final = 65_535


class HostPort(NamedTuple):
    """An address to listen on, by default any free port that this machine alone can reach."""

    host: str = LOOPBACK
    port: int = 0

    def __str__(self) -> str:
        return f"{format_host(self.host)}:{self.port}"


def parse_host_port(text: str) -> HostPort:
    """Parse "HOST:PORT" or "PORT". Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > PORT_MAX:
        raise ValueError("HOST:PORT or PORT is expected")
    return HostPort(host.strip("[]") or LOOPBACK, int(port))


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its address or its name (RFC 6761)."""
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def find_reason_to_refuse_request(headers: Mapping[str, str], *, is_private: bool) -> str | None:
    """Return why to refuse a request, None to allow it; with `is_private` its host must be a name of this machine.

    The headers are named in lower case. A browser lets the page of any site send requests, and another site's name may
    have been made to stand for this machine's address: then the browser takes the server for that site (DNS rebinding).
    """
    from urllib.parse import urlsplit

    host, origin = headers.get("host", LOOPBACK), headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        return f"a page of {origin} asks, and not one of this server"
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    return f"{host} is not a name of this machine" if is_private and not is_loopback(name) else None


def format_host(host: str) -> str:
    """Return a host as it is written before a port."""
    return f"[{host}]" if ":" in host else host


def bind_address(address: HostPort, *, listens: bool = True, shares_port: bool = False) -> socket.socket:
    """Return a socket with the address, which listens. Raises OSError with a line for people.

    With `shares_port`, several sockets may be bound to the address, but only one of them may listen.
    """
    listening = socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        reuse_address(listening, shared=shares_port)
        listening.bind(address)
        if listens:
            listening.listen()
    except OSError as error:
        listening.close()
        raise OSError(f"cannot listen on {address}: {explain_bind_error(error)}") from None
    listening.setblocking(False)
    return listening


def explain_bind_error(error: OSError, address: str = "") -> str:
    """Return why an address cannot be listened on, and what to do if it is taken; `address` names the setting."""
    reason = error.strerror or str(error)
    return (
        f"{reason}; choose another port{address}, or 0 for any free one" if error.errno == errno.EADDRINUSE else reason
    )
