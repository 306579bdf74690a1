"""The dispatcher: from a frame to its handler, and from the handler's response to the answer.

A handler is a function `(context, request) -> response | None`, a plain one or a coroutine; None sends no answer
(acks=0). `@handles` registers it for its API (`served`). A KafkaError that it raises becomes the answer, if the
response has an error code for the whole request.

    frame --> request template (inline cache) -------------------------------+--> items, or DueAnswer at the turn's end
          --> decoded --> plain handler -------------------------------------+
                  |           +--> coroutine, or a sync is due --------------+--> DelayedOperation --> items later
                  +--> large: decoded in steps, or with interceptors --------+
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Hashable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from minibroker.broker.delayed_operations import ClusterReplaced, OperationStage, Slicer, run_in_slices
from minibroker.broker.quotas.quota_manager import MeteredCoroutine, RequestUsage
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.routes import (
    SIZE,
    SIZE_AND_CORRELATION_ID,
    DueResponse,
    Route,
    UnanswerableRequest,
    encode_answer,
    encode_response,
    encode_response_in_steps,
    encode_response_start,
    wait_until_written,
)
from minibroker.broker.requests.routes import Outcome as HandlerOutcome
from minibroker.broker.requests.served import SERVED
from minibroker.protocol import apis
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.headers import RequestHeader
from minibroker.protocol.primitives import AnswerTooLarge, MalformedMessage
from minibroker.protocol.steps import clear_arrays_in_steps

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker
    from minibroker.broker.network.connection import Connection, Outcome
    from minibroker.broker.requests.interceptors import Call, Interceptor


MAX_LASTING_BYTES = 4 << 20  # of cached answers; the largest may exceed it
closing = logging.getLogger("minibroker.connections")
START: Final = Struct(">hhi")  # API key, API version, correlation id: the same in every request header
FIRST_HEADER_WITH_CLIENT_ID: Final = 1
KNOWN_KEYS: Final = frozenset(ApiKey)
METADATA: Final = int(ApiKey.METADATA)
NOTHING: Final = memoryview(b"")  # in the place of what need not stay in memory


class AnswerCache:
    """A cache of answers by request bytes; a change of the cluster begins another one."""

    def __init__(self) -> None:
        self._generation: Any = None
        self._answers: dict[Hashable, bytes] = {}
        self._size_bytes = 0

    def find_cached_answer(self, context: RequestContext, body: memoryview) -> list[Any] | None:
        """Return the items of the cached answer to a request; on a miss set `cache_place` for the answer."""
        cluster, connection = context.cluster, context.connection
        generation = cluster, cluster.answer_cache_generation
        if self._generation != generation:
            self._generation, self._answers, self._size_bytes = generation, {}, 0
        host = None if cluster.authorizer is None else connection.host
        asked = connection.node, connection.listener, connection.principal, host, context.version, bytes(body)
        kept = self._answers.get(asked)
        if kept is None:
            context.cache_place = self._answers, asked
            return None
        return [SIZE_AND_CORRELATION_ID.pack(len(kept) + SIZE.size, context.correlation_id), kept]

    def cache_answer(self, context: RequestContext, items: list[Any]) -> None:
        """Keep the answer to a request with a `cache_place`, unless something has changed since it began."""
        answers, asked = context.cache_place
        if answers is not self._answers or len(items) != 1 or len(items[0]) > MAX_LASTING_BYTES:
            return
        if self._size_bytes > MAX_LASTING_BYTES:
            answers.clear()
            self._size_bytes = 0
        answers[asked] = bytes(memoryview(items[0])[SIZE_AND_CORRELATION_ID.size :])
        self._size_bytes += len(items[0])


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
        self._lasting = AnswerCache()

    def execute_or_close(self, connection: Connection, frame: memoryview) -> Outcome:
        """Run a request as `execute` does; if that raises, close the connection behind the earlier answers."""
        try:
            return self.execute(connection, frame)
        except Exception as error:
            key, version, _ = START.unpack_from(frame, 0)
            log_failure(connection, key, version, read_client_id(frame), error)
        connection.close_after_answers()
        return None

    def call_when_turn_ends(self, connection: Connection) -> None:
        """Call `on_turn_ended` of the connection when the current turn of the loop ends."""
        self.cluster.turn.add_listener(connection)

    def execute(self, connection: Connection, frame: memoryview) -> Outcome:
        """Run the request in `frame`; return its answer, None, or what sends it later. Raises UnanswerableRequest."""
        key, version, correlation_id = START.unpack_from(frame, 0)
        outcome: Outcome
        if connection.must_authenticate:
            outcome = self._refuse_unless_authenticating(connection, key, version, correlation_id, frame)
            if outcome is not None:
                return outcome
        template = connection.template
        if template is not None and key == template.key and version == template.version:
            outcome = self._run_request_by_template(connection, template, correlation_id, frame)
            if outcome is not None:
                return outcome
        route = self._routes.get((key, version))
        if route is None:
            route = self._add_route(key, version)
            if route is None:
                return self._answer_unsupported(key, version, correlation_id)
        try:
            header, position = RequestHeader.decode_from(frame, route.header_version)
            context = RequestContext(self.cluster, connection, route, correlation_id, header.client_id, self.slicer)
            if self.cluster.image.quotas:
                context.usage = RequestUsage(len(frame))
            elif key == METADATA and not self.interceptors and not route.is_large(frame):
                answer = self._lasting.find_cached_answer(context, frame[position:])
                if answer is not None:
                    return answer
            # As in Kafka, ignore extra bytes: librdkafka 2.16 sends Metadata 13 for all topics with 3 bytes too many.
            request = route.decode_in_one_step(frame, position)
        except MalformedMessage as error:
            raise UnanswerableRequest(f"a request that cannot be read: {error}") from error
        if request is None or self.interceptors:
            return self._begin_request(context, self._decode_and_run(context, request, frame, position))
        context.frame = frame
        return self._run_decoded_request(context, request)

    def _add_route(self, key: int, version: int) -> Route | None:
        """Add a route for an API in this version; return it, or None if that is not served."""
        served = SERVED.get(key)
        if served is None or version not in served.versions:
            return None
        route = self._routes[key, version] = Route(served, version)
        return route

    def _run_request_by_template(
        self, connection: Connection, template: Any, correlation_id: int, frame: memoryview
    ) -> Outcome:
        """Run a request by its template; return None if it must be decoded, for itself or for an interceptor."""
        if self.interceptors and not are_only_observers(self.interceptors):
            return None
        outcome: Outcome = template.run_request_of_frame(self.cluster, correlation_id, frame)
        if outcome is None or not self.interceptors:
            return outcome
        route = self._routes[template.key, template.version]
        context = RequestContext(self.cluster, connection, route, correlation_id, template.client_id, self.slicer)
        watched: Outcome = self._make_call(context, None, frame).observe_undecoded_request(outcome)
        return watched

    def _refuse_unless_authenticating(
        self, connection: Connection, key: int, version: int, correlation_id: int, frame: memoryview
    ) -> Outcome:
        """Return None if a client that must authenticate may send this request now, else the refusal to send.

        In the middle of a SASL exchange, answer with ILLEGAL_SASL_STATE and close the connection. Raises
        UnanswerableRequest at any other time, for what cannot be read, and if the response has no error code for the
        whole request.
        """
        authenticator = connection.authenticator
        if authenticator is None:
            raise UnanswerableRequest("a request on a connection that cannot authenticate")
        objection = authenticator.find_objection_to_request(key)
        if objection is None:
            return None
        name = _get_api_name(key)
        if not authenticator.is_in_exchange:
            raise UnanswerableRequest(f"{name} {objection}")
        reason = f"Unexpected Kafka request of type {name} during SASL authentication."
        route = self._add_route(key, version)
        if route is None or route.is_large(frame):
            raise UnanswerableRequest(reason)
        try:
            route.decode_request(frame)
            response = route.make_refusal(KafkaError(ErrorCode.ILLEGAL_SASL_STATE, reason))
        except (MalformedMessage, KafkaError) as error:
            raise UnanswerableRequest(reason) from error
        return authenticator.send_refusal_after_delay(
            reason, encode_answer(response, version, route.answer_start, correlation_id)
        )

    def _make_call(self, context: RequestContext, request: Message | None, frame: memoryview) -> Call:
        """Return the call that interceptors see of this request, and set it in `context`."""
        from minibroker.broker.requests.interceptors import Call  # most brokers have no interceptors

        context.call = call = Call(context, request, frame, self.run_handler_and_finish, self.interceptors)
        return call

    # --- running and answering ------------------------------------------------------------------

    def _run_decoded_request(self, context: RequestContext, request: Message) -> Outcome:
        """Run the handler of a decoded request; return the outcome as `execute` does."""
        response = self._run_handler(context, request)
        if not (response is None or isinstance(response, Message)) or context.must_sync or _has_new_commits(context):
            return self._begin_request(context, self._finish_response(context, request, response))
        context.charge_and_throttle(response)
        if response is None:
            return None
        if context.waits is not None:
            return DueResponse(context, response)
        items = encode_response(context, response)
        if context.cache_place is not None:
            self._lasting.cache_answer(context, items)
        return items

    def _run_handler(self, context: RequestContext, request: Message) -> HandlerOutcome:
        """Run the handler; return its answer, None for no answer, or the coroutine that it goes on with."""
        context.begin_handler(self.cluster)
        try:
            outcome = context.route.handler(context, request)
        except KafkaError as error:
            outcome = context.route.make_refusal(error)
        if context.usage is not None:
            context.usage.stop_request_time()
        return outcome

    def _begin_request(
        self, context: RequestContext, handler_coroutine: Coroutine[Any, Any, Message | None]
    ) -> Outcome:
        """Run a request until it first waits; return the items of its answer, or the operation that continues it."""
        answered, failed = context.connection.send_delayed_answer, partial(fail_request, context)
        return self.slicer.run_or_delay(
            self._run_and_encode_answer(context, handler_coroutine), answered, failed, context
        )

    async def _run_and_encode_answer(
        self, context: RequestContext, handler_coroutine: Coroutine[Any, Any, Message | None]
    ) -> list[Any] | None:
        """Return the items of the answer, once `handler_coroutine` has returned the response."""
        try:
            response = await handler_coroutine
            context.charge_and_throttle(response)
            call = context.call
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
            if context.cache_place is not None:
                self._lasting.cache_answer(context, items)
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
        call = None
        if request is None and (self.interceptors or not context.keep_frame_for_later_steps()):
            frame = memoryview(bytearray(frame))
            context.frame_is_kept = True
        if self.interceptors:
            call = self._make_call(context, request or context.route.request_class(), frame)
            if request is not None and are_only_observers(self.interceptors):
                context.frame = frame  # for the template of the next one
        if request is None:
            try:
                request, context.long_arrays = await run_in_slices(context.route.decode_in_steps(frame, position))
            except MalformedMessage as error:
                raise UnanswerableRequest(f"a request that cannot be read: {error}") from error
            assert request is not None
        if call is not None:
            call.request = request
            return await call.run_hooks_and_handler()
        context.may_take_apart = True
        running = self.run_handler_and_finish(context, request)
        request, frame = None, NOTHING
        return await running

    def run_handler_and_finish(self, context: RequestContext, request: Message) -> Coroutine[Any, Any, Message | None]:
        """Run the handler; the coroutine returns the response once everything is written that it acknowledges."""
        return self._finish_response(context, request, self._run_handler(context, request))

    async def _finish_response(
        self, context: RequestContext, request: Message | None, outcome: HandlerOutcome
    ) -> Message | None:
        """Await a handler's response, and the writes that it acknowledges; return it, or None for no answer.

        If the cluster is replaced while it waits, it runs again; a Produce never does, and so need not stay in memory.
        Raises UnanswerableRequest if a change may be lost.
        """
        if context.key == ApiKey.PRODUCE:
            request = None
        while True:
            try:
                try:
                    if outcome is None or isinstance(outcome, Message):
                        response = outcome
                    else:
                        response = await (
                            outcome if context.usage is None else MeteredCoroutine(context.usage, outcome)
                        )
                except KafkaError as error:
                    response = context.route.make_refusal(error)
                if _has_new_commits(context):
                    context.delay_answer_until_metadata_is_synced()
                if context.waits is not None:
                    await wait_until_written(context)
                context.stage = OperationStage.ANSWERING
                return response
            except ClusterReplaced:
                assert request is not None
                outcome = self._run_handler(context, request)

    async def _encode_in_steps(self, context: RequestContext, response: Message) -> list[Any]:
        """Return the frame of a long answer, built in steps; then release the request and the response in steps."""
        try:
            items, long_arrays = await run_in_slices(encode_response_in_steps(context, response))
        except AnswerTooLarge as error:
            self.slicer.run_steps_in_slices(clear_arrays_in_steps((*context.long_arrays, *error.long_arrays)))
            raise UnanswerableRequest(str(error)) from None
        self.slicer.run_steps_in_slices(clear_arrays_in_steps((*context.long_arrays, *long_arrays)))
        return items

    def _answer_unsupported(self, key: int, version: int, correlation_id: int) -> list[Any]:
        """Answer an ApiVersions request of a newer version with the supported versions (KIP-511)."""
        if key != ApiKey.API_VERSIONS:
            raise UnanswerableRequest(f"{_get_api_name(key)} (key {key}) version {version}, which is not served here")
        from minibroker.protocol.messages.cluster import ApiVersionsResponse  # here, as a start need not wait for it

        ranges = [ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=SERVED[key].versions[-1])]
        answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=ranges)
        for interceptor in reversed(self.interceptors):
            answer = interceptor.alter_unsupported_version_response(answer)
        return encode_answer(answer, 0, encode_response_start(0), correlation_id)


def _has_new_commits(context: RequestContext) -> bool:
    """Return whether metadata was committed, by anyone, since the handler of a durable API began."""
    return context.route.durable and context.cluster.commits != context.commits


def are_only_observers(interceptors: list[Interceptor]) -> bool:
    """Return whether none of the interceptors changes anything, or looks at decoded requests."""
    return all(interceptor.only_watches for interceptor in interceptors)


def _get_api_name(key: int) -> str:
    """Return the name of an API for the log."""
    return apis.get_api_name(key) if key in KNOWN_KEYS else "an unknown API"


def fail_request(context: RequestContext, error: Exception) -> None:
    """Disconnect the client of a request that has failed outside of `execute`."""
    connection = context.connection
    if not (connection.is_gone and isinstance(error, UnanswerableRequest)):
        log_failure(connection, context.key, context.version, context.client_id, error)
    connection.close_after_failure()


def log_failure(connection: Connection, key: int, version: int, client_id: str | None, error: Exception) -> None:
    """Log why a connection is closed; for a bug of ours, with its traceback."""
    who = connection.software or (f"client id {client_id!r}" if client_id else "unnamed client")
    fields = {**connection.log_fields, "api": apis.get_api_name(key) if key in KNOWN_KEYS else key, "version": version}
    if isinstance(error, UnanswerableRequest):
        closing.warning("closing %s (%s): %s", connection.peer, who, error, extra=fields)
    else:
        closing.error("closing %s (%s): a request failed", connection.peer, who, extra=fields, exc_info=error)


def read_client_id(frame: memoryview) -> str | None:
    """Return the client id of a request, even of an unknown version: all versions but one have it in the same place."""
    try:
        return RequestHeader.decode_from(frame, FIRST_HEADER_WITH_CLIENT_ID)[0].client_id
    except MalformedMessage:
        return None
