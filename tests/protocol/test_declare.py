"""Structs and messages as the rest of the broker uses them."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from minibroker.protocol.declare import Message, Struct, field, int32
from minibroker.protocol.primitives import MalformedMessage, Output
from tests.protocol.samples import Answer, Order, Twins


class Elsewhere(NamedTuple):
    size_bytes: int


def test_fields_are_set_by_name_and_others_have_their_default() -> None:
    order = Order(name="n", priority=1)
    assert (order.name, order.priority, order.old, order.note, order.lines) == ("n", 1, -1, None, [])


def test_structs_made_with_and_without_arguments_are_equal() -> None:
    """The first one compiles what the later ones run."""

    class Fresh(Struct):
        number: int32 = field(default=3)
        words: list[str] = field()

    made = [Fresh(), Fresh(), Fresh(number=3, words=[])]
    assert made[0] == made[1] == made[2]


def test_default_lists_are_not_shared_between_instances() -> None:
    first, second = Order(), Order()
    first.lines.append(Order.Line(article="a"))
    assert second.lines == []


def test_a_misspelt_field_is_an_error() -> None:
    with pytest.raises(TypeError, match="nmae"):
        Order(nmae="n")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Order().nmae = "n"  # type: ignore[attr-defined]


def test_structs_are_equal_by_type_and_values() -> None:
    assert Order.Shop(id=1) == Order.Shop(id=1)
    assert Order.Shop(id=1) != Order.Shop(id=2)
    assert Order.Shop(id=1) != Order.Buyer(id=1)
    assert Order.Shop() != "shop"


def test_structs_are_mutable_and_cannot_be_hashed() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Order.Shop())


def test_the_repr_of_a_struct_shows_its_fields() -> None:
    assert repr(Order.Line(article="a", count=2)) == "Line(article='a', count=2, records=None)"


def test_an_encoded_message_is_decoded_unchanged() -> None:
    order = Order(name="n", lines=[Order.Line(article="a", count=2, records=b"r")], buyer=Order.Buyer(id=1, city="c"))
    assert Order.decode(order.encode(3), 3) == order


@pytest.mark.parametrize("third", [None, Twins.Twin(number=3)])
@pytest.mark.parametrize("version", Twins.versions)
def test_adjacent_structs_of_one_class_are_decoded(version: int, third: Twins.Twin | None) -> None:
    twins = Twins(first=Twins.Twin(number=1), second=Twins.Twin(number=2), third=third, fourth=Twins.Twin(number=4))
    assert Twins.decode(twins.encode(version), version) == twins
    assert twins.encode(0).startswith(b"\0\0\0\1\0\0\0\2")


def test_a_message_may_start_anywhere_and_ends_with_the_data() -> None:
    data = b"head" + Order(name="n").encode(3)
    assert Order.decode(data, 3, 4) == Order(name="n")
    with pytest.raises(MalformedMessage, match="Order v3: 2 bytes follow its end"):
        Order.decode(data + b"xy", 3, 4)


def test_decode_from_returns_where_the_message_ends() -> None:
    data = b"head" + Order(name="n").encode(3) + b"tail"
    assert Order.decode_from(data, 3, 4) == (Order(name="n"), len(data) - 4)


def test_decode_from_names_message_version_and_field() -> None:
    with pytest.raises(MalformedMessage) as caught:
        Order.decode_from(b"\x05ab", 3)
    assert (caught.value.message, caught.value.version, caught.value.field) == ("Order", 3, "name")
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("version", [-1, 4])
def test_an_undeclared_message_version_raises_a_value_error(version: int) -> None:
    with pytest.raises(ValueError, match=f"Order has no version {version}"):
        Order().encode(version)
    with pytest.raises(ValueError, match=f"Order has no version {version}") as caught:
        Order.decode(b"", version)
    assert not isinstance(caught.value, MalformedMessage)


def test_a_message_with_a_file_region_cannot_be_encoded_to_bytes() -> None:
    message = Answer(parts=[Answer.Part(records=Elsewhere(5))])
    with pytest.raises(TypeError, match="encode_into"):
        message.encode(0)
    out = Output()
    message.encode_into(out, 0)
    assert len(out.regions) == 1


def test_message_classes_have_their_api_key_and_versions() -> None:
    assert (Order.api_key, Order.versions, Order.flexible) == (9000, range(0, 4), range(2, 1 << 15))
    assert Order.flexible_header == Order.flexible

    class Early(Message, api_key=9001, versions="0-3", flexible="1+", flexible_header="none"):
        pass

    assert (Early.flexible, Early.flexible_header) == (range(1, 1 << 15), range(0))
