"""What the worker runs: a broker with the explorer's application, asked by messages in the place of HTTP.

A message of the page is a request, under a number by which it asks, or stops reading the answer. Each answer is its
status and its headers, then pieces of its body, then its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from minibroker.lab import threads
from minibroker.lab.clients import Clients
from minibroker.lab.consuming_client import Consumer
from minibroker.lab.lab_routes import KINDS, lab_routes
from minibroker.lab.memory_network import MemoryNetwork
from minibroker.lab.producing_clients import Producer
from minibroker.testing.broker import Broker
from minibroker.testing.control.app import Control, make_control_app
from minibroker.web.messages import Request

NODES: Final = 3
SETTINGS: Final = {
    "listeners": "PLAINTEXT://localhost:9092",
    "log.segment.bytes": str(1 << 20),  # a tab's memory holds the files
    "offsets.topic.num.partitions": "3",  # each is a log with files of its own
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}
FIRST_TOPIC: Final = "orders"
PARTITIONS: Final = 3
FIRST_GROUP: Final = "readers"

Tell = Callable[[dict[str, Any]], None]


class Desk:
    """One broker, and the answers that are under way. `tell` posts a message to the page."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._closing = asyncio.Event()
        self._answering: dict[int, asyncio.Task[None]] = {}
        self.broker = Broker(SETTINGS, nodes=NODES)
        self.clients = Clients(lambda: self.broker.bootstrap_servers, KINDS)
        self.app: Control

    async def start(self) -> None:
        """Start the broker, with a topic and a client that writes to it."""
        await self.broker.astart()
        self.app = make_control_app(self.broker, closing=self._closing)
        self.app.add(lab_routes(self.broker, self.clients))
        await self.broker.acreate_topic(FIRST_TOPIC, PARTITIONS)
        self.clients.add(Producer.kind, FIRST_TOPIC)
        self.clients.add(Consumer.kind, FIRST_TOPIC, FIRST_GROUP)

    def take(self, message: Mapping[str, Any]) -> None:
        """Take a message of the page."""
        if "stop" in message:
            answering = self._answering.get(message["stop"])
            if answering is not None:
                answering.cancel()
            return
        body = message["body"] or b""
        data = body.encode() if isinstance(body, str) else bytes(body)
        self.ask(message["ask"], Request.of(message["method"], message["target"], dict(message["headers"]), data))

    def ask(self, number: int, request: Request) -> None:
        """Answer a request, in pieces."""
        answering = self._answering[number] = asyncio.ensure_future(self._answer(number, request))
        answering.add_done_callback(lambda _: self._answering.pop(number, None))

    async def _answer(self, number: int, request: Request) -> None:
        answer = await self.app.answer(request)
        kind = {"content-type": answer.kind} if answer.kind else {}
        self._tell({"id": number, "status": answer.status, "headers": {**kind, **answer.headers}})
        if isinstance(answer.body, bytes):
            self._tell({"id": number, "piece": answer.body})
        else:
            async for piece in answer.body:
                self._tell({"id": number, "piece": piece})
        self._tell({"id": number, "end": True})


def install() -> None:
    """Give this process what a tab lacks. Call it in the running event loop, before anything connects."""
    threads.install()
    MemoryNetwork(asyncio.get_running_loop()).install()


async def opened(tell: Tell) -> Desk:
    """Return a desk whose broker serves."""
    install()
    desk = Desk(tell)
    await desk.start()
    return desk
