"""Which fields a version has, in which order, and how small it can be."""

from __future__ import annotations

import pytest

from minibroker.protocol.fields import FieldType
from minibroker.protocol.headers import RequestHeader
from minibroker.protocol.layout import make_struct_layout, measure_smallest_item_bytes, measure_smallest_struct_bytes
from tests.protocol.random_messages import in_all_versions
from tests.protocol.samples import Fixed, Nothing, Order


def test_a_struct_layout_separates_body_tagged_and_absent_fields() -> None:
    shape = make_struct_layout(Order, 2, True)
    assert [place.name for place in shape.body] == ["name", "note", "lines", "numbers", "ids", "words", "payload"]
    assert [place.name for place in shape.tagged] == ["labels", "priority"]
    assert [field.name for field in shape.absent] == ["old", "buyer", "shop", "gift"]


def test_tagged_fields_are_in_the_order_of_their_tags() -> None:
    assert [place.tag for place in make_struct_layout(Order, 3, True).tagged] == [0, 1, 3, 4]


def test_null_is_allowed_in_the_declared_versions() -> None:
    nullable = {
        version: {place.name for place in make_struct_layout(Order, version, version > 1).body if place.nullable}
        for version in (1, 2)
    }
    assert nullable == {1: {"note", "numbers"}, 2: {"note", "numbers", "payload"}}


def test_the_client_id_in_a_header_is_never_compact() -> None:
    compact = {place.name: place.compact for place in make_struct_layout(RequestHeader, 2, True).body}
    assert not compact["client_id"]


@pytest.mark.parametrize(
    ("struct", "version", "flexible", "size"), [(Fixed, 0, False, 46), (Nothing, 0, False, 0), (Nothing, 1, True, 1)]
)
def test_the_least_size_of_a_struct_is_computed(struct: type, version: int, flexible: bool, size: int) -> None:
    assert measure_smallest_struct_bytes(struct, version, flexible) == size


def test_an_array_item_without_fields_counts_as_one_byte() -> None:
    """Else a count of two billion would be held by no data at all."""
    assert measure_smallest_item_bytes(FieldType("struct", struct=Nothing), 0, False) == 1


@in_all_versions
def test_no_encoded_message_is_smaller_than_its_computed_least_size(message: type, version: int) -> None:
    assert len(message().encode(version)) >= measure_smallest_struct_bytes(
        message, version, version in message.flexible
    )
