"""The addresses of an embedded broker, which it keeps while it is down.

A socket that is bound and does not listen reserves each port. Clients are refused there until the broker listens again.
"""

from __future__ import annotations

import contextlib
import socket

from minibroker.broker.configs.listeners import Listener, make_broker_listeners, shift_listeners_to_node
from minibroker.broker.configs.settings import Settings, SettingsError
from minibroker.broker.lifecycle import BoundByNode
from minibroker.broker.server import BoundListener, StartError, bind_listener
from minibroker.operating_system import reuse_address


class Ports:
    """The listeners of all nodes, by node id, each with its reserved port."""

    def __init__(self, settings: Settings, nodes: int) -> None:
        """Choose the ports. Raises StartError."""
        self._held = contextlib.ExitStack()
        try:
            listeners, first = make_broker_listeners(settings), settings["node.id"]
            self.listeners = {
                first + index: [self._reserve_port(listener) for listener in shift_listeners_to_node(listeners, index)]
                for index in range(nodes)
            }
        except (OSError, SettingsError) as error:
            self._held.close()
            raise StartError(str(error)) from None

    def _reserve_port(self, listener: Listener) -> Listener:
        """Bind a listener's port, without listening. Return the listener with the port that it got."""
        family = socket.AF_INET6 if ":" in listener.host or not listener.host else socket.AF_INET
        holder = self._held.enter_context(socket.socket(family, socket.SOCK_STREAM))
        reuse_address(holder, shared=True)
        holder.bind((listener.host, listener.port))
        return listener._replace(port=holder.getsockname()[1])

    def apply_listener_settings(self, settings: Settings) -> None:
        """Let the listeners have the names and protocols of other settings, which have as many."""
        wanted, first = make_broker_listeners(settings), settings["node.id"]
        for node_id, held in self.listeners.items():
            others = shift_listeners_to_node(wanted, node_id - first)
            self.listeners[node_id] = [other._replace(port=each.port) for other, each in zip(others, held, strict=True)]

    def bind_listeners(self, settings: Settings) -> BoundByNode:
        """Listen on all addresses. Connections wait until they are accepted. Raises StartError."""
        bound: BoundByNode = {}
        try:
            for node_id, listeners in self.listeners.items():
                bound[node_id] = []
                for listener in listeners:
                    bound[node_id].append(bind_listener(listener, settings, is_port_reserved=True))
        except StartError:
            close_sockets(bound)
            raise
        return bound

    def bind_listeners_of_node(self, node_id: int, settings: Settings) -> list[BoundListener]:
        """Listen on the addresses of one node again. Raises StartError."""
        return [bind_listener(listener, settings, is_port_reserved=True) for listener in self.listeners[node_id]]

    @property
    def count(self) -> int:
        """Return the number of ports."""
        return sum(map(len, self.listeners.values()))

    def close(self) -> None:
        """Release the ports."""
        self._held.close()


def close_sockets(listeners_by_node: BoundByNode) -> None:
    """Close the listening sockets."""
    for listeners in listeners_by_node.values():
        for listener in listeners:
            listener.socket.close()
