"""Waiting for records: what has happened at the partitions that a Fetch or a ShareFetch waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from minibroker.broker.delayed_operations import Promise
from minibroker.protocol.steps import Steps, split_into_portions

if TYPE_CHECKING:
    from minibroker.broker.clock import Timer
    from minibroker.broker.metadata.partitions import Partition, Waiter
    from minibroker.broker.requests.context import RequestContext

WATCHED_MAX: Final = 500_000  # partitions that the long fetches of a node may watch: 100 to 200 MB
FEW: Final = 100  # partitions that are left at once


class PartitionWatch:
    """Watches partitions until a time is over.

    `grown` are those with new records, `has_changed` says that one was deleted or has a new leader, `is_late` that the
    time is over. Appends count down `missing_bytes`, and are no news before it is used up.
    """

    __slots__ = (
        "_booked",
        "_context",
        "_joined",
        "_news",
        "_timer",
        "grown",
        "has_changed",
        "is_late",
        "missing_bytes",
    )

    def __init__(self, context: RequestContext, max_wait_ms: int) -> None:
        self.grown: dict[Partition, None] = {}
        self.has_changed = self.is_late = False
        self.missing_bytes = 0
        self._context = context
        self._joined: list[set[Waiter]] = []
        self._booked = 0
        self._news: Promise[None] | None = None
        self._timer: Timer | None = context.cluster.clock.call_later(max_wait_ms, self._end_watch_at_timeout)

    def reserve_watched_partitions(self, count: int) -> None:
        """Add `count` to the node's number of watched partitions, which is limited, until the watch ends."""
        self._booked += count
        self._context.node.watched += count

    def register_as_waiter(self, waiters: set[Waiter]) -> None:
        """Add the watch to the waiters of a partition, which are notified of appends and changes."""
        waiters.add(self)
        self._joined.append(waiters)

    def make_promise_of_change(self) -> Promise[None]:
        """Return a promise that is resolved when there are enough new records, another change, or the time is over."""
        news: Promise[None] = Promise()
        if self.is_late or self.has_changed or self.grown:
            news.resolve(None)
        else:
            self._news = news
        return news

    # --- as a waiter ----------------------------------------------------------------------------

    def count_appended_bytes(self, partition: Partition, size_bytes: int) -> None:
        self.grown[partition] = None
        self.missing_bytes -= size_bytes
        if self.missing_bytes <= 0:
            self._context.cluster.turn.add_listener(self)

    def notify_partition_changed(self) -> None:
        self.has_changed = True
        self.on_turn_ended()

    def _end_watch_at_timeout(self) -> None:
        self.is_late = True
        self.on_turn_ended()

    def on_turn_ended(self) -> None:
        news, self._news = self._news, None
        if news is not None:
            news.resolve(None)

    # --- its end --------------------------------------------------------------------------------

    def __enter__(self) -> PartitionWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self._news = None
        timer, self._timer = self._timer, None  # uvloop's timer keeps its callback, and so this, when it is cancelled
        if timer is not None:
            timer.cancel()
        self._context.node.watched -= self._booked
        if len(self._joined) > FEW:
            self._context.slicer.run_steps_in_slices(self._stop_watching_in_steps())
        else:
            for waiters in self._joined:
                waiters.discard(self)

    def _stop_watching_in_steps(self) -> Steps[None]:
        """Remove the watch from the waiters of all partitions."""
        for portion in split_into_portions(self._joined):
            for waiters in portion:
                waiters.discard(self)
            yield
