"""The event loop that a broker runs on, as its test sees it: in a thread of its own, or the caller's.

All state of a broker belongs to its loop; what a test does to it is brought there by `call` or `run`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, ClassVar, TypeVar

Result = TypeVar("Result")


class NotRunning(RuntimeError):
    """Something was asked of a broker that is not running, or does not run any more."""


class Loop:
    """Where a broker's code runs: a loop, and the thread that it runs in."""

    # Why the loop's own thread may not wait for it.
    REASON: ClassVar[str]

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        self._loop = loop
        self._thread = thread
        self._process_id = os.getpid()

    @property
    def is_elsewhere(self) -> bool:
        """Whether this process is a fork of the one that the loop runs in: nothing would ever come of a call here."""
        return os.getpid() != self._process_id

    def _check_process(self) -> None:
        if self.is_elsewhere:
            raise NotRunning(f"the broker runs in process {self._process_id}, of which this one is a fork")

    @property
    def _is_here(self) -> bool:
        return threading.current_thread() is self._thread

    def call(self, function: Callable[[], Result]) -> Result:
        """Run `function` on the loop; return what it gives, or raise what it raises. Any thread may call this.

        Raises NotRunning in a fork of the loop's process, as do the others.
        """
        self._check_process()
        if self._is_here:
            return function()
        done: Future[Result] = Future()
        self._loop.call_soon_threadsafe(_settle, done, function)
        return done.result()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Block until `work` is done on the loop.

        Raises RuntimeError in the loop's own thread, which cannot wait, and NotRunning if the loop ends before.
        """
        if self._is_here or self.is_elsewhere:
            work.close()
            self._check_process()
            raise RuntimeError(self.REASON)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise NotRunning("the broker was stopped meanwhile") from None
        except BaseException:
            future.cancel()  # Ctrl-C, or a test that ran out of time
            raise

    async def arun(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Await `work`, done on the broker's loop, from any loop of asyncio's, and in trio."""
        if self.is_elsewhere:
            work.close()
            self._check_process()
        if _in_trio():
            return await _awaited_in_trio(asyncio.run_coroutine_threadsafe(work, self._loop))
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self) -> None:
        """End the thread, if it is the broker's own."""


class LoopThread(Loop):
    """A uvloop of the broker's own, in a daemon thread."""

    REASON = "the broker's own thread cannot wait for the broker"

    def __init__(self) -> None:
        import uvloop

        super().__init__(uvloop.new_event_loop(), threading.Thread(target=self._serve, name="minibroker", daemon=True))
        self._thread.start()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # cancels at its end what still waits
            runner.get_loop().run_forever()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class CallersLoop(Loop):
    """The loop that is running already: made inside of it."""

    REASON = "this broker runs in your own event loop: await the method whose name begins with 'a'"

    def __init__(self) -> None:
        """Raises RuntimeError in trio, which has no loop that a broker could run on."""
        if _in_trio():
            raise RuntimeError("a broker does not run in trio: write `with Broker()`, and await its verbs")
        super().__init__(asyncio.get_running_loop(), threading.current_thread())


def _in_trio() -> bool:
    """Whether trio runs in this thread. Who has not imported it need not have it."""
    trio = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_run())


async def _awaited_in_trio(future: Future[Result]) -> Result:
    """Await the result of work on another loop. The work is cancelled with the task that waits for it."""
    import trio

    done, token = trio.Event(), trio.lowlevel.current_trio_token()

    def tell(_: Future[Result]) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(done.set)

    future.add_done_callback(tell)
    try:
        await done.wait()
    finally:
        future.cancel()  # without effect if it is done
    return future.result()


def _settle(done: Future[Result], function: Callable[[], Result]) -> None:
    try:
        done.set_result(function())
    except BaseException as error:
        done.set_exception(error)
