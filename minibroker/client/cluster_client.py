"""The client for any kind of I/O: it chooses the node for each request, and retries.

All I/O goes through a `Network`. A request is sent once, at the newest version that both sides support. Callers that
may repeat a request use `retry`, which also looks up leaders and coordinators again where an error says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, Final, Literal, NamedTuple, TypeVar

from minibroker.client.client_connection import NEWEST
from minibroker.client.client_errors import (
    FAILURES,
    ClientError,
    ErrorReaction,
    ForeignServer,
    ProtocolError,
    UnsupportedVersion,
    check_error_code,
    choose_error_reaction,
)
from minibroker.client.connection_settings import Address, ClientSettings
from minibroker.client.network import Network, NetworkLink
from minibroker.client.opening import negotiate_and_authenticate
from minibroker.protocol.apis import get_api_name
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import FindCoordinatorRequest
from minibroker.protocol.messages.metadata import MetadataRequest

LEAST_ATTEMPT_MS: Final = 5_000  # one attempt gets this much, even if the time for retries is shorter
NEVER_MS: Final = (1 << 31) - 1
LEAST_S: Final = 0.001  # a timeout of 0 means something else to a socket
NEEDS_SASL: Final = ": does the broker require authentication (security.protocol, sasl.mechanism)?"
COORDINATOR_TYPES: Final = {"group": 0, "transaction": 1}
_SINGLE_COORDINATOR_VERSION: Final = 3  # newer versions take several keys
_DEADLINE_S: ContextVar[float] = ContextVar("deadline_s", default=float("inf"))  # of the enclosing `retry`

Result = TypeVar("Result")
NodeOrAddress = int | Address  # a node of the cluster by its id, or a bootstrap server
Partition = tuple[str, int]  # a topic's name, and the index


class PartitionLeader(NamedTuple):
    """The node that leads a partition, and since which epoch (-1: unknown)."""

    node_id: int
    epoch: int


class SentRequest(NamedTuple):
    """A request that was sent, or the error why it was not."""

    node: NodeOrAddress
    api: str
    link: NetworkLink | None
    correlation_id: int
    error: Exception | None = None


class ConnectFailures(NamedTuple):
    """The consecutive failures to connect to a node: since when, and when to try again, by the network's clock."""

    times: int
    since_s: float
    until_s: float


NOT_FAILED: Final = ConnectFailures(0, 0.0, 0.0)


class ClusterClient:
    """Connections to the nodes of one cluster, made when they are first needed.

    A node that has never been reached, as its address may be wrong, is given up after `patience_s`.
    """

    def __init__(self, settings: ClientSettings, network: Network, patience_s: float = float("inf")) -> None:
        self.settings = settings
        self._network = network
        self._patience_s = patience_s
        self._reached: set[Address] = set()
        self._bootstrap = settings.bootstrap
        self._nodes: dict[int, Address] = {}
        self._links: dict[NodeOrAddress, NetworkLink] = {}
        self._locks: dict[NodeOrAddress, contextlib.AbstractAsyncContextManager[Any]] = {}
        self._failed: dict[NodeOrAddress, ConnectFailures] = {}
        self._leaders: dict[Partition, PartitionLeader] = {}
        self._coordinators: dict[tuple[str, str], int] = {}
        if settings.canonical_names:
            import socket

            self._bootstrap = [Address(socket.getfqdn(each.host), each.port) for each in settings.bootstrap]

    def close(self) -> None:
        """Close all connections."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    # Requests

    async def request(
        self,
        message: Message,
        node_id: int | None = None,
        *,
        lowest: int = 0,
        highest: int = NEWEST,
        timeout_ms: int | None = None,
    ) -> Any:
        """Send a request to a node (None: any) and return its answer. Raises `ClientError`.

        Connecting is retried for `timeout_ms` (default: `request.timeout.ms`), but a request is never sent twice.
        Within `retry` its deadline applies as well. `lowest` and `highest` bound the version.
        """
        timeout_ms = timeout_ms or self.settings.request_timeout_ms
        deadline_s = min(self._network.read_clock_s() + timeout_ms / 1000, _DEADLINE_S.get())
        for backoff_s in self._iterate_retry_backoffs():
            sent = await self._send_to_node(
                message,
                self._choose_node(node_id),
                lowest,
                highest,
                min(timeout_ms, self._get_remaining_timeout_ms()),
            )
            if sent.link is not None:
                return await self.wait(sent, timeout_ms)
            failure = self._make_client_error(sent)
            if not failure.is_retriable or self._network.read_clock_s() + backoff_s > deadline_s:
                raise failure from None
            await self._network.sleep(backoff_s)
        raise AssertionError("backoffs do not end")

    async def send(self, message: Message, node_id: int, *, lowest: int = 0, highest: int = NEWEST) -> SentRequest:
        """Send a request without waiting for its answer, which `wait` returns.

        A Produce request with acks=0 has no answer: do not `wait` for it unless the result has an `error`.
        """
        return await self._send_to_node(message, node_id, lowest, highest, self.settings.request_timeout_ms)

    async def wait(self, sent_request: SentRequest, timeout_ms: int | None = None) -> Any:
        """Return the answer to a request that `send` has sent. Raises `ClientError`."""
        timeout_ms = min(timeout_ms or self.settings.request_timeout_ms, self._get_remaining_timeout_ms())
        if sent_request.link is None or sent_request.error is not None:
            raise self._make_client_error(sent_request) from None
        try:
            answer = await sent_request.link.wait_for_answer(sent_request.correlation_id, timeout_ms / 1000)
        except FAILURES as error:
            self._close_and_forget_link(sent_request.node, sent_request.link)
            raise self._make_client_error(
                sent_request._replace(error=_convert_timeout_error(error, timeout_ms / 1000))
            ) from None
        sent_request.link.used_s = self._network.read_clock_s()
        return answer

    async def retry(self, action: Callable[[], Awaitable[Result]], timeout_ms: int | None = None) -> Result:
        """Call `action` until it succeeds, for `default.api.timeout.ms` at most. Raises its last `ClientError`.

        Between two calls it forgets the leaders or coordinators if the error says that they may have changed.
        """
        outer_s = _DEADLINE_S.get()
        deadline_s = min(outer_s, self._network.read_clock_s() + (timeout_ms or self.settings.api_timeout_ms) / 1000)
        mark = _DEADLINE_S.set(deadline_s)
        try:
            for backoff_s in self._iterate_retry_backoffs():
                try:
                    return await action()
                except ClientError as error:
                    if not error.is_retriable or self._network.read_clock_s() + backoff_s > deadline_s:
                        raise
                    self.forget_leaders_and_coordinators(error.reaction)
                await self._network.sleep(backoff_s)
        finally:
            _DEADLINE_S.reset(mark)
        raise AssertionError("backoffs do not end")

    def raise_if_error(
        self, code: int, purpose: str, node: NodeOrAddress | None = None, message: str | None = None
    ) -> None:
        """Raise `ClientError` unless an error code is 0. `purpose` was requested: "reading topic-0 at 17"."""
        if code != ErrorCode.NONE:
            check_error_code(code, f"{self.get_address_text(node)}: {purpose}", message)

    async def connect_to_any_node(self) -> None:
        """Ask each bootstrap server once, in order, until one answers.

        Unlike `request`, it does not retry, as a person waits for the result. All servers together get the time of
        `socket.connection.setup.timeout.ms`. Raises `ClientError` with the reason of each.
        """
        timeout_s = max(1, self.settings.setup_timeout_ms // len(self._bootstrap)) / 1000
        reasons = []
        for address in self._bootstrap:
            try:
                await self._check_server_answers(address, timeout_s)
                return
            except FAILURES as error:
                reasons.append(f"{address}: {format_reason(_convert_timeout_error(error, timeout_s))}")
        raise ClientError(f"cannot connect to {'; '.join(reasons)}")

    # Nodes, leaders and coordinators

    def forget_leaders_and_coordinators(self, reaction: ErrorReaction = ErrorReaction.FIND_BOTH) -> None:
        """Forget the leaders, the coordinators, or both. They are looked up again when they are needed."""
        if reaction in (ErrorReaction.FIND_LEADER, ErrorReaction.FIND_BOTH):
            self._leaders.clear()
        if reaction in (ErrorReaction.FIND_COORDINATOR, ErrorReaction.FIND_BOTH):
            self._coordinators.clear()

    async def fetch_metadata(self, topics: Iterable[str] | None = (), *, create: bool = False) -> Any:
        """Return the answer to a Metadata request for some topics (None: all), which creates no topic unless asked to.

        Its nodes and leaders are remembered. Raises `ClientError`.
        """
        of_topic = MetadataRequest.MetadataRequestTopic
        wanted = None if topics is None else [of_topic(name=topic) for topic in topics]
        # In version 0 an empty list means all topics, and there is no controller.
        answer = await self.request(MetadataRequest(topics=wanted, allow_auto_topic_creation=create), lowest=1)
        if not answer.brokers:
            raise ClientError(f"{self.get_address_text(None)}: the cluster has no nodes yet", ErrorReaction.RETRY)
        self._remember_nodes({each.node_id: Address(each.host, each.port) for each in answer.brokers})
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.leader_id >= 0:
                    self._leaders[topic.name, partition.partition_index] = PartitionLeader(
                        partition.leader_id, partition.leader_epoch
                    )
        return answer

    async def fetch_node_ids(self) -> list[int]:
        """Return the ids of all nodes. Raises `ClientError`."""
        await self.retry(self.fetch_metadata)
        return sorted(self._nodes)

    async def fetch_controller_id(self) -> int | None:
        """Return the id of the controller, to which cluster-wide changes go; None: any node. Raises `ClientError`."""
        node = (await self.retry(self.fetch_metadata)).controller_id
        return node if node >= 0 else None

    async def find_leader(self, partition: Partition) -> PartitionLeader:
        """Return the leader of a partition.

        Raises `ClientError` if the partition does not exist, or does not get a leader in time.
        """
        found = self._leaders.get(partition)
        return found if found is not None else await self.retry(lambda: self._request_leader(*partition))

    async def find_coordinator(self, kind: Literal["group", "transaction"], key: str) -> int:
        """Return the id of the coordinator of a group or a transactional id. Raises `ClientError`."""
        found = self._coordinators.get((kind, key))
        return found if found is not None else await self.retry(lambda: self._request_coordinator(kind, key))

    def get_address_text(self, node: NodeOrAddress | None) -> str:
        """Return `host:port` of a node for messages, or the bootstrap servers for None."""
        found = self._nodes.get(node) if isinstance(node, int) else node
        return str(found or self.settings.bootstrap_servers)

    # Links

    def _iterate_retry_backoffs(self) -> Iterator[float]:
        """Yield the seconds to wait between attempts, without end. They double up to `retry.backoff.max.ms`."""
        backoff_ms = self.settings.retry_backoff_ms
        while True:
            yield backoff_ms / 1000
            backoff_ms = min(2 * backoff_ms, self.settings.retry_backoff_max_ms)

    def _get_remaining_timeout_ms(self) -> int:
        """Return the ms that are left until the deadline of `retry`, but enough for one attempt."""
        left_ms = (_DEADLINE_S.get() - self._network.read_clock_s()) * 1000
        return int(min(max(left_ms, LEAST_ATTEMPT_MS), NEVER_MS))

    def _choose_node(self, node_id: int | None) -> NodeOrAddress:
        """Return the given node, else a connected one, else the one that may be connected to first."""
        if node_id is not None:
            return node_id
        known: list[NodeOrAddress] = [*self._nodes, *self._bootstrap]
        return min(known, key=lambda node: (node not in self._links, self._failed.get(node, NOT_FAILED).until_s))

    async def _send_to_node(
        self, message: Message, node: NodeOrAddress, lowest: int, highest: int, timeout_ms: int
    ) -> SentRequest:
        """Send a request to a node. The returned request keeps a failure, which `wait` raises."""
        api = get_api_name(message.api_key)
        try:
            link = await self._open_link(node, timeout_ms / 1000)
            version = link.connection.choose_version(type(message), lowest, highest)
        except FAILURES as error:
            return SentRequest(node, api, None, -1, error)
        is_answered = getattr(message, "acks", -1) != 0
        correlation_id, data = link.connection.encode_request(message, version, is_answered=is_answered)
        try:
            await link.write(data, timeout_ms / 1000)
        except OSError as error:
            self._close_and_forget_link(node, link)
            return SentRequest(node, api, link, correlation_id, _convert_timeout_error(error, timeout_ms / 1000))
        return SentRequest(node, api, link, correlation_id)

    async def _open_link(self, node: NodeOrAddress, timeout_s: float) -> NetworkLink:
        """Return a connection that is ready for requests. Raises one of `FAILURES`."""
        async with self._locks.setdefault(node, self._network.make_lock()):
            link = self._links.get(node)
            if link is not None and self._is_usable(link):
                return link
            if link is not None:
                self._close_and_forget_link(node, link)
            address = self._nodes.get(node) if isinstance(node, int) else node
            if address is None:
                raise ConnectionError(f"the cluster has no node {node}")
            failed = self._failed.get(node, NOT_FAILED)
            wait_s = failed.until_s - self._network.read_clock_s()
            if wait_s > 0:
                await self._network.sleep(min(wait_s, timeout_s))
            since_s = failed.since_s if failed.times else self._network.read_clock_s()
            settings = self.settings
            setup_ms = min(settings.setup_timeout_ms << min(failed.times, 16), settings.setup_timeout_max_ms)
            try:
                self._links[node] = link = await self._connect_link(address, min(timeout_s, setup_ms / 1000))
            except FAILURES:
                backoff_ms = settings.reconnect_backoff_ms << min(failed.times, 16)
                backoff_s = min(backoff_ms, settings.reconnect_backoff_max_ms) / 1000
                self._failed[node] = ConnectFailures(
                    failed.times + 1, since_s, self._network.read_clock_s() + backoff_s
                )
                raise
            self._failed.pop(node, None)
            self._reached.add(address)
            return link

    async def _connect_link(self, address: Address, timeout_s: float) -> NetworkLink:
        """Return a new connection, negotiated and authenticated."""
        deadline_s = self._network.read_clock_s() + timeout_s
        try:
            link = await self._network.connect(address.host, address.port, self.settings, timeout_s)
            try:
                await negotiate_and_authenticate(
                    link, self.settings, self._network, deadline_s - self._network.read_clock_s()
                )
            except BaseException:
                link.close()
                raise
        except TimeoutError as error:
            raise _convert_timeout_error(error, timeout_s) from None
        except (OverflowError, UnicodeError) as error:  # an invalid port or host, maybe from the broker
            raise ConnectionError(f"no such address: {error}") from None
        return link

    def _is_usable(self, link: NetworkLink) -> bool:
        """Return whether to use a connection again: brokers close idle ones, and ones whose authentication expires."""
        if link.connection.pending:
            return True
        now_s = self._network.read_clock_s()
        idle_ms = (now_s - link.used_s) * 1000
        return now_s < link.expires_s and idle_ms < self.settings.idle_max_ms and link.is_open()

    def _close_and_forget_link(self, node: NodeOrAddress, link: NetworkLink) -> None:
        link.close()
        if self._links.get(node) is link:
            del self._links[node]

    def _remember_nodes(self, nodes: dict[int, Address]) -> None:
        """Remember the nodes of an answer, and close connections to nodes whose address has changed."""
        for node, link in list(self._links.items()):
            if isinstance(node, int) and nodes.get(node) != self._nodes.get(node):
                self._close_and_forget_link(node, link)
        self._nodes = nodes

    async def _check_server_answers(self, address: Address, timeout_s: float) -> None:
        """Wait for the answer of a server to a Metadata request that needs no rights. Raises one of `FAILURES`."""
        deadline_s = self._network.read_clock_s() + timeout_s
        link = await self._open_link(address, timeout_s)
        version = link.connection.choose_version(MetadataRequest, 1, NEWEST)
        correlation_id, data = link.connection.encode_request(MetadataRequest(topics=[]), version)
        try:
            await link.write(data, max(LEAST_S, deadline_s - self._network.read_clock_s()))
            await link.wait_for_answer(correlation_id, max(LEAST_S, deadline_s - self._network.read_clock_s()))
        except FAILURES as error:
            self._close_and_forget_link(address, link)
            if isinstance(error, ConnectionError) and self.settings.credentials is None:
                raise ConnectionResetError(f"{error.strerror or error}{NEEDS_SASL}") from None
            raise

    def _make_client_error(self, sent_request: SentRequest) -> ClientError:
        """Return the error of a request as a `ClientError`."""
        import ssl  # here: it is slow to import, and most commands have no errors

        error, code = sent_request.error, None
        assert error is not None
        is_retriable = isinstance(error, OSError) and not isinstance(error, ssl.SSLError)
        text = format_reason(error)
        if is_retriable and not isinstance(error, TimeoutError):
            text = f"no connection: {text}"
        elif isinstance(error, UnsupportedVersion):
            code = ErrorCode.UNSUPPORTED_VERSION
        if is_retriable and self._is_unknown_address(sent_request.node):
            failed = self._failed.get(sent_request.node, NOT_FAILED)
            is_retriable = failed.until_s - failed.since_s < self._patience_s
            text += f" ({self.settings.bootstrap_servers} advertises this address)"
        why = ErrorReaction.FIND_BOTH if is_retriable else ErrorReaction.FATAL
        return ClientError(f"{self.get_address_text(sent_request.node)}: {sent_request.api}: {text}", why, code)

    def _is_unknown_address(self, node: NodeOrAddress) -> bool:
        """Return whether only the cluster has told a node's address, which was never reached."""
        address = self._nodes.get(node) if isinstance(node, int) else None
        return address is not None and address not in self._reached and address not in self._bootstrap

    async def _request_leader(self, topic: str, partition: int) -> PartitionLeader:
        """Ask for the leader of a partition. Raises `ClientError` if there is none."""
        for found in (await self.fetch_metadata([topic])).topics:
            if found.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
                self.raise_if_error(found.error_code, f"topic {topic}")
            if all(each.partition_index != partition for each in found.partitions):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise ClientError(f"{self.get_address_text(None)}: {topic}-{partition} does not exist", code=code)
        if (topic, partition) not in self._leaders:
            code = ErrorCode.LEADER_NOT_AVAILABLE
            raise ClientError(
                f"{self.get_address_text(None)}: {topic}-{partition} has no leader", choose_error_reaction(code), code
            )
        return self._leaders[topic, partition]

    async def _request_coordinator(self, kind: Literal["group", "transaction"], key: str) -> int:
        """Ask for a coordinator, remember it, and return its id. Raises `ClientError`."""
        request = FindCoordinatorRequest(key=key, key_type=COORDINATOR_TYPES[kind])
        answer = await self.request(request, highest=_SINGLE_COORDINATOR_VERSION)
        self.raise_if_error(answer.error_code, f"coordinator of {kind} {key}", message=answer.error_message)
        if answer.node_id not in self._nodes:
            await self.fetch_metadata()
        self._coordinators[kind, key] = answer.node_id
        return int(answer.node_id)


def format_reason(error: Exception) -> str:
    """Return the reason of a failure, for a message."""
    from minibroker.client.client_tls import describe_tls_problem

    if isinstance(error, ProtocolError):
        return str(error) if isinstance(error, ForeignServer) else f"the answer is malformed: {error}"
    return describe_tls_problem(error) or str((isinstance(error, OSError) and error.strerror) or error)


def _convert_timeout_error(error: Exception, timeout_s: float) -> Exception:
    """Return a TimeoutError that says how long we waited; return any other error as it is."""
    return TimeoutError(f"no answer in {timeout_s:.3g} s") if isinstance(error, TimeoutError) else error
