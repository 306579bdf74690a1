"""A request on its way through the proxy: what the hooks see as its context, and the answer that it waits for.

The hooks are the broker's own (`broker/requests/interceptors`). They use a little of a request's context, which is here
under the same names: the node, the clock, what is known of topics and sessions, and the client's connection.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, cast

from minibroker.broker.clock import Clock
from minibroker.broker.delayed_operations import DelayedOperation, Promise
from minibroker.broker.network.output_items import CLOSE
from minibroker.broker.requests.interceptors import Call
from minibroker.broker.security.principals import ANONYMOUS
from minibroker.protocol.apis import get_api_name
from minibroker.protocol.declare import Message
from minibroker.protocol.headers import RequestHeader, get_request_header_version
from minibroker.proxy.frame_splitting import SIZE
from minibroker.proxy.learning import LearnedTopics, ShareSessions
from minibroker.proxy.upstream_nodes import UpstreamNode

if TYPE_CHECKING:
    from minibroker.proxy.conversation import Conversation

log = logging.getLogger("minibroker.requests")


class KnownCluster:
    """The cluster, as far as the proxy knows it; the context's `cluster`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.image = LearnedTopics()
        self.shares = ShareSessions()


class UnknownRequest(Message, versions="0+"):
    """A request of an API or a version that is not known here."""


class PendingRequest:
    """A request that has no answer yet. It is also the context of its call, and the context's `connection`.

    `items` are the bytes for the client, None while there are none. `raw` is the answer as it came, and `message` what
    it says, if that was read.
    """

    __slots__ = (
        "_of",
        "answer",
        "api_key",
        "call",
        "client_id",
        "correlation_id",
        "data",
        "delayed",
        "head",
        "is_changed",
        "is_dropped",
        "is_forwarded",
        "is_known",
        "items",
        "message",
        "passing_bytes",
        "received_bytes",
        "raw",
        "request",
        "started_ms",
        "version",
    )

    principal: Final = ANONYMOUS
    authenticator: Final = None

    def __init__(self, of: Conversation, api_key: int, version: int, correlation_id: int, received_bytes: int) -> None:
        self._of = of
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.received_bytes = received_bytes
        self.started_ms = of.known.clock.monotonic_ms()
        self.client_id: str | None = None
        self.is_known = False  # whether the messages of this API and version are declared
        self.data: bytes | bytearray = b""  # the request's frame, until it is forwarded
        self.request: Any = None
        self.call: Call | None = None
        self.delayed: DelayedOperation[Any] | None = None  # with hooks, what the client waits for
        self.answer: Promise[Any] | None = None  # of the node
        self.is_forwarded = self.is_dropped = False
        self.raw: bytes | bytearray = b""
        self.head = b""  # the answer's header, if it was read
        self.message: Message | None = None
        self.is_changed = False  # whether the message is no longer what came
        self.passing_bytes = 0  # of an answer that passes in pieces
        self.items: list[Any] | None = None

    @property
    def key(self) -> int:
        """Return the API key under the name that statistics read."""
        return self.api_key

    @property
    def cluster(self) -> KnownCluster:
        """Return what is known of the cluster."""
        return self._of.known

    @property
    def node(self) -> UpstreamNode:
        """Return the node that the client asked."""
        return self._of.node

    @property
    def context(self) -> PendingRequest:
        """Return itself, as statistics read the attributes of a call's context."""
        return self

    @property
    def connection(self) -> PendingRequest:
        """Return itself, which has what the hooks need of the client's connection."""
        return self

    @property
    def peer(self) -> str:
        """Return the client's address."""
        return self._of.peer

    @property
    def software(self) -> str:
        """Return the name and version of the client's library, as far as it said."""
        return self._of.software

    @property
    def log_fields(self) -> dict[str, Any]:
        """Return the fields of a structured log line for the client."""
        return {"peer": self.peer, "software": self.software or None, "upstream": str(self.node.address)}

    def set_body(self, request: Message) -> None:
        """Replace the message behind the header in the request's frame."""
        frame = memoryview(self.data)[SIZE.size :]
        _, position = RequestHeader.decode_from(frame, get_request_header_version(self.api_key, self.version))
        body = bytes(frame[:position]) + request.encode_with_unknown_tags(self.version)
        self.data = SIZE.pack(len(body)) + body

    def close_after_hook_failure(self, error: Exception) -> None:
        """Close the client's connection without an answer, as a hook has failed."""
        fields = {**self.log_fields, "api": get_api_name(self.api_key), "client": self.client_id}
        who = self.software or "unnamed client"
        log.error("closing %s (%s): a request failed", self.peer, who, extra=fields, exc_info=error)
        if self.call is not None:
            self.call.report_answer_lost()
        self.close_after_failure()

    def close_after_failure(self) -> None:
        """Close the client's connection once earlier answers are sent."""
        self._of.send_answers_in_order(self, [CLOSE])

    def end_without_answer(self) -> None:
        """End the request without an answer, as the client or the node has gone."""
        delayed, self.delayed = self.delayed, None
        if delayed is not None:
            delayed.close()
        if self.is_dropped:
            return
        self.is_dropped = True
        self._of.counts.on_lost(cast(Call, self))
        if self.call is not None:
            self.call.report_answer_lost()
