"""The dispatcher: from a frame to its handler, and from the handler's result to the answer.

A handler is a plain function `(context, request) -> response | Parked | None`; None sends no answer (acks=0).
`@handles` registers it for its API (`served`). A KafkaError that it raises becomes the answer, if the response has an
error code for the whole request. A handler whose work grows with its request is a generator of steps that returns the
same; it runs in slices, and so do the decoding of a large request and the encoding of its answer.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from struct import Struct
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from minibroker.broker.network.parked import Parked
from minibroker.broker.quotas.quota_manager import Usage
from minibroker.broker.requests.answers import (
    LastingAnswers,
    answer_start,
    encoded,
    encoded_in_steps,
    intercepted,
    throttled,
)
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.routes import LARGE_FRAME_BYTES, Due, Route, Unanswerable
from minibroker.broker.requests.served import SERVED, Served
from minibroker.broker.requests.slices import Sliced, Slicer
from minibroker.protocol import apis
from minibroker.protocol.apis import READS, ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.headers import RequestHeader
from minibroker.protocol.messages.cluster import ApiVersionsResponse
from minibroker.protocol.primitives import AnswerTooLarge, MalformedMessage
from minibroker.protocol.steps import Steps, released

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker
    from minibroker.broker.network.authenticator import Authenticator
    from minibroker.broker.network.connection import Connection
    from minibroker.broker.network.framing import PartialFrame
    from minibroker.broker.requests.interceptors import Call, Interceptor

log = logging.getLogger("minibroker.requests")
closing = logging.getLogger("minibroker.connections")

START = Struct(">hhi")  # API key, API version, correlation id: the same in every request header
FIRST_HEADER_WITH_CLIENT_ID = 1

KNOWN_KEYS = frozenset(ApiKey)


class Dispatcher:
    """Runs requests on a cluster. The list of `interceptors` may change at any time.

    Without a `slicer`, all steps of a request run at once.
    """

    def __init__(
        self, cluster: Broker, interceptors: list[Interceptor] | None = None, slicer: Slicer | None = None
    ) -> None:
        self.interceptors = [] if interceptors is None else interceptors
        self.cluster = cluster
        self.slicer = slicer or Slicer()
        self._routes: dict[tuple[int, int], Route] = {}
        self._lasting = LastingAnswers()

    def execute(self, connection: Connection, frame: memoryview) -> Any:
        """Run the request in `frame`; return a list of items to send, a Parked, or None. Raises Unanswerable."""
        key, version, correlation_id = START.unpack_from(frame, 0)
        if connection.must_authenticate:
            authenticator = _admit(connection, key)
            if authenticator is not None:
                return self._misplaced(authenticator, key, version, correlation_id, frame)
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
        try:
            header, position = RequestHeader.decode_from(frame, route.header_version)
            context = RequestContext(self.cluster, connection, version, header.client_id, self.slicer)
            if self.cluster.image.quotas:
                context.usage = Usage(len(frame))
            elif route.lasting and not self.interceptors and len(frame) <= route.large_bytes:
                answer = self._lasting_answer(context, correlation_id, frame[position:])
                if answer is not None:
                    return answer
            # As in Kafka, ignore extra bytes: librdkafka 2.16 sends Metadata 13 for all topics with 3 bytes too many.
            request: Any
            if len(frame) <= route.large_bytes:
                request, _ = route.request_class.decode_from(frame, version, position)
            else:
                request = _read_in_one_step(route, frame, position)
        except MalformedMessage as error:
            raise Unanswerable(f"a request that cannot be read: {error}") from error
        if request is None:
            return self._read_and_run(context, route, correlation_id, frame, position)
        if self.interceptors:
            return self._intercepted(route, context, request, frame, correlation_id)
        context.frame = frame
        return self._run(context, route, correlation_id, request)

    def _misplaced(
        self, authenticator: Authenticator, key: int, version: int, correlation_id: int, frame: memoryview
    ) -> Any:
        """Answer a request in the middle of a SASL exchange with ILLEGAL_SASL_STATE, and close the connection.

        A request that cannot be read, or whose response has no error code for the whole request, only gets the close.
        """
        name = _name(key)
        reason = f"Unexpected Kafka request of type {name} during SASL authentication."
        served = SERVED.get(key)
        if served is None or version not in served.versions or len(frame) > LARGE_FRAME_BYTES:
            raise Unanswerable(reason)
        route = Route(served, version)
        try:
            _, position = RequestHeader.decode_from(frame, route.header_version)
            route.request_class.decode_from(frame, version, position)
            response = route.refusal(KafkaError(ErrorCode.ILLEGAL_SASL_STATE, reason))
        except (MalformedMessage, KafkaError) as error:
            raise Unanswerable(reason) from error
        return authenticator.refuse(reason, encoded(response, version, route.answer_start, correlation_id))

    def _lasting_answer(self, context: RequestContext, correlation_id: int, body: memoryview) -> list[Any] | None:
        """Return the cached answer of a request, or None; then let the context cache it."""
        connection = context.connection
        host = None if self.cluster.authorizer is None else connection.host
        asked = connection.node, connection.listener, connection.principal, host, context.version, bytes(body)
        answer = self._lasting.answer(self.cluster, asked, correlation_id)
        if answer is None:
            context.keep_answer = self._lasting.keeper(self.cluster, asked)
        return answer

    def _run(self, context: RequestContext, route: Route, correlation_id: int, request: Any) -> Any:
        """Run the handler; return its outcome as `execute` does."""
        commits = self.cluster.commits
        try:
            response = route.handler(context, request)
        except KafkaError as error:
            response = route.refusal(error)
        if context.usage is not None:
            context.usage.stop()
        if response.__class__ is GeneratorType:
            response = self._begun(context, route, route.run_on(context, response, commits))
        elif route.durable and self.cluster.commits != commits:
            response = route.promised(context, response, commits)
        elif context.waits is not None:
            if response.__class__ is not Parked and not context.must_sync:
                return Due(context, route, correlation_id, response)
            response = route.promised(context, response, commits)
        if response is None:
            context.throttle(produced=True)
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
        """Run a large request, whose decoding is the first of its steps."""
        context.frame_is_kept = True
        if self.interceptors:  # which may hold the request
            frame = memoryview(bytearray(frame))
            call = self._call(context, route, correlation_id, route.request_class(), frame)
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
        if response is None:
            context.throttle(produced=True)
            return None
        return route.answer(context, correlation_id, response)

    def _whole(
        self, context: RequestContext, route: Route, call: Call | None, frame: memoryview, position: int
    ) -> Steps[Any]:
        """Read the request and run its handler; return the handler's result."""
        try:
            request, context.long_arrays = yield from route.read(frame, position)
        except MalformedMessage as error:
            raise Unanswerable(f"a request that cannot be read: {error}") from error
        if call is None:
            context.may_take_apart = True
            outcome = route.run(context, request)
        else:
            call.request, call.may_run_again = request, route.key != ApiKey.PRODUCE
            outcome = call.run()
        return (yield from outcome) if outcome.__class__ is GeneratorType else outcome

    def _begun(self, context: RequestContext, route: Route, steps: Steps[Any], kept: PartialFrame | None = None) -> Any:
        """Run the first slice of a handler; return its outcome if it is done, else a Parked that gets the outcome."""
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
        parked.holds_request = False
        if kept is not None:
            work.on_drop = kept.close
        if route.key in READS:  # all others run to their end, as in Kafka
            parked.on_cancel = work.drop
        else:
            parked.runs_to_its_end = True
        work.on_end = lambda work: _ended(context.connection, work, parked, kept)
        return parked

    def begun(self, call: Call, steps: Steps[Any]) -> Any:
        """Do as `_begun`, for a request that the interceptors have passed on."""
        served = SERVED[call.api_key]
        return self._begun(call.context, Route(served, call.context.version), steps)

    def _answer_in_steps(
        self, context: RequestContext, route: Route, correlation_id: int, response: Message, call: Call | None
    ) -> None:
        """Encode and send the answer of a request that ran in slices, and release the memory of both."""

        def ended(work: Sliced) -> None:
            try:
                items, long_arrays = work.result()
            except AnswerTooLarge as error:
                failed(context, route, Unanswerable(str(error)), call)
                self.slicer.start(released((*context.long_arrays, *error.long_arrays)))
                return
            except Exception as error:
                failed(context, route, error, call)
                return
            if call is not None and context.connection.closed:
                call.lost()
            if context.lasts and context.keep_answer is not None:
                context.keep_answer(items)
            context.connection.answered(items)
            self.slicer.start(released((*context.long_arrays, *long_arrays)))

        def given_up() -> None:  # the state is replaced, or the broker stops
            if call is not None:
                call.lost()
            context.connection.fail()

        response = throttled(context, response)
        if call is not None:
            response = call.answered(response)
        work = self.slicer.start(encoded_in_steps(response, route.version, route.answer_start, correlation_id, call))
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
        """Answer the request once it is done; return None if it was answered now."""
        connection = context.connection
        context.frame = None  # which may be large

        def finish(response: Message | None) -> None:
            if response is None:
                context.throttle(produced=True)
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

        # Not after a write, as its records may be overwritten by now, and not before the request is decoded.
        if route.key != ApiKey.PRODUCE and request is not None:
            parked.again = again
        parked.holds_request = not parked.is_long and route.key != ApiKey.PRODUCE
        parked.attach(finish, fail)
        return None if parked.done else parked

    def _intercepted(
        self, route: Route, context: RequestContext, request: Message, frame: memoryview, correlation_id: int
    ) -> Any:
        """Run a request through the interceptors' hooks."""
        call = self._call(context, route, correlation_id, request, frame)
        with _lost_if_it_fails(call):
            outcome = call.run()
            if outcome.__class__ is GeneratorType:
                outcome = self._begun(context, route, outcome)
        return self._concluded(call, route, outcome)

    def _call(
        self, context: RequestContext, route: Route, correlation_id: int, request: Message, frame: memoryview
    ) -> Call:
        from minibroker.broker.requests.interceptors import Call  # most brokers have no interceptors

        return Call(context, route.key, correlation_id, request, frame, route.run, self)

    def _concluded(self, call: Call, route: Route, outcome: Any) -> Any:
        """Return the outcome of a request after the interceptors: items, a Parked, or None."""
        with _lost_if_it_fails(call):
            if outcome.__class__ is not Parked:
                return intercepted(call, route.answer_start, outcome)
            if call.is_held and not outcome.is_long:  # its handler may run after the frame's bytes were overwritten
                call.frame = memoryview(bytearray(call.frame))
                call.request = route.request_in(call.frame)
            if outcome.done:
                return intercepted(call, route.answer_start, outcome.response)
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
                connection.answered(intercepted(call, route.answer_start, response) or [])

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
        """Answer an ApiVersions request of a newer version with the supported versions (KIP-511)."""
        if key != ApiKey.API_VERSIONS or served is None:
            raise Unanswerable(f"{_name(key)} (key {key}) version {version}, which is not served here")
        ranges = [ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=served.versions[-1])]
        answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=ranges)
        for interceptor in reversed(self.interceptors):
            answer = interceptor.unsupported(answer)
        return encoded(answer, 0, answer_start(0), correlation_id)


def _admit(connection: Connection, key: int) -> Authenticator | None:
    """Return None if a client that must authenticate may send a request of this API now.

    Return its authenticator if the request comes in the middle of an exchange. Raises Unanswerable at any other time.
    """
    authenticator = connection.authenticator
    if authenticator is None:
        raise Unanswerable("a request on a connection that cannot authenticate")
    objection = authenticator.objection(key)
    if objection is None:
        return None
    if authenticator.is_in_exchange:
        return authenticator
    raise Unanswerable(f"{_name(key)} {objection}")


def _name(key: int) -> str:
    """Return the name of an API for the log."""
    return apis.api_name(key) if key in KNOWN_KEYS else "an unknown API"


@contextlib.contextmanager
def _lost_if_it_fails(call: Call) -> Iterator[None]:
    try:
        yield
    except BaseException:
        call.lost()
        raise


def _read_in_one_step(route: Route, frame: memoryview, position: int) -> Message | None:
    """Return the request in a large frame, or None if it has so many items that it takes more steps to decode."""
    reading = route.read(frame, position)
    try:
        next(reading)
    except StopIteration as end:
        request: Message = end.value[0]
        return request
    reading.close()
    return None


def _ended(connection: Connection, work: Sliced, parked: Parked, kept: PartialFrame | None) -> None:
    """Complete a parked request with the result of its steps."""
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
        if outcome.holds_request and not parked.done:
            connection.hold_request()


def failed(context: RequestContext, route: Route, error: Exception, call: Call | None) -> None:
    """Disconnect the client of a request that has failed outside of `execute`."""
    if call is not None:
        call.lost()
    connection = context.connection
    report(connection, context.client_id, {"api": apis.api_name(route.key), "version": route.version}, error)
    connection.fail()


def report(connection: Connection, client_id: str | None, fields: dict[str, Any], error: Exception) -> None:
    """Log why a connection is closed; for a bug of ours, with its traceback."""
    who = connection.software or (f"client id {client_id!r}" if client_id else "unnamed client")
    fields = {**connection.log_fields, **fields}
    if isinstance(error, Unanswerable):
        closing.warning("closing %s (%s): %s", connection.peer, who, error, extra=fields)
    else:
        closing.error("closing %s (%s): a request failed", connection.peer, who, extra=fields, exc_info=error)


def log_fields(frame: memoryview) -> dict[str, Any]:
    """Return the fields of a structured log line for the request in a frame."""
    key, version, _ = START.unpack_from(frame, 0)
    return {"api": apis.api_name(key) if key in KNOWN_KEYS else key, "version": version}


def client_id_in(frame: memoryview) -> str | None:
    """Return the client id of a request, even of an unknown version: all versions but one have it in the same place."""
    try:
        return RequestHeader.decode_from(frame, FIRST_HEADER_WITH_CLIENT_ID)[0].client_id
    except MalformedMessage:
        return None
