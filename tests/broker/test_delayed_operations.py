"""Requests that wait: a slice a turn, a promise goes on at once, and whatever ends them releases what they hold."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from minibroker.broker.delayed_operations import (
    SLICE_SECONDS,
    ClusterReplaced,
    DelayedOperation,
    GivenUpForMemory,
    OperationStage,
    Promise,
    Slicer,
    pause,
    run_in_slices,
    sleep,
)
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.steps import WAITING, Steps
from tests.broker.delaying import Asked
from tests.broker.manual_clock import ManualClock


class Loop:
    """A loop whose turns a test takes; each look at the time takes `look_seconds`."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.time = 0.0
        self.look_seconds = SLICE_SECONDS / 2.5
        self.slicer = Slicer(self.soon.append, self.now)
        self.answers: list[Any] = []
        self.failures: list[Exception] = []
        self.request = Asked()

    def now(self) -> float:
        self.time += self.look_seconds
        return self.time

    def turn(self) -> None:
        soon, self.soon[:] = list(self.soon), []
        for callback in soon:
            callback()

    def take_turns(self) -> None:
        while self.soon:
            self.turn()

    def begin(self, coroutine: Coroutine[Any, Any, Any], key: int = ApiKey.CREATE_TOPICS) -> Any:
        self.request.key = key
        return self.slicer.run_or_delay(coroutine, self.answers.append, self.failures.append, self.request)

    def delayed(self, coroutine: Coroutine[Any, Any, Any], key: int = ApiKey.CREATE_TOPICS) -> DelayedOperation[Any]:
        """An operation that has begun, and waits."""
        operation = self.begin(coroutine, key)
        assert isinstance(operation, DelayedOperation)
        return operation


@pytest.fixture
def loop() -> Loop:
    return Loop()


def steps(told: list[str], name: str, count: int) -> Steps[str]:
    try:
        for number in range(count):
            told.append(f"{name}{number}")
            yield
    finally:
        told.append(f"{name} ends")
    return name


async def paused(times: int, promise: Promise[str] | None = None) -> str:
    for _ in range(times):
        await pause()
    return "done" if promise is None else await promise


# --- slices -----------------------------------------------------------------------------------------------------------


def test_an_operation_that_fits_into_one_time_slice_returns_immediately(loop: Loop) -> None:
    assert loop.begin(run_in_slices(steps([], "a", 1))) == "a"
    assert not (loop.soon or loop.answers)


def test_a_long_operation_continues_in_later_loop_turns(loop: Loop) -> None:
    told: list[str] = []
    loop.delayed(run_in_slices(steps(told, "a", 7)))
    assert told == ["a0", "a1", "a2"]
    loop.turn()
    assert told == ["a0", "a1", "a2", "a3", "a4", "a5"]
    assert not loop.answers
    loop.turn()
    assert (loop.answers, loop.slicer.slices, loop.soon) == (["a"], 3, [])
    assert loop.request.was_paused


def test_operations_alternate_with_one_time_slice_per_loop_turn(loop: Loop) -> None:
    told: list[str] = []
    loop.delayed(run_in_slices(steps(told, "a", 7)))
    loop.slicer.run_steps_in_slices(steps(told, "b", 4))
    assert told == ["a0", "a1", "a2", "b0"]
    loop.turn()
    loop.turn()
    assert told[4:] == ["a3", "a4", "a5", "b1", "b2", "b3"]
    assert len(loop.soon) == 1
    loop.take_turns()
    assert told[-3:] == ["a6", "a ends", "b ends"]


def test_an_operation_that_starts_while_others_are_queued_runs_only_to_its_first_pause(loop: Loop) -> None:
    told: list[str] = []
    loop.delayed(run_in_slices(steps([], "a", 7)))
    loop.delayed(run_in_slices(steps(told, "b", 7)))
    assert told == ["b0"]


def test_an_error_is_raised_in_the_first_time_slice_and_reported_in_a_later_one(loop: Loop) -> None:
    async def fail(times: int) -> None:
        await paused(times)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        loop.begin(fail(1))
    assert not loop.failures
    loop.delayed(fail(7))
    loop.take_turns()
    assert [str(error) for error in loop.failures] == ["no"]


def test_an_operation_whose_response_cannot_be_sent_reports_a_failure(loop: Loop) -> None:
    def refuse(_: object) -> None:
        raise ValueError("a mistake")

    promise: Promise[str] = Promise()
    loop.slicer.run_or_delay(paused(0, promise), refuse, loop.failures.append)
    promise.resolve("x")
    assert [str(error) for error in loop.failures] == ["a mistake"]


def test_a_failing_operation_does_not_stop_others(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> Steps[None]:
        yield WAITING
        raise ValueError("a mistake")

    told: list[str] = []
    loop.slicer.run_steps_in_slices(failing())
    loop.slicer.run_steps_in_slices(steps(told, "b", 1))
    loop.take_turns()
    assert told == ["b0", "b ends"]
    assert "a mistake" in caplog.text


def test_all_steps_of_an_operation_run_immediately_without_an_event_loop() -> None:
    slicer = Slicer(None, now=iter(range(1000)).__next__)
    assert slicer.run_or_delay(run_in_slices(steps([], "a", 100)), print, print) == "a"
    told: list[str] = []
    slicer.run_steps_in_slices(steps(told, "b", 100))
    assert told[-1] == "b ends"


def test_an_operation_that_waits_for_another_runs_one_step_per_loop_turn(loop: Loop) -> None:
    told: list[str] = []
    loop.look_seconds = 0.0

    def waiting() -> Steps[None]:
        for number in range(3):
            told.append(f"a{number}")
            yield WAITING

    loop.delayed(run_in_slices(waiting()))
    loop.slicer.run_steps_in_slices(steps(told, "b", 2))
    assert told == ["a0", "b0"]
    loop.turn()
    assert told == ["a0", "b0", "a1"]
    loop.take_turns()
    assert told == ["a0", "b0", "a1", "b1", "b ends", "a2"]


# --- promises ---------------------------------------------------------------------------------------------------------


def test_only_the_first_result_of_a_promise_resumes_its_operation(loop: Loop) -> None:
    promise: Promise[str] = Promise()
    loop.delayed(paused(0, promise))
    promise.resolve("first")
    promise.resolve("second")
    assert (loop.answers, loop.soon, promise.done) == (["first"], [], True)


def test_a_sleep_ends_by_the_clock_and_leaves_no_timer(loop: Loop) -> None:
    clock = ManualClock()
    loop.delayed(sleep(clock, 100))
    loop.delayed(sleep(clock, 100)).close()
    clock.advance(99)
    assert not loop.answers
    clock.advance(1)
    assert loop.answers == [None]


# --- their end --------------------------------------------------------------------------------------------------------


def test_a_closed_operation_stops_and_releases_its_resources(loop: Loop) -> None:
    told: list[str] = []
    working = steps(told, "a", 9)  # which is kept here, so that only its end releases what it holds
    operation = loop.delayed(run_in_slices(working))
    operation.close()
    operation.close()
    loop.take_turns()
    assert told == ["a0", "a1", "a2", "a ends"]
    promise: Promise[str] = Promise()
    loop.delayed(paused(0, promise)).close()
    promise.resolve("late")
    assert not (loop.answers or loop.failures)


def test_an_operation_that_closes_itself_ends_at_its_next_wait(loop: Loop) -> None:
    told: list[str] = []
    promise: Promise[None] = Promise()

    async def close() -> None:
        try:
            await promise
            operation.close()
            told.append("goes on")
            await pause()
            told.append("too far")
        finally:
            told.append("ends")

    operation = loop.delayed(close())
    promise.resolve(None)
    assert told == ["goes on", "ends"]


@pytest.mark.parametrize(
    ("key", "stage", "goes_on"),
    [
        (ApiKey.CREATE_TOPICS, OperationStage.RUNNING, True),
        (ApiKey.FETCH, OperationStage.RUNNING, False),
        (ApiKey.CREATE_TOPICS, OperationStage.COMING, False),
        (ApiKey.CREATE_TOPICS, OperationStage.ANSWERING, False),
    ],
)
def test_an_operation_that_changes_state_continues_after_its_client_disconnects(
    loop: Loop, key: ApiKey, stage: OperationStage, goes_on: bool
) -> None:
    told: list[str] = []
    loop.request.stage = stage  # type: ignore[misc]
    operation = loop.delayed(run_in_slices(steps(told, "a", 9)), key)
    operation.drop_for_lost_client()
    loop.take_turns()
    assert ("a8" in told) == goes_on
    assert told[-1] == "a ends" and not loop.answers


def test_an_operation_whose_client_disconnected_runs_until_it_would_wait_and_ends(loop: Loop) -> None:
    promise: Promise[str] = Promise()
    operation = loop.delayed(paused(7, promise))
    operation.drop_for_lost_client()
    loop.take_turns()
    assert operation.done
    promise.resolve("late")
    assert not loop.answers


def test_queued_operations_of_connected_clients_are_rerun_when_a_new_cluster_drops_the_queue(loop: Loop) -> None:
    told: list[str] = []
    runs: list[int] = []

    async def run() -> str:
        while True:
            runs.append(len(runs))
            try:
                return await run_in_slices(steps(told, f"{len(runs)}-", 9))
            except ClusterReplaced:
                continue

    operation, gone = loop.delayed(run()), loop.delayed(run_in_slices(steps(told, "b", 9)))
    gone.drop_for_lost_client()
    loop.slicer.drop_queued_operations()
    assert gone.done and not operation.done
    loop.take_turns()
    assert told == ["1-0", "1-1", "1-2", "b0", "b ends"]
    assert operation.rerun_in_new_cluster()
    loop.take_turns()
    assert (runs, loop.answers) == ([0, 1], ["2-"])


def test_a_queued_operation_rerun_in_a_new_cluster_is_not_also_resumed_by_the_queue(loop: Loop) -> None:
    promise: Promise[str] = Promise()

    async def run() -> str:
        try:
            return await paused(9)
        except ClusterReplaced:
            return await promise

    operation = loop.delayed(run())
    assert loop.soon and operation.rerun_in_new_cluster()
    loop.take_turns()
    assert not (loop.answers or loop.failures)
    promise.resolve("again")
    assert loop.answers == ["again"]


def test_background_steps_end_when_the_queue_is_dropped(loop: Loop) -> None:
    told: list[str] = []
    loop.slicer.run_steps_in_slices(steps(told, "a", 9))
    loop.slicer.run_steps_in_slices(steps(told, "b", 9))
    loop.slicer.drop_queued_operations()
    loop.take_turns()
    assert told == ["a0", "a1", "a2", "b0", "a ends", "b ends"]


@pytest.mark.parametrize(
    ("key", "stage", "runs"),
    [
        (ApiKey.FETCH, OperationStage.RUNNING, True),
        (ApiKey.PRODUCE, OperationStage.RUNNING, False),
        (ApiKey.FETCH, OperationStage.COMING, True),
        (ApiKey.FETCH, OperationStage.ANSWERING, False),
    ],
)
def test_a_running_produce_and_a_request_being_answered_are_not_rerun_in_a_new_cluster(
    loop: Loop, key: ApiKey, stage: OperationStage, runs: bool
) -> None:
    loop.request.stage = stage  # type: ignore[misc]
    assert loop.delayed(paused(0, Promise()), key).rerun_in_new_cluster() == runs
    assert len(loop.failures) == (stage is OperationStage.RUNNING and runs), (
        "the handler itself catches ClusterReplaced"
    )


def test_an_operation_evicted_to_free_memory_is_notified_and_closed(loop: Loop) -> None:
    told: list[str] = []

    async def wait() -> str:
        try:
            return await Promise[str]()
        except GivenUpForMemory:
            told.append("leaves")
            await Promise[str]()
            raise

    operation = loop.delayed(wait())
    operation.give_up()
    assert told == ["leaves"] and operation.done
    assert not (loop.answers or loop.failures)


def test_a_response_is_reported_as_lost_if_its_client_has_gone_when_the_handler_ends(loop: Loop) -> None:
    lost: list[bool] = []
    loop.request.report_answer_lost = lambda: lost.append(True)  # type: ignore[method-assign]
    loop.delayed(paused(7)).drop_for_lost_client()
    assert not lost
    loop.take_turns()
    assert (lost, loop.answers) == ([True], [])


@pytest.mark.parametrize("make", [Promise, pause, lambda: run_in_slices(steps([], "a", 9))])
def test_an_operation_that_ends_with_an_error_releases_its_request_at_once(make: Callable[[], Any]) -> None:
    class Asking:
        """A request."""

    released: list[weakref.ref[Asking]] = []

    async def wait() -> None:
        request = Asking()
        released.append(weakref.ref(request))
        await make()

    coroutine = wait()
    coroutine.send(None)
    gc.disable()
    try:
        with contextlib.suppress(ClusterReplaced):
            coroutine.send(ClusterReplaced)
        assert released[0]() is None
        with pytest.raises(RuntimeError, match="cannot reuse"):
            coroutine.send(None)
    finally:
        gc.enable()
