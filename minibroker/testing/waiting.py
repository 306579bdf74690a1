"""Waiting for the broker to be in a state, without polling: after each thing that can change it, it is looked again.

What changes a state is a request, a timer, or the end of something done aside; which states there are to wait for
stands in `waits`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from minibroker.broker.requests.interceptors import Call, Interceptor
from minibroker.protocol.declare import Message
from minibroker.quantities import Duration, milliseconds

if TYPE_CHECKING:
    from minibroker.testing.embedded import Embedded

Found = TypeVar("Found")


class Expired(AssertionError):
    """An error: what was waited for has not come; the message says how far it came."""


class Watch(Interceptor):
    """The waiting tests. While there are none it is no interceptor, and costs nothing."""

    def __init__(self, broker: Embedded) -> None:
        self._broker = broker
        self._waiting: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self._look_due = False

    async def until(
        self, condition: Callable[[], Found | None], timeout: Duration, expired: Callable[[], str]
    ) -> Found:
        """Wait until `condition` gives something true; return that. Real time counts: the broker's may stand still.

        A broker that is down is not looked at: it may come up again. Raises Expired, with the words of `expired`.
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
        """Something may have changed: look, once what is under way is done."""
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
                future.set_exception(error)  # it is the test's mistake, and told where it waits
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
