"""`broker.clock`: time in the hand of the test, for all that the broker does after some time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from minibroker.quantities import Duration, milliseconds
from minibroker.testing.moving_clock import JUMPS, MovingClock

if TYPE_CHECKING:
    from minibroker.testing.embedded import Embedded

SETTLE_SECONDS = 10.0  # for what other threads do after a move: a cleaning, or a file's removal


class TestClock:
    """The time that the broker goes by. Clients, in this process or others, keep their own.

    Moved ahead, it drives retention, compaction, session, rebalance and transaction timeouts, expiries of offsets and
    producers, parked fetches, idle connections, and the timestamps that the broker gives (log append time). It goes
    on, and can be moved, while the broker is down after a `kill`.
    """

    __test__ = False  # to pytest it is none

    def __init__(self, broker: Embedded) -> None:
        self._broker = broker

    def now_ms(self) -> int:
        """The wall clock's time, in ms since 1970."""
        return self._broker.loop.call(lambda: self._clock.wall_ms())

    def advance(self, by: Duration) -> None:
        """Let time pass at once: "7 days", "1.5 s", ms, or a timedelta. What is due has been done when this returns."""
        self._broker.loop.run(self._advance(milliseconds(by)))

    async def aadvance(self, by: Duration) -> None:
        """Advance the clock as `advance` does."""
        await self._broker.loop.arun(self._advance(milliseconds(by)))

    def freeze(self) -> None:
        """Let no time pass but by `advance`."""
        self._broker.loop.call(lambda: self._clock.freeze())

    def unfreeze(self) -> None:
        """Let time pass again."""
        self._broker.loop.call(lambda: self._clock.unfreeze())

    @property
    def frozen(self) -> bool:
        """Whether it stands still."""
        return self._broker.loop.call(lambda: self._clock.frozen)

    @property
    def _clock(self) -> MovingClock:
        return self._broker.moving_clock

    async def _advance(self, by_ms: float) -> None:
        for _ in range(JUMPS):
            self._clock.jump(by_ms / JUMPS)
            await asyncio.sleep(0)
        await self._settle()

    async def _settle(self) -> None:
        """Wait until nobody is at work any more."""
        until = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < until:
            self._clock.jump(0)
            await asyncio.sleep(0)
            cleaning = self._broker.is_running and self._broker.running.cleaning
            if not self._clock.busy and not cleaning:
                return
            await asyncio.sleep(0.001)
