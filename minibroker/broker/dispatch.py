"""From a frame to its handler and back: headers, versions, and the table of all handlers.

A handler is a plain function `(context, request) -> response | Parked | None`; None answers nothing (acks=0). It says
with `@handles` which API and versions it serves; what it does stands in its own file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeVar

from minibroker.broker.interceptors import Call, Interceptor, Mark
from minibroker.broker.parked import Parked
from minibroker.broker.sockets import BYTES, CLOSE
from minibroker.protocol import apis, headers
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.fields import versions
from minibroker.protocol.headers import RequestHeader, ResponseHeader
from minibroker.protocol.messages.cluster import ApiVersionsResponse
from minibroker.protocol.primitives import MalformedMessage, Output

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster, Node
    from minibroker.broker.connection import Connection

log = logging.getLogger("minibroker.requests")

START = Struct(">hhi")  # API key, API version, correlation id: the same in every request header
FIRST_HEADER_WITH_CLIENT_ID = 1
SIZE = Struct(">i")
SIZE_AND_CORRELATION_ID = Struct(">ii")

Handler = Callable[["Context", Any], Any]
KNOWN_KEYS = frozenset(ApiKey)
AnyHandler = TypeVar("AnyHandler", bound=Callable[..., Any])


class Served:
    """One API as we serve it."""

    def __init__(self, key: ApiKey, served: range, handler: Handler, authenticated: bool) -> None:
        self.key = key
        self.versions = served
        self.handler = handler
        self.authenticated = authenticated


SERVED: dict[int, Served] = {}


def handles(key: ApiKey, served: str, *, authenticated: bool = True) -> Callable[[AnyHandler], AnyHandler]:
    """Register a handler for `key` in the versions `served` ("0-12").

    `authenticated` says whether a client has to be authenticated first, where its listener asks for that.
    """

    def register(handler: AnyHandler) -> AnyHandler:
        if key in SERVED:
            raise ValueError(f"{key.name} has a handler already")
        SERVED[key] = Served(key, versions(served), handler, authenticated)
        return handler

    return register


class Context:
    """What a handler knows beside the request itself."""

    __slots__ = ("client_id", "cluster", "connection", "node", "version")

    def __init__(self, cluster: Cluster, connection: Connection, version: int, client_id: str | None) -> None:
        self.cluster = cluster
        self.connection = connection
        self.node: Node = connection.node
        self.version = version
        self.client_id = client_id


class Route:
    """How one version of one API is read, handled and answered; made when it is first asked for."""

    __slots__ = ("answer_start", "handler", "header_version", "key", "request_class", "version")

    def __init__(self, served: Served, version: int) -> None:
        self.key = served.key
        self.handler = served.handler
        self.version = version
        self.request_class: type[Message] = apis.request_class(served.key)
        self.header_version = headers.request_header_version(served.key, version)
        self.answer_start = answer_start(headers.response_header_version(served.key, version))

    def request_in(self, frame: memoryview) -> Message:
        """The request in a frame that was read before."""
        _, position = RequestHeader.decode_from(frame, self.header_version)
        return self.request_class.decode_from(frame, self.version, position)[0]


class Unanswerable(Exception):
    """A request that has no answer but a closed connection; the message is for the log."""


class Dispatcher:
    """Runs requests on a cluster. The list of `interceptors` may change at any time; see there what they are told."""

    def __init__(self, cluster: Cluster, interceptors: list[Interceptor] | None = None) -> None:
        self.interceptors = [] if interceptors is None else interceptors
        self.cluster = cluster
        self._routes: dict[tuple[int, int], Route] = {}

    def execute(self, connection: Connection, frame: memoryview) -> Any:
        """Run the request in `frame`: a list of items to send, a Parked, or None. Raises Unanswerable."""
        key, version, correlation_id = START.unpack_from(frame, 0)
        route = self._routes.get((key, version))
        if route is None:
            served = SERVED.get(key)
            if served is None or version not in served.versions:
                return self._unsupported(key, version, correlation_id, served)
            route = self._routes[key, version] = Route(served, version)
        try:
            header, position = RequestHeader.decode_from(frame, route.header_version)
            # As Kafka, pass over what follows: librdkafka 2.16 sends Metadata 13 for all topics with 3 bytes too many.
            request, _ = route.request_class.decode_from(frame, version, position)
        except MalformedMessage as error:
            raise Unanswerable(f"a request that cannot be read: {error}") from error
        context = Context(self.cluster, connection, version, header.client_id)
        if self.interceptors:
            return self._intercepted(route, context, request, frame, correlation_id)
        response = route.handler(context, request)
        if response is None:
            return None
        if response.__class__ is Parked:
            return self._park(context, route, correlation_id, request, response)
        return encoded(response, version, route.answer_start, correlation_id)

    def _park(self, context: Context, route: Route, correlation_id: int, request: Message, parked: Parked) -> Any:
        if parked.done:
            return encoded(parked.response, route.version, route.answer_start, correlation_id)
        connection = context.connection

        def finish(response: Message) -> None:
            connection.answered(encoded(response, route.version, route.answer_start, correlation_id))

        def again() -> Parked | None:
            nonlocal parked
            parked.cancel()
            context.cluster = self.cluster
            outcome = route.handler(context, request)
            if outcome.__class__ is not Parked:
                finish(outcome)
                return None
            parked = outcome
            parked.again = again
            parked.attach(finish)
            return None if parked.done else parked

        if route.key != ApiKey.PRODUCE:  # that was written, and its records may be other bytes by now
            parked.again = again
        parked.attach(finish)
        return parked

    def _intercepted(
        self, route: Route, context: Context, request: Message, frame: memoryview, correlation_id: int
    ) -> Any:
        """Run a request through the interceptors' hooks."""
        call = Call(context, route.key, correlation_id, request, frame, route.handler, self.interceptors)
        try:
            outcome = call.run()
            if outcome.__class__ is not Parked:
                return _answer(call, route, outcome)
            if call.is_held:  # its handler may run when the frame's bytes are others already
                call.frame = memoryview(bytearray(frame))
                call.request = route.request_in(call.frame)
            if outcome.done:
                return _answer(call, route, outcome.response)
            return self._park_call(call, route, outcome)
        except BaseException:
            call.lost()
            raise

    def _park_call(self, call: Call, route: Route, parked: Parked) -> Parked:
        connection = call.context.connection
        forget = parked.on_cancel

        def cancel() -> None:
            if forget is not None:
                forget()
            call.lost()

        def finish(response: Message | None) -> None:
            try:
                items = _answer(call, route, response)
            except Exception:
                # Whoever completes the request has no part in what its interceptors do.
                call.fail()
                return
            connection.answered(items or [])

        def again() -> Parked | None:
            nonlocal forget
            call.context.cluster = self.cluster
            if call.is_held or not call.may_run_again:
                return call.left_as_it_is(parked)
            if forget is not None:
                forget()
            forget = None
            outcome = route.handler(call.context, call.request)
            if outcome.__class__ is Parked:
                forget = outcome.cancel
                outcome.attach(parked.complete)
            else:
                parked.complete(outcome)
            return None if parked.done else parked

        parked.on_cancel = cancel
        parked.again = again
        parked.attach(finish)
        return parked

    def _unsupported(self, key: int, version: int, correlation_id: int, served: Served | None) -> list[Any]:
        """KIP-511: a client that asks for ApiVersions in a version of the future learns which ones there are."""
        if key != ApiKey.API_VERSIONS or served is None:
            name = apis.api_name(key) if key in KNOWN_KEYS else "an unknown API"
            raise Unanswerable(f"{name} (key {key}) version {version}, which is not served here")
        ranges = [ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=served.versions[-1])]
        answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=ranges)
        return encoded(answer, 0, answer_start(0), correlation_id)


def _answer(call: Call, route: Route, response: Message | None) -> list[Any] | None:
    """The items of the answer that the interceptors let through, and the mark that tells when they have left."""
    if response is None:
        call.sent(0)
        return None
    items = call.encoded(encoded(call.answered(response), route.version, route.answer_start, call.correlation_id))
    end = items.index(CLOSE) if CLOSE in items else len(items)
    items.insert(end, Mark(call, sum(map(_size_bytes, items[:end]))))
    return items


def _size_bytes(item: Any) -> int:
    """How much an item that is to be sent is: bytes, or a region."""
    size: int = len(item) if item.__class__ in BYTES else item.size_bytes
    return size


def log_fields(frame: memoryview) -> dict[str, Any]:
    """Which request is in a frame, as fields of a structured log line."""
    key, version, _ = START.unpack_from(frame, 0)
    return {"api": apis.api_name(key) if key in KNOWN_KEYS else key, "version": version}


def client_id_in(frame: memoryview) -> str | None:
    """The client id of a request whose version we may not know: it stands where it stood in all versions but one."""
    try:
        return RequestHeader.decode_from(frame, FIRST_HEADER_WITH_CLIENT_ID)[0].client_id
    except MalformedMessage:
        return None


def answer_start(header_version: int) -> bytes:
    """What answers with this header begin with: room for size and correlation id, then what is always the same."""
    return bytes(SIZE.size) + ResponseHeader().encode(header_version)


def encoded(response: Message, version: int, start: bytes, correlation_id: int) -> list[Any]:
    """The frame of an answer that begins with `start`: bytes, and the file regions between them."""
    out = Output()
    out += start
    response.encode_into(out, version)
    regions = out.regions
    size_bytes = len(out) - SIZE.size
    if not regions:
        SIZE_AND_CORRELATION_ID.pack_into(out, 0, size_bytes, correlation_id)
        return [out]
    size_bytes += sum(region.size_bytes for _, region in regions)
    SIZE_AND_CORRELATION_ID.pack_into(out, 0, size_bytes, correlation_id)
    return out.parts()
