"""Messages as plain values: names, texts, numbers; bytes as text or hexadecimal digits."""

from __future__ import annotations

import json

import pytest

from minibroker.protocol.describing import all_messages
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.testing.exchange import plain, text_of


def test_a_message_is_plain() -> None:
    topic = MetadataRequest.MetadataRequestTopic(topic_id=bytes(15) + b"\x01", name=None)
    assert plain(MetadataRequest(topics=[topic]))["topics"] == [{"topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "name": None}]


def test_every_message_becomes_json() -> None:
    for message in all_messages():
        json.dumps(plain(message()))


@pytest.mark.parametrize(("data", "text"), [(b"abc", "abc"), (b"\xff", "0xff"), (b"a\x00", "0x6100"), (b"", "")])
def test_bytes_are_for_people(data: bytes, text: str) -> None:
    assert text_of(data) == text
