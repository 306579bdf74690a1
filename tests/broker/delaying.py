"""Delayed operations whose end a test decides."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import count
from typing import Any, cast

from minibroker.broker.delayed_operations import DelayedOperation, OperationStage, Promise, Slicer, pause
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.steps import Steps


class Asked:
    """A request whose handler runs."""

    stage = OperationStage.RUNNING
    was_paused = False
    key: int = ApiKey.METADATA

    def release_frame_before_wait(self) -> None: ...

    def report_answer_lost(self) -> None: ...


class Delaying:
    """An `operation` that `complete` answers; it awaits a promise, or `is_at_work` with many turns before it."""

    def __init__(self, answered: Callable[[Any], object], *, is_at_work: bool = False) -> None:
        self.is_closed = False
        self._answer: list[Any] | None = None
        self._promise: Promise[list[Any]] = Promise()
        self._soon: list[Callable[[], None]] = []
        slicer = Slicer(self._soon.append, now=count().__next__)
        coroutine = self._work() if is_at_work else self._wait()
        operation = slicer.run_or_delay(coroutine, answered, _fail, Asked())
        assert isinstance(operation, DelayedOperation)
        self.operation = operation

    async def _wait(self) -> list[Any]:
        try:
            return await self._promise
        except GeneratorExit:
            self.is_closed = True
            raise

    async def _work(self) -> list[Any]:
        while self._answer is None:
            await pause()
        return self._answer

    def complete(self, *items: Any) -> None:
        """Answer with these items."""
        self._answer = list(items)
        self._promise.resolve(self._answer)
        while self._soon:
            self._soon.pop(0)()


def steps_of(outcome: Any) -> Steps[Any]:
    """Return the steps of the coroutine that a handler goes on with."""
    return cast("Steps[Any]", outcome if inspect.isgenerator(outcome) else outcome.__await__())


def _fail(error: Exception) -> None:
    raise error
