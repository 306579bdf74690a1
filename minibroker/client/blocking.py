"""The client on blocking sockets. The coroutines of `cluster_client` never suspend here, as only sockets wait."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from minibroker.client.client_connection import NEWEST, Connection
from minibroker.client.cluster_client import LEAST_S, ClusterClient, Partition, PartitionLeader, SentRequest
from minibroker.client.connection_settings import Address, ClientSettings
from minibroker.client.network import Network
from minibroker.protocol.declare import Message

Result = TypeVar("Result")


class Client:
    """Connections to the nodes of one cluster, made when they are first needed. For one thread, in a `with` block.

    Its methods are those of `ClusterClient`, where they are documented.
    """

    def __init__(
        self, settings: ClientSettings, network: Network | None = None, *, patience_s: float = float("inf")
    ) -> None:
        self.settings = settings
        self._cluster = ClusterClient(settings, network or BlockingNetwork(), patience_s)
        self.close = self._cluster.close
        self.check = self._cluster.raise_if_error
        self.forget_leaders_and_coordinators = self._cluster.forget_leaders_and_coordinators
        self.address = self._cluster.get_address_text

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def connect_to_any_node(self) -> None:
        """Ask each bootstrap server once, until one answers."""
        run_coroutine(self._cluster.connect_to_any_node())

    def request(
        self,
        message: Message,
        node_id: int | None = None,
        *,
        lowest: int = 0,
        highest: int = NEWEST,
        timeout_ms: int | None = None,
    ) -> Any:
        """Send a request and return its answer."""
        return run_coroutine(
            self._cluster.request(message, node_id, lowest=lowest, highest=highest, timeout_ms=timeout_ms)
        )

    def send(self, message: Message, node_id: int, *, lowest: int = 0, highest: int = NEWEST) -> SentRequest:
        """Send a request without waiting for its answer."""
        return run_coroutine(self._cluster.send(message, node_id, lowest=lowest, highest=highest))

    def wait(self, sent_request: SentRequest, timeout_ms: int | None = None) -> Any:
        """Return the answer to a request that `send` has sent."""
        return run_coroutine(self._cluster.wait(sent_request, timeout_ms))

    def retry(self, action: Callable[[], Result], timeout_ms: int | None = None) -> Result:
        """Call `action` until it succeeds or raises an error that is not retriable."""

        async def run_action() -> Result:
            return action()

        return run_coroutine(self._cluster.retry(run_action, timeout_ms))

    def fetch_metadata(self, topics: Iterable[str] | None = (), *, create: bool = False) -> Any:
        """Return the answer to a Metadata request."""
        return run_coroutine(self._cluster.fetch_metadata(topics, create=create))

    def fetch_node_ids(self) -> list[int]:
        """Return the ids of all nodes."""
        return run_coroutine(self._cluster.fetch_node_ids())

    def fetch_controller_id(self) -> int | None:
        """Return the id of the controller, to which cluster-wide changes go; None if any node takes them."""
        return run_coroutine(self._cluster.fetch_controller_id())

    def find_leader(self, partition: Partition) -> PartitionLeader:
        """Return the leader of a partition."""
        return run_coroutine(self._cluster.find_leader(partition))

    def find_coordinator(self, kind: Literal["group", "transaction"], key: str) -> int:
        """Return the id of the coordinator of a group or a transactional id."""
        return run_coroutine(self._cluster.find_coordinator(kind, key))


def run_coroutine(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that never waits for an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    coroutine.close()
    raise AssertionError("a blocking network does not suspend")


class SocketLink:
    """A connection over a blocking socket."""

    expires_s = float("inf")

    def __init__(self, connected: socket.socket, connection: Connection) -> None:
        self.connection = connection
        self.used_s = time.monotonic()
        self._socket = connected

    async def write(self, data: bytes, timeout_s: float) -> None:
        """Send bytes."""
        self._socket.settimeout(timeout_s)
        self._socket.sendall(data)

    async def wait_for_answer(self, correlation_id: int, timeout_s: float) -> Any:
        """Receive until the answer to a request has come, and return it decoded."""
        connection = self.connection
        deadline_s = time.monotonic() + timeout_s
        while correlation_id not in connection.answers:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            if self._socket.fileno() < 0:
                raise ConnectionAbortedError("the connection was closed")
            self._socket.settimeout(left_s)
            with connection.get_buffer() as buffer:
                count = self._socket.recv_into(buffer)
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            connection.process_received_bytes(count)
        return connection.answers.pop(correlation_id)

    def is_open(self) -> bool:
        """Return whether the broker has neither closed the connection nor sent anything unasked."""
        self._socket.settimeout(0)
        try:
            self._socket.recv(1)
        except BlockingIOError:
            return True
        except OSError as error:
            return type(error).__name__ == "SSLWantReadError"  # by name: importing ssl is slow
        return False

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class BlockingNetwork:
    """Blocking sockets and the monotonic clock."""

    def read_clock_s(self) -> float:
        """Return seconds of the monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)

    async def call_blocking(self, function: Callable[[], Result]) -> Result:
        """Call a function in this thread, and return its result."""
        return function()

    def make_lock(self) -> AbstractAsyncContextManager[Any]:
        """Return a context that locks nothing, as there is one thread."""
        return nullcontext()

    async def connect(self, host: str, port: int, settings: ClientSettings, timeout_s: float) -> SocketLink:
        """Connect, with TLS if the settings say so. Raises OSError."""
        deadline_s = time.monotonic() + timeout_s
        connected = connect_socket(host, port, timeout_s)
        try:
            set_socket_options(connected, settings)
            if settings.tls is not None:
                connected.settimeout(max(LEAST_S, deadline_s - time.monotonic()))
                connected = settings.tls.wrap_socket(connected, server_hostname=host)
        except BaseException:
            connected.close()
            raise
        return SocketLink(connected, self.make_connection(Address(host, port), settings))

    def make_connection(self, address: Address, settings: ClientSettings) -> Connection:
        """Return the protocol state for a new connection to this address."""
        return Connection(settings.client_id, settings.max_frame_bytes)


def connect_socket(host: str, port: int, timeout_s: float) -> socket.socket:
    """Connect to the first address of a host that accepts; those that are left share the time. Raises OSError."""
    deadline_s = time.monotonic() + timeout_s
    infos = look_up_host(host, port, timeout_s)
    for left, (family, kind, protocol, _, address) in zip(range(len(infos), 0, -1), infos, strict=True):
        attempt = socket.socket(family, kind, protocol)
        try:
            attempt.settimeout(max(LEAST_S, (deadline_s - time.monotonic()) / left))
            attempt.connect(address)
            return attempt
        except BaseException as error:
            attempt.close()
            if left == 1 or not isinstance(error, OSError):
                raise
    raise AssertionError("a name has an address")


def look_up_host(host: str, port: int, timeout_s: float) -> list[Any]:
    """Return the addresses of a host, as `socket.getaddrinfo` does. Raises OSError and UnicodeError.

    Neither Ctrl-C nor a timeout ends the system's resolver, so it runs in a thread that may be abandoned.
    """
    with suppress(socket.gaierror):
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    infos: list[Any] = []

    def resolve_addresses() -> None:
        try:
            infos.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            infos.append(error)

    thread = threading.Thread(target=resolve_addresses, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not infos:
        raise socket.gaierror(socket.EAI_AGAIN, f"the name was not resolved in {timeout_s:.3g} s")
    if isinstance(infos[0], Exception):
        raise infos[0]
    addresses: list[Any] = infos[0]
    return addresses


def set_socket_options(open_socket: socket.socket, settings: ClientSettings) -> None:
    """Set TCP_NODELAY, SO_KEEPALIVE, and the buffer sizes of the settings."""
    open_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    open_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, size in settings.socket_buffers.items():
        open_socket.setsockopt(socket.SOL_SOCKET, option, size)
