"""From a frame to its handler and back: headers, versions, and what becomes of the answer.

A handler is a plain function `(context, request) -> response | Parked | None`; None answers nothing (acks=0). It says
with `@handles` which API it serves; what it does stands in its own file (`served`). A KafkaError that it raises
becomes the answer, where that has an error code for the whole request. One whose work grows with its
request is a generator of steps instead, which returns as much; it is run in slices, and so are the reading of a large
request and the writing of its answer.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from minibroker.broker.requests.answers import (
    LastingAnswers,
    answer_start,
    encoded,
    encoded_in_steps,
    intercepted,
    throttled,
)
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.interceptors import Call, Interceptor
from minibroker.broker.requests.parked import Parked
from minibroker.broker.requests.served import SERVED, Served
from minibroker.broker.requests.slices import Sliced, Slicer
from minibroker.broker.requests.turn import Wait, failure_of
from minibroker.protocol import apis, headers
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.headers import RequestHeader
from minibroker.protocol.messages.cluster import ApiVersionsResponse
from minibroker.protocol.primitives import MalformedMessage
from minibroker.protocol.steps import Steps, released

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.network.connection import Connection
    from minibroker.broker.network.framing import PartialFrame

log = logging.getLogger("minibroker.requests")
closing = logging.getLogger("minibroker.connections")

START = Struct(">hhi")  # API key, API version, correlation id: the same in every request header
FIRST_HEADER_WITH_CLIENT_ID = 1

LARGE_FRAME_BYTES = 4 << 10  # a smaller one is read within a millisecond, whatever is in it
LARGE_PRODUCE_BYTES = 32 << 10  # mostly of records, which are no items
ALLOWED_BYTES_A_BYTE = 5  # of memory for what is in a frame, for each of its bytes, and
ALLOWED_BYTES = 5 << 20  # what any frame may take
# A client that has gone leaves nobody who would want the rest of these; all others are done to their end, as by Kafka.
READS = frozenset(key for key in ApiKey if key.name.startswith(("DESCRIBE_", "LIST_"))) | {
    ApiKey.FETCH,
    ApiKey.OFFSET_FETCH,
}

Context = RequestContext  # as the groups still call it
KNOWN_KEYS = frozenset(ApiKey)


class Unanswerable(Exception):
    """A request that has no answer but a closed connection; the message is for the log."""


class Route:
    """How one version of one API is read, handled and answered; made when it is first asked for."""

    __slots__ = (
        "_response_class",
        "answer_start",
        "authenticated",
        "durable",
        "handler",
        "header_version",
        "key",
        "large_bytes",
        "lasting",
        "request_class",
        "version",
    )

    def __init__(self, served: Served, version: int) -> None:
        self.key = served.key
        self.handler = served.handler
        self.authenticated = served.authenticated
        self.durable = served.durable
        self.lasting = served.lasting
        self.version = version
        self.large_bytes = LARGE_PRODUCE_BYTES if served.key == ApiKey.PRODUCE else LARGE_FRAME_BYTES
        self.request_class: type[Message] = apis.request_class(served.key)
        self._response_class: type[Message] = apis.response_class(served.key)
        self.header_version = headers.request_header_version(served.key, version)
        self.answer_start = answer_start(headers.response_header_version(served.key, version))

    def read(self, frame: memoryview, position: int) -> Steps[tuple[Message, list[list[Any]]]]:
        """Read the request that begins at `position`; return it and its long arrays. Raises MalformedMessage."""
        allowed_bytes = ALLOWED_BYTES + ALLOWED_BYTES_A_BYTE * len(frame)
        return self.request_class.decode_in_steps(frame, self.version, position, allowed_bytes)

    def run(self, context: RequestContext, request: Any) -> Any:
        """Run the handler: a response, None, steps, or a Parked, which waits also for the promises made."""
        commits = context.cluster.commits
        try:
            outcome = self.handler(context, request)
        except KafkaError as error:
            outcome = self.refusal(error)
        if outcome.__class__ is GeneratorType:
            return self.run_on(context, outcome, commits)
        return self.promised(context, outcome, commits)

    def run_on(self, context: RequestContext, steps: Steps[Any], commits: int) -> Steps[Any]:
        """Run steps of the handler, and what follows them; what others change meanwhile is waited for as well."""
        try:
            outcome = yield from steps
        except KafkaError as error:
            outcome = self.refusal(error)
        return self.promised(context, outcome, commits)

    def refusal(self, error: KafkaError) -> Message:
        """Return the answer that says nothing but this error. Raises `error` if that has no place in the answer."""
        fields = self._response_class.__fields__
        if "error_code" not in fields:
            raise error
        message = {"error_message": error.message} if "error_message" in fields else {}
        return self._response_class(error_code=error.code, **message)

    def answer(self, context: RequestContext, correlation_id: int, response: Message) -> list[Any]:
        """Return the frame of an answer: bytes, and the file regions between them."""
        return encoded(throttled(context, response), self.version, self.answer_start, correlation_id)

    def promised(self, context: RequestContext, response: Any, commits: int) -> Any:
        """Return `response`, or a Parked of it if it depends on what is not written or synced yet.

        `commits` is how often the metadata had been changed when the handler began.
        """
        cluster = context.cluster
        lost: list[KafkaError] = []
        if self.durable and cluster.commits != commits:
            metadata = cluster.metadata_log.storage
            context.wait_for(Wait(metadata, metadata.unwritten, synced=True), lost.append)
        waits, context.waits = context.waits, None
        if waits is None:
            return response
        parked = Parked(response.cancel if isinstance(response, Parked) else None)

        def complete() -> None:
            if not lost:
                if isinstance(response, Parked):
                    response.attach(parked.complete, parked.fail)  # it waits for something else too
                else:
                    parked.complete(response)
            elif not parked.done:
                parked.fail(Unanswerable(f"what was changed may be lost: {lost[0]}"))

        cluster.turn.when_all(waits, complete)
        if lost:
            raise Unanswerable(f"what was changed may be lost: {lost[0]}")
        if context.timeout is not None and not parked.done:
            timeout_ms, refuse = context.timeout
            cluster.clock.call_later(timeout_ms, partial(_too_late, parked, response, refuse))
        return parked

    def request_in(self, frame: memoryview) -> Message:
        """The request in a frame that was read before."""
        _, position = RequestHeader.decode_from(frame, self.header_version)
        return self.request_class.decode_from(frame, self.version, position)[0]


class Due:
    """An answer that may leave when its turn ends, if what it tells is written by then."""

    __slots__ = ("_context", "_correlation_id", "_response", "_route")

    def __init__(self, context: RequestContext, route: Route, correlation_id: int, response: Message) -> None:
        self._context = context
        self._route = route
        self._correlation_id = correlation_id
        self._response = response

    def items(self) -> list[Any]:
        """Return the items to send, once the turn has ended."""
        waits, self._context.waits = self._context.waits, None  # `refuse` may hold the context
        for wait, refuse in waits or ():
            failure = failure_of(wait)
            if failure is not None:
                refuse(failure)
        return self._route.answer(self._context, self._correlation_id, self._response)


class Dispatcher:
    """Runs requests on a cluster. The list of `interceptors` may change at any time; see there what they are told.

    Without a `slicer`, all steps of a request run at once.
    """

    def __init__(
        self, cluster: Cluster, interceptors: list[Interceptor] | None = None, slicer: Slicer | None = None
    ) -> None:
        self.interceptors = [] if interceptors is None else interceptors
        self.cluster = cluster
        self.slicer = slicer or Slicer()
        self._routes: dict[tuple[int, int], Route] = {}
        self._lasting = LastingAnswers()

    def execute(self, connection: Connection, frame: memoryview) -> Any:
        """Run the request in `frame`: a list of items to send, a Parked, or None. Raises Unanswerable."""
        key, version, correlation_id = START.unpack_from(frame, 0)
        known = connection.known
        if known is not None and key == known.key and version == known.version and not self.interceptors:
            outcome = known.run(self.cluster, correlation_id, frame)
            if outcome is not None:
                return outcome
        route = self._routes.get((key, version))
        if route is None:
            served = SERVED.get(key)
            if served is None or version not in served.versions:
                return self._unsupported(key, version, correlation_id, served)
            route = self._routes[key, version] = Route(served, version)
        if connection.must_authenticate and route.authenticated:
            raise Unanswerable(f"{apis.api_name(key)} before the client has authenticated")
        try:
            header, position = RequestHeader.decode_from(frame, route.header_version)
            # As Kafka, pass over what follows: librdkafka 2.16 sends Metadata 13 for all topics with 3 bytes too many.
            request: Any
            if len(frame) <= route.large_bytes:
                request, _ = route.request_class.decode_from(frame, version, position)
            else:
                request = _read_in_one_step(route, frame, position)
        except MalformedMessage as error:
            raise Unanswerable(f"a request that cannot be read: {error}") from error
        context = RequestContext(self.cluster, connection, version, header.client_id, self.slicer)
        if route.lasting and not self.interceptors and len(frame) <= route.large_bytes:
            asked = connection.node, connection.listener, connection.principal, version, bytes(frame[position:])
            answer = self._lasting.answer(self.cluster, asked, correlation_id)
            if answer is not None:
                return answer
            context.keep_answer = self._lasting.keeper(self.cluster, asked)
        if request is None:
            return self._read_and_run(context, route, correlation_id, frame, position)
        if self.interceptors:
            return self._intercepted(route, context, request, frame, correlation_id)
        commits = self.cluster.commits
        context.frame = frame
        try:
            response = route.handler(context, request)
        except KafkaError as error:
            response = route.refusal(error)
        if response.__class__ is GeneratorType:
            response = self._begun(context, route, route.run_on(context, response, commits))
        elif route.durable and self.cluster.commits != commits:
            response = route.promised(context, response, commits)
        elif context.waits is not None:
            if response.__class__ is not Parked and not context.must_sync:
                return Due(context, route, correlation_id, response)
            response = route.promised(context, response, commits)
        if response is None:
            return None
        if response.__class__ is Parked:
            return self._park(context, route, correlation_id, request, response)
        items = route.answer(context, correlation_id, response)
        if context.lasts and context.keep_answer is not None:
            context.keep_answer(items)
        return items

    # --- in slices ------------------------------------------------------------------------------

    def _read_and_run(
        self, context: RequestContext, route: Route, correlation_id: int, frame: memoryview, position: int
    ) -> Any:
        """Run a request of many items: reading it is the first of its steps."""
        context.frame_is_kept = True
        if self.interceptors:  # which may hold the request for as long as they like
            frame = memoryview(bytearray(frame))
            call = Call(context, route.key, correlation_id, route.request_class(), frame, route.run, self)
            call.may_run_again = False  # before it is read
            with _lost_if_it_fails(call):
                response = self._begun(context, route, self._whole(context, route, call, frame, position))
            return self._concluded(call, route, response)
        kept = context.connection.hand_over()
        if kept is None:
            frame = memoryview(bytearray(frame))
        response = self._begun(context, route, self._whole(context, route, None, frame, position), kept)
        if response.__class__ is Parked:
            return self._park(context, route, correlation_id, None, response)
        return None if response is None else route.answer(context, correlation_id, response)

    def _whole(
        self, context: RequestContext, route: Route, call: Call | None, frame: memoryview, position: int
    ) -> Steps[Any]:
        """Read the request and run its handler; the outcome is the handler's."""
        try:
            request, context.long_arrays = yield from route.read(frame, position)
        except MalformedMessage as error:
            raise Unanswerable(f"a request that cannot be read: {error}") from error
        if call is None:
            outcome = route.run(context, request)
        else:
            call.request, call.may_run_again = request, route.key != ApiKey.PRODUCE
            outcome = call.run()
        return (yield from outcome) if outcome.__class__ is GeneratorType else outcome

    def _begun(self, context: RequestContext, route: Route, steps: Steps[Any], kept: PartialFrame | None = None) -> Any:
        """Run the first slice of a handler: its outcome if that was all, else a Parked that is completed with it."""
        if kept is None:
            context.keep_frame()
            kept, context.kept = context.kept, None
        try:
            work = self.slicer.begin(steps)
        except BaseException:
            if kept is not None:
                kept.close()
            raise
        if work.__class__ is not Sliced:
            if kept is not None:
                kept.close()
            return work
        parked = Parked()
        parked.is_long = True
        if kept is not None:
            work.on_drop = kept.close
        if route.key in READS:
            parked.on_cancel = work.drop
        work.on_end = lambda work: _ended(work, parked, kept)
        return parked

    def begun(self, call: Call, steps: Steps[Any]) -> Any:
        """As `_begun`, for a request that interceptors have let go on."""
        served = SERVED[call.api_key]
        return self._begun(call.context, Route(served, call.context.version), steps)

    def _answer_in_steps(
        self, context: RequestContext, route: Route, correlation_id: int, response: Message, call: Call | None
    ) -> None:
        """Write the answer of a request that has run in slices, send it, and give the memory of both back."""

        def ended(work: Sliced) -> None:
            try:
                items, long_arrays = work.result()
            except Exception as error:
                failed(context, route, error, call)
                return
            if call is not None and context.connection.closed:
                call.lost()
            if context.lasts and context.keep_answer is not None:
                context.keep_answer(items)
            context.connection.answered(items)
            self.slicer.start(released((*context.long_arrays, *long_arrays)))

        def given_up() -> None:  # the state is replaced, or all comes to its end
            if call is not None:
                call.lost()
            context.connection.fail()

        response = throttled(context, response)
        if call is not None:
            response = call.answered(response)
        work = self.slicer.start(encoded_in_steps(response, route, correlation_id, call))
        if work.done:
            ended(work)
        else:
            work.on_end = ended
            work.on_drop = given_up

    # --- waiting --------------------------------------------------------------------------------

    def _park(
        self, context: RequestContext, route: Route, correlation_id: int, request: Message | None, parked: Parked
    ) -> Any:
        if parked.done:
            return route.answer(context, correlation_id, parked.response)
        return self._wait(context, route, correlation_id, request, parked)

    def _wait(
        self, context: RequestContext, route: Route, correlation_id: int, request: Message | None, parked: Parked
    ) -> Parked | None:
        """Have the request answered once it is done; None if it was answered now."""
        connection = context.connection

        def finish(response: Message | None) -> None:
            if response is None:
                connection.answered([])
            elif parked.is_long:
                self._answer_in_steps(context, route, correlation_id, response, None)
            else:
                connection.answered(route.answer(context, correlation_id, response))

        def fail(error: Exception) -> None:
            failed(context, route, error, None)

        def again() -> Parked | None:
            parked.cancel()
            context.cluster = self.cluster
            outcome = route.run(context, request)
            if outcome.__class__ is GeneratorType:
                outcome = self._begun(context, route, outcome)
            if outcome.__class__ is not Parked:
                finish(outcome)
                return None
            return self._wait(context, route, correlation_id, request, outcome)

        # Not what was written, and its records may be other bytes by now, nor what has not been read yet.
        if route.key != ApiKey.PRODUCE and request is not None:
            parked.again = again
        parked.attach(finish, fail)
        return None if parked.done else parked

    def _intercepted(
        self, route: Route, context: RequestContext, request: Message, frame: memoryview, correlation_id: int
    ) -> Any:
        """Run a request through the interceptors' hooks."""
        call = Call(context, route.key, correlation_id, request, frame, route.run, self)
        with _lost_if_it_fails(call):
            outcome = call.run()
            if outcome.__class__ is GeneratorType:
                outcome = self._begun(context, route, outcome)
        return self._concluded(call, route, outcome)

    def _concluded(self, call: Call, route: Route, outcome: Any) -> Any:
        """What becomes of a request that the interceptors have seen: items, a Parked, or None."""
        with _lost_if_it_fails(call):
            if outcome.__class__ is not Parked:
                return intercepted(call, route, outcome)
            if call.is_held and not outcome.is_long:  # its handler may run when the frame's bytes are others already
                call.frame = memoryview(bytearray(call.frame))
                call.request = route.request_in(call.frame)
            if outcome.done:
                return intercepted(call, route, outcome.response)
            return self._park_call(call, route, outcome)

    def _park_call(self, call: Call, route: Route, parked: Parked) -> Parked:
        connection = call.context.connection
        forget = parked.on_cancel

        def cancel() -> None:
            if forget is not None:
                forget()
            call.lost()

        def finish(response: Message | None) -> None:
            if parked.is_long and response is not None:
                self._answer_in_steps(call.context, route, call.correlation_id, response, call)
            else:
                connection.answered(intercepted(call, route, response) or [])

        def again() -> Parked | None:
            nonlocal forget
            call.context.cluster = self.cluster
            if call.is_held or not call.may_run_again:
                return call.left_as_it_is(parked)
            if forget is not None:
                forget()
            forget = None
            outcome = route.run(call.context, call.request)
            if outcome.__class__ is GeneratorType:
                outcome = self._begun(call.context, route, outcome)
            if outcome.__class__ is Parked:
                forget = outcome.cancel
                outcome.attach(parked.complete, parked.fail)
            else:
                parked.complete(outcome)
            return None if parked.done else parked

        parked.on_cancel = cancel
        parked.again = again
        parked.attach(finish, lambda error: failed(call.context, route, error, call))
        return parked

    def _unsupported(self, key: int, version: int, correlation_id: int, served: Served | None) -> list[Any]:
        """KIP-511: a client that asks for ApiVersions in a version of the future learns which ones there are."""
        if key != ApiKey.API_VERSIONS or served is None:
            name = apis.api_name(key) if key in KNOWN_KEYS else "an unknown API"
            raise Unanswerable(f"{name} (key {key}) version {version}, which is not served here")
        ranges = [ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=served.versions[-1])]
        answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=ranges)
        return encoded(answer, 0, answer_start(0), correlation_id)


def _too_late(parked: Parked, response: Message, refuse: Callable[[], None]) -> None:
    if not parked.done:
        refuse()
        parked.complete(response)


@contextlib.contextmanager
def _lost_if_it_fails(call: Call) -> Iterator[None]:
    try:
        yield
    except BaseException:
        call.lost()
        raise


def _read_in_one_step(route: Route, frame: memoryview, position: int) -> Message | None:
    """The request in a large frame; None if it has so many items that it takes more steps to read."""
    reading = route.read(frame, position)
    try:
        next(reading)
    except StopIteration as end:
        request: Message = end.value[0]
        return request
    reading.close()
    return None


def _ended(work: Sliced, parked: Parked, kept: PartialFrame | None) -> None:
    """Tell who waits for a request what came of its steps."""
    if kept is not None:
        kept.close()
    try:
        outcome = work.result()
    except Exception as error:
        if parked.done and not isinstance(error, Unanswerable):
            log.error("a request whose client has gone failed", exc_info=error)
        parked.fail(error)
        return
    if outcome.__class__ is not Parked:
        parked.complete(outcome)
    elif parked.done:
        outcome.cancel()  # its client has gone meanwhile
    else:
        parked.follow(outcome)


def failed(context: RequestContext, route: Route, error: Exception, call: Call | None) -> None:
    """Cut off the client of a request that has failed outside of `execute`."""
    if call is not None:
        call.lost()
    connection = context.connection
    report(connection, context.client_id, {"api": apis.api_name(route.key), "version": route.version}, error)
    connection.fail()


def report(connection: Connection, client_id: str | None, fields: dict[str, Any], error: Exception) -> None:
    """Log why a connection is closed. A mistake of ours is told with all of its trace."""
    who = connection.software or (f"client id {client_id!r}" if client_id else "unnamed client")
    fields = {**connection.log_fields, **fields}
    if isinstance(error, Unanswerable):
        closing.warning("closing %s (%s): %s", connection.peer, who, error, extra=fields)
    else:
        closing.error("closing %s (%s): a request failed", connection.peer, who, extra=fields, exc_info=error)


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
