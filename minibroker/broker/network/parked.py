"""A waiting request, which a handler returns while it has no answer yet.

`complete` sends the answer; the connection then runs the next request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Parked:
    """An unfinished request. `on_cancel` runs if its client disconnects first, and never after `complete`.

    `on_give_up` runs before the broker closes the connection for lack of memory, to release what the request holds.
    `again` runs the request again in place of this one, and returns its new `Parked`, if it waits. With `is_long`, the
    request runs in slices, and its answer is encoded in slices too; with `holds_request`, the decoded request stays in
    memory until it is answered. With `runs_to_its_end`, it goes on when its client has gone.
    """

    __slots__ = (
        "_failed",
        "_finish",
        "again",
        "done",
        "holds_request",
        "is_long",
        "on_cancel",
        "on_give_up",
        "response",
        "runs_to_its_end",
    )

    def __init__(self, on_cancel: Callable[[], None] | None = None) -> None:
        self.done = False
        self.on_cancel = on_cancel
        self.on_give_up: Callable[[], None] | None = None
        self.is_long = False
        self.runs_to_its_end = False
        self.holds_request = True
        self._finish: Callable[[Any], None] | None = None
        self._failed: Callable[[Exception], None] | None = None
        self.response: Any = None
        self.again: Callable[[], Parked | None] | None = None

    def complete(self, response: Any) -> None:
        """Answer the request with the message `response`; a second answer is dropped."""
        if self.done:
            return
        self.done = True
        self.response = response
        try:
            if self._finish is not None:
                self._finish(response)
        except Exception as error:
            self._cut_off(error)
        finally:
            self._forget()

    def fail(self, error: Exception) -> None:
        """End the request without an answer, and disconnect the client."""
        if not self.done:
            self.done = True
            if self._failed is not None:
                self._failed(error)
            self._forget()

    def attempt(self, work: Callable[[], None]) -> None:
        """Run a part of the request from other code; an exception closes only this client's connection."""
        try:
            work()
        except Exception as error:
            self.cancel()
            self._cut_off(error)

    def run_again(self) -> Parked | None:
        """Call `again`; if it raises, disconnect this client."""
        try:
            return None if self.again is None else self.again()
        except Exception as error:
            self.cancel()
            self._cut_off(error)
            return None

    def _cut_off(self, error: Exception) -> None:
        if self._failed is None:
            raise error  # not called by another request
        self._failed(error)

    def _forget(self) -> None:
        """Drop the callbacks, most of which refer to this request, to avoid reference cycles."""
        self._finish = self.on_cancel = self.on_give_up = self.again = None

    def attach(self, finish: Callable[[Any], None], failed: Callable[[Exception], None] | None = None) -> None:
        """Set the callbacks that send the answer and disconnect the client. Send an answer that is already there."""
        if self.done:
            finish(self.response)
            self._forget()
        else:
            self._finish, self._failed = finish, failed

    def follow(self, other: Parked) -> None:
        """Take the answer of `other`, and cancel it with this one."""
        before = self.on_cancel
        self.runs_to_its_end = False  # it has run, and waits

        def cancel() -> None:
            other.cancel()
            if before is not None:
                before()

        self.on_cancel, self.on_give_up = cancel, other.on_give_up
        other.attach(self.complete, self.fail)

    def cancel(self) -> None:
        """Drop the request, as its client has disconnected."""
        if not self.done:
            self.done = True
            if self.on_cancel is not None:
                self.on_cancel()
            self._forget()
