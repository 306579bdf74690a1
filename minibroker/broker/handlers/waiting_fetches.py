"""Fetches that wait for records: until there are enough, something is urgent, or time is up.

What is read, and how it is answered, is `fetch`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from minibroker.broker.clock import Timer
from minibroker.broker.metadata.partitions import Partition
from minibroker.broker.requests.down_conversion import Conversion
from minibroker.broker.requests.parked import Parked
from minibroker.broker.requests.slices import Sliced
from minibroker.protocol.steps import Steps

if TYPE_CHECKING:
    from minibroker.broker.handlers.fetch_reading import LongReading, Reading
    from minibroker.broker.requests.fetch_sessions import FetchedPartition

WAITED_FOR_MAX = 500_000  # partitions of fetches of many, on a node: 100 to 200 MB


class WaitingFetch:
    """A fetch with less than min_bytes to read: it looks again once appends made up for that, or time is up."""

    __slots__ = ("_missing_bytes", "_partitions", "_reading", "_timer", "_unreadable", "parked")

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._partitions = list(self._waited_for())
        self._missing_bytes = reading.min_bytes - reading.size_bytes
        self._unreadable = reading.unreadable
        self.parked = Parked(self._forget)
        for partition in self._partitions:
            partition.waiters.add(self)
        clock = reading.context.cluster.clock
        self._timer: Timer | None = clock.call_later(reading.request.max_wait_ms, self._time_is_up)

    def _waited_for(self) -> Iterable[Partition]:
        for fetched in self._reading.wanted:
            partition = self._reading.context.find_partition(fetched.topic, fetched.index)
            if partition is not None:
                yield partition

    def appended(self, partition: Partition, size_bytes: int) -> None:
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0:
            self._reading.context.cluster.turn.wake_soon(self)

    def look(self) -> None:
        self.changed()

    def changed(self) -> None:
        if not self.parked.done:
            self.parked.attempt(self._look)

    def _look(self) -> None:
        if not self._read():
            return
        if self._reading.enough() or self._reading.unreadable > self._unreadable:
            self._answer()
        else:
            self._missing_bytes = self._reading.min_bytes - self._reading.size_bytes

    def _time_is_up(self) -> None:
        if not self.parked.done:
            self.parked.attempt(self._look_for_the_last_time)

    def _look_for_the_last_time(self) -> None:
        if self._read():
            self._answer()

    def _read(self) -> bool:
        """Read, now; False if the answer takes steps, which are begun: a topic has been changed since it waits."""
        try:
            self._reading.read()
        except Conversion:
            self._forget()
            self._answer_in_steps()
            return False
        return True

    def _answer_in_steps(self) -> None:
        parked = self.parked

        def ended(work: Sliced) -> None:
            try:
                parked.complete(work.result())
            except Exception as error:
                parked.fail(error)

        work = self._reading.context.slicer.start(self._reading.in_steps().read_for_response())
        parked.on_cancel = work.drop
        if work.done:
            ended(work)
        else:
            work.on_end = ended

    def _answer(self) -> None:
        self._forget()
        self.parked.complete(self._reading.response())

    def _forget(self) -> None:
        _cancel_timer(self)
        for partition in self._partitions:
            partition.waiters.discard(self)


def _cancel_timer(fetch: WaitingFetch | WaitingInSteps) -> None:
    """Cancel the timer, and drop it: uvloop's keeps its callback, which keeps the fetch."""
    if fetch._timer is not None:
        fetch._timer.cancel()
        fetch._timer = None


class WaitingInSteps:
    """A Fetch that waits as `WaitingFetch` does, for many partitions or for records to convert.

    An append makes it look at the append's own partition only. What such fetches hold is limited: beyond that a fetch
    is answered at once, as if its time were up.
    """

    __slots__ = (
        "_begun",
        "_booked",
        "_changed",
        "_grown",
        "_missing_bytes",
        "_reading",
        "_slicer",
        "_timer",
        "_unreadable",
        "_waited_for",
        "_work",
        "parked",
    )

    def __init__(self, reading: LongReading) -> None:
        self._reading = reading
        self._slicer = reading.context.slicer
        self._waited_for: dict[Partition, list[FetchedPartition]] = {}
        self._grown: set[Partition] = set()
        self._missing_bytes = reading.min_bytes - reading.size_bytes
        self._unreadable = reading.unreadable
        self._booked = 0  # of the partitions that the node's fetches wait for
        self._begun = False  # before, whatever happens at a partition is seen by the look that follows
        self._changed = False  # something has, since the last look at all of them began
        self._work: Sliced | None = None  # that looks at some or all of them, or answers
        self.parked = Parked(self._cancel)
        self.parked.is_long = True

    @staticmethod
    def has_room(reading: LongReading) -> bool:
        """Whether one more may wait."""
        return reading.context.node.waited_for + len(reading.wanted) <= WAITED_FOR_MAX

    def begin(self) -> Steps[None]:
        """Wait at each of the partitions; what was appended to one of them meanwhile is looked at."""
        self._booked = len(self._reading.wanted)
        self._reading.context.node.waited_for += self._booked
        try:
            yield from self._join()
        except BaseException:  # the client is gone
            self._slicer.start(self._forget())
            raise
        self._begun = True
        clock = self._reading.context.cluster.clock
        self._timer: Timer | None = clock.call_later(self._reading.request.max_wait_ms, self._time_is_up)
        self.changed()

    def _join(self) -> Steps[None]:
        for fetched in self._reading.wanted:
            partition = self._reading.context.find_partition(fetched.topic, fetched.index)
            if partition is not None:
                self._waited_for.setdefault(partition, []).append(fetched)
                partition.waiters.add(self)
            yield

    def appended(self, partition: Partition, size_bytes: int) -> None:
        self._grown.add(partition)
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0:
            self._reading.context.cluster.turn.wake_soon(self)

    def look(self) -> None:
        if self._begun and self._work is None and not self.parked.done:
            self._run(self._read_grown(), self._answer_if_enough)

    def _read_grown(self) -> Steps[None]:
        """Look at the partitions that have got records, as often as the fetch names them."""
        grown, self._grown = self._grown, set()
        for partition in grown:
            for fetched in self._waited_for.get(partition, ()):
                yield from self._reading.read_again(fetched)
                yield

    def changed(self) -> None:
        if self._begun and self._work is None and not self.parked.done:
            self._changed = False
            self._run(self._reading.read_in_steps(), self._answer_if_enough)
        else:
            self._changed = True

    def _answer_if_enough(self) -> None:
        """Answer, or look again at what has changed while others had their turn, or wait."""
        if self._reading.enough() or self._reading.unreadable > self._unreadable:
            self._answer()
        elif self._changed:
            self.changed()
        elif self._grown:
            self.look()
        else:
            self._missing_bytes = self._reading.min_bytes - self._reading.size_bytes

    def _time_is_up(self) -> None:
        if self._work is not None:
            self._work.drop()
            self._work = None
        if not self.parked.done:
            self._run(self._reading.read_in_steps(), self._answer)

    def _answer(self) -> None:
        _cancel_timer(self)
        self._run(self._respond(), lambda: None)

    def _respond(self) -> Steps[None]:
        yield from self._forget()
        self.parked.complete((yield from self._reading.response_in_steps()))

    def _run(self, steps: Steps[None], then: Callable[[], None]) -> None:
        def finish() -> None:
            work.result()
            then()

        def ended(_: Sliced) -> None:
            self._work = None
            self.parked.attempt(finish)

        self._work = work = self._slicer.start(steps)
        if work.done:
            ended(work)
        else:
            work.on_end = ended

    def _cancel(self) -> None:
        _cancel_timer(self)
        if self._work is not None:
            self._work.drop()
        self._slicer.start(self._forget())

    def _forget(self) -> Steps[None]:
        self._reading.context.node.waited_for -= self._booked
        self._booked = 0
        for partition in self._waited_for:
            partition.waiters.discard(self)
            yield
