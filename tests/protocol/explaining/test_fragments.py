"""Pieces of messages and records that stand alone: each kind is explained, and no bytes raise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.explaining.fragments import FRAGMENTS, SASL, explain_fragment
from minibroker.protocol.messages.group_records import OffsetCommitKey
from tests.protocol.explaining.explained import check_that_each_byte_has_one_part, named


def test_all_records_of_internal_topics_can_be_explained_separately() -> None:
    assert len(FRAGMENTS) > 70
    assert {"OffsetCommitKey", "TransactionLogValue", "ShareSnapshotValue", "TopicRecord"} <= set(FRAGMENTS)


def test_a_record_key_is_explained_by_its_type_and_fields() -> None:
    data = (1).to_bytes(2, "big") + OffsetCommitKey(group="g", topic="t", partition=3).encode(0)
    part = explain_fragment(data, "OffsetCommitKey")
    assert (named(part, "type").meaning, named(part, "partition").value) == ("OffsetCommitKey", 3)
    check_that_each_byte_has_one_part(part, 0, len(data))


def test_bytes_after_the_end_of_an_explained_message_are_reported() -> None:
    data = (1).to_bytes(2, "big") + OffsetCommitKey().encode(0) + b"more"
    assert explain_fragment(data, "OffsetCommitKey").problem == "4 bytes follow the end of the message"


@pytest.mark.parametrize(
    ("said", "fields"),
    [
        (b"n,,n=alice,r=x,tokenauth=true", ["n", "", "alice", "x", "true"]),
        (b"p=tls-unique,a=bob,n=alice,r=x", ["p=tls-unique", "bob", "alice", "x"]),
    ],
)
def test_the_header_of_the_first_scram_message_is_explained(said: bytes, fields: list[str]) -> None:
    parts = explain_fragment(said, SASL).parts
    assert [each.value for each in parts] == fields
    assert [each.name for each in parts[:4]] == ["channel binding flag", "authorization id", "user", "nonce"]


@pytest.mark.parametrize(
    "said",
    [
        *(b"\0alice\0open sesame", b"n,,n=alice,r=x", b"c=biws,r=x,p=open sesame", b"\x60sesame"),
        b"n,,\1auth=Bearer sesame\1\1",
    ],
)
def test_sasl_proofs_of_the_password_are_hidden(said: bytes) -> None:
    part = explain_fragment(said, SASL)
    shown = " ".join(f"{each.value} {each.meaning}" for _, each in part.iterate_parts())
    assert "sesame" not in shown


@given(st.sampled_from(FRAGMENTS), st.binary(max_size=100))
def test_explaining_arbitrary_bytes_never_raises(kind: str, data: bytes) -> None:
    part = explain_fragment(data, kind)
    assert part.end == len(data)
    if kind != SASL:  # whose separators belong to no part
        check_that_each_byte_has_one_part(part, 0, len(data))
