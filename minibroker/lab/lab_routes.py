"""The paths that the lab has beside the explorer's: its clients, and the cell of Python."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, cast

from minibroker.explorer.explorer_routes import API
from minibroker.explorer.saved_frames import MOST_FRAMES
from minibroker.lab.breaking import flip_bit
from minibroker.lab.cell import CodeCell
from minibroker.lab.clients import LabClients
from minibroker.lab.consuming_client import Consumer
from minibroker.lab.lab_files import pack_lab_file
from minibroker.lab.lab_registry import LabBroker
from minibroker.lab.producing_clients import Producer, TransactionalProducer
from minibroker.web.messages import JSON, Answer, Request
from minibroker.web.routes import Routes

ARCHIVE: Final = "application/zip"
JSON_BODY: Final = {"content-type": JSON}
KINDS: Final = {each.kind: each for each in (Producer, Consumer, TransactionalProducer)}


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
