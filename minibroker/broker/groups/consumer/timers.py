"""The timers of a group's members, by member and purpose: at most one of each runs.

What is done when one runs out is for whoever starts it to say.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from minibroker.broker.clock import Clock, Timer


class Purpose(Enum):
    """What a member is given time for."""

    SESSION = "to be heard of"
    REVOCATION = "to give up partitions"
    JOIN = "to join again, with the classic protocol"
    SYNC = "to ask for its assignment, with the classic protocol"


class MemberTimers:
    """Of one group."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers: dict[tuple[str, Purpose], Timer] = {}

    def start(self, member_id: str, purpose: Purpose, delay_ms: float, expired: Callable[[], None]) -> None:
        """Call `expired` after the time, which begins anew if it runs already."""
        self.cancel(member_id, purpose)

        def expire() -> None:
            del self._timers[member_id, purpose]
            expired()

        self._timers[member_id, purpose] = self._clock.call_later(delay_ms, expire)

    def runs(self, member_id: str, purpose: Purpose) -> bool:
        """Whether the member's time for this is running."""
        return (member_id, purpose) in self._timers

    def cancel(self, member_id: str, *purposes: Purpose) -> None:
        """Stop these, or all of the member's."""
        for purpose in purposes or Purpose:
            timer = self._timers.pop((member_id, purpose), None)
            if timer is not None:
                timer.cancel()

    def cancel_all(self) -> None:
        """Stop all, of all members."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
