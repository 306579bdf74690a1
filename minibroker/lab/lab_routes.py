"""The paths that the lab has beside the explorer's: its clients, the cell of Python, and a bit that flips.

A cell runs as a REPL runs it, in the worker, with `await` at the top.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import linecache
import os
import traceback
from enum import StrEnum
from typing import Any, Final, cast

from minibroker.client.asynchronous import AsyncClient
from minibroker.client.connection_settings import ClientSettings
from minibroker.explorer.explorer_routes import API
from minibroker.explorer.saved_frames import MOST_FRAMES
from minibroker.lab.clients import LabClients
from minibroker.lab.consuming_client import Consumer
from minibroker.lab.lab_files import pack_lab_file
from minibroker.lab.producing_clients import Producer, TransactionalProducer
from minibroker.operating_system import close_file, open_file, read_at, write_at
from minibroker.testing.broker import Broker
from minibroker.testing.embedded.registry_verbs import RegistryVerbs
from minibroker.web.messages import JSON, Answer, Request
from minibroker.web.routes import Routes

FILE: Final = "<cell {}>"
MOST_CHARACTERS: Final = 100_000
CLIENT_ID: Final = "python"
ENDS: Final = (SystemExit, KeyboardInterrupt, asyncio.CancelledError)  # of a program or a task: here, only of the run
ARCHIVE: Final = "application/zip"
JSON_BODY: Final = {"content-type": JSON}
KINDS: Final = {each.kind: each for each in (Producer, Consumer, TransactionalProducer)}


class LabRegistry(RegistryVerbs):
    """The registry of a broker, which no server serves."""

    async def start(self) -> None:
        """Make the registry, whose application answers from now on."""
        self.get_or_make_running_registry()

    async def answer(self, request: Request) -> Answer:
        """Answer a request as the server would. Raises NotRunning."""
        return await self._running_registry.answer(request)


class LabBroker(Broker):
    """A broker with a registry."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, registry=True, **kwargs)

    def _make_registry(self, address_or_flag: bool | str) -> RegistryVerbs:
        """Return the lab's registry, which has no address."""
        return LabRegistry(self, None)

    async def send_request_to_registry(self, request: Request) -> Answer:
        """Answer a request to the registry. Raises NotRunning."""
        assert isinstance(self.registry, LabRegistry)
        return await self.registry.answer(request)


class CodeCell:
    """The names that the reader's code has: `broker`, `client`, `Client`, and its own, which stay."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._run = 0
        client = self.make_client()
        self.names: dict[str, Any] = {
            "__name__": "__main__",
            "broker": broker,
            "client": client,
            "Client": self.make_client,
        }

    def make_client(self, client_id: str = CLIENT_ID) -> AsyncClient:
        """Return a client of `minibroker.client`, which connects when it first asks."""
        settings = {"bootstrap.servers": self._broker.bootstrap_servers, "client.id": client_id}
        return AsyncClient(ClientSettings(settings))

    async def run(self, code: str) -> str:
        """Run code; return what it prints, the value of its last expression, and its error, as text."""
        self._run += 1
        filename = FILE.format(self._run)
        linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                value = await self._evaluate_last_expression(code, filename)
                if value is not None:
                    print(repr(value))
            except (Exception, *ENDS) as error:
                if _is_task_cancelled():
                    raise
                print(_describe_error(error, filename))
        text = said.getvalue()
        more = len(text) - MOST_CHARACTERS
        return text if more <= 0 else f"{text[:MOST_CHARACTERS]}\n… and {more:,} more characters"

    async def _evaluate_last_expression(self, code: str, filename: str) -> Any:
        """Run the code; return the value of its last statement if that is an expression, else None."""
        tree = ast.parse(code, filename)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        await self._run_code_and_await_result(compile(tree, filename, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
        if last is None:
            return None
        return await self._run_code_and_await_result(
            compile(ast.Expression(last.value), filename, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)  # type: ignore[attr-defined]
        )

    async def _run_code_and_await_result(self, code: Any) -> Any:
        """Run compiled code with the names of the cell; await its result if it is a coroutine."""
        result = eval(code, self.names)
        return await result if inspect.iscoroutine(result) and code.co_flags & inspect.CO_COROUTINE else result


def _is_task_cancelled() -> bool:
    """Return whether somebody cancels the run itself, rather than a task that its code awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _describe_error(error: BaseException, filename: str) -> str:
    """Return an error as text, with the lines of the cell `filename` that led to it, without those of this file."""
    told = traceback.TracebackException.from_exception(error)
    first = next((at for at, each in enumerate(told.stack) if each.filename == filename), len(told.stack))
    del told.stack[:first]
    return "".join(told.format()).rstrip()


FROM_END_BYTES: Final = 2  # behind the last value is the number of headers
BIT: Final = 0x10


def flip_bit(broker: Broker, topic: str, partition: int, offset: int) -> str:
    """Flip a bit near the end of a batch, where values are; return where. Raises LookupError, KafkaError."""
    found = broker.running.cluster.image.topics.get(topic)
    if found is None or not 0 <= partition < len(found.partitions):
        raise LookupError(f"there is no partition {topic}-{partition}")
    region = found.partitions[partition].log.read(offset, 1)
    if region is None:
        raise LookupError(f"{topic}-{partition} has no record at {offset}")
    position = region.position + region.size_bytes - FROM_END_BYTES
    file = open_file(region.file.path, os.O_RDWR)
    try:
        (byte,) = read_at(file, 1, position)
        write_at(file, bytes((byte ^ BIT,)), position)
    finally:
        close_file(file)
    place = f"byte {position} of {topic}-{partition}, in the batch with offset {offset}"
    broker.notify_event_listeners("fault", f"flip a bit of {place}")
    return place


class ClientVerb(StrEnum):
    """What can be done to a client."""

    START = "start"
    STOP = "stop"
    KILL = "kill"
    REMOVE = "remove"


def make_lab_routes(broker: LabBroker, clients: LabClients) -> Routes:
    """Return the paths of the lab, below those of the explorer."""
    routes = Routes(f"{API}/lab")
    _add_client_routes(routes, clients)
    cell = CodeCell(broker)

    @routes.post("/flip")
    async def flip(topic: str, partition: int, offset: int) -> dict[str, str]:
        """Flip a bit of a stored batch; return where."""
        return {"place": flip_bit(broker, topic, partition, offset)}

    @routes.get("/file")
    async def get_file() -> Answer:
        """Return the logs and the frames as a file that another lab opens."""
        frames, servers = broker.journal.list_exchanges_after(0, MOST_FRAMES), broker.bootstrap_servers
        return Answer(pack_lab_file(broker.directory, frames, broker.nodes, servers), kind=ARCHIVE)

    @routes.post("/run")
    async def run_code(code: str) -> dict[str, str]:
        """Run code of the reader; return what it says."""
        return {"said": await cell.run(code)}

    @routes.post("/registry")
    async def ask_registry(method: str, path: str, body: str = "") -> dict[str, Any]:
        """Send a request to the schema registry; return its answer."""
        answer = await broker.send_request_to_registry(Request.make_request(method, path, JSON_BODY, body.encode()))
        return {"status": answer.status, "body": cast(bytes, answer.body).decode()}

    return routes


def _add_client_routes(routes: Routes, clients: LabClients) -> None:
    @routes.get("/clients")
    async def list_clients() -> list[dict[str, Any]]:
        """Return a row for each client."""
        return clients.describe_all()

    @routes.post("/clients")
    async def add_client(kind: str, topic: str, name: str = "") -> dict[str, Any]:
        """Start a client; `name` is its group, or its transactional id."""
        return clients.add(kind, topic, name).describe()

    @routes.post("/clients/{number}/{verb}")
    async def change_client(number: int, verb: ClientVerb) -> None:
        """Start, stop, kill or remove a client."""
        client = clients.get(number)
        if verb == ClientVerb.START:
            client.start()
        elif verb == ClientVerb.STOP:
            await client.stop()
        elif verb == ClientVerb.KILL:
            client.kill()
        else:
            clients.remove(number)
