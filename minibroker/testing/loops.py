"""The event loop that a broker runs on, as its test sees it: in a thread of its own, or the caller's.

All state of a broker belongs to its loop; what a test does to it is brought there by `call` or `run`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")


class Loop(Protocol):
    """Where a broker's code runs."""

    def call(self, function: Callable[[], Result]) -> Result:
        """What `function` gives, or raises, when the loop runs it. From whatever thread, the loop's own too."""

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Block until `work` is done on the loop. Raises RuntimeError in the loop's own thread, which cannot wait."""

    async def arun(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Await `work`, done on the broker's loop, from any loop."""

    def close(self) -> None:
        """End the thread, if there is one."""


class LoopThread:
    """A uvloop of the broker's own, in a daemon thread."""

    def __init__(self) -> None:
        import uvloop

        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="minibroker", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def call(self, function: Callable[[], Result]) -> Result:
        if threading.current_thread() is self._thread:
            return function()
        done: Future[Result] = Future()
        self._loop.call_soon_threadsafe(_settle, done, function)
        return done.result()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("the broker's own thread cannot wait for the broker")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C, or a test that ran out of time
            raise

    async def arun(self, work: Coroutine[Any, Any, Result]) -> Result:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class CallersLoop:
    """The loop that is running already: made inside of it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.current_thread()

    def call(self, function: Callable[[], Result]) -> Result:
        if threading.current_thread() is self._thread:
            return function()
        done: Future[Result] = Future()
        self._loop.call_soon_threadsafe(_settle, done, function)
        return done.result()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this broker runs in your own event loop: await the method whose name begins with 'a'")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def arun(self, work: Coroutine[Any, Any, Result]) -> Result:
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self) -> None:
        pass


def _settle(done: Future[Result], function: Callable[[], Result]) -> None:
    try:
        done.set_result(function())
    except BaseException as error:
        done.set_exception(error)
