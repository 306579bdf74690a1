"""`Proxy`, the object that tests and the command use: a proxy in front of a Kafka, its journal and its faults.

    with Proxy("kafka:9092") as proxy:
        client = Producer({"bootstrap.servers": proxy.bootstrap_servers})
        proxy.faults.add(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)
        proxy.journal.requests("Produce")

The journal, the faults and their grammar are the test kit's own.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, Unpack

from minibroker.broker.clock import Clock, SystemClock
from minibroker.broker.lifecycle import StartError
from minibroker.broker.monitoring.request_statistics import RequestStatistics
from minibroker.broker.network.sockets import SharedSocketState
from minibroker.broker.requests.interceptors import Call, Interceptor
from minibroker.broker.server import BindError
from minibroker.client.asynchronous import LoopLink, LoopNetwork
from minibroker.client.client_errors import FAILURES, SettingError
from minibroker.client.connection_settings import Address, ClientSettings, parse_addresses
from minibroker.client.opening import negotiate_and_authenticate, reauthenticate
from minibroker.proxy.conversation import Conversation
from minibroker.proxy.frame_splitting import FrameMemory
from minibroker.proxy.passing_requests import KnownCluster
from minibroker.proxy.rewritten_addresses import ShowAddress
from minibroker.proxy.upstream_nodes import ListeningHost, UpstreamNode, UpstreamNodes
from minibroker.quantities import Duration
from minibroker.testing.completion import hide_names
from minibroker.testing.faults.engine import Fault, Faults
from minibroker.testing.faults.rules import FaultError, Rule
from minibroker.testing.loops import (
    BrokerLoop,
    NotRunning,
    Result,
    ServedObject,
    blocking,
    make_coroutine_of_blocking_verb,
    shorten_tracebacks,
)
from minibroker.testing.moving_clock import MovingClock
from minibroker.testing.seen.exchange import Exchange
from minibroker.testing.seen.journal import ExchangeConditions, Journal
from minibroker.testing.seen.waiting import DEFAULT_TIMEOUT, ConditionWatch
from minibroker.testing.verbs.wait_verbs import wait_for_requests

log = logging.getLogger("minibroker.proxy")

CLIENT_ID: Final = "minibroker-proxy"
DRAIN_SECONDS: Final = 5.0
OF_LOGINS: Final = ("authentication", "user", "mechanism")


class ProxyFaults(Faults):
    """The faults of a proxy, which sees no logins."""

    def _add_fault(self, rule: Rule) -> Fault:
        """Add a fault. Raises FaultError for one of logins, which the proxy does not see."""
        for word in OF_LOGINS:
            if getattr(rule, word) is not None:
                raise FaultError(f"a proxy has no faults with {word}: it does not see who logs in")
        return super()._add_fault(rule)


@hide_names(
    *(
        "loop",
        "call_on_loop",
        "is_running",
        "moving_clock",
        "interceptors",
        "reset_callbacks",
        "add_interceptor_first",
        "event_listeners",
        "notify_event_listeners",
        "socket_state",
        "memory",
    ),
    *(
        "known_cluster",
        "has_fault_struck_call",
        "reads_requests",
        "witnesses_of_bytes",
        "connect_to_node_of_new_client",
        "forget_client_address",
        "forget_conversation",
        "call_soon",
    ),
    *("make_address_mapper", "get_topic_name", "find_server", "watch", "client_settings", "lends_sasl_login_to_others"),
)
class Proxy(ServedObject):
    """A proxy for `with` (a thread of its own) or `async with` (the caller's event loop)."""

    @shorten_tracebacks
    def __init__(
        self,
        upstream: str,
        listen: str = "127.0.0.1:0",
        *,
        upstream_config: Mapping[str, str] | None = None,
        listener_config: Mapping[str, str] | None = None,
        advertised_host: str | None = None,
    ) -> None:
        """Check the arguments.

        `upstream` is a bootstrap server of the cluster, HOST:PORT, and `listen` where the proxy stands for it; the
        other nodes get the ports behind that one, or any free ports if it is 0. `upstream_config` has a client's
        settings, by their names in Java or librdkafka, with which the proxy connects: TLS, and SASL to log in for its
        clients.
        `listener_config` has a broker's settings that begin with `ssl.`; with them, clients must use TLS.
        `advertised_host` is what clients get as its host. Raises SettingError, SettingsError.
        """
        self.upstream: Final = _get_only_upstream(parse_addresses(upstream))
        settings = {**(upstream_config or {}), "bootstrap.servers": str(self.upstream)}
        self.client_settings: Final = ClientSettings(settings, CLIENT_ID)
        self._listening = ListeningHost(_parse_address(listen), advertised_host, listener_config or {})
        self.interceptors: Final[list[Interceptor]] = []
        self.reset_callbacks: Final[list[Callable[[], None]]] = []
        self.event_listeners: Final[list[Callable[[str, str], None]]] = []
        self.witnesses_of_bytes: tuple[type, ...] = (Journal, ConditionWatch)
        self.memory: Final = FrameMemory()
        self.statistics: Final = RequestStatistics()
        self.watch: Final = ConditionWatch(self)
        self.journal: Final = Journal(self)
        self.faults: Final = ProxyFaults(self, self.watch, self.journal)
        self._clock: MovingClock | None = None
        self._nodes: UpstreamNodes | None = None
        self._known: KnownCluster | None = None
        self._conversations: set[Conversation] = set()
        self._by_peer: dict[str, Conversation] = {}
        self._upstream_tasks: dict[Conversation, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        return f"<Proxy for {self.upstream}{f' on {self.bootstrap_servers}' if self.is_running else ', stopped'}>"

    # --- life -------------------------------------------------------------------------------------

    def _set_loop(self, loop: BrokerLoop) -> None:
        """Set the loop to serve on. Raises RuntimeError if the proxy was started before."""
        if self._loop is not None:
            loop.close()
            raise RuntimeError("the proxy has been started already")
        self._loop = loop

    async def _start_serving(self) -> None:
        """Bind the first port, and wait until clients are accepted. Raises StartError."""
        running = asyncio.get_running_loop()
        self._clock = MovingClock(SystemClock(running))
        self._known = KnownCluster(self._clock)
        try:
            self._nodes = UpstreamNodes(
                self._listening, self.upstream, self._clock, self._make_client_protocol, running
            )
        except BindError as error:
            raise StartError(str(error)) from None
        await self._nodes.wait_until_started()

    async def _stop_serving(self) -> None:
        """Accept no more clients, and close all connections once what was written is sent."""
        nodes, self._nodes = self._nodes, None
        if nodes is None:
            return
        nodes.close()
        for connecting in self._upstream_tasks.values():
            connecting.cancel()
        for conversation in list(self._conversations):
            conversation.close()
        until = asyncio.get_running_loop().time() + DRAIN_SECONDS
        while self._conversations and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.005)
        for conversation in list(self._conversations):
            conversation.client.reset_connection()
            conversation.upstream.reset_connection()
        await asyncio.sleep(0)

    def _close_event_loop(self) -> None:
        """Close the loop."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.close()
        self._clock = self._nodes = None

    # --- what passes ------------------------------------------------------------------------------

    @blocking
    async def wait_for_requests(
        self,
        api: str | None = None,
        count: int = 1,
        timeout: Duration = DEFAULT_TIMEOUT,
        **conditions: Unpack[ExchangeConditions],
    ) -> list[Exchange]:
        """Wait until the journal has `count` such requests; return all of them. Raises RuntimeError if it is off."""
        return await wait_for_requests(self.journal, self.watch, api, count, timeout, conditions)

    await_for_requests = make_coroutine_of_blocking_verb(wait_for_requests)

    # --- where it is ------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """Return HOST:PORT of the proxy, for clients. Raises NotRunning."""
        return str(Address(self._running_nodes.get_advertised_host("localhost"), self._running_nodes.first.port))

    @property
    def ports(self) -> dict[str, int]:
        """Return the listening port for each address of a node. Raises NotRunning."""
        return self.call_on_loop(lambda: {str(node.address): node.port for node in self._running_nodes})

    @property
    def lends_sasl_login_to_others(self) -> bool:
        """Return whether other machines can connect without a certificate, and reach the cluster by SASL."""
        return self._listening.is_open_to_all and self.client_settings.credentials is not None

    @property
    def is_running(self) -> bool:
        """Return whether clients can connect."""
        return self._nodes is not None

    @property
    def _running_nodes(self) -> UpstreamNodes:
        """Return the nodes. Raises NotRunning."""
        if self._nodes is None:
            raise NotRunning("the proxy is not running")
        return self._nodes

    # --- for the journal, the faults and the waits ------------------------------------------------

    @property
    def moving_clock(self) -> MovingClock:
        """Return the proxy's time. Only its loop may use it. Raises NotRunning."""
        if self._clock is None:
            raise NotRunning("the proxy is not running")
        return self._clock

    def add_interceptor_first(self, interceptor: Interceptor) -> None:
        """Add an interceptor before all others."""
        self.interceptors.insert(0, interceptor)

    def notify_event_listeners(self, kind: str, text: str) -> None:
        """Tell those who watch the proxy what a test does to it. Call it on the loop."""
        for witness in self.event_listeners if self._clock is not None else ():
            witness(kind, text)

    def call_on_loop(self, function: Callable[[], Result]) -> Result:
        """Call `function` on the proxy's loop, or here while there is none; return its result."""
        return function() if self._loop is None else self._loop.call_on_loop(function)

    # --- for conversations ------------------------------------------------------------------------

    @property
    def socket_state(self) -> SharedSocketState:
        """Return what all sockets share."""
        return self._running_nodes.shared

    @property
    def known_cluster(self) -> KnownCluster:
        """Return what the proxy knows of the cluster."""
        assert self._known is not None
        return self._known

    @property
    def reads_requests(self) -> bool:
        """Return whether requests have to be decoded, as faults look at them."""
        return self.faults in self.interceptors

    def has_fault_struck_call(self, call: Call | None) -> bool:
        """Return whether a fault may have changed a request or its answer."""
        return call is not None and self.faults.has_fault_struck_call(call)

    def make_address_mapper(self, local_host: str) -> ShowAddress:
        """Return the function that gives the nodes' addresses for clients that have connected to this host."""
        return functools.partial(self._running_nodes.get_advertised_address, local_host=local_host)

    def get_topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, if an answer has named it."""
        return self.known_cluster.image.get_topic_name(topic_id)

    def find_server(self, peer: str) -> str:
        """Return HOST:PORT of the node that the client with this address talks to, or "" if it has gone."""
        conversation = self._by_peer.get(peer)
        return "" if conversation is None else conversation.server

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run `callback` in the loop's next turn."""
        asyncio.get_running_loop().call_soon(callback)

    def _make_client_protocol(self, node: UpstreamNode) -> Any:
        """Return the asyncio protocol for a new client of this node."""
        return Conversation(self, node).client

    def connect_to_node_of_new_client(self, conversation: Conversation) -> None:
        """Connect to the node of a new client."""
        if self._nodes is None:
            conversation.client.reset_connection()
            return
        self._conversations.add(conversation)
        self._by_peer[conversation.peer] = conversation
        task = asyncio.get_running_loop().create_task(self._connect_to_node(conversation))
        self._upstream_tasks[conversation] = task
        task.add_done_callback(lambda _: self._upstream_tasks.pop(conversation, None))

    def forget_client_address(self, conversation: Conversation) -> None:
        """Forget the address of a client that has gone."""
        if self._by_peer.get(conversation.peer) is conversation:
            del self._by_peer[conversation.peer]
        connecting = self._upstream_tasks.get(conversation)
        if connecting is not None:
            connecting.cancel()

    def forget_conversation(self, conversation: Conversation) -> None:
        """Forget a client whose node has gone, too."""
        self._conversations.discard(conversation)

    async def _connect_to_node(self, conversation: Conversation) -> None:
        """Connect to a client's node, and log in if the proxy has credentials; close the client if that fails."""
        address, settings, network = conversation.node.address, self.client_settings, LoopNetwork()
        timeout_s = settings.setup_timeout_ms / 1000
        try:
            link = await network.connect(address.host, address.port, settings, timeout_s)
            try:
                if settings.credentials is not None:
                    await negotiate_and_authenticate(link, settings, network, timeout_s)
            except BaseException:
                link.close()
                raise
        except FAILURES as error:
            reason = str(error) or "it takes too long"
            log.warning("closing %s: cannot connect to %s: %s", conversation.peer, address, reason)
            conversation.client.close()
            return
        if link.is_open() and conversation.client.is_open:
            link.attach_protocol_to_transport(conversation.upstream)
            await self._reauthenticate_in_time(conversation, link)
        else:
            link.close()
            conversation.client.close()

    async def _reauthenticate_in_time(self, conversation: Conversation, link: LoopLink) -> None:
        """Renew the login in time, if it ends at all; close the client if that fails."""
        try:
            await reauthenticate_in_time(conversation, link, self.client_settings, self.known_cluster.clock)
        except FAILURES as error:
            reason = str(error) or "it takes too long"
            log.warning("closing %s: cannot log in again at %s: %s", conversation.peer, conversation.server, reason)
            conversation.close()


def _get_only_upstream(addresses: list[Address]) -> Address:
    """Return the only address of a list. Raises SettingError."""
    if len(addresses) > 1:
        raise SettingError("a proxy has one bootstrap server, which tells it the others")
    return addresses[0]


def _parse_address(text: str) -> Address:
    """Parse HOST:PORT; the host may be empty, and the port 0. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) >= 1 << 16:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return Address(host.strip("[]"), int(port))


class RenewedConversation(Protocol):
    """A conversation, whose upstream connection is that of a link."""

    async def hold_requests(self, link: LoopLink) -> None:
        """Hold requests from the end of the current one on, and give the next answer of the node to `link`."""

    def release_requests(self) -> None:
        """Send the requests that were held."""


async def reauthenticate_in_time(
    conversation: RenewedConversation, link: LoopLink, settings: ClientSettings, clock: Clock
) -> None:
    """Log in again whenever the session is about to expire, until cancelled. Raises one of `FAILURES`."""
    network = LoopNetwork()
    while link.expires_s < float("inf"):
        is_due = asyncio.Event()
        timer = clock.call_later((link.expires_s - network.read_clock_s()) * 1000, is_due.set)
        try:
            await is_due.wait()
        finally:
            timer.cancel()
        await conversation.hold_requests(link)
        await reauthenticate(link, settings, network, settings.setup_timeout_ms / 1000)
        conversation.release_requests()
