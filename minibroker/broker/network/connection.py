"""A connection without its socket: frames in, and answers out in the order of their requests, which run one by one.

The socket is an `Outlet`; the dispatcher runs the requests.

    receive --> frames --> execute --+--> items ---------------------> outlet.send
                  ^                  +--> delayed operation ... answered --^
                  +--- backlog (while a request is delayed, the output is congested, or others are due)

When its client goes, the requests in the backlog still run if they may change something, as in Kafka: a consumer that
closes sends LeaveGroup behind a JoinGroup that waits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from minibroker.broker.delayed_operations import DelayedOperation
from minibroker.broker.network.framing import (
    MINIMUM_FRAME_BYTES,
    OWN_BYTES,
    PREFIX_BYTES,
    FrameBudget,
    FrameError,
    PartialFrame,
    read_frame_size,
)
from minibroker.broker.network.gone_clients import (
    OutletOfLostClient,
    notify_observers_of_lost_answers,
    run_request_of_lost_client,
)
from minibroker.broker.network.output_items import DueAnswer
from minibroker.broker.network.pipelines import REQUESTS_PER_TURN, ConnectionQueue
from minibroker.broker.security.principals import ANONYMOUS, Principal

if TYPE_CHECKING:
    from minibroker.broker.metadata.nodes import Node
    from minibroker.broker.network.authenticator import Authenticator

log = logging.getLogger("minibroker.connections")

BACKLOG_LIMIT_BYTES: Final = 64 << 10


class Outlet(Protocol):
    """The part of the socket and the loop that a connection uses."""

    @property
    def is_congested(self) -> bool:
        """Return whether output waits to be sent."""

    @property
    def progress_ms(self) -> float:
        """Return when bytes were last received or sent, by the monotonic clock."""

    def send(self, items: list[Any]) -> None:
        """Queue bytes and file regions, in order."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run `callback` in the loop's next turn."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Close the socket once all queued output is sent."""


Outcome = list[Any] | DueAnswer | DelayedOperation[list[Any] | None] | None
Execute = Callable[["Connection", memoryview], Outcome]


class Connection:
    """A client's connection.

    `execute(connection, frame)` runs one request (`frame` is a writable memoryview without the size, valid only during
    the call) and returns the items to send, a `DueAnswer`, a `DelayedOperation`, or None when the request has no
    answer. `listen(connection)` requests a call of `on_turn_ended` at the end of the loop's turn.
    """

    __slots__ = (
        "_backlog",
        "_budget",
        "_delayed",
        "_due",
        "_diverted",
        "_execute",
        "_farewells",
        "_least_bytes",
        "_outlet",
        "_partial",
        "_pipelines",
        "_request_bytes",
        "_running",
        "authenticator",
        "closed",
        "has_token",
        "host",
        "is_gone",
        "template",
        "last_plain",
        "limit_bytes",
        "listener",
        "must_authenticate",
        "muted",
        "node",
        "peer",
        "principal",
        "_listen",
        "software",
    )

    def __init__(
        self,
        node: Node,
        listener: str,
        outlet: Outlet,
        execute: Execute,
        listen: Callable[[Connection], None],
        budget: FrameBudget,
        limit_bytes: int,
        peer: str = "?",
        host: str = "",
        principal: Principal = ANONYMOUS,
        pipelines: ConnectionQueue | None = None,
    ) -> None:
        """`pipelines` is what the connections of a loop share."""
        self.node = node
        self.listener = listener
        self.peer = peer  # for people
        self.host = host  # for rules, which compare it as a text: the address as Java writes it
        self.software = ""
        self.principal = principal
        self.has_token = False  # whether it has authenticated by a delegation token
        self.must_authenticate = False  # before it may ask for anything else, as its listener wants it
        self.authenticator: Authenticator | None = None  # of a listener with SASL
        self.limit_bytes = limit_bytes
        self.closed = False
        self.is_gone = False  # the socket is closed; the backlog may still run
        self.template: Any = None  # the inline cache for the next request
        self.last_plain: Any = None  # the target of the last plain request; a second one for it fills the cache
        self._outlet = outlet
        self._execute = execute
        self._diverted: Execute | None = None  # the original `execute`, while requests are diverted
        self._least_bytes = MINIMUM_FRAME_BYTES
        self._listen = listen
        self._due: list[list[Any] | DueAnswer] | None = None  # what is sent at the end of the turn
        self._budget = budget
        self._pipelines = pipelines or ConnectionQueue(outlet.call_soon)
        self._farewells: dict[Hashable, Callable[[], None]] | None = None  # what to call when the client is gone
        self.muted = False  # no request runs until `unmute`
        self._delayed: DelayedOperation[Any] | None = None
        self._request_bytes = 0  # of the delayed one
        self._partial: PartialFrame | None = None
        self._running: PartialFrame | None = None  # with the bytes of the running frame, unless it was handed over
        self._backlog: bytearray | None = None  # bytes that arrived while no frame may run; None if frames run

    # --- input ----------------------------------------------------------------------------------

    def get_receive_buffer(self, scratch: memoryview) -> memoryview:
        """Return the buffer for the next bytes: that of a partial frame, or else `scratch`."""
        if self._partial is not None:
            return self._partial.get_buffer_for_next_bytes()
        return scratch[:OWN_BYTES] if self._budget.full else scratch

    def process_received_data(self, scratch: memoryview, count: int) -> None:
        """Process the first `count` bytes in the buffer of `get_receive_buffer`; keep no view of `scratch`."""
        partial = self._partial
        if self.closed:
            return  # answers are still sent; nothing more is read
        if partial is None:
            self._run_or_queue_received_data(scratch[:count])
            return
        partial.count_filled_bytes(count)
        self._grow_frame_or_wait_for_memory(partial)

    def _run_or_queue_received_data(self, data: memoryview) -> None:
        if self._backlog is None:
            self._run_complete_frames(data)
            return
        self._backlog += data
        self._budget.add_backlog_bytes(len(data))
        if len(self._backlog) >= BACKLOG_LIMIT_BYTES or self._budget.full:
            self._outlet.pause_reading()

    def _grow_frame_or_wait_for_memory(self, partial_frame: PartialFrame) -> None:
        try:
            grown = partial_frame.grow_buffer()
        except FrameError as error:
            self._partial = None
            partial_frame.close()
            self._refuse_frame(error)
            self._close_unless_answers_are_due()
            return
        if not grown:
            self._outlet.pause_reading()
            partial_frame.call_when_memory_is_free(lambda: self._outlet.call_soon(self._grow_frame_when_memory_is_free))
        elif partial_frame.is_complete:
            self._partial = None
            self._running = partial_frame
            try:
                self._run_complete_frames(partial_frame.bytes)
            finally:
                left = self.detach_frame_buffer()  # None if somebody else has taken it
                if left is not None:
                    left.close()

    def _close_to_free_memory(self) -> None:
        """Close the connection, as it holds memory that others need and hardly makes progress."""
        self._log_closing("it sends hardly anything of a request for whose memory others wait")
        if self._partial is not None:
            self._partial.close()
            self._partial = None
        self.close_after_failure()

    def _log_closing(self, reason: str) -> None:
        log.warning("closing %s (%s): %s", self.peer, self.software or "?", reason, extra=self.log_fields)

    def _grow_frame_when_memory_is_free(self) -> None:
        if self._partial is not None and not self.closed:
            self._outlet.resume_reading()
            self._grow_frame_or_wait_for_memory(self._partial)

    def _run_complete_frames(self, data: memoryview) -> None:
        """Run the complete frames in `data`, as far as they may run now, and keep the rest as backlog."""
        answers: list[Any] = []
        try:
            position = self._run_requests_in_data(data, answers)
        except FrameError as error:
            position = len(data)
            self._refuse_frame(error)
        if answers:
            self._send_items(answers)
        if self.closed:
            self._close_unless_answers_are_due()
        elif self._delayed is not None or self.muted or self._outlet.is_congested or position < 0:
            self._backlog = bytearray(data[abs(position) :])
            if self._backlog:
                self._budget.add_backlog_bytes(len(self._backlog))
            if position < 0:
                self._pipelines.queue_connection(self)
        elif self.is_gone:
            self._release_client_state()
        elif position < len(data):
            self._partial = partial = PartialFrame(
                data[position:], self.limit_bytes, self._budget, self._close_to_free_memory, self._least_bytes
            )
            self._grow_frame_or_wait_for_memory(partial)

    def _run_requests_in_data(self, data: memoryview, answer_parts: list[Any]) -> int:
        """Run the frames in `data`; return where the last one ends, negated if the turn is over before the next."""
        position, end, ran, stop_at = 0, len(data), 0, 0.0
        while end - position >= PREFIX_BYTES and not self.muted:
            stop = position + PREFIX_BYTES + read_frame_size(data, position, self.limit_bytes, self._least_bytes)
            if stop > end:
                break
            if ran == 1:
                stop_at = self._pipelines.get_deadline_of_turn()
            if ran >= REQUESTS_PER_TURN or (ran and time.monotonic() > stop_at):
                return -position
            outcome = self._execute(self, data[position + PREFIX_BYTES : stop])
            size_bytes, position = stop - position, stop
            ran += 1
            if isinstance(outcome, list):
                answer_parts += outcome
            elif outcome is None:
                if self.closed:
                    break
            elif isinstance(outcome, DelayedOperation):
                self._set_delayed_operation(outcome, size_bytes)
                break
            else:
                self._queue_answer_until_turn_end(answer_parts, outcome)
        return position

    def _queue_answer_until_turn_end(self, answers: list[Any], due: DueAnswer) -> None:
        """Queue an answer to send at the end of the turn, behind earlier ones."""
        if self._due is None:
            self._due = []
            self._listen(self)
        if answers:
            self._due.append(answers.copy())
            answers.clear()
        self._due.append(due)

    def _send_items(self, items: list[Any]) -> None:
        if self._due is None:
            self._outlet.send(items)
        else:
            self._due.append(items)

    def _close_unless_answers_are_due(self) -> None:
        """Close the connection; while answers are due at the end of the turn, leave that to `on_turn_ended`."""
        if self._due is None:
            self._outlet.close()

    def on_turn_ended(self) -> None:
        """Send the answers that were due at the end of the turn."""
        due, self._due = self._due, None
        if due is None:
            return  # the client has disconnected
        items: list[Any] = []
        try:
            for each in due:
                items += each if isinstance(each, list) else each.list_answer_parts()
        except Exception:
            log.exception("closing %s: a request failed", self.peer, extra=self.log_fields)
            self.closed = True
        self._outlet.send(items)
        if self.closed:
            self._outlet.close()
        elif self._outlet.is_congested and self._backlog is None and self._partial is None:
            self._backlog = bytearray()

    def _refuse_frame(self, error: FrameError) -> None:
        """Close the connection, as the next frame cannot be found after an invalid size."""
        self._log_closing(f"it sent {error}")
        self.close_after_answers()

    def set_token_frame_executor(self, executor: Execute | None) -> None:
        """Pass the next frames, which are SASL tokens without headers, to `executor`; None passes requests again."""
        if executor is not None:
            self._diverted, self._execute, self._least_bytes = self._execute, executor, 0
        elif self._diverted is not None:
            self._execute, self._diverted, self._least_bytes = self._diverted, None, MINIMUM_FRAME_BYTES

    # --- waiting --------------------------------------------------------------------------------

    def detach_frame_buffer(self) -> PartialFrame | None:
        """Hand over the running request's buffer, which stays valid until the caller closes it; None without one.

        Return None for a frame in the scratch buffer; the caller must copy its bytes.
        """
        running, self._running = self._running, None
        return running

    @property
    def progress_ms(self) -> float:
        """Return when bytes were last received or sent, by the monotonic clock."""
        return self._outlet.progress_ms

    def mute(self) -> None:
        """Run no more requests until `unmute`; answers are still sent."""
        self.muted = True

    def unmute(self) -> None:
        """Continue with the requests that have arrived meanwhile."""
        self.muted = False
        self.resume_requests()

    def _set_delayed_operation(self, delayed: DelayedOperation[Any], size_bytes: int) -> None:
        """Set the request that is delayed, of `size_bytes`, and count its memory."""
        self._delayed = delayed
        self._request_bytes = size_bytes
        self.count_delayed_request_bytes()

    def count_delayed_request_bytes(self) -> None:
        """Count the delayed request's bytes in the purgatory, if it stays in memory until it is answered."""
        if self._delayed is not None and self._delayed.holds_decoded_request:
            self._budget.purgatory.add_delayed_request(self, self._request_bytes)

    def disconnect_unless_answered(self, reason: str) -> None:
        """Close the connection in the next turn unless its delayed request is answered before."""
        self._log_closing(reason)
        self._outlet.call_soon(self._disconnect_if_unanswered)

    def _disconnect_if_unanswered(self) -> None:
        if self._delayed is not None:
            self._delayed.give_up()
            self.close_after_failure()

    def _remove_delayed_operation(self) -> DelayedOperation[Any] | None:
        """Remove and return the delayed request, if there is one."""
        delayed, self._delayed = self._delayed, None
        self._budget.purgatory.remove_delayed_request(self)
        return delayed

    def send_delayed_answer(self, items: list[Any] | None) -> None:
        """Send the delayed request's answer, or none for None; resume the requests behind it in the next turn."""
        self._remove_delayed_operation()
        self._send_items(items or [])
        if self.closed:
            self._close_unless_answers_are_due()
        else:
            self._outlet.call_soon(self.resume_requests)

    def rerun_delayed_request(self) -> None:
        """Run the delayed request again on the new cluster; close the connection if that cannot be done."""
        self.unmute()  # the clock may be a different one now
        if self._delayed is not None and not self._delayed.rerun_in_new_cluster():
            self.close_after_failure()

    def close_after_failure(self) -> None:
        """Close the connection once earlier answers are sent, as a request cannot be answered."""
        self.closed = True
        delayed = self._remove_delayed_operation()
        if delayed is not None:
            delayed.close()  # another request may be the one that fails
        self._close_unless_answers_are_due()

    def resume_requests(self) -> None:
        """Run the requests in the backlog, unless the connection is muted or waits for an answer."""
        if self.closed or self._backlog is None or self._delayed is not None or self.muted or self._outlet.is_congested:
            return
        backlog, self._backlog = self._backlog, None
        self._outlet.resume_reading()
        if backlog or self.is_gone:
            self._budget.add_backlog_bytes(-len(backlog))
            self._run_complete_frames(memoryview(backlog))

    @property
    def log_fields(self) -> dict[str, Any]:
        """Return the fields of a structured log line for the client."""
        return {"peer": self.peer, "software": self.software or None, "listener": self.listener}

    @property
    def has_delayed_request(self) -> bool:
        """Return whether a request of this client waits for its answer."""
        return self._delayed is not None

    @property
    def has_partial_request(self) -> bool:
        """Return whether the client has begun a request whose rest the broker is ready to read."""
        return self._partial is not None and not self._partial.waits_for_memory

    def close_after_answers(self) -> None:
        """Close the connection once earlier answers are sent, and that of the request which runs."""
        self.closed = True

    def call_when_lost(self, key: Hashable, callback: Callable[[], None] | None) -> None:
        """Call `callback` when the socket is closed, in place of an earlier one with this key; None removes that."""
        if self._farewells is None:
            self._farewells = {}
        self._farewells.pop(key, None)
        if callback is not None:
            self._farewells[key] = callback

    def drop_lost_client(self) -> None:
        """Drop the answers of a closed socket; requests that may change something still run."""
        self.is_gone = True
        due, self._due = self._due, None
        notify_observers_of_lost_answers(due or ())
        if self._partial is not None:
            self._partial.close()
            self._partial = None
        delayed, runs = self._delayed, bool(self._backlog) and not self.closed and self._diverted is None
        if delayed is not None and not (runs and delayed.must_complete_without_client):
            self._remove_delayed_operation()
            delayed.drop_for_lost_client()
        if not runs:
            self._release_client_state()
            return
        self._execute = partial(run_request_of_lost_client, self._execute)
        self._outlet = OutletOfLostClient(self._outlet.call_soon, self._release_client_state)
        self.resume_requests()

    def _release_client_state(self) -> None:
        """Forget the client: nothing of it runs any more."""
        self.closed = True
        farewells, self._farewells = self._farewells, None
        for farewell in () if farewells is None else farewells.values():
            farewell()
        if self.authenticator is not None:
            self.authenticator.on_connection_lost()
        if self._backlog is not None:
            self._budget.add_backlog_bytes(-len(self._backlog))
            self._backlog = None
