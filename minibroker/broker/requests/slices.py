"""Long work on the event loop in slices, between which other requests run.

`Slicer` runs steps (`protocol.steps`) of handlers and of the decoding and encoding of long messages. `each_partition`
runs a function for each partition, and `in_slices` of the clock for each of other items.

    request --> Slicer.start --- one slice is enough ---> result
                     |
                     +--> queue: a slice each turn of the loop, the works in turn --> on_end
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from minibroker.broker.clock import SLICE_MS, Then, in_slices
from minibroker.broker.cluster import Cluster
from minibroker.broker.metadata.partitions import Partition
from minibroker.protocol.steps import WAITING, Steps

log = logging.getLogger("minibroker.slices")

SLICE_SECONDS = SLICE_MS / 1000  # of the processor's time, so it is not the passed-in clock's


class Sliced:
    """A piece of work. Once it is `done`, `result()` returns or raises what its steps did.

    `on_end`, if set, is called when the work is done, unless its first slice was its last; `on_drop` if it is dropped.
    """

    __slots__ = ("_error", "_result", "_steps", "done", "on_drop", "on_end")

    def __init__(self, steps: Steps[Any]) -> None:
        self.done = False
        self.on_end: Callable[[Sliced], None] | None = None
        self.on_drop: Callable[[], None] | None = None
        self._steps = steps
        self._result: Any = None
        self._error: BaseException | None = None

    def step(self) -> bool:
        """Run a step; return whether the next one must wait until others have had their turn."""
        try:
            return next(self._steps) is WAITING
        except StopIteration as end:
            self.done, self._result = True, end.value
        except Exception as error:
            self.done, self._error = True, error
        return False

    def result(self) -> Any:
        """Return the steps' result, or raise their error; call it only once."""
        error, self._error = self._error, None
        if error is None:
            return self._result
        try:
            raise error
        finally:
            del error  # whose traceback holds this frame

    def drop(self) -> None:
        """Run no further step. State is consistent wherever steps stop."""
        on_drop, self.on_end, self.on_drop = self.on_drop, None, None
        if not self.done:
            self.done = True
            self._steps.close()
            if on_drop is not None:
                on_drop()


class Slicer:
    """Runs work in steps: in total one slice per turn of the loop, however much work there is.

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
        self._call_soon = call_soon
        self._now = now
        self._queue: deque[Sliced] = deque()

    def start(self, steps: Steps[Any]) -> Sliced:
        """Begin work: run its first slice now, unless other work is waiting."""
        work = Sliced(steps)
        if not self._queue:
            self._run(work)
        if not work.done:
            self._await_turn(work)
        return work

    def begin(self, steps: Steps[Any]) -> Any:
        """Begin as `start` does, but if the first slice is enough, return or raise what the steps do."""
        if not self._queue:
            self.slices += 1
            now = self._now
            until = now() + SLICE_SECONDS
            try:
                self.steps += 1
                waits = next(steps) is WAITING
                while (now() < until and not waits) or self._call_soon is None:
                    self.steps += 1
                    waits = next(steps) is WAITING
            except StopIteration as end:
                return end.value
        work = Sliced(steps)
        self._await_turn(work)
        return work

    def _await_turn(self, work: Sliced) -> None:
        self._queue.append(work)
        if len(self._queue) == 1 and self._call_soon is not None:
            self._call_soon(self._turn)

    def drop_all(self) -> None:
        """Drop all remaining work, when the broker stops."""
        works = list(self._queue)
        self._queue.clear()
        for work in works:
            work.drop()

    def _run(self, work: Sliced) -> None:
        self.slices += 1
        until = self._now() + SLICE_SECONDS
        while not work.done:
            self.steps += 1
            waits = work.step()
            if (waits or self._now() >= until) and self._call_soon is not None:
                return

    def _turn(self) -> None:
        """Run a slice, and schedule the next one for another turn."""
        if not self._queue:
            return  # they were dropped
        work = self._queue[0]
        self._run(work)
        if self._queue and self._queue[0] is work:  # else they were dropped meanwhile
            self._queue.popleft()
            if not work.done:
                self._queue.append(work)
        if self._queue and self._call_soon is not None:
            self._call_soon(self._turn)
        if work.done and work.on_end is not None:
            on_end, work.on_end, work.on_drop = work.on_end, None, None  # they know the work, too
            _tell(work, on_end)


def _tell(work: Sliced, on_end: Callable[[Sliced], None]) -> None:
    try:
        on_end(work)
    except Exception:
        # An error of the callback must not affect the remaining work.
        log.exception("what follows a work in slices failed")


def each_partition(cluster: Cluster, chore: Callable[[Partition], None], then: Then) -> None:
    """Call `chore` for each partition whose log is here and online, and then `then`.

    Topics that are created or deleted meanwhile may or may not be included.
    """
    in_slices(cluster.clock, chore, _partitions(cluster), then)


def _partitions(cluster: Cluster) -> Iterator[Partition]:
    for topic in list(cluster.image.topics.values()):
        yield from (each for each in topic.partitions if each.is_here and each.log.in_use)
