"""Waits for a state of the broker without polling: conditions are checked after everything that can change the state.

That is a request, a timer, or the end of work in another thread. `wait_verbs` and `record_verbs` have the conditions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from minibroker.broker.requests.interceptors import Call, Interceptor
from minibroker.protocol.declare import Message
from minibroker.quantities import Duration, milliseconds

if TYPE_CHECKING:
    from minibroker.testing.embedded_broker import EmbeddedBroker

Found = TypeVar("Found")

DEFAULT_TIMEOUT: Final = "5 s"
"""How long a test waits for anything."""
DEFAULT_SILENCE: Final = "200 ms"
"""How long a test watches that nothing is produced."""


class Expired(AssertionError):
    """A wait timed out; the message reports the progress."""


class Watch(Interceptor):
    """The conditions that tests wait for. It is among the interceptors only while there is one."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self._waiting: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self._look_due = False

    async def until(
        self, condition: Callable[[], Found | None], timeout: Duration, expired: Callable[[], str]
    ) -> Found:
        """Wait until `condition` returns something true; return that.

        `timeout` is real time, as the broker's clock may be stopped. While the broker is down nothing is checked: it
        may come up again. Raises Expired with the message that `expired` returns.
        """
        found = condition()
        if found:
            return found
        future: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        entry = condition, future
        self._add(entry)
        try:
            return await asyncio.wait_for(future, milliseconds(timeout) / 1000)
        except TimeoutError:
            raise Expired(expired() if self._broker.is_running else "the broker is down") from None
        finally:
            self._remove(entry)

    def _add(self, entry: tuple[Callable[[], Any], asyncio.Future[Any]]) -> None:
        if not self._waiting:
            self._broker.interceptors.append(self)
            self._broker.moving_clock.after = self.poke
        self._waiting.append(entry)

    def _remove(self, entry: tuple[Callable[[], Any], asyncio.Future[Any]]) -> None:
        self._waiting.remove(entry)
        if not self._waiting:
            self._broker.interceptors.remove(self)
            self._broker.moving_clock.after = None

    def poke(self) -> None:
        """Check the conditions soon: the state may have changed."""
        if self._waiting and not self._look_due:
            self._look_due = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._look_due = False
        if not self._broker.is_running:
            return
        for condition, future in list(self._waiting):
            if future.done():
                continue
            try:
                found = condition()
            except Exception as error:
                future.set_exception(error)  # a bug in the test, raised where it waits
                continue
            if found:
                future.set_result(found)

    def before(self, call: Call) -> None:
        self.poke()

    def answer(self, call: Call, response: Message) -> Message:
        self.poke()
        return response

    def sent(self, call: Call, sent_bytes: int, duration_ms: float) -> None:
        self.poke()

    def lost(self, call: Call) -> None:
        self.poke()
