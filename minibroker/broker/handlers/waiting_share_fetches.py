"""ShareFetches that wait for records: until there are enough, an error must be told, or max_wait is over.

`share_fetch` acquires the records and builds the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minibroker.broker.clock import Timer
from minibroker.broker.metadata.partitions import Partition
from minibroker.broker.network.parked import Parked
from minibroker.broker.requests.slices import Sliced
from minibroker.protocol.steps import Steps

if TYPE_CHECKING:
    from minibroker.broker.handlers.share_fetch import Fetching
    from minibroker.broker.share.share_partition import SharePartition
    from minibroker.broker.share.share_partitions import Wanted


class WaitingShareFetch:
    """A ShareFetch without enough records: it tries again after appends, and when records are released.

    It looks only at the partitions that have changed, in steps if they are many.
    """

    def __init__(self, fetching: Fetching) -> None:
        self._fetching = fetching
        self._slicer = fetching.context.slicer
        self._changed: dict[Wanted, None] = {}
        self._work: Sliced | None = None
        self._timer: Timer | None = None
        self._is_late = False
        self.parked = Parked(self._cancel)
        self.parked.is_long = fetching.is_long

    def begin(self) -> Steps[None]:
        """Begin to wait for each partition. What happens in other steps meanwhile is looked at afterwards."""
        is_long = self._fetching.is_long
        try:
            for wanted, share in self._fetching.shares.items():
                share.waiters.add(self)
                share.partition.waiters.add(self)
                if is_long:
                    self._changed[wanted] = None
                    yield
        except BaseException:  # the client has disconnected
            self._slicer.start(self._forget())
            raise
        clock = self._fetching.context.cluster.clock
        self._timer = clock.call_later(self._fetching.request.max_wait_ms, self._time_is_up)
        self.look()

    def appended(self, partition: Partition, size_bytes: int) -> None:
        self._changed[partition.topic.topic_id, partition.index] = None
        self._fetching.context.cluster.turn.wake_soon(self)

    def released(self, share: SharePartition) -> None:
        """Note that records of this share partition can be acquired."""
        self._changed[share.key.topic_id, share.key.partition] = None
        self._fetching.context.cluster.turn.wake_soon(self)

    def look(self) -> None:
        if self._changed and self._work is None and self._timer is not None:
            changed, self._changed = self._changed, {}
            self._try(self._fetching.attempt(changed))

    def changed(self) -> None:
        self._changed.update(dict.fromkeys(self._fetching.shares))
        self.look()

    def _time_is_up(self) -> None:
        self._is_late = True
        if self._work is None:
            self._try(self._fetching.attempt(last=True))

    def _try(self, steps: Steps[bool]) -> None:
        """Acquire records; answer, look at what has changed meanwhile, or wait."""

        def concluded(answers: bool) -> None:
            if answers:
                self._run(self._respond(), lambda _: None)
            elif self._is_late:
                self._time_is_up()
            else:
                self.look()

        if not self.parked.done:
            self._run(steps, concluded)

    def _respond(self) -> Steps[None]:
        yield from self._forget()
        self.parked.complete((yield from self._fetching.response()))

    def _run(self, steps: Steps[Any], then: Callable[[Any], None]) -> None:
        def ended(work: Sliced) -> None:
            self._work = None
            self.parked.attempt(lambda: then(work.result()))

        self._work = work = self._slicer.start(steps)
        if work.done:
            ended(work)
        else:
            work.on_end = ended

    def _cancel(self) -> None:
        if self._work is not None:
            self._work.drop()
        self._slicer.start(self._forget())

    def _forget(self) -> Steps[None]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for share in self._fetching.shares.values():
            share.waiters.discard(self)
            share.partition.waiters.discard(self)
            if self._fetching.is_long:
                yield
