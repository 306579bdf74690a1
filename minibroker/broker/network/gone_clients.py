"""What is left of a client whose socket is closed: its requests run if they may change something, without answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

from minibroker.broker.delayed_operations import DelayedOperation
from minibroker.broker.network.output_items import AnswerEndMark, DueAnswer, ObservedDueAnswer
from minibroker.protocol.apis import READS

if TYPE_CHECKING:
    from minibroker.broker.network.connection import Connection, Execute, Outcome

API_KEY = Struct(">h")  # begins each request


class OutletOfLostClient:
    """The outlet of a client that has gone. `call_soon` is that of its socket; `close` is called at the end."""

    is_congested = False
    progress_ms = 0.0

    def __init__(self, call_soon: Callable[[Callable[[], None]], None], close: Callable[[], None]) -> None:
        self.call_soon = call_soon
        self.close = close

    def send(self, items: list[Any]) -> None:
        """Tell the answers' observers that they are lost."""
        notify_observers_of_lost_answers([items])

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def notify_observers_of_lost_answers(answers: Sequence[list[Any] | DueAnswer]) -> None:
    """Tell the observers of answers that they are lost."""
    for answer in answers:
        for item in answer if isinstance(answer, list) else (answer,):
            if isinstance(item, AnswerEndMark | ObservedDueAnswer):
                item.report_answer_lost()


def run_request_of_lost_client(execute: Execute, connection: Connection, frame: memoryview) -> Outcome:
    """Run a request of a closed socket if it may change something; return its outcome if the next must wait for it."""
    if API_KEY.unpack_from(frame)[0] in READS:
        return None
    outcome = execute(connection, frame)
    if isinstance(outcome, DelayedOperation) and not outcome.must_complete_without_client:
        outcome.close()
        return None
    return outcome
