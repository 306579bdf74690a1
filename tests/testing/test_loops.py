"""The verbs of the test kit: each has a twin to be awaited, with a regular name and the same signature and text."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from minibroker.broker.configs.settings import SettingsError
from minibroker.testing import Broker, Expired, KafkaError, ShareGroupVerbs
from minibroker.testing.broker import TestClock
from minibroker.testing.faults.engine import Fault
from minibroker.testing.faults.rules import WORDS
from tests.testing.support import settings

OWNERS = (Broker, TestClock, Fault, ShareGroupVerbs)


def verbs(owner: type) -> Iterator[tuple[str, object]]:
    """The public methods of a class."""
    for name in dir(owner):
        if not name.startswith("_") and inspect.isfunction(getattr(owner, name)):
            yield name, getattr(owner, name)


@pytest.mark.parametrize("owner", OWNERS)
def test_awaitable_methods_have_the_names_of_the_blocking_ones(owner: type) -> None:
    twins = {name: verb for name, verb in verbs(owner) if inspect.iscoroutinefunction(verb)}
    assert twins
    for name, twin in twins.items():
        verb = getattr(owner, name.removeprefix("a"))
        assert name == f"a{verb.__name__}" == twin.__name__
        assert inspect.signature(verb) == inspect.signature(twin)


@pytest.mark.parametrize("owner", OWNERS)
def test_every_blocking_method_has_an_awaitable_one(owner: type) -> None:
    blocking = [name for name, verb in verbs(owner) if inspect.iscoroutinefunction(getattr(verb, "__wrapped__", None))]
    assert [name for name in blocking if name[0] != "a" and not hasattr(owner, f"a{name}")] == []


@pytest.mark.parametrize("owner", OWNERS)
def test_every_method_has_a_docstring(owner: type) -> None:
    assert [name for name, verb in verbs(owner) if not inspect.getdoc(verb)] == []


def test_the_signature_of_faults_add_lists_all_arguments() -> None:
    with Broker() as broker:
        signature = inspect.signature(broker.faults.add)
        assert list(signature.parameters) == list(WORDS)
        assert {each.kind for each in signature.parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}


def blocking_verbs(owner: type) -> list[str]:
    return [name for name, verb in verbs(owner) if hasattr(owner, f"a{name}") and not inspect.iscoroutinefunction(verb)]


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("is_own_thread", [True, False])
async def test_a_blocking_method_in_a_coroutine_names_its_awaitable_one(owner: type, is_own_thread: bool) -> None:
    broker = Broker()
    async with contextlib.AsyncExitStack() as running:
        _ = running.enter_context(broker) if is_own_thread else await running.enter_async_context(broker)
        objects = {Broker: broker, TestClock: broker.clock, ShareGroupVerbs: broker.share_group("g")}
        objects[Fault] = broker.faults.add(api="Fetch", delay="1 s")
        names = [name for name in blocking_verbs(owner) if name not in ("start", "stop")]
        assert names
        for name in names:
            words = rf"{name}\(\) blocks, and this is a coroutine in an event loop: await a{name}\(\) instead"
            with pytest.raises(RuntimeError, match=words):
                getattr(objects[owner], name)()


async def test_a_running_loop_outside_a_coroutine_may_be_blocked() -> None:
    """As below Playwright's synchronous interface, where tests cannot await anything."""
    with Broker() as broker:
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: done.set_result(broker.produce("t", "a")))
        assert await done == 0


def frames(error: BaseException) -> list[str]:
    return [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]


FAILURES: list[Callable[[Broker], object]] = [
    lambda broker: broker.expect("t", 2, 0.01),
    lambda broker: broker.create_topic("a b"),
    lambda broker: broker.records("t", -1),
    lambda broker: broker.produce("t", 5),  # type: ignore[arg-type]
    lambda broker: broker.fill("not there.yaml"),
    lambda broker: broker.faults.add(api="Produc", error="NOT_LEADER_OR_FOLLOWER"),
    lambda broker: broker.requests("Produc"),
    lambda broker: broker.clock.advance("soon"),
    lambda broker: broker.client_config("pykafka"),
    lambda broker: Broker({"num.partitions": "many"}),
]


@pytest.mark.parametrize("fail", FAILURES)
def test_a_failure_shows_no_frames_of_the_test_kit(fail: Callable[[Broker], object]) -> None:
    with Broker() as broker:
        broker.produce("t", "a")
        broker.journal.on()
        with pytest.raises((AssertionError, KafkaError, ValueError, TypeError, OSError, SettingsError)) as raised:
            fail(broker)
    here, lambda_, call = frames(raised.value)
    assert here == lambda_ == __file__ and call.endswith("loops.py")  # which pytest hides


async def test_an_awaited_failure_shows_no_frames_of_the_test_kit() -> None:
    async with Broker() as broker:
        with pytest.raises(Expired) as raised:
            await broker.aexpect("t", 1, 0.01)
    here, call = frames(raised.value)
    assert here == __file__ and call.endswith("loops.py")


def test_an_exception_of_a_test_function_keeps_its_frames() -> None:
    def wrong(exchange: object) -> bool:
        raise ValueError("mine")

    with Broker() as broker:
        broker.journal.on()
        Producer(settings(broker)).list_topics(timeout=20)
        for ask in (broker.requests, broker.wait_for_requests):
            with pytest.raises(ValueError, match="mine") as raised:
                ask(where=wrong)
            assert frames(raised.value)[-1] == __file__


@pytest.fixture
def python_handles_ctrl_c() -> Iterator[None]:
    """Spark, where another test of this process has used it, handles Ctrl-C in a frame of its own."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.mark.usefixtures("python_handles_ctrl_c")
def test_ctrl_c_shows_where_the_test_waits() -> None:
    interrupted: list[object] = []

    def interrupt(request: object) -> None:
        if not interrupted:  # a second Ctrl-C would meet whatever handles the first
            interrupted.append(request)
            os.kill(os.getpid(), signal.SIGINT)

    with Broker() as broker:
        broker.journal.on()
        Producer(settings(broker)).list_topics(timeout=20)
        with pytest.raises(KeyboardInterrupt) as raised:
            broker.requests("Metadata", where=interrupt)
    assert {Path(name).name for name in frames(raised.value)} == {"test_loops.py", "loops.py"}
