"""What is shown of a message."""

from __future__ import annotations

import pytest

from minibroker.protocol.describing import (
    FieldRow,
    describe_fields,
    find_messages_by_name,
    format_versions,
    list_messages,
)
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.protocol.samples import Order, Parcel


@pytest.mark.parametrize("name", ["Metadata", "metadata", "METADATA"])
def test_an_api_name_selects_request_and_response(name: str) -> None:
    assert find_messages_by_name(name) == [MetadataRequest, MetadataResponse]


@pytest.mark.parametrize("name", ["MetadataRequest", "TopicRecord", "OffsetCommitKey", "RequestHeader", "VotersRecord"])
def test_a_full_name_selects_one_message(name: str) -> None:
    assert [message.__name__ for message in find_messages_by_name(name)] == [name]


def test_an_unknown_name_selects_no_message() -> None:
    assert find_messages_by_name("Nonsense") == []
    assert find_messages_by_name("") == []


def test_every_message_has_a_unique_name_and_a_docstring() -> None:
    messages = list_messages()
    assert len({message.__name__.lower() for message in messages}) == len(messages)
    for message in messages:
        assert message.__doc__, message


def test_field_rows_are_in_wire_order_with_nested_fields_after_their_parent() -> None:
    rows = describe_fields(Order, 3)
    assert [(row.depth, row.name) for row in rows] == [
        (0, "name"), (0, "note"), (0, "lines"), (1, "article"), (1, "count"), (1, "records"), (0, "numbers"),
        (0, "ids"), (0, "words"), (0, "payload"), (0, "buyer"), (1, "id"), (1, "city"),
        (0, "labels"), (0, "priority"), (0, "shop"), (1, "id"), (0, "gift"), (1, "id"), (1, "city"),
    ]  # fmt: skip


def test_a_field_row_has_all_properties_of_its_field() -> None:
    rows = {(row.depth, row.name): row for row in describe_fields(Order, 3)}
    assert rows[0, "note"] == FieldRow(0, "note", "string", "1+", True, True, None, "None", "", None)
    assert rows[0, "lines"] == FieldRow(0, "lines", "[]Line", "0+", False, True, None, "[]", "", None)
    assert rows[0, "ids"] == FieldRow(0, "ids", "[]uuid", "2+", False, True, None, "[]", "", None)
    assert rows[0, "priority"] == FieldRow(0, "priority", "int16", "2+", False, False, 1, "5", "", None)
    assert rows[0, "buyer"] == FieldRow(0, "buyer", "Buyer", "3+", True, False, None, "None", "", None)


def test_a_field_row_has_the_description_and_kip_of_its_field() -> None:
    rows = describe_fields(Parcel, 2)
    assert [(row.about, row.kip) for row in rows] == [
        ("What the parcel weighs, in grams.", None), ("Whether its loss is paid for.", 74), ("", None),
    ]  # fmt: skip


def test_fields_of_a_version_before_flexible_ones_are_not_compact() -> None:
    rows = {row.name: row for row in describe_fields(Order, 1)}
    assert rows["old"].versions == "0-1"
    assert not rows["note"].compact
    assert "priority" not in rows


def test_describing_an_undeclared_version_raises_an_error() -> None:
    with pytest.raises(ValueError, match="Order has no version 4"):
        describe_fields(Order, 4)


@pytest.mark.parametrize(
    ("versions", "text"),
    [(range(0, 13), "0-12"), (range(3, 1 << 15), "3+"), (range(3, 14), "3+"), (range(4, 5), "4"), (range(0), "none")],
)
def test_versions_are_shown_in_kafkas_notation(versions: range, text: str) -> None:
    assert format_versions(versions, 13) == text
