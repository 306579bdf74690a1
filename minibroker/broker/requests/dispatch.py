"""The dispatcher: from a frame to its handler, and from the handler's response to the answer.

A handler is a function `(context, request) -> response | None`, a plain one or a coroutine; None sends no answer
(acks=0). `@handles` registers it for its API (`served`). A KafkaError that it raises becomes the answer, if the
response has an error code for the whole request.

    frame --> request template (inline cache) -------------------------------+--> items, or Due at the end of the turn
          --> decoded --> plain handler -------------------------------------+
                  |           +--> coroutine, or a sync is due --> _answer --+--> DelayedOperation --> items later
                  +--> large: decoded in steps, or with interceptors --------+
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from minibroker.broker.delayed_operations import ClusterReplaced, Slicer, Stage, in_slices
from minibroker.broker.quotas.quota_manager import Metered, Usage
from minibroker.broker.requests.answers import LastingAnswers
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.routes import (
    LARGE_FRAME_BYTES,
    Due,
    Route,
    Unanswerable,
    encode_answer,
    encode_response,
    encode_response_in_steps,
    make_answer_start,
    wait_until_written,
)
from minibroker.broker.requests.routes import Outcome as HandlerOutcome
from minibroker.broker.requests.served import SERVED, Served
from minibroker.protocol import apis
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.headers import RequestHeader
from minibroker.protocol.primitives import AnswerTooLarge, MalformedMessage
from minibroker.protocol.steps import empty_arrays_in_steps

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker
    from minibroker.broker.network.authenticator import Authenticator
    from minibroker.broker.network.connection import Connection, Outcome
    from minibroker.broker.requests.interceptors import Call, Interceptor

closing = logging.getLogger("minibroker.connections")

START: Final = Struct(">hhi")  # API key, API version, correlation id: the same in every request header
FIRST_HEADER_WITH_CLIENT_ID: Final = 1

KNOWN_KEYS: Final = frozenset(ApiKey)
NOTHING: Final = memoryview(b"")  # in the place of what need not stay in memory


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

    def execute_or_close(self, connection: Connection, frame: memoryview) -> Outcome:
        """Run a request as `execute` does. If that fails, close the connection behind the earlier answers."""
        try:
            return self.execute(connection, frame)
        except Exception as error:
            log_failure(connection, read_client_id(frame), log_fields(frame), error)
        connection.close_after_answers()
        return None

    def call_when_turn_ends(self, connection: Connection) -> None:
        """Call `on_turn_ended` of the connection when the current turn of the loop ends."""
        self.cluster.turn.add_listener(connection)

    def execute(self, connection: Connection, frame: memoryview) -> Outcome:
        """Run the request in `frame`; return what is to be sent, or what is not done yet. Raises Unanswerable."""
        key, version, correlation_id = START.unpack_from(frame, 0)
        if connection.must_authenticate:
            authenticator = _check_authenticated(connection, key)
            if authenticator is not None:
                return self._refuse_during_exchange(authenticator, key, version, correlation_id, frame)
        template = connection.template
        if template is not None and key == template.key and version == template.version:
            outcome: Outcome = self._run_request_by_template(connection, template, correlation_id, frame)
            if outcome is not None:
                return outcome
        route = self._routes.get((key, version))
        if route is None:
            served = SERVED.get(key)
            if served is None or version not in served.versions:
                return self._answer_unsupported(key, version, correlation_id, served)
            route = self._routes[key, version] = Route(served, version)
        try:
            header, position = RequestHeader.decode_from(frame, route.header_version)
            context = RequestContext(self.cluster, connection, route, correlation_id, header.client_id, self.slicer)
            if self.cluster.image.quotas:
                context.usage = Usage(len(frame))
            elif route.lasting and not self.interceptors and not route.is_large(frame):
                answer = self._lasting.find_answer(context, frame[position:])
                if answer is not None:
                    return answer
            # As in Kafka, ignore extra bytes: librdkafka 2.16 sends Metadata 13 for all topics with 3 bytes too many.
            request = route.decode_in_one_step(frame, position)
        except MalformedMessage as error:
            raise Unanswerable(f"a request that cannot be read: {error}") from error
        if request is None or self.interceptors:
            return self._begin_undecoded_request(context, request, frame, position)
        context.frame = frame
        return self._run_decoded_request(context, request)

    def _run_request_by_template(
        self, connection: Connection, template: Any, correlation_id: int, frame: memoryview
    ) -> Outcome:
        """Run a request by its template; return None if it must be decoded, as also for most interceptors."""
        if self.interceptors and not are_all_observers_only(self.interceptors):
            return None
        outcome: Outcome = template.run_for_frame(self.cluster, correlation_id, frame)
        if outcome is None or not self.interceptors:
            return outcome
        route = self._routes[template.key, template.version]
        context = RequestContext(self.cluster, connection, route, correlation_id, template.client_id, self.slicer)
        watched: Outcome = self._make_call(context, None, frame).observe_undecoded_request(outcome)
        return watched

    def _begin_undecoded_request(
        self, context: RequestContext, request: Message | None, frame: memoryview, position: int
    ) -> Outcome:
        """Begin a request that is not decoded yet, as it is too large for one step, or that interceptors see."""
        if request is None:
            context.frame_is_kept = True
            context.kept = None if self.interceptors else context.connection.hand_over_frame_buffer()
            if context.kept is None:
                frame = memoryview(bytearray(frame))
        if self.interceptors:
            self._make_call(context, request or context.route.request_class(), frame).has_copy = request is None
            if request is not None and are_all_observers_only(self.interceptors):
                context.frame = frame  # for the template of the next one
        return self._begin_request(context, self._decode_and_run(context, request, frame, position))

    def _make_call(self, context: RequestContext, request: Message | None, frame: memoryview) -> Call:
        from minibroker.broker.requests.interceptors import Call  # most brokers have no interceptors

        handle = partial(self.run_handler_and_finish, context)
        context.call = call = Call(context, request, frame, handle, self.interceptors)
        return call

    def _refuse_during_exchange(
        self, authenticator: Authenticator, key: int, version: int, correlation_id: int, frame: memoryview
    ) -> Outcome:
        """Answer a request in the middle of a SASL exchange with ILLEGAL_SASL_STATE, and close the connection.

        A request that cannot be read, or whose response has no error code for the whole request, only gets the close.
        """
        name = _get_api_name(key)
        reason = f"Unexpected Kafka request of type {name} during SASL authentication."
        served = SERVED.get(key)
        if served is None or version not in served.versions or len(frame) > LARGE_FRAME_BYTES:
            raise Unanswerable(reason)
        route = Route(served, version)
        try:
            _, position = RequestHeader.decode_from(frame, route.header_version)
            route.request_class.decode_from(frame, version, position)
            response = route.make_refusal(KafkaError(ErrorCode.ILLEGAL_SASL_STATE, reason))
        except (MalformedMessage, KafkaError) as error:
            raise Unanswerable(reason) from error
        return authenticator.refuse_after_delay(
            reason, encode_answer(response, version, route.answer_start, correlation_id)
        )

    # --- running and answering ------------------------------------------------------------------

    def _run_decoded_request(self, context: RequestContext, request: Message) -> Outcome:
        """Run the handler; return its outcome as `execute` does. The answer of one that must wait comes later."""
        response = self._run_handler(context, request)
        if not (response is None or isinstance(response, Message)) or context.must_sync or _has_new_commits(context):
            return self._begin_request(context, self._finish_response(context, request, response))
        context.charge_and_throttle(response)
        if response is None:
            return None
        if context.waits is not None:
            return Due(context, response)
        items = encode_response(context, response)
        if context.lasts:
            self._lasting.keep_answer(context, items)
        return items

    def _run_handler(self, context: RequestContext, request: Message) -> HandlerOutcome:
        context.begin_handler(self.cluster)
        return context.route.run_handler(context, request)

    def _begin_request(self, context: RequestContext, running: Coroutine[Any, Any, Message | None]) -> Outcome:
        """Run a request up to where it waits; return the items of its answer, or what is not done yet."""
        answered, failed = context.connection.send_delayed_answer, partial(fail_request, context)
        return self.slicer.run_or_delay(self._answer(context, running), answered, failed, context)

    async def _answer(self, context: RequestContext, running: Coroutine[Any, Any, Message | None]) -> list[Any] | None:
        """Return the items of the answer, once `running` has returned the response."""
        call = context.call
        try:
            response = await running
            context.stage = Stage.ANSWERING
            context.charge_and_throttle(response)
            if response is None:
                if call is not None:
                    call.report_answer_sent(0)
                return None
            if call is not None:
                response = call.alter_response(response)
            if context.was_paused:
                items = await self._encode_in_steps(context, response)
            else:
                items = encode_response(context, response)
            if context.lasts:
                self._lasting.keep_answer(context, items)
            return items if call is None else call.add_mark_to_answer(items)
        except BaseException:
            context.report_answer_lost()
            raise
        finally:
            context.release_frame()

    async def _decode_and_run(
        self, context: RequestContext, request: Message | None, frame: memoryview, position: int
    ) -> Message | None:
        """Run a request that interceptors see, or that is large and so not decoded yet; return its response."""
        call = context.call
        if request is None:
            request = await self._decode_in_steps(context, frame, position)
        frame = NOTHING
        if call is not None:
            call.request = request
            return await call.run_hooks_and_handler()
        context.may_take_apart = True
        running = self.run_handler_and_finish(context, request)
        request = None
        return await running

    async def _decode_in_steps(self, context: RequestContext, frame: memoryview, position: int) -> Message:
        try:
            request, context.long_arrays = await in_slices(context.route.decode_in_steps(frame, position))
        except MalformedMessage as error:
            raise Unanswerable(f"a request that cannot be read: {error}") from error
        return request

    def run_handler_and_finish(self, context: RequestContext, request: Message) -> Coroutine[Any, Any, Message | None]:
        """Run the handler; the coroutine returns its response once what it reports is written."""
        return self._finish_response(context, request, self._run_handler(context, request))

    async def _finish_response(
        self, context: RequestContext, request: Message | None, outcome: HandlerOutcome
    ) -> Message | None:
        """Return the response of a handler once its coroutine has ended, and what it reports is written.

        If the cluster is replaced while it waits, it runs again; a Produce never does, and so need not stay in memory.
        Raises Unanswerable if a change may be lost.
        """
        if context.key == ApiKey.PRODUCE:
            request = None
        while True:
            try:
                try:
                    if outcome is None or isinstance(outcome, Message):
                        response = outcome
                    else:
                        response = await (outcome if context.usage is None else Metered(context.usage, outcome))
                except KafkaError as error:
                    response = context.route.make_refusal(error)
                if _has_new_commits(context):
                    context.wait_for_metadata()
                if context.waits is not None:
                    await wait_until_written(context)
                context.stage = Stage.ANSWERING
                return response
            except ClusterReplaced:
                assert request is not None
                outcome = self._run_handler(context, request)

    async def _encode_in_steps(self, context: RequestContext, response: Message) -> list[Any]:
        """Return the frame of an answer to a request that took long: build it in steps, and so release both."""
        try:
            items, long_arrays = await in_slices(encode_response_in_steps(context, response))
        except AnswerTooLarge as error:
            self.slicer.run_steps_in_slices(empty_arrays_in_steps((*context.long_arrays, *error.long_arrays)))
            raise Unanswerable(str(error)) from None
        self.slicer.run_steps_in_slices(empty_arrays_in_steps((*context.long_arrays, *long_arrays)))
        return items

    def _answer_unsupported(self, key: int, version: int, correlation_id: int, served: Served | None) -> list[Any]:
        """Answer an ApiVersions request of a newer version with the supported versions (KIP-511)."""
        if key != ApiKey.API_VERSIONS or served is None:
            raise Unanswerable(f"{_get_api_name(key)} (key {key}) version {version}, which is not served here")
        from minibroker.protocol.messages.cluster import ApiVersionsResponse  # here, as a start need not wait for it

        ranges = [ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=served.versions[-1])]
        answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=ranges)
        for interceptor in reversed(self.interceptors):
            answer = interceptor.alter_unsupported(answer)
        return encode_answer(answer, 0, make_answer_start(0), correlation_id)


def _check_authenticated(connection: Connection, key: int) -> Authenticator | None:
    """Return None if a client that must authenticate may send a request of this API now.

    Return its authenticator if the request comes in the middle of an exchange. Raises Unanswerable at any other time.
    """
    authenticator = connection.authenticator
    if authenticator is None:
        raise Unanswerable("a request on a connection that cannot authenticate")
    objection = authenticator.find_objection_to_request(key)
    if objection is None:
        return None
    if authenticator.is_in_exchange:
        return authenticator
    raise Unanswerable(f"{_get_api_name(key)} {objection}")


def _has_new_commits(context: RequestContext) -> bool:
    """Return whether the metadata has changed since the handler of a durable API began; others' changes count, too."""
    return context.route.durable and context.cluster.commits != context.commits


def are_all_observers_only(interceptors: list[Interceptor]) -> bool:
    """Return whether none of the interceptors changes anything, or looks at decoded requests."""
    return all(interceptor.only_watches for interceptor in interceptors)


def _get_api_name(key: int) -> str:
    """Return the name of an API for the log."""
    return apis.get_api_name(key) if key in KNOWN_KEYS else "an unknown API"


def fail_request(context: RequestContext, error: Exception) -> None:
    """Disconnect the client of a request that has failed outside of `execute`."""
    connection = context.connection
    if not (connection.is_gone and isinstance(error, Unanswerable)):
        fields = {"api": apis.get_api_name(context.key), "version": context.version}
        log_failure(connection, context.client_id, fields, error)
    connection.close_after_failure()


def log_failure(connection: Connection, client_id: str | None, fields: dict[str, Any], error: Exception) -> None:
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
    return {"api": apis.get_api_name(key) if key in KNOWN_KEYS else key, "version": version}


def read_client_id(frame: memoryview) -> str | None:
    """Return the client id of a request, even of an unknown version: all versions but one have it in the same place."""
    try:
        return RequestHeader.decode_from(frame, FIRST_HEADER_WITH_CLIENT_ID)[0].client_id
    except MalformedMessage:
        return None
