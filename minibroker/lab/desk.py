"""What the worker runs: a broker with the explorer's application, asked by messages in the place of HTTP.

A message of the page is a request, under a number by which it asks, or stops reading the answer. Each answer is its
status and its headers, then pieces of its body, then its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

from minibroker.lab import threads
from minibroker.lab.clients import LabClients
from minibroker.lab.consuming_client import Consumer
from minibroker.lab.lab_files import is_archive, unpack_lab_file
from minibroker.lab.lab_routes import KINDS, LabBroker, make_lab_routes
from minibroker.lab.memory_network import MemoryNetwork
from minibroker.lab.producing_clients import Producer
from minibroker.proxy.exploring import make_app_for_exchanges, make_app_for_saved_exchanges
from minibroker.testing.control.app import make_control_app
from minibroker.testing.seen.exchange import Exchange
from minibroker.web.application import Application
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
IDENTITY: Final = "meta.properties"

PostMessage = Callable[[dict[str, Any]], None]


class LabDesk:
    """The application, and the answers that are under way. `tell` posts a message to the page."""

    def __init__(self, tell: PostMessage) -> None:
        self._tell = tell
        self._closing = asyncio.Event()
        self._answering: dict[int, asyncio.Task[None]] = {}
        self.app: Application
        self.clients = LabClients(lambda: "", KINDS)

    async def start(self) -> None:
        """Start a broker, with a topic and clients that write to it and read from it."""
        broker = LabBroker(SETTINGS, nodes=NODES)
        await self._serve_broker(broker)
        await broker.acreate_topic(FIRST_TOPIC, PARTITIONS)
        self.clients.add(Producer.kind, FIRST_TOPIC)
        self.clients.add(Consumer.kind, FIRST_TOPIC, FIRST_GROUP)

    async def open_file(self, path: Path) -> None:
        """Serve what a file holds: a broker with its logs, or the frames alone.

        Logs that no broker can start with are shown as files. Raises LabFileError, FlowError.
        """
        if not is_archive(path):
            self.app = make_app_for_saved_exchanges(path, self._closing)
            return
        logs = Path(mkdtemp(prefix="opened-"))
        opened = unpack_lab_file(path, logs)
        if not opened.has_logs:
            self.app = make_app_for_exchanges(opened.frames, Path(path.name), self._closing)
            return
        settings = SETTINGS | _read_node_id_setting(logs)
        try:
            await self._serve_broker(LabBroker(settings, nodes=opened.nodes or 1, directory=logs), opened.frames)
        except Exception as error:  # others may have made anything of it
            shown = Path(f"{path.name}, with which no broker starts: {error}")
            self.app = make_app_for_exchanges(opened.frames, shown, self._closing, logs)

    async def _serve_broker(self, broker: LabBroker, frames: Iterable[Exchange] = ()) -> None:
        """Start a broker and serve its control and the lab's routes. Its journal begins with `frames`."""
        await broker.astart()
        self.clients = LabClients(lambda: broker.bootstrap_servers, KINDS)
        broker.journal.on()
        self.app = make_control_app(broker, closing_event=self._closing)
        self.app.add_routes(make_lab_routes(broker, self.clients))
        broker.journal.add_exchanges(frames)

    def process_page_message(self, message: Mapping[str, Any]) -> None:
        """Begin to answer a request of the page, or end an answer that it wants no more of."""
        if "stop" in message:
            answering = self._answering.get(message["stop"])
            if answering is not None:
                answering.cancel()
            return
        body = message["body"] or b""
        data = body.encode() if isinstance(body, str) else bytes(body)
        self.start_answer(
            message["ask"], Request.make_request(message["method"], message["target"], dict(message["headers"]), data)
        )

    def start_answer(self, number: int, request: Request) -> None:
        """Answer the request with this number in a task, which posts the answer to the page in pieces."""
        answering = self._answering[number] = asyncio.ensure_future(self._answer_request(number, request))
        answering.add_done_callback(lambda _: self._answering.pop(number, None))

    async def _answer_request(self, number: int, request: Request) -> None:
        """Post an answer to the page: its head, its pieces and its end."""
        answer = await self.app.answer(request)
        kind = {"content-type": answer.kind} if answer.kind else {}
        self._tell({"id": number, "status": answer.status, "headers": {**kind, **answer.headers}})
        if isinstance(answer.body, bytes):
            self._tell({"id": number, "piece": answer.body})
        else:
            async for piece in answer.body:
                self._tell({"id": number, "piece": piece})
        self._tell({"id": number, "end": True})


def _read_node_id_setting(logs: Path) -> dict[str, str]:
    """Return the setting `node.id` of the node that wrote a log directory, or no setting if that does not say."""
    path = logs / IDENTITY
    lines = path.read_text("utf-8", errors="replace").splitlines() if path.is_file() else []
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    found = values.get("node.id", values.get("broker.id", ""))
    return {"node.id": found} if found.isdecimal() else {}


def install_threads_and_network() -> None:
    """Replace threads and sockets, which a tab lacks. Call it in the running loop, before anything connects."""
    threads.run_threads_synchronously()
    MemoryNetwork(asyncio.get_running_loop()).replace_sockets()


async def open_desk(post_message: PostMessage, path: str | None = None) -> LabDesk:
    """Return a desk that answers requests of the page, for a file or a new broker. Raises LabFileError, FlowError."""
    install_threads_and_network()
    desk = LabDesk(post_message)
    if path is None:
        await desk.start()
    else:
        await desk.open_file(Path(path))
    return desk
