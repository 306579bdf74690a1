"""Requests that the test kit sends to its own broker, without a socket, past faults and journal.

They are messages of the protocol, so that a method has the same effect as a client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from minibroker.broker.delayed_operations import DelayedOperation, Slicer
from minibroker.broker.network.connection import Connection
from minibroker.broker.network.framing import FrameBudget
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.dispatch import Dispatcher
from minibroker.broker.requests.routes import Route
from minibroker.broker.requests.served import SERVED
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from minibroker.broker.assembly import Broker
    from minibroker.broker.metadata.nodes import Node

CLIENT_ID = "minibroker-testing"


class DiscardingOutlet:
    """An output for a connection without a socket."""

    is_congested = False
    progress_ms = 0.0

    def send(self, items: list[Any]) -> None:
        """Discard an answer."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Do nothing."""

    def pause_reading(self) -> None:
        """Do nothing."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def get_any_node(cluster: Broker) -> Node:
    """Return a node that is up. Raises KafkaError(BROKER_NOT_AVAILABLE)."""
    for node in cluster.nodes.values():
        return node
    raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "all nodes are away")


def raise_if_error(code: int, message: str, expected: Collection[ErrorCode] = ()) -> None:
    """Raise KafkaError unless an answer's error code is 0 or an expected one."""
    if code and code not in expected:
        raise KafkaError(ErrorCode(code), message)


async def execute_request(cluster: Broker, node: Node, request: Message, version: int | None = None) -> Any:
    """Return the answer of a node to `request`, in the newest version by default. Raises what the handler raises."""
    api_key = request.api_key
    assert api_key is not None
    served = SERVED[api_key]
    connection = Connection(
        node,
        next(iter(node.endpoints)),
        DiscardingOutlet(),
        lambda *_: None,
        lambda _: None,
        FrameBudget(),
        0,
        "inside:0",
    )
    version = served.versions[-1] if version is None else version
    context = RequestContext(cluster, connection, Route(served, version), 0, CLIENT_ID, Slicer())
    context.is_own = True
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    coroutine = Dispatcher(cluster).run_handler_and_finish(context, request)
    outcome = context.slicer.run_or_delay(coroutine, answered.set_result, answered.set_exception)
    return await answered if isinstance(outcome, DelayedOperation) else outcome
