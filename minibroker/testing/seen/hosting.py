"""What the journal, the faults and the waits need of the broker, or the proxy, whose requests they see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from minibroker.broker.requests.interceptors import Interceptor
from minibroker.testing.loops import BrokerLoop, Result
from minibroker.testing.moving_clock import MovingClock


class InterceptedHost(Protocol):
    """A broker or a proxy with interceptors."""

    @property
    def loop(self) -> BrokerLoop:
        """Return its event loop. Raises NotRunning."""

    @property
    def is_running(self) -> bool:
        """Return whether clients can connect."""

    @property
    def moving_clock(self) -> MovingClock:
        """Return its clock. Only its loop may use it. Raises NotRunning."""

    @property
    def interceptors(self) -> list[Interceptor]:
        """Return the interceptors, which may be changed on its loop."""

    @property
    def reset_callbacks(self) -> list[Callable[[], None]]:
        """Return the callbacks that are called on the loop after a reset."""

    @property
    def event_listeners(self) -> list[Callable[[str, str], None]]:
        """Return the callbacks that are told on the loop what a test does."""

    def notify_event_listeners(self, kind: str, text: str) -> None:
        """Tell the event listeners what a test does. Call it on the loop."""

    def add_interceptor_first(self, interceptor: Interceptor) -> None:
        """Add an interceptor before all others that do not only count."""

    def call_on_loop(self, function: Callable[[], Result]) -> Result:
        """Call `function` on the loop, or here while there is none; return its result."""
