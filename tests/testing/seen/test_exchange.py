"""Messages as plain values: names, texts, numbers; bytes as text or hexadecimal digits."""

from __future__ import annotations

import json

import pytest

from minibroker.protocol.apis import ApiKey
from minibroker.protocol.describing import list_messages
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.security import SaslAuthenticateResponse
from minibroker.testing.seen.exchange import (
    convert_to_plain_values,
    copy_answer_without_secrets,
    decode_answer,
    format_bytes,
)


def test_a_message_of_an_exchange_is_converted_to_plain_values() -> None:
    topic = MetadataRequest.MetadataRequestTopic(topic_id=bytes(15) + b"\x01", name=None)
    assert convert_to_plain_values(MetadataRequest(topics=[topic]))["topics"] == [
        {"topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "name": None}
    ]


def test_every_message_can_be_converted_to_json() -> None:
    for message in list_messages():
        json.dumps(convert_to_plain_values(message()))


@pytest.mark.parametrize(("data", "text"), [(b"abc", "abc"), (b"\xff", "0xff"), (b"a\x00", "0x6100"), (b"", "")])
def test_bytes_of_a_message_are_shown_as_text_or_hexadecimal(data: bytes, text: str) -> None:
    assert format_bytes(data) == text


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (b"r=abc,s=c2FsdA==,i=4096", b"r=abc,s=[hidden],i=4096"),
        (b"v=cmVzdWx0", b"v=[hidden]"),
        (b"e=invalid-proof", b"e=invalid-proof"),
        (b'{"status":"invalid_token"}', b'{"status":"invalid_token"}'),
        (b"", b""),
    ],
)
def test_login_responses_are_kept_without_verifiable_secrets(said: bytes, kept: bytes) -> None:
    frame = b"\0\0\0\1\0" + SaslAuthenticateResponse(auth_bytes=said).encode(2)
    answer = decode_answer(ApiKey.SASL_AUTHENTICATE, 2, copy_answer_without_secrets(ApiKey.SASL_AUTHENTICATE, 2, frame))
    assert isinstance(answer, SaslAuthenticateResponse) and bytes(answer.auth_bytes) == kept
