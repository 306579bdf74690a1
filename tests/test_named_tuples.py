"""Named tuples made without a compiler behave as those of typing do."""

from __future__ import annotations

import copy
import pickle
import typing
from typing import Any

import pytest

from minibroker import named_tuples


class Ours(named_tuples.NamedTuple):
    """A place."""

    topic: str
    partition: int = 0
    tags: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.topic}-{self.partition}"

    def moved(self, by: int) -> Ours:
        return self._replace(partition=self.partition + by)


class Theirs(typing.NamedTuple):
    """A place."""

    topic: str
    partition: int = 0
    tags: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.topic}-{self.partition}"

    def moved(self, by: int) -> Theirs:
        return self._replace(partition=self.partition + by)


class OursOfMany(named_tuples.NamedTuple):
    a: int
    b: int
    c: int
    d: int
    e: int
    f: int
    g: int
    h: int = 8

    def sum(self) -> int:
        return sum(self)


def test_a_named_tuple_has_the_fields_and_methods_of_its_class_body() -> None:
    for kind in (Ours, Theirs):
        made: Any = kind("t", partition=3)
        assert (made.topic, made.partition, made.tags, made.text, made.moved(2).partition) == ("t", 3, (), "t-3", 5)
        assert (kind._fields, kind.__doc__, kind.__module__) == (("topic", "partition", "tags"), "A place.", __name__)
        assert made == ("t", 3, ()) and made[1] == 3 and hash(made) == hash(("t", 3, ()))
        assert made._asdict() == {"topic": "t", "partition": 3, "tags": ()}
        assert repr(made) == f"{kind.__name__}(topic='t', partition=3, tags=())"
        assert kind._make(["u", 1, ("x",)]).tags == ("x",)
        assert not hasattr(made, "__dict__")


def test_a_named_tuple_can_be_matched_copied_and_pickled() -> None:
    for kind in (Ours, Theirs):
        made: Any = kind("t", 3)
        match made:
            case Ours(topic, partition) | Theirs(topic, partition):
                assert (topic, partition) == ("t", 3)
        for same in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
            assert same == made and type(same) is kind


@pytest.mark.parametrize(
    "wrong",
    [
        lambda kind: kind(),
        lambda kind: kind("t", 1, (), 4),
        lambda kind: kind("t", topic="u"),
        lambda kind: kind("t", other=1),
        lambda kind: kind("t").__setattr__("topic", "u"),
        lambda kind: kind("t")._replace(other=1),
    ],
)
def test_a_named_tuple_rejects_the_same_definitions_as_typing_namedtuple(wrong: Any) -> None:
    for kind in (Ours, Theirs):
        with pytest.raises((TypeError, AttributeError, ValueError)):
            wrong(kind)


def test_a_named_tuple_with_many_fields_can_be_made() -> None:
    made = OursOfMany(1, 2, 3, 4, 5, 6, g=7)
    assert (made.h, made.sum(), made._replace(a=9).a) == (8, 36, 9)
    assert pickle.loads(pickle.dumps(made)) == made
