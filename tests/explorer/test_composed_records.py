"""Records written as lines of text."""

from __future__ import annotations

import pytest

from minibroker.explorer.trying import compose_records, get_message_format_of_produce
from minibroker.protocol.explaining.messages import explain_records
from minibroker.protocol.records.formats import iterate_batches_in_any_format, iterate_records_in_any_format
from tests.cases import for_each


@for_each(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 2), (13, 2)])
def test_the_message_format_follows_the_version_of_produce(version: int, magic: int) -> None:
    data = bytes(compose_records("k=v", 7, get_message_format_of_produce(version)))
    ((_, header),) = iterate_batches_in_any_format(data)
    (record,) = iterate_records_in_any_format(data, 0)
    assert (header.magic, record.key, record.value) == (magic, b"k", b"v")


def test_directives_before_composed_records_set_fields_of_the_batch() -> None:
    data = bytes(compose_records("@producer 7 1 5\n@transactional\n@compress gzip\na\n@tombstone k", 7, 2))
    ((_, header),) = iterate_batches_in_any_format(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 5)
    assert (header.is_transactional, header.compression) == (True, 1)
    assert [(each.key, each.value) for each in iterate_records_in_any_format(data, 0)] == [(None, b"a"), (b"k", None)]


def test_a_compressed_message_of_format_1_has_relative_offsets_inside() -> None:
    data = bytes(compose_records("@compress gzip\na\nb\nc", 7, 1))
    (wrapper,) = explain_records(data).parts
    offsets = [part.value for message in wrapper.parts[-1].parts for part in message.parts if part.name == "offset"]
    assert offsets == [0, 1, 2]


@for_each("text", ["@producer 1 2", "@nonsense", "@compress zip", "@tombstone"])
def test_an_unknown_directive_in_composed_records_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="@tombstone KEY"):
        compose_records(text, 7, 2)


@for_each(("line", "magic"), [("@producer 7 0 0", 0), ("@transactional", 1)])
def test_producer_fields_are_rejected_in_message_formats_without_them(line: str, magic: int) -> None:
    with pytest.raises(ValueError, match=f"messages of format {magic} have no producer"):
        compose_records(f"{line}\na", 7, magic)
