"""Waits for a state of the broker without polling: conditions are checked after everything that can change the state.

That is a request, a timer, or the end of work in another thread. `wait_verbs` and `record_verbs` have the conditions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from minibroker.broker.requests.interceptors import Call, Interceptor
from minibroker.protocol.declare import Message
from minibroker.quantities import Duration, parse_milliseconds
from minibroker.testing.callers import PACKAGE

if TYPE_CHECKING:
    from minibroker.testing.seen.hosting import InterceptedHost

Found = TypeVar("Found")

SHOWN_NAMES: Final = 10

DEFAULT_TIMEOUT: Final = "5 s"
"""How long a test waits for anything."""
DEFAULT_SILENCE: Final = "200 ms"
"""How long a test watches that nothing is produced."""


class Expired(AssertionError):
    """A wait timed out; the message reports the progress."""

    __module__ = PACKAGE


def format_count(count: int, noun: str) -> str:
    """Return "1 record" or "2 records"."""
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def format_count_with_were(count: int, noun: str) -> str:
    """Return "1 record was" or "2 records were"."""
    return f"{format_count(count, noun)} {'was' if count == 1 else 'were'}"


def format_there_are(count: int) -> str:
    """Return "there is 1" or "there are 2"."""
    return "there is 1" if count == 1 else f"there are {count}"


def describe_missing(noun: str, existing_names: Iterable[str]) -> str:
    """Say that there is nothing of this name, and which others there are, as the name may be misspelt."""
    names = sorted(existing_names)
    more = ", ..." if len(names) > SHOWN_NAMES else ""
    others = f"only {', '.join(names[:SHOWN_NAMES])}{more}" if names else "and no other"
    return f"there is no such {noun}, {others}"


class ConditionWatch(Interceptor):
    """The conditions that tests wait for. It is among the interceptors only while there is one."""

    def __init__(self, broker: InterceptedHost) -> None:
        self._broker = broker
        self._waiting: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self._look_due = False

    async def wait_until(
        self, condition: Callable[[], Found | None], timeout: Duration, describe_timeout: Callable[[], str]
    ) -> Found:
        """Wait until `condition` returns something true; return that.

        `timeout` is real time, as the broker's clock may be stopped. While the broker is down nothing is checked: it
        may come up again. Raises Expired with the message that `describe_timeout` returns.
        """
        result = condition()
        if result:
            return result
        timeout_s = parse_milliseconds(timeout) / 1000
        future: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        entry = condition, future
        self._add_waiter(entry)
        try:
            return await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            reason = describe_timeout() if self._broker.is_running else "the broker is down"
            raise Expired(f"after {timeout_s:g} s: {reason}") from None
        finally:
            self._remove_waiter(entry)

    def _add_waiter(self, waiter: tuple[Callable[[], Any], asyncio.Future[Any]]) -> None:
        """Add a wait; the first one begins to watch requests and the clock."""
        if not self._waiting:
            self._broker.interceptors.append(self)
            self._broker.moving_clock.after = self.check_conditions_soon
        self._waiting.append(waiter)

    def _remove_waiter(self, waiter: tuple[Callable[[], Any], asyncio.Future[Any]]) -> None:
        """Remove a wait; without any, requests and the clock are no longer watched."""
        self._waiting.remove(waiter)
        if not self._waiting:
            self._broker.interceptors.remove(self)
            self._broker.moving_clock.after = None

    def check_conditions_soon(self) -> None:
        """Check the conditions soon: the state may have changed."""
        if self._waiting and not self._look_due:
            self._look_due = True
            asyncio.get_running_loop().call_soon(self._check_conditions)

    def _check_conditions(self) -> None:
        """End the waits whose condition is true now, or raises."""
        self._look_due = False
        if not self._broker.is_running:
            return
        for condition, future in list(self._waiting):
            if future.done():
                continue
            try:
                result = condition()
            except Exception as error:
                future.set_exception(error)  # a bug in the test, raised where it waits
                continue
            if result:
                future.set_result(result)

    def before_request(self, call: Call) -> None:
        """Check the conditions soon."""
        self.check_conditions_soon()

    def alter_response(self, call: Call, response: Message) -> Message:
        """Check the conditions soon."""
        self.check_conditions_soon()
        return response

    def on_sent(self, call: Call, sent_bytes: int, duration_ms: float) -> None:
        """Check the conditions soon."""
        self.check_conditions_soon()

    def on_lost(self, call: Call) -> None:
        """Check the conditions soon."""
        self.check_conditions_soon()
