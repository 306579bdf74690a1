"""Works in steps: a slice a turn, in turn; none runs on after its end or once it is dropped."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minibroker.broker.requests.slices import SLICE_SECONDS, Sliced, Slicer
from minibroker.protocol.steps import WAITING, Steps


class Loop:
    """A loop whose turns a test takes; each look at the time takes `look_seconds`."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.time = 0.0
        self.look_seconds = SLICE_SECONDS / 2.5
        self.slicer = Slicer(self.soon.append, self.now)

    def now(self) -> float:
        self.time += self.look_seconds
        return self.time

    def turn(self) -> None:
        soon, self.soon[:] = list(self.soon), []
        for callback in soon:
            callback()


@pytest.fixture
def loop() -> Loop:
    return Loop()


def steps(told: list[str], name: str, count: int) -> Steps[str]:
    for number in range(count):
        told.append(f"{name}{number}")
        yield
    return name


def test_a_short_work_is_done_at_once(loop: Loop) -> None:
    work = loop.slicer.start(steps([], "a", 1))
    assert work.done
    assert work.result() == "a"
    assert not loop.soon


def test_long_work_continues_in_later_turns_and_calls_on_end(loop: Loop) -> None:
    told: list[str] = []
    ended: list[str] = []
    work = loop.slicer.start(steps(told, "a", 7))
    work.on_end = lambda work: ended.append(work.result())
    assert told == ["a0", "a1", "a2"]
    loop.turn()
    assert told == ["a0", "a1", "a2", "a3", "a4", "a5"]
    assert not ended
    loop.turn()
    assert ended == ["a"]
    assert loop.slicer.slices == 3
    assert not loop.soon


def test_works_take_turns_and_one_slice_is_run_in_a_turn(loop: Loop) -> None:
    told: list[str] = []
    loop.slicer.start(steps(told, "a", 7))
    loop.slicer.start(steps(told, "b", 4))
    assert told == ["a0", "a1", "a2"]
    loop.turn()
    loop.turn()
    assert told[3:] == ["a3", "a4", "a5", "b0", "b1", "b2"]
    assert len(loop.soon) == 1


def test_an_error_is_the_works_own(loop: Loop) -> None:
    def failing() -> Steps[None]:
        yield
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        loop.slicer.start(failing()).result()


def test_a_failing_on_end_does_not_stop_other_work(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    def fail(work: Sliced) -> None:
        raise ValueError("a mistake")

    told: list[str] = []
    loop.slicer.start(steps(told, "a", 4)).on_end = fail
    loop.slicer.start(steps(told, "b", 1))
    while loop.soon:
        loop.turn()
    assert told[-1] == "b0"
    assert "a mistake" in caplog.text


def test_a_dropped_work_runs_no_further_and_cleans_up(loop: Loop) -> None:
    told: list[str] = []

    def tidy() -> Steps[None]:
        try:
            yield from steps(told, "a", 9)
        finally:
            told.append("tidied")

    work = loop.slicer.start(tidy())
    work.on_drop = lambda: told.append("dropped")
    work.drop()
    while loop.soon:
        loop.turn()
    assert told == ["a0", "a1", "a2", "tidied", "dropped"]


def test_all_can_be_dropped(loop: Loop) -> None:
    told: list[str] = []
    for name in "ab":
        loop.slicer.start(steps(told, name, 9))
    loop.slicer.drop_all()
    while loop.soon:
        loop.turn()
    assert told == ["a0", "a1", "a2"]


def test_without_a_loop_all_steps_run_at_once() -> None:
    work = Slicer(None, now=iter(range(1000)).__next__).start(steps([], "a", 100))
    assert work.result() == "a"


@pytest.mark.parametrize("begin", ["start", "begin"])
def test_a_work_that_waits_for_another_gives_its_turn_away(loop: Loop, begin: str) -> None:
    told: list[str] = []
    loop.look_seconds = 0.0

    def waiting() -> Steps[None]:
        for number in range(3):
            told.append(f"a{number}")
            yield WAITING

    getattr(loop.slicer, begin)(waiting())
    loop.slicer.start(steps(told, "b", 2))
    assert told == ["a0"]
    loop.turn()
    assert told == ["a0", "a1"]
    while loop.soon:
        loop.turn()
    assert told == ["a0", "a1", "b0", "b1", "a2"]
