"""Fetches that wait for records: until there are enough, the answer is urgent, or max_wait is over.

`fetch_reading` reads the records and builds the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from minibroker.broker.clock import Timer
from minibroker.broker.metadata.partitions import Partition
from minibroker.broker.network.parked import Parked
from minibroker.broker.requests.down_conversion import Conversion
from minibroker.broker.requests.slices import Sliced
from minibroker.protocol.steps import Steps

if TYPE_CHECKING:
    from minibroker.broker.fetch_sessions import FetchedPartition
    from minibroker.broker.handlers.fetch_reading import LongReading, Reading

WAITED_FOR_MAX = 500_000  # partitions for which the `WaitingInSteps` of a node may wait: 100 to 200 MB


class WaitingFetch:
    """A fetch with less than min_bytes to read. It reads again when appends have added enough, or time is up."""

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
        """Read now. If a change of the topic makes conversion necessary, begin to answer in steps and return False."""
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
    """Cancel and drop the timer: a cancelled timer of uvloop keeps its callback, and so the fetch, in memory."""
    if fetch._timer is not None:
        fetch._timer.cancel()
        fetch._timer = None


class WaitingInSteps:
    """A Fetch that waits as `WaitingFetch` does, for many partitions or for records that must be converted.

    An append makes it read only the append's partition. A node may wait for `WAITED_FOR_MAX` partitions in all; a fetch
    beyond that is answered at once, as if its time were up.
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
        self._booked = 0  # this fetch's share of `waited_for`
        self._begun = False  # the read at the end of `begin` finds all that happens before
        self._changed = False  # a partition has changed since the last read of all of them began
        self._work: Sliced | None = None  # reads some or all partitions, or answers
        self.parked = Parked(self._cancel)
        self.parked.is_long = True

    @staticmethod
    def has_room(reading: LongReading) -> bool:
        """Return whether this fetch may wait too."""
        return reading.context.node.waited_for + len(reading.wanted) <= WAITED_FOR_MAX

    def begin(self) -> Steps[None]:
        """Begin to wait for each partition, then read them all, as records may have been appended in the meantime."""
        self._booked = len(self._reading.wanted)
        self._reading.context.node.waited_for += self._booked
        try:
            yield from self._join()
        except BaseException:  # the client has disconnected
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
        """Read the partitions that have new records, as often as the fetch lists them."""
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
        """Answer, or read again what has changed while other requests ran, or wait."""
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
