"""What a declaration says: versions, kinds, defaults."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.protocol.declare import Struct, field, int32
from minibroker.protocol.fields import (
    FieldType,
    get_default_factory,
    get_default_value,
    list_declared_fields,
    parse_versions,
)
from minibroker.protocol.primitives import ZERO_UUID
from tests.cases import for_each
from tests.protocol.samples import Fixed, Order


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("3", [3], [2, 4]),
        ("0-12", [0, 12], [13]),
        ("9+", [9, 32767], [8]),
        ("none", [], [0, 1]),
        ("4-5", [4, 5], [3, 6]),
    ],
)
def test_field_versions_are_in_kafkas_notation(text: str, inside: list[int], outside: list[int]) -> None:
    found = parse_versions(text)
    assert all(version in found for version in inside)
    assert not any(version in found for version in outside)


def test_fixed_size_types_are_recognized() -> None:
    letters = {each.name: each.kind.code for each in list_declared_fields(Fixed)}
    assert letters == {
        "flag": "?", "tiny": "b", "small": "h", "port": "H", "number": "i",
        "hash": "I", "offset": "q", "ratio": "d", "id": "16s",
    }  # fmt: skip
    assert sum(each.kind.size_bytes for each in list_declared_fields(Fixed)) == 1 + 1 + 2 + 2 + 4 + 4 + 8 + 8 + 16


def test_types_of_variable_size_are_recognized() -> None:
    kinds = {each.name: each.kind for each in list_declared_fields(Order)}
    assert kinds["name"] == kinds["note"] == FieldType("string")
    assert kinds["payload"] == FieldType("bytes")
    assert kinds["numbers"] == FieldType("array", item=FieldType("i"))
    assert kinds["lines"] == FieldType("array", item=FieldType("struct", struct=Order.Line))
    assert kinds["buyer"] == FieldType("struct", struct=Order.Buyer)
    assert {each.name: each.kind.code for each in list_declared_fields(Order.Line)}["records"] == "records"


def test_a_struct_may_have_fields_of_a_later_declared_struct() -> None:
    assert [each.name for each in list_declared_fields(Order)][:3] == ["name", "note", "lines"]


def test_a_type_that_kafka_lacks_is_rejected() -> None:
    class Wrong(Struct):
        value: complex = field()

    with pytest.raises(TypeError, match="complex"):
        list_declared_fields(Wrong)


def test_a_field_annotated_with_plain_int_is_rejected() -> None:
    class Wrong(Struct):
        value: int = field()

    with pytest.raises(TypeError, match="int"):
        list_declared_fields(Wrong)


DEFAULTS = {field.name: field for field in (*list_declared_fields(Fixed), *list_declared_fields(Order))}


@for_each(
    ("name", "value"),
    [("flag", False), ("number", 0), ("ratio", 0.0), ("id", ZERO_UUID), ("old", -1), ("note", None), ("shop", None)],
)
def test_immutable_defaults_are_shared_by_instances(name: str, value: Any) -> None:
    assert get_default_factory(DEFAULTS[name]) is None
    assert get_default_value(DEFAULTS[name]) == value


@pytest.mark.parametrize("name", ["lines", "numbers", "ids"])
def test_each_instance_gets_its_own_default_list(name: str) -> None:
    assert get_default_factory(DEFAULTS[name]) is list


def test_each_instance_gets_its_own_default_struct() -> None:
    class Outer(Struct):
        number: int32 = field()
        shop: Order.Shop = field()

    assert get_default_factory(list_declared_fields(Outer)[1]) is Order.Shop


def test_the_default_of_a_nullable_field_is_empty_unless_it_is_declared_as_null() -> None:
    """A field that may be null need not be null by default, as in Kafka."""
    assert get_default_value(DEFAULTS["payload"]) == b""
    assert Order().numbers == []


def test_a_tagged_field_is_tagged_in_all_its_versions_by_default() -> None:
    class Later(Struct):
        always: int32 = field("2+", tag=0)
        later: int32 = field("1+", tag=1, tagged="3+")

    always, later = list_declared_fields(Later)
    assert always.facts.tagged == parse_versions("2+")
    assert later.facts.tagged == parse_versions("3+")
