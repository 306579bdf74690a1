"""The timers of a group's members, by member and purpose: at most one of each runs."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from minibroker.broker.clock import Clock, Timer


class TimerPurpose(Enum):
    """What a timer waits for."""

    SESSION = "to be heard of"
    REVOCATION = "to give up partitions"
    JOIN = "to join again, with the classic protocol"
    SYNC = "to ask for its assignment, with the classic protocol"


class MemberTimers:
    """The timers of one group's members."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers: dict[tuple[str, TimerPurpose], Timer] = {}

    def start_timer(
        self, member_id: str, purpose: TimerPurpose, delay_ms: float, call_on_expiry: Callable[[], None]
    ) -> None:
        """Call `call_on_expiry` after the delay; a timer that runs already is restarted."""
        self.cancel_timers(member_id, purpose)

        def call_expired() -> None:
            del self._timers[member_id, purpose]
            call_on_expiry()

        self._timers[member_id, purpose] = self._clock.call_later(delay_ms, call_expired)

    def is_running(self, member_id: str, purpose: TimerPurpose) -> bool:
        """Return whether the member's timer for this runs."""
        return (member_id, purpose) in self._timers

    def cancel_timers(self, member_id: str, *purposes: TimerPurpose) -> None:
        """Cancel the member's timers for these purposes, or all."""
        for purpose in purposes or TimerPurpose:
            timer = self._timers.pop((member_id, purpose), None)
            if timer is not None:
                timer.cancel()

    def cancel_all(self) -> None:
        """Cancel the timers of all members."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
