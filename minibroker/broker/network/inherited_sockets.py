"""Sockets that a supervisor has opened and hands over with the process, as systemd does (sd_listen_fds).

The supervisor holds the ports: clients wait while the broker starts or restarts, instead of being refused.

    LISTEN_FDS     how many sockets there are, from descriptor 3 on
    LISTEN_PID     the process that they are for
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping, Sequence
from typing import Final

from minibroker.addresses import HostPort
from minibroker.broker.configs.listeners import Listener

FIRST: Final = 3  # after stdin, stdout and stderr
VARIABLES: Final = ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES")
# The addresses of hosts that have several, or others than their names.
HOSTS: Final = {"": ("::", "0.0.0.0"), "localhost": ("127.0.0.1", "::1")}


class InheritedSockets:
    """Those that are left: each listener takes the one with its address. Others must not stay."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Take them over; no process that this one starts will. Raises ValueError for what is no TCP socket."""
        count, pid, _ = (environment.get(name, "") for name in VARIABLES)
        self._left: list[socket.socket] = []
        if pid != str(os.getpid()) or not count.isdecimal():
            return
        for name in VARIABLES:
            environment.pop(name, None)
        for descriptor in range(FIRST, FIRST + int(count)):
            try:
                os.set_inheritable(descriptor, False)
                inherited = socket.socket(fileno=descriptor)
            except OSError as error:
                raise ValueError(f"LISTEN_FDS: descriptor {descriptor}: {error.strerror}") from None
            self._left.append(inherited)
            if inherited.type != socket.SOCK_STREAM or inherited.family not in (socket.AF_INET, socket.AF_INET6):
                raise ValueError(f"LISTEN_FDS: descriptor {descriptor} is not a TCP socket")

    @property
    def addresses(self) -> list[HostPort]:
        """Return the addresses of the sockets that no listener has got yet."""
        return [HostPort(*each.getsockname()[:2]) for each in self._left]

    def assign_to_listeners(self, listeners: Sequence[Listener]) -> list[socket.socket | None]:
        """Return the socket of each listener, or None; listeners with port 0 get any that the others leave."""
        shares: list[socket.socket | None] = [None] * len(listeners)
        for at in sorted(range(len(listeners)), key=lambda at: listeners[at].port == 0):
            shares[at] = self._take_socket_of(listeners[at])
        return shares

    def _take_socket_of(self, listener: Listener) -> socket.socket | None:
        """Remove and return the socket with the listener's address, or with port 0, its host; None if there is none."""
        hosts = HOSTS.get(listener.host, (listener.host,))
        for at, address in enumerate(self.addresses):
            if address.host in hosts and listener.port in (0, address.port):
                return self._left.pop(at)
        return None

    def close(self) -> None:
        """Close the sockets that no listener has got."""
        for each in self._left:
            each.close()
