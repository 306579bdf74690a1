"""A client's connection and the one to the node behind it: requests one way, answers the other, both in order.

    client --> request --> hooks --> node        `_pending`: all requests without an answer to the client
    client <-- ready   <-- hooks <-- answer      `_sent`: those of them that the node has got

Without hooks and addresses, frames pass as they come, large ones in pieces. With hooks (the journal, faults,
statistics) a request is a `Call` as in the broker, whose handler asks the node. What the client gets is the answer's
own bytes, unless an address or a fault has changed it. A request that a fault holds also holds those behind it, which
is what a broker does.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from minibroker.broker.delayed_operations import DelayedOperation, Promise, Slicer
from minibroker.broker.network.output_items import CLOSE
from minibroker.broker.network.sockets import get_peer_name
from minibroker.broker.requests.interceptors import Call
from minibroker.broker.requests.routes import UnanswerableRequest
from minibroker.broker.server import BindError
from minibroker.client.connection_settings import Address
from minibroker.protocol.apis import ApiKey, get_request_class, get_response_class
from minibroker.protocol.declare import Message
from minibroker.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    find_response_version,
    get_request_header_version,
    get_response_header_version,
)
from minibroker.protocol.primitives import MalformedMessage
from minibroker.proxy.directions import ClientFrameReceiver, NodeFrameReceiver
from minibroker.proxy.frame_splitting import SIZE, FrameSplitter
from minibroker.proxy.learning import NAMING
from minibroker.proxy.passing_requests import KnownCluster, PendingRequest, UnknownRequest
from minibroker.proxy.requests import START, get_known_api, is_answered, is_known_version, is_request, read_client_id
from minibroker.proxy.rewritten_addresses import (
    has_addresses_in_answer,
    list_endpoints,
    remove_unknown_versions,
    rewrite_endpoints,
)
from minibroker.proxy.sides import ProxySide

if TYPE_CHECKING:
    from minibroker.client.asynchronous import LoopLink
    from minibroker.proxy.proxy import Proxy
    from minibroker.proxy.upstream_nodes import UpstreamNode

log = logging.getLogger("minibroker.proxy")

MOST_PENDING: Final = 1_000
MOST_READY_BYTES: Final = 1 << 20  # of answers behind one that is held back
HELD_BACK: Final = "an earlier answer is held back"
TOO_MANY: Final = "too many requests wait"
IPV4_IN_IPV6: Final = "::ffff:"
AS_IT_CAME: Final = object()  # the response of a call whose answer cannot be read
READ_ANYWAY: Final = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.FETCH, *NAMING)


class Conversation:
    """A client and the node that it talks to."""

    def __init__(self, proxy: Proxy, node: UpstreamNode) -> None:
        self.node = node
        self.known: KnownCluster = proxy.known_cluster
        self.peer = "?"
        self.server = ""  # the node's address, as the proxy has connected to it
        self.local_host = ""
        self.software = ""
        self.client = ProxySide(proxy.socket_state, self)
        self.upstream = ProxySide(proxy.socket_state, self)
        self.client.other, self.upstream.other = self.upstream, self.client
        self.client.splitter = FrameSplitter(ClientFrameReceiver(self), proxy.memory)
        self.upstream.splitter = FrameSplitter(NodeFrameReceiver(self), proxy.memory)
        self.client.splitter.held = True  # until the node is connected; uvloop would not be paused before it reads
        self.counts = proxy.statistics
        self._proxy = proxy
        self._pending: deque[PendingRequest] = deque()
        self._sent: deque[PendingRequest] = deque()
        self._held: PendingRequest | None = None  # a request that is not forwarded yet
        self._passing: PendingRequest | None = None  # whose answer passes in pieces
        self._client_is_lost = False
        self._is_ending = False  # whether the client gets nothing more than what is pending
        self._has_tokens = False  # whether frames are SASL tokens, as after a SaslHandshake of version 0
        self._ready_bytes = 0
        self._login: LoopLink | None = None  # which logs in again, as soon as
        self._is_paused = asyncio.Event()  # no request is passing; its answers come behind
        self._earlier_answers = 0  # so many, and then
        self._delayed: list[bytes | bytearray] = []  # these requests are sent

    # --- the sides --------------------------------------------------------------------------------

    def on_connected(self, side: ProxySide) -> None:
        """Connect to the node for a new client; take the client's requests once that is done."""
        if side is self.client:
            self.peer = get_peer_name(side.transport)
            self.local_host = side.transport.get_extra_info("sockname")[0].removeprefix(IPV4_IN_IPV6)
            self._proxy.connect_to_node_of_new_client(self)
        else:
            if not self.client.is_open:
                side.close()
                return
            name = side.transport.get_extra_info("peername")
            self.server = str(Address(name[0], name[1]))
            self._resume_reading()

    def on_end_of_stream(self, side: ProxySide) -> None:
        """Tell the other side that this one sends nothing more, once it has got everything before."""
        if side.splitter.is_idle and not side.splitter.held:
            side.splitter.pass_incomplete_frame()
            side.other.send_eof()

    def on_lost(self, side: ProxySide, error: Exception | None) -> None:
        """Close the other side as this one was closed."""
        if side is self.client:
            for pending in list(self._pending):
                pending.end_without_answer()
            self._pending.clear()
            self._sent.clear()
            self._proxy.forget_client_address(self)
            self._client_is_lost = True
        else:
            for pending in list(self._sent):
                pending.end_without_answer()
            self._sent.clear()
        if error is None:
            side.other.close()
        else:
            side.other.reset_connection()
        if self._client_is_lost and not side.other.is_connected:
            self._proxy.forget_conversation(self)

    def close(self) -> None:
        """Close both sides."""
        self.client.close()
        self.upstream.close()

    # --- requests ---------------------------------------------------------------------------------

    def needs_whole_request(self, frame: memoryview) -> bool:
        """Return whether a request must be here whole before it is forwarded, as it is read here."""
        return bool(self._proxy.interceptors) or START.unpack_from(frame)[0] in READ_ANYWAY

    def process_request(self, data: bytes | bytearray) -> None:
        """Run the hooks of a whole request of the client, and forward it."""
        frame = memoryview(data)[SIZE.size :]
        if self._is_sasl_token(frame):
            self.upstream.write(data)
            return
        pending = self._add_pending_request(frame, len(data))
        pending.data = data
        self._read_request(pending, frame)
        interceptors = self._proxy.interceptors
        if not interceptors:
            self._forward_request(pending)
            return
        if not pending.is_known:
            interceptors = [each for each in interceptors if isinstance(each, self._proxy.witnesses_of_bytes)]
        context = cast(Any, pending)
        request = UnknownRequest() if pending.request is None else pending.request
        pending.call = Call(
            context, request, frame.toreadonly(), self._forward_request_and_wait_for_answer, interceptors
        )
        self._run_request_hooks(pending, pending.call)

    def begin_request_in_pieces(self, frame_start: memoryview, size_bytes: int) -> None:
        """Forward a request whose pieces follow."""
        frame = frame_start[SIZE.size :]
        if self._is_sasl_token(frame):
            return
        if self._proxy.interceptors:
            log.warning("a request of %d bytes of %s passes without the journal and faults", size_bytes, self.peer)
        self._mark_request_forwarded(self._add_pending_request(frame, size_bytes), frame)

    def _is_sasl_token(self, frame: memoryview) -> bool:
        """Return whether a frame is no request, as raw SASL tokens are none."""
        if not is_request(frame, strictly=self._has_tokens):
            return True
        self._has_tokens = False
        return False

    def _add_pending_request(self, frame: memoryview, size_bytes: int) -> PendingRequest:
        key, version, correlation_id = START.unpack_from(frame)
        pending = PendingRequest(self, get_known_api(key), version, correlation_id, size_bytes)
        self.counts.before_request(cast(Call, pending))
        pending.is_known = is_known_version(key, version)
        if not pending.is_known and has_addresses_in_answer(key, version):
            log.warning("%s asks in version %d of API %d, which is not known: addresses pass", self.peer, version, key)
        pending.client_id = read_client_id(frame)
        self._pending.append(pending)
        if len(self._pending) >= MOST_PENDING:
            self.client.pause_reading(TOO_MANY)
        return pending

    def _read_request(self, pending: PendingRequest, frame: memoryview) -> None:
        """Decode a request if that is needed, and learn from it."""
        if not pending.is_known or not (self._proxy.reads_requests or pending.api_key in READ_ANYWAY):
            return
        key, version = pending.api_key, pending.version
        try:
            _, position = RequestHeader.decode_from(frame, get_request_header_version(key, version))
            pending.request, _ = get_request_class(key).decode_with_unknown_tags(frame, version, position)
        except MalformedMessage as error:
            log.warning("%s sends a request that cannot be read: %s", self.peer, error)
            pending.is_known = False
            return
        if key == ApiKey.API_VERSIONS and version >= 3:
            request = pending.request
            self.software = f"{request.client_software_name} {request.client_software_version}".strip()

    def _run_request_hooks(self, pending: PendingRequest, call: Call) -> None:
        """Run the hooks of a request, and the handler behind them."""
        answered, failed = partial(self._finish_call, pending), partial(self._fail_call_and_close, pending)
        try:
            outcome = Slicer().run_or_delay(call.run_hooks_and_handler(), answered, failed)
        except Exception as error:
            self._fail_call_and_close(pending, error)
            return
        if not isinstance(outcome, DelayedOperation):
            self._finish_call(pending, outcome)
            return
        pending.delayed = outcome
        if not pending.is_forwarded:
            self._held, self.client.splitter.held = pending, True

    def _fail_call_and_close(self, pending: PendingRequest, error: Exception) -> None:
        """Close the client's connection, as a hook wants it, or has failed."""
        assert pending.call is not None
        if not isinstance(error, UnanswerableRequest):
            pending.close_after_hook_failure(error)
            return
        log.info("closing %s: %s", self.peer, error)
        pending.call.report_answer_lost()
        self._is_ending = self.client.splitter.held = True  # nothing behind it runs
        pending.close_after_failure()

    async def _forward_request_and_wait_for_answer(self, pending: PendingRequest, request: Any) -> Any:
        """Forward a request that has passed the hooks; return the node's answer, None for no answer."""
        if pending.request is not None and self._proxy.has_fault_struck_call(pending.call):
            pending.set_body(request)
        self._forward_request(pending)
        if self._held is pending:
            self._resume_after_held_request()
        return None if pending.answer is None else await pending.answer

    def _forward_request(self, pending: PendingRequest) -> None:
        data, pending.data = pending.data, b""
        self._mark_request_forwarded(pending, memoryview(data)[SIZE.size :])
        if self._is_paused.is_set():
            self._delayed.append(data)
        else:
            self.upstream.write(data)

    def _mark_request_forwarded(self, pending: PendingRequest, frame: memoryview) -> None:
        """Record that the node gets a request now, and expect its answer, if it has one."""
        pending.is_forwarded = True
        if pending.api_key == ApiKey.PRODUCE and not is_answered(frame, pending.version):
            if pending.call is None:
                self.send_answers_in_order(pending, [])
            return
        pending.answer = Promise()
        self._sent.append(pending)
        if pending.api_key == ApiKey.SASL_HANDSHAKE and pending.version == 0:
            self._has_tokens = True

    def _resume_after_held_request(self) -> None:
        """Process the requests behind one that a hook has held."""
        self._held = None
        self._proxy.call_soon(self._resume_reading)

    # --- while the proxy logs in again ------------------------------------------------------------

    async def hold_requests(self, link: LoopLink) -> None:
        """Hold requests from the end of the current one on, and give the next answer of the node to `link`."""
        self._login = link
        self.hold_requests_if_login_is_due()
        await self._is_paused.wait()

    def hold_requests_if_login_is_due(self) -> None:
        """Hold requests between two of them, if the proxy is to log in."""
        if self._login is not None and not self.client.splitter.is_passing_frame_in_pieces:
            self.client.splitter.held = True
            self._earlier_answers = len(self._sent)
            self._is_paused.set()

    def release_requests(self) -> None:
        """End a hold for a login: send what was held, and take further requests."""
        self._login = None
        self._is_paused.clear()
        delayed, self._delayed = self._delayed, []
        for data in delayed:
            self.upstream.write(data)
        self._resume_reading()

    def _resume_reading(self) -> None:
        """Take further requests of the client, unless a login or a hook still holds them."""
        if self._login is None and self._held is None and self.client.splitter.held and not self._is_ending:
            self.client.resume_splitting()
            if self.client.has_ended:
                self.on_end_of_stream(self.client)

    # --- answers ----------------------------------------------------------------------------------

    def needs_whole_answer(self, pending: PendingRequest) -> bool:
        """Return whether an answer must be here whole before it is passed on, as it is read here."""
        return pending.call is not None or pending.is_known

    def needs_whole_next_answer(self) -> bool:
        """Return whether the next answer of the node must be here whole before it is passed on."""
        return self._is_answer_to_login or (bool(self._sent) and self.needs_whole_answer(self._sent[0]))

    @property
    def _is_answer_to_login(self) -> bool:
        """Return whether the node's next answer is to a login of the proxy itself."""
        return self._is_paused.is_set() and self._earlier_answers <= 0

    def _take_answered_request(self) -> PendingRequest:
        """Remove the request to which the node's next answer belongs, and return it."""
        self._earlier_answers -= 1
        return self._sent.popleft()

    def process_answer(self, data: bytes | bytearray) -> None:
        """Read a whole answer of the node, and pass it on, or to the hooks of its request."""
        if self._is_answer_to_login and self._login is not None:
            self._login.process_received_bytes(data)
            return
        if not self._sent:
            self.client.write(data)  # to a token
            return
        pending = self._take_answered_request()
        pending.raw = data
        if pending.is_known:
            self._read_answer(pending, memoryview(data)[SIZE.size :])
        if pending.call is None:
            if pending.message is not None:
                self.counts.alter_response(cast(Call, pending), pending.message)
            self.send_answers_in_order(pending, self._encode_answer_if_changed(pending))
        elif pending.answer is not None:
            pending.answer.resolve(AS_IT_CAME if pending.message is None else pending.message)

    def begin_answer_in_pieces(self, size_bytes: int) -> None:
        """Expect the pieces of an answer, which pass as they are."""
        if not self._sent:
            return
        self._passing = pending = self._take_answered_request()
        pending.passing_bytes = size_bytes
        if self.needs_whole_answer(pending):
            log.warning("an answer of %d bytes for %s passes unread", size_bytes, self.peer)

    def pass_answer_piece(self, data: bytes, *, is_last: bool) -> None:
        """Send a piece of an answer to the client, after all earlier answers."""
        pending = self._passing
        if pending is None:
            self.client.write(data)
            return
        if is_last:
            self._passing = None
        if pending is self._pending[0]:
            self.client.write(data)
            if is_last:
                self.send_answers_in_order(pending, [])
        else:
            pending.items = [*(pending.items or ()), data]
            self._ready_bytes += len(data)
            self.upstream.pause_reading(HELD_BACK)

    def _read_answer(self, pending: PendingRequest, frame: memoryview) -> None:
        """Decode an answer, learn from it, and replace the nodes' addresses by the proxy's."""
        key, version = pending.api_key, pending.version
        try:
            header, position = ResponseHeader.decode_from(frame, get_response_header_version(key, version))
            if header.correlation_id != pending.correlation_id:
                log.warning("%s gets an answer to request %d, not %d", self.peer, header.correlation_id,
                            pending.correlation_id)  # fmt: skip
                return
            pending.version = version = find_response_version(key, version, frame, position)
            pending.message, _ = get_response_class(key).decode_with_unknown_tags(frame, version, position)
            pending.head = bytes(frame[:position])
        except (MalformedMessage, ValueError) as error:
            log.warning("%s gets an answer that cannot be read: %s", self.peer, error)
            return
        self._learn_topic_names_or_fetch_session(pending, pending.message)
        self._rewrite_addresses(pending, pending.message)

    def _learn_topic_names_or_fetch_session(self, pending: PendingRequest, answer: Any) -> None:
        if pending.api_key in NAMING:
            self.known.image.learn_topic_names(answer)
        elif pending.api_key == ApiKey.FETCH and pending.version >= 7 and pending.request is not None:
            self.node.sessions.apply_fetch(pending.request, pending.version, answer.session_id)

    def _rewrite_addresses(self, pending: PendingRequest, message: Message) -> None:
        """Replace addresses; close the client if there is no port for a node."""
        if pending.api_key == ApiKey.API_VERSIONS:
            pending.is_changed = remove_unknown_versions(message)
        elif has_addresses_in_answer(pending.api_key, pending.version):
            endpoints = list_endpoints(message)
            pending.is_changed = bool(endpoints)
            try:
                rewrite_endpoints(endpoints, self._proxy.make_address_mapper(self.local_host))
            except BindError as error:
                log.error("closing %s: %s", self.peer, error)
                self.close()

    def _encode_answer_if_changed(self, pending: PendingRequest) -> list[Any]:
        """Return the answer for the client: the bytes that came, unless something has changed it."""
        if not pending.is_changed or pending.message is None:
            return [pending.raw]
        return self._encode_answer(pending, pending.message)

    def _encode_answer(self, pending: PendingRequest, response: Message) -> list[Any]:
        header = get_response_header_version(pending.api_key, pending.version)
        head = pending.head or ResponseHeader(correlation_id=pending.correlation_id).encode(header)
        body = response.encode_with_unknown_tags(pending.version)
        return [SIZE.pack(len(head) + len(body)) + head + body]

    def _finish_call(self, pending: PendingRequest, response: Any) -> None:
        """Run the hooks of an answer, and send it. None means that there is none, as to a Produce with acks=0."""
        call = pending.call
        assert call is not None
        if self._held is pending:
            self._resume_after_held_request()
        pending.delayed = None
        if response is None:
            self.send_answers_in_order(pending, [])
            return
        try:
            items = [pending.raw] if response is AS_IT_CAME else self._run_answer_hooks(pending, call, response)
            self.send_answers_in_order(pending, call.alter_answer_frame(items))
        except Exception as error:
            pending.close_after_hook_failure(error)

    def _run_answer_hooks(self, pending: PendingRequest, call: Call, response: Message) -> list[Any]:
        """Run the hooks of an answer. Return what to send: the bytes that came, or a new frame."""
        is_own = response is not pending.message or self._proxy.has_fault_struck_call(call)
        response = call.alter_response(response)
        self.counts.alter_response(call, response)
        pending.is_changed = pending.is_changed or is_own
        return self._encode_answer(pending, response) if pending.is_changed else [pending.raw]

    def send_answers_in_order(self, pending: PendingRequest, items: list[Any]) -> None:
        """Send an answer to the client as soon as all earlier ones are sent."""
        if pending.items is None:
            pending.items = items
            self._ready_bytes += sum(len(item) for item in items if item is not CLOSE)
        self._send_ready_answers()
        if self._ready_bytes > MOST_READY_BYTES:
            self.upstream.pause_reading(HELD_BACK)

    def _send_ready_answers(self) -> None:
        while self._pending and self._pending[0].items is not None:
            pending = self._pending[0]
            if self._passing is pending:  # its other pieces follow
                self._write_answer_items(pending.items or [])
                pending.items = None
                break
            self._pending.popleft()
            if self._send_answer(pending, pending.items or []):
                self._close_both_sides()
                return
        if self._ready_bytes <= MOST_READY_BYTES:
            self.upstream.resume_reading(HELD_BACK)
        if len(self._pending) < MOST_PENDING:
            self.client.resume_reading(TOO_MANY)

    def _send_answer(self, pending: PendingRequest, items: list[Any]) -> bool:
        """Write an answer; return whether the connection ends behind it."""
        ends = CLOSE in items
        written_bytes = self._write_answer_items(items[: items.index(CLOSE)] if ends else items)
        if ends and not written_bytes:
            pending.end_without_answer()
            return True
        sent_bytes = pending.passing_bytes or written_bytes
        self.counts.on_sent(cast(Call, pending), sent_bytes, self.known.clock.monotonic_ms() - pending.started_ms)
        if pending.call is not None:
            pending.call.report_answer_sent(sent_bytes)
        return ends

    def _write_answer_items(self, items: list[bytes]) -> int:
        """Write the pieces of an answer; return their size in bytes."""
        size_bytes = sum(map(len, items))
        self._ready_bytes -= size_bytes
        for item in items:
            self.client.write(item)
        return size_bytes

    def _close_both_sides(self) -> None:
        """Close both sides once the client has got what was written, and drop the requests that wait."""
        self._is_ending = self.client.splitter.held = True
        dropped = [*self._pending]
        self._pending.clear()
        self._sent.clear()
        for pending in dropped:
            pending.end_without_answer()
        self.close()
