"""The verbs of the test kit: each has a twin to be awaited, with a regular name and the same signature and text."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from minibroker.testing import Broker
from minibroker.testing.broker import TestClock
from minibroker.testing.faults.engine import Fault
from minibroker.testing.faults.rules import WORDS

OWNERS = (Broker, TestClock, Fault)
OLD_NAMES = {
    "await_group": "await_for_group",
    "await_commit": "await_for_commit",
    "await_caught_up": "await_until_caught_up",
    "await_high_watermark": "await_for_high_watermark",
    "await_requests": "await_for_requests",
    "await_hits": "await_for_hits",
    "wait": "wait_for_hits",
}


def verbs(owner: type) -> Iterator[tuple[str, object]]:
    """The public methods of a class under their present names."""
    for name in dir(owner):
        if not name.startswith("_") and name not in OLD_NAMES and inspect.isfunction(getattr(owner, name)):
            yield name, getattr(owner, name)


@pytest.mark.parametrize("owner", OWNERS)
def test_what_is_awaited_is_named_as_the_verb_that_blocks(owner: type) -> None:
    twins = {name: verb for name, verb in verbs(owner) if inspect.iscoroutinefunction(verb)}
    assert twins
    for name, twin in twins.items():
        verb = getattr(owner, name.removeprefix("a"))
        assert name == f"a{verb.__name__}" == twin.__name__
        assert inspect.signature(verb) == inspect.signature(twin)


@pytest.mark.parametrize("owner", OWNERS)
def test_every_verb_that_blocks_can_be_awaited(owner: type) -> None:
    blocking = [name for name, verb in verbs(owner) if inspect.iscoroutinefunction(getattr(verb, "__wrapped__", None))]
    assert [name for name in blocking if name[0] != "a" and not hasattr(owner, f"a{name}")] == []


@pytest.mark.parametrize("owner", OWNERS)
def test_every_verb_has_a_text(owner: type) -> None:
    assert [name for name, verb in verbs(owner) if not inspect.getdoc(verb)] == []


def test_help_shows_the_words_of_a_fault() -> None:
    with Broker() as broker:
        signature = inspect.signature(broker.faults.add)
        assert list(signature.parameters) == list(WORDS)
        assert {each.kind for each in signature.parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}


async def test_old_names_warn_and_do_the_same() -> None:
    async with Broker() as broker:
        await broker.aproduce("t", "a")
        with pytest.warns(DeprecationWarning, match="await_high_watermark is now named await_for_high_watermark"):
            assert await broker.await_high_watermark("t", 1) == 1
    for old, new in OLD_NAMES.items():
        owner = next(owner for owner in OWNERS if hasattr(owner, old))
        assert getattr(owner, old).__wrapped__ is getattr(owner, new)
