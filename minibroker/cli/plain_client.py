"""A blocking client, unencrypted, one request at a time, for what confluent-kafka has no calls for.

What is asked, and what is made of the answers, is each command's business.
"""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final

from minibroker.cli.shared import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, SERVER, failure
from minibroker.protocol.apis import ApiKey, response_class
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.headers import RequestHeader, ResponseHeader, request_header_version, response_header_version
from minibroker.protocol.messages.groups import FindCoordinatorRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.primitives import MalformedMessage

MAX_ANSWER_BYTES: Final = 100 << 20  # as socket.request.max.bytes
METADATA_VERSION: Final = 9
FIND_COORDINATOR_VERSION: Final = 4
TRANSACTION: Final = 1  # the kind of key
_SIZE: Final = struct.Struct(">i")


class PlainClient:
    """Asks the brokers that the first of `servers` to answer tells of; to be used in a with block.

    All methods raise click.ClickException if a broker cannot be reached, closes the connection, or answers nonsense.
    """

    def __init__(self, servers: str) -> None:
        self._open = ExitStack()
        self._connections: dict[tuple[str, int], socket.socket] = {}
        with self._open:  # until it is known that there is a use for it
            self._first = self._first_of(servers)
            self.metadata: Any = self._ask(self._first, MetadataRequest(topics=None), METADATA_VERSION)
            self._open = self._open.pop_all()
        self._nodes = {broker.node_id: (broker.host, broker.port) for broker in self.metadata.brokers}

    def __enter__(self) -> PlainClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def nodes(self) -> list[int]:
        """The ids of all brokers."""
        return sorted(self._nodes)

    def ask(self, node: int, request: Message, version: int) -> Any:
        """The answer of the broker with this id."""
        if node not in self._nodes:
            raise failure(f"broker {node} is not there")
        return self._ask(self._nodes[node], request, version)

    def coordinator(self, transactional_id: str) -> int:
        """The id of the broker that coordinates a transactional id."""
        request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id])
        (found,) = self._ask(self._first, request, FIND_COORDINATOR_VERSION).coordinators
        require(found.error_code, f"cannot find the coordinator of {transactional_id}")
        return int(found.node_id)

    def _first_of(self, servers: str) -> tuple[str, int]:
        problems = []
        for server in servers.split(","):
            match = SERVER.fullmatch(server.strip())
            assert match is not None  # the option has been checked
            where = match["v6"] or match["host"], int(match["port"])
            try:
                self._connection(where)
                return where
            except OSError as error:
                problems.append(f"{server.strip()}: {error.strerror or error}")
        raise failure(f"cannot connect to {'; '.join(problems)}")

    def _connection(self, where: tuple[str, int]) -> socket.socket:
        if where not in self._connections:
            made = self._open.enter_context(socket.create_connection(where, CONNECT_TIMEOUT_S))
            made.settimeout(REQUEST_TIMEOUT_S)
            self._connections[where] = made
        return self._connections[where]

    def _ask(self, where: tuple[str, int], request: Message, version: int) -> Any:
        key = ApiKey(request.api_key)
        header = RequestHeader(
            request_api_key=key, request_api_version=version, correlation_id=0, client_id="minibroker-cli"
        )
        frame = header.encode(request_header_version(key, version)) + request.encode(version)
        try:
            connection = self._connection(where)
            connection.sendall(_SIZE.pack(len(frame)) + frame)
            (size,) = _SIZE.unpack(_exactly(connection, _SIZE.size))
            if not 0 <= size <= MAX_ANSWER_BYTES:
                raise OSError(f"an answer of {size} bytes")
            answer = _exactly(connection, size)
            _, position = ResponseHeader.decode_from(answer, response_header_version(key, version))
            return response_class(key).decode(answer, version, position)
        except OSError as error:
            raise failure(f"{where[0]}:{where[1]}: {error.strerror or error}") from None
        except MalformedMessage as error:
            raise failure(f"{where[0]}:{where[1]}: {error}") from None


def require(code: int, what: str) -> None:
    """Raises click.ClickException that begins with `what`, unless the code is that of no error."""
    if code:
        names = {each.value: each.name for each in ErrorCode}
        raise failure(f"{what}: {names.get(code, f'error {code}')}")


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(min(size - len(data), 1 << 16))
        if not chunk:
            raise OSError("the connection was closed without an answer")
        data += chunk
    return bytes(data)
