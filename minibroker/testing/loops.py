"""The event loop of a broker, as its test uses it: in a separate thread, or the caller's.

A broker's state belongs to its loop. A method is written once, as code for the loop, and a decorator runs it there:

    @immediate  def reset(self) -> None             returns at once; any thread may call it, the loop's own too
    @blocking   async def expect(self, ...) -> ...  blocks until it is done
    aexpect = awaited(expect)                       the same method as a coroutine, with a leading `a`

Type checkers and editors see the method's signature and docstring in each form. Numbers among the arguments that are
durations get their unit here, in the caller's thread (`durations`). Errors that say what a test did wrong, or waited
for in vain, leave here without the frames of the test kit, also where no pytest hides them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import wraps
from types import TracebackType
from typing import Any, ClassVar, Concatenate, ParamSpec, Protocol, Self, TypeVar

from minibroker.broker.configs.settings import SettingsError
from minibroker.broker.lifecycle import StartError
from minibroker.operating_system import make_event_loop
from minibroker.protocol.errors import KafkaError
from minibroker.testing.callers import PACKAGE, remove_own_traceback
from minibroker.testing.durations import make_duration_converter

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
Owner = TypeVar("Owner", bound="VerbsOnLoop")


class NotRunning(RuntimeError):
    """The broker is not running, or was stopped meanwhile."""

    __module__ = PACKAGE


# What a test does wrong, or waits for in vain. Any other error is a bug of the test kit, and keeps its frames.
EXPECTED = (AssertionError, KafkaError, SettingsError, StartError, ValueError, TypeError, RuntimeError, OSError)


class BrokerLoop:
    """The loop of a broker, and the loop's thread."""

    REASON: ClassVar[str]
    """The reason why the loop's own thread must not block."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        self._loop = loop
        self._thread = thread
        self._process_id = os.getpid()

    @property
    def is_in_other_process(self) -> bool:
        """Return whether this process is a fork of the loop's process, so that a call would never return."""
        return os.getpid() != self._process_id

    def _check_not_forked(self) -> None:
        """Raise NotRunning in a fork of the loop's process."""
        if self.is_in_other_process:
            raise NotRunning(f"the broker runs in process {self._process_id}, of which this one is a fork")

    @property
    def _is_called_on_loop(self) -> bool:
        return threading.current_thread() is self._thread

    def call_on_loop(self, function: Callable[[], Result]) -> Result:
        """Run `function` on the loop; return what it returns, or raise what it raises. Any thread may call this.

        Raises NotRunning in a fork of the loop's process, as `run_on_loop` and `arun_on_loop` do.
        """
        self._check_not_forked()
        if self._is_called_on_loop:
            return function()
        done: Future[Result] = Future()
        self._loop.call_soon_threadsafe(_resolve_future, done, function)
        return done.result()

    def run_on_loop(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run `work` on the loop; block until it is done, and return its result.

        Raises RuntimeError in the loop's own thread, which must not block, and NotRunning if the loop ends first.
        """
        if self._is_called_on_loop or self.is_in_other_process:
            work.close()
            self._check_not_forked()
            raise RuntimeError(self.REASON)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise NotRunning("the broker was stopped meanwhile") from None
        except BaseException:
            future.cancel()  # Ctrl-C, or a test's own timeout
            raise

    def check_may_block(self, verb: str) -> None:
        """Raise RuntimeError in a coroutine, as a method that blocks would stop its event loop."""
        if _is_in_task() and not (self._is_called_on_loop and isinstance(self, LoopThread)):
            raise RuntimeError(f"{verb}() blocks, and this is a coroutine in an event loop: await a{verb}() instead")

    async def arun_on_loop(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run `work` on the loop; await its result, from any asyncio loop or from trio."""
        if self.is_in_other_process:
            work.close()
            self._check_not_forked()
        if _is_in_trio():
            return await _await_in_trio(asyncio.run_coroutine_threadsafe(work, self._loop))
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self) -> None:
        """End the thread, if it is the broker's own."""


class LoopThread(BrokerLoop):
    """An event loop in the broker's own daemon thread."""

    REASON = "the broker's own thread cannot wait for the broker"

    def __init__(self) -> None:
        super().__init__(make_event_loop(), threading.Thread(target=self._run_loop, name="minibroker", daemon=True))
        self._thread.start()

    def _run_loop(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # its end cancels what still waits
            runner.get_loop().run_forever()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class CallersLoop(BrokerLoop):
    """The running event loop of the caller, which the broker uses."""

    REASON = "this broker runs in your own event loop: await the method whose name begins with 'a'"

    def __init__(self) -> None:
        """Take the running loop. Raises RuntimeError in trio, which has no asyncio loop."""
        if _is_in_trio():
            raise RuntimeError("a broker does not run in trio: use `with Broker()`, and await its verbs")
        super().__init__(asyncio.get_running_loop(), threading.current_thread())


class VerbsOnLoop(Protocol):
    """An object whose verbs run on a broker's loop."""

    @property
    def loop(self) -> BrokerLoop:
        """Return the loop. Raises NotRunning."""


class LoopOwner:
    """An object that has a loop while it runs."""

    _loop: BrokerLoop | None = None

    @property
    def loop(self) -> BrokerLoop:
        """Return its event loop. Raises NotRunning."""
        if self._loop is None:
            raise NotRunning("the broker is not running: start it, or use it inside of `with Broker() as broker`")
        return self._loop


def shorten_tracebacks(verb: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Make `verb` raise expected errors without the frames of the test kit. Ctrl-C shows where the test waited."""

    @wraps(verb)
    def call_verb(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        __tracebackhide__ = True
        try:
            return verb(*args, **kwargs)
        except (*EXPECTED, KeyboardInterrupt) as error:
            raise remove_own_traceback(error) from error.__cause__

    return call_verb


class ServedObject(LoopOwner):
    """An object that serves from `start` to `stop`, in a thread of its own or, as a coroutine, in the caller's loop."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await self.astart()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.astop()

    @shorten_tracebacks
    def start(self) -> Self:
        """Serve in a thread of its own. Raises StartError, SettingsError."""
        self._set_loop(LoopThread())
        try:
            self.loop.run_on_loop(self._start_serving())
        except BaseException:
            self._close_event_loop()
            raise
        return self

    async def astart(self) -> Self:
        """Serve in the running event loop. Raises StartError, SettingsError."""
        self._set_loop(CallersLoop())
        try:
            await self._start_serving()
        except BaseException:
            self._close_event_loop()
            raise
        return self

    def stop(self) -> None:
        """Stop cleanly, and remove temporary data. In a fork of the process, do nothing."""
        if self._loop is not None and not self._loop.is_in_other_process:
            try:
                self.loop.run_on_loop(self._stop_serving())
            finally:
                self._close_event_loop()

    async def astop(self) -> None:
        """Stop as `stop` does."""
        if self._loop is not None and not self._loop.is_in_other_process:
            try:
                await self.loop.arun_on_loop(self._stop_serving())
            finally:
                self._close_event_loop()

    def _set_loop(self, loop: BrokerLoop) -> None:
        """Set the loop to serve on. Raises RuntimeError if there is one."""
        raise NotImplementedError

    async def _start_serving(self) -> None:
        """Begin to serve, on the loop that was just set. Raises StartError."""
        raise NotImplementedError

    async def _stop_serving(self) -> None:
        """Stop serving cleanly, and keep the loop."""
        raise NotImplementedError

    def _close_event_loop(self) -> None:
        """Close the loop."""
        raise NotImplementedError


def immediate(verb: Callable[Concatenate[Owner, Arguments], Result]) -> Callable[Concatenate[Owner, Arguments], Result]:
    """Make the function `verb`, which waits for nothing, run on the loop of its object, and return its result."""
    read = make_duration_converter(verb)

    @wraps(verb)
    @shorten_tracebacks
    def call_verb(owner: Owner, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        args, kwargs = read(args, kwargs)  # type: ignore[assignment]
        return owner.loop.call_on_loop(lambda: verb(owner, *args, **kwargs))

    return call_verb


def blocking(
    verb: Callable[Concatenate[Owner, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Owner, Arguments], Result]:
    """Make the coroutine function `verb` run on the loop of its object, while its caller blocks.

    In a coroutine it raises RuntimeError, which names the method to be awaited.
    """
    read = make_duration_converter(verb)

    @wraps(verb)
    @shorten_tracebacks
    def call_verb(owner: Owner, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        loop = owner.loop
        loop.check_may_block(verb.__name__)
        args, kwargs = read(args, kwargs)  # type: ignore[assignment]
        return loop.run_on_loop(verb(owner, *args, **kwargs))

    return call_verb


def make_coroutine_of_blocking_verb(
    blocked: Callable[Concatenate[Owner, Arguments], Result],
) -> Callable[Concatenate[Owner, Arguments], Coroutine[Any, Any, Result]]:
    """Return the coroutine function of a `blocking` method, which runs it on the loop of its object."""
    verb: Callable[Concatenate[Owner, Arguments], Coroutine[Any, Any, Result]] = blocked.__wrapped__  # type: ignore[attr-defined]
    read = make_duration_converter(verb)

    @wraps(verb)
    async def call_in_thread(owner: Owner, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        __tracebackhide__ = True
        try:
            args, kwargs = read(args, kwargs)  # type: ignore[assignment]
            return await owner.loop.arun_on_loop(verb(owner, *args, **kwargs))
        except EXPECTED as error:
            raise remove_own_traceback(error) from error.__cause__

    call_in_thread.__name__, call_in_thread.__qualname__ = f"a{verb.__name__}", f"a{verb.__name__}"
    return call_in_thread


def _is_in_trio() -> bool:
    """Return whether trio runs in this thread, without importing trio."""
    trio = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_run())


def _is_in_task() -> bool:
    """Return whether this is code of a coroutine. Libraries that hide a running loop (Playwright's) have no task."""
    if _is_in_trio():
        return True
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False


async def _await_in_trio(future: Future[Result]) -> Result:
    """Await the result of work on another loop. Cancelling the task that waits cancels the work."""
    import trio

    done, token = trio.Event(), trio.lowlevel.current_trio_token()

    def resume_task(_: Future[Result]) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(done.set)

    future.add_done_callback(resume_task)
    try:
        await done.wait()
    finally:
        future.cancel()  # has no effect on a future that is done
    return future.result()


def _resolve_future(future: Future[Result], function: Callable[[], Result]) -> None:
    """Call `function`, and set its result or its error in the future."""
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)
