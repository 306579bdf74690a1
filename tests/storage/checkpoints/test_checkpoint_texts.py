"""The small text files, compared with what Kafka writes.

When they are written is tested in `test_log_directory.py`.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.storage.checkpoints.checkpoint_texts import (
    MalformedCheckpoint,
    format_leader_epochs,
    format_offset_checkpoint,
    format_partition_metadata,
    format_properties,
    parse_leader_epochs,
    parse_offset_checkpoint,
    parse_properties,
    parse_topic_id,
)
from tests.cases import for_each

TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=20)
OFFSETS = st.integers(0, (1 << 63) - 1)


def test_an_offset_checkpoint_is_formatted_as_in_kafka() -> None:
    assert format_offset_checkpoint({("orders", 0): 17, ("a-b", 12): 0}) == b"0\n2\na-b 12 0\norders 0 17\n"
    assert format_offset_checkpoint({}) == b"0\n0\n"


def test_an_empty_file_is_a_checkpoint_without_rows() -> None:
    assert parse_offset_checkpoint(b"") == {}
    assert parse_leader_epochs(b"") == []


def test_a_leader_epoch_checkpoint_is_formatted_as_in_kafka() -> None:
    assert format_leader_epochs([(0, 0), (4, 120)]) == b"0\n2\n0 0\n4 120\n"
    assert format_leader_epochs([]) == b"0\n0\n"


def test_partition_metadata_is_formatted_as_in_kafka_without_a_final_newline() -> None:
    topic_id = bytes.fromhex("ea8400108ba7c7f23234d26626719077")
    assert format_partition_metadata(topic_id) == b"version: 0\ntopic_id: 6oQAEIunx_IyNNJmJnGQdw"
    assert parse_topic_id(format_partition_metadata(topic_id)) == topic_id


def test_meta_properties_is_formatted_as_by_java() -> None:
    text = format_properties(
        {"cluster.id": "6oQAEIunx_IyNNmJmG53dw", "node.id": "1", "version": "1"}, 1_700_000_000_000
    )
    assert text == (b"#\n#Tue Nov 14 22:13:20 UTC 2023\ncluster.id=6oQAEIunx_IyNNmJmG53dw\nnode.id=1\nversion=1\n")
    assert parse_properties(text) == {"cluster.id": "6oQAEIunx_IyNNmJmG53dw", "node.id": "1", "version": "1"}


def test_properties_may_have_comments_blanks_and_equals_signs_in_values() -> None:
    assert parse_properties(b"! a comment\n\n  a = b=c \nd=\n") == {"a": "b=c", "d": ""}


@given(st.dictionaries(st.tuples(TOPICS, st.integers(0, 1 << 31)), OFFSETS))
def test_offset_checkpoints_are_parsed_back_unchanged(offsets: dict[tuple[str, int], int]) -> None:
    assert parse_offset_checkpoint(format_offset_checkpoint(offsets)) == offsets


@given(st.lists(st.tuples(st.integers(0, 1 << 30), OFFSETS)))
def test_leader_epoch_checkpoints_are_parsed_back_unchanged(epochs: list[tuple[int, int]]) -> None:
    assert parse_leader_epochs(format_leader_epochs(epochs)) == epochs


@for_each(
    ("text", "why"),
    [
        (b"0\n", "version"),
        (b"1\n0\n", "version"),
        (b"0\n2\na 0 1\n", "'2' rows are announced, 1 are there"),
        (b"0\nx\n", "rows are announced"),
        (b"0\n1\na 0\n", "line 3 has 2 words"),
        (b"0\n1\na b 1\n", "'b' is not a number"),
        (b"0\n1\n\xff 0 1\n", "not text"),
    ],
)
def test_malformed_checkpoints_are_rejected_with_the_reason(text: bytes, why: str) -> None:
    with pytest.raises(MalformedCheckpoint, match=why):
        parse_offset_checkpoint(text)


@pytest.mark.parametrize(
    "text", [b"", b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", b"version: 0\n", b"version: 0\ntopic_id: AAAA"]
)
def test_partition_metadata_without_a_topic_id_is_rejected(text: bytes) -> None:
    with pytest.raises(MalformedCheckpoint):
        parse_topic_id(text)


def test_a_line_that_is_not_a_property_is_rejected() -> None:
    with pytest.raises(MalformedCheckpoint, match="line 2"):
        parse_properties(b"a=b\nnonsense\n")


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_parsed_or_rejected(text: bytes) -> None:
    for read in (parse_offset_checkpoint, parse_leader_epochs, parse_topic_id, parse_properties):
        try:
            read(text)
        except MalformedCheckpoint:
            continue
