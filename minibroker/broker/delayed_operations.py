"""Delayed operations: requests that are not finished yet. It is the one way to wait.

A handler that must wait is a coroutine. It awaits one of three things:

    promise             a result that comes later, once: records arrived, a rebalance is over, a timer, a hold of a test
    pause()             others have their turn, if the slice is over
    run_in_slices(steps)    a computation in steps (`protocol.steps`), which know nothing of coroutines

`DelayedOperation` drives the coroutine. `close` ends it wherever it waits: `finally` and `with` in the handler release
what it holds. State is consistent at each `await`. To have what is awaited raise an error, its class is sent: the
coroutines of mypyc throw three arguments, of which Python warns from 3.12 on.

    request --> run_or_delay --- one slice is enough ---> result
                  |
                  +--> paused: a slice each turn of the loop, all operations in turn --+--> answered
                  +--> promise --> resolved: goes on at once ---------------------------+
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from enum import Enum, auto
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from minibroker.broker.clock import SLICE_MS, Clock
from minibroker.protocol.apis import READS, ApiKey
from minibroker.protocol.steps import WAITING, Steps

log = logging.getLogger("minibroker.requests")

Result = TypeVar("Result")

SLICE_SECONDS: Final = SLICE_MS / 1000  # of the processor's time, so it is not the passed-in clock's


class GivenUpForMemory(Exception):
    """Raised in a coroutine that waits, as its client is disconnected for lack of memory."""


class ClusterReplaced(Exception):
    """Raised in a handler that waits, as the cluster is replaced by another one: it runs again there."""


class Promise(Generic[Result]):
    """A result that comes later, once. Only one `operation` awaits it."""

    __slots__ = ("_result", "done", "operation")

    def __init__(self) -> None:
        self.done = False
        self._result: Any = None
        self.operation: DelayedOperation[Any] | None = None

    def resolve(self, result: Result) -> None:
        """Set the result, and resume the operation that awaits it; only the first result counts."""
        if not self.done:
            self.done, self._result = True, result
            if self.operation is not None:
                self.operation.resume()

    def __await__(self) -> Generator[Any, Any, Result]:
        if not self.done:
            error = yield self
            if error is not None:
                raise error()
        result: Result = self._result
        return result


class _Pause:
    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        error = yield None
        if error is not None:
            raise error()


_PAUSE: Final = _Pause()


def pause() -> _Pause:
    """Return an awaitable that lets other operations run if the current slice is over: `await pause()`."""
    return _PAUSE


class _SlicedSteps(Generic[Result]):
    __slots__ = ("_steps",)

    def __init__(self, steps: Steps[Result]) -> None:
        self._steps = steps

    def __await__(self) -> Generator[Any, Any, Result]:
        try:
            while True:
                error = yield next(self._steps)
                if error is not None:
                    raise error()
        except StopIteration as end:
            result: Result = end.value
            return result
        finally:
            self._steps.close()


async def run_in_slices(steps: Steps[Result]) -> Result:
    """Run all steps of a computation, with a pause between any two; return its result."""
    return await _SlicedSteps(steps)


async def sleep(clock: Clock, delay_ms: float) -> None:
    """Wait for a time on `clock`."""
    over: Promise[None] = Promise()
    timer = clock.call_later(delay_ms, partial(over.resolve, None))
    try:
        await over
    finally:
        timer.cancel()


class OperationStage(Enum):
    """How far a request has come."""

    COMING = auto()  # it is decoded, or held before its handler
    RUNNING = auto()  # its handler runs, or waits, or what it has changed is written
    ANSWERING = auto()


class Request(Protocol):
    """What an operation knows of the request that it is of."""

    stage: OperationStage
    was_paused: bool  # whether it has needed more than a slice

    @property
    def key(self) -> int:
        """Return the API key."""

    def release_frame_before_wait(self) -> None:
        """Release the request's frame, or copy what is needed of it, as the request waits for a promise."""

    def report_answer_lost(self) -> None:
        """Note that nobody gets the answer."""


class DelayedOperation(Generic[Result]):
    """Drives the coroutine of a request that waits. `answered` gets the result, or `failed` the error, once."""

    __slots__ = ("_on_result", "_coroutine", "_on_error", "_is_running", "_promise", "_request", "_slicer", "done")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Result],
        awaited: Any,
        slicer: Slicer,
        on_result: Callable[[Result], object],
        on_error: Callable[[Exception], object],
        request: Request | None,
    ) -> None:
        """`awaited` is the promise at which the first slice has ended, or else it only needs its turn."""
        self.done = False
        self._coroutine = coroutine
        self._slicer = slicer
        self._on_result: Callable[[Result], object] | None = on_result
        self._on_error = on_error
        self._request = request
        self._is_running = False
        self._promise: Promise[Any] | None = None  # that it awaits
        self._wait_for(awaited)

    @property
    def holds_decoded_request(self) -> bool:
        """Return whether the decoded request stays in memory during a wait; that of a Produce does not."""
        return self._promise is not None and self._request is not None and self._request.key != ApiKey.PRODUCE

    @property
    def must_complete_without_client(self) -> bool:
        """Return whether it continues after its client has gone, as its handler may be changing something."""
        request = self._request
        if request is None or self._promise is not None:
            return False
        return request.stage is OperationStage.RUNNING and request.key not in READS

    def resume(self, error: type[Exception] | None = None, *, in_turn: bool = False) -> None:
        """Run the next slice of the coroutine, `in_turn` if it was queued; what it awaits raises `error`, if given.

        `in_turn` it goes on after a pause, unless it awaits a promise by now: a new cluster may have run it before.
        """
        if self.done or (in_turn and self._promise is not None):
            return
        self._promise, self._is_running = None, True  # for ever, if it ends in this slice
        try:
            awaited = self._slicer.run_slice(self._coroutine, error, self, in_turn=in_turn)
        except StopIteration as end:
            self._complete_with_result(end.value)
        except Exception as raised:
            self.done = True
            self._on_error(raised)
        else:
            self._is_running = False
            self._wait_for(awaited)

    def _complete_with_result(self, result: Result) -> None:
        if self.done:
            return
        self.done = True
        if self._on_result is None:
            if self._request is not None:
                self._request.report_answer_lost()
            return
        try:
            self._on_result(result)
        except Exception as error:
            self._on_error(error)

    def _wait_for(self, awaited: Any) -> None:
        """Resume when the `awaited` promise is resolved, else queue the next slice; close it if nobody needs it."""
        if self.done:
            self._coroutine.close()  # which it could not do itself
            return
        if awaited.__class__ is Promise:
            self._promise, awaited.operation = awaited, self
        if self._on_result is None and not self.must_complete_without_client:
            self.close()
        elif self._promise is None:
            if self._request is not None:
                self._request.was_paused = True
            self._slicer.queue_operation(self)
        elif self._request is not None:
            self._request.release_frame_before_wait()

    # --- its end --------------------------------------------------------------------------------

    def close_unless_client_waits(self) -> None:
        """Close it, as the broker stops or changes its cluster, unless a connected client waits for its answer."""
        if self._request is None or self._on_result is None:
            self.close()

    def drop_for_lost_client(self) -> None:
        """Close it, as the client has gone; one that changes something runs on until it next awaits a promise."""
        if self.must_complete_without_client:
            self._on_result = None
        else:
            self.close()

    def close(self) -> None:
        """Stop it without an answer, wherever it waits."""
        if self.done:
            return
        self.done, self._on_result = True, None
        promise, self._promise = self._promise, None
        if promise is not None:
            promise.operation = None
        if not self._is_running:
            self._coroutine.close()

    def give_up(self) -> None:
        """Stop it, as memory is short; the coroutine may catch GivenUpForMemory to leave what it takes part in."""
        if self._promise is not None:
            self._promise.operation = None
            with contextlib.suppress(StopIteration, GivenUpForMemory):
                self._coroutine.send(GivenUpForMemory)
        self.close()

    def rerun_in_new_cluster(self) -> bool:
        """Run a waiting handler again, as the cluster is replaced. Return False if the operation cannot run again.

        A Produce may not, as its records may be overwritten by now.
        """
        stage = OperationStage.ANSWERING if self._request is None else self._request.stage
        if stage is OperationStage.COMING:
            return self._promise is not None  # held by a hook, rather than being decoded
        if self._request is None or stage is OperationStage.ANSWERING or self._request.key == ApiKey.PRODUCE:
            return False
        if self._promise is not None:
            self._promise.operation = None
        self.resume(ClusterReplaced)
        return True


class Slicer:
    """Gives turns to what has more to do than one slice: in total one slice in a turn of the loop.

    `call_soon` runs a callback in the loop's next turn; with None, all work runs to its end at once. `slices` and
    `steps` count those that were run.
    """

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.slices = 0
        self.steps = 0
        self.now = now
        self._call_soon = call_soon
        self._queue: deque[DelayedOperation[Any]] = deque()

    def run_or_delay(
        self,
        coroutine: Coroutine[Any, Any, Result],
        on_result: Callable[[Result], object],
        on_error: Callable[[Exception], object],
        request: Request | None = None,
    ) -> Result | DelayedOperation[Result]:
        """Run the first slice. Return its result or raise its error, or return the operation that runs the rest."""
        try:
            awaited = self.run_slice(coroutine)
        except StopIteration as end:
            result: Result = end.value
            return result
        return DelayedOperation(coroutine, awaited, self, on_result, on_error, request)

    def run_steps_in_slices(self, steps: Steps[Any]) -> None:
        """Run all steps in slices, the first one now. The result is dropped."""
        self.run_or_delay(run_in_slices(steps), _ignore_result, _log_failure)

    def run_slice(
        self,
        coroutine: Coroutine[Any, Any, Any],
        error: type[Exception] | None = None,
        operation: DelayedOperation[Any] | None = None,
        *,
        in_turn: bool = False,
    ) -> Any:
        """Run a coroutine until it awaits a promise, or its slice is over; return what it awaits. Raises StopIteration.

        A slice that is not `in_turn` is over at its first pause if others wait for theirs, and else measured from
        there. `operation` may close itself.
        """
        self.slices += 1
        until = self.now() + SLICE_SECONDS if in_turn else 0.0
        awaited = coroutine.send(error)
        while awaited.__class__ is not Promise and (operation is None or not operation.done):
            self.steps += 1
            if until == 0.0:
                until = -1.0 if self._queue else self.now() + SLICE_SECONDS
            if self._call_soon is not None and (awaited is WAITING or self.now() >= until):
                break
            awaited = coroutine.send(None)
        return awaited

    def queue_operation(self, operation: DelayedOperation[Any]) -> None:
        """Queue `operation`, to run its next slice after those that are queued already."""
        self._queue.append(operation)
        if len(self._queue) == 1 and self._call_soon is not None:
            self._call_soon(self._run_queue)

    def drop_queued_operations(self) -> None:
        """Forget all queued operations, as the broker stops or gets another cluster."""
        queue, self._queue = self._queue, deque()
        for work in queue:
            work.close_unless_client_waits()

    def _run_queue(self) -> None:
        if not self._queue:
            return  # they were dropped
        work = self._queue.popleft()
        left = len(self._queue)
        try:
            work.resume(in_turn=True)
        finally:
            if left and self._call_soon is not None:  # else `queue_operation` has asked for the next turn
                self._call_soon(self._run_queue)


def _ignore_result(_: object) -> None: ...


def _log_failure(error: Exception) -> None:
    log.error("work in slices failed", exc_info=error)
