"""Secrets in messages and records are shown in no form: not as text, JSON or a page, and not if bytes are missing."""

from __future__ import annotations

import json
import re

import pytest

from minibroker.broker.configs.settings_table import SETTINGS, ConfigType
from minibroker.broker.configs.settings_without_effect import WITHOUT_EFFECT
from minibroker.protocol.declare import Message
from minibroker.protocol.explaining.explained_page import generate_html_page
from minibroker.protocol.explaining.explained_text import format_part_as_lines, make_json_of_part
from minibroker.protocol.explaining.messages import explain_message, explain_records, is_password_config
from minibroker.protocol.explaining.parts import Explanation
from minibroker.protocol.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from minibroker.protocol.messages.delegation_tokens import (
    CreateDelegationTokenResponse,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from minibroker.protocol.messages.metadata_records import METADATA_TOPIC, ConfigRecord, UserScramCredentialRecord
from minibroker.protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from minibroker.protocol.primitives import encode_unsigned_varint
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from tests.cases import for_each

SECRET = b"open sesame"
PASSWORD = {"name": "listener.name.sasl.ssl.key.password", "value": SECRET.decode()}
MESSAGES = [
    SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + SECRET),
    SaslAuthenticateResponse(auth_bytes=SECRET),
    AlterUserScramCredentialsRequest(
        upsertions=[
            AlterUserScramCredentialsRequest.ScramCredentialUpsertion(name="a", salt=SECRET, salted_password=SECRET)
        ]
    ),
    CreateDelegationTokenResponse(hmac=SECRET),
    RenewDelegationTokenRequest(hmac=SECRET),
    ExpireDelegationTokenRequest(hmac=SECRET),
    DescribeDelegationTokenResponse(tokens=[DescribeDelegationTokenResponse.DescribedDelegationToken(hmac=SECRET)]),
    AlterConfigsRequest(
        resources=[
            AlterConfigsRequest.AlterConfigsResource(
                configs=[AlterConfigsRequest.AlterConfigsResource.AlterableConfig(**PASSWORD)]
            )
        ]
    ),
    IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                configs=[IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig(**PASSWORD)]
            )
        ]
    ),
]
RECORDS = [UserScramCredentialRecord(salt=SECRET, stored_key=SECRET, server_key=SECRET), ConfigRecord(**PASSWORD)]


def shown(item: Explanation) -> str:
    """Return all forms of an explanation, their hex without blanks and tags."""
    forms = [
        "\n".join(format_part_as_lines(item.part, item.data)),
        json.dumps(make_json_of_part(item.part)),
        "".join(generate_html_page([item])),
    ]
    return "\n".join(forms) + "".join(re.sub(r"<[^>]*>| ", "", form) for form in forms)


def check_that_no_form_shows_it(item: Explanation) -> None:
    said = shown(item)
    assert SECRET.decode() not in said
    assert SECRET.hex() not in said
    for first in range(len(SECRET) - 3):
        assert SECRET[first : first + 4].hex(" ") not in said


@for_each("message", MESSAGES)
def test_secrets_in_messages_are_hidden(message: Message) -> None:
    kind = type(message)
    data = message.encode(kind.versions[-1])
    part = explain_message(data, kind, kind.versions[-1])
    assert not list(part.iterate_problems())
    assert "(hidden)" in shown(Explanation(part, data))
    check_that_no_form_shows_it(Explanation(part, data))


@for_each("message", MESSAGES)
def test_secrets_in_truncated_messages_are_hidden(message: Message) -> None:
    kind = type(message)
    data = message.encode(kind.versions[-1])
    for size in range(len(data)):
        part = explain_message(data[:size], kind, kind.versions[-1])
        check_that_no_form_shows_it(Explanation(part, data[:size]))


@pytest.mark.parametrize("message", RECORDS, ids=lambda message: type(message).__name__)
@pytest.mark.parametrize("codec", [0, 1])
def test_secrets_in_metadata_records_are_hidden(message: Message, codec: int) -> None:
    value = bytes(
        encode_unsigned_varint(1) + encode_unsigned_varint(message.api_key) + encode_unsigned_varint(0)
    ) + message.encode(0)
    for size in range(3, len(value) + 1):
        data = bytes(build_batch([Record(value=value[:size])], compression=codec))
        check_that_no_form_shows_it(Explanation(explain_records(data, topic=METADATA_TOPIC), data))


def test_configs_that_are_not_passwords_are_shown() -> None:
    data = ConfigRecord(name="retention.ms", value="1000").encode(0)
    assert "1000" in shown(Explanation(explain_message(data, ConfigRecord, 0), data))


def test_all_password_settings_are_recognized_by_name() -> None:
    passwords = [each.name for each in [*SETTINGS, *WITHOUT_EFFECT.values()] if each.type is ConfigType.PASSWORD]
    assert len(passwords) > 10
    assert [name for name in passwords if not is_password_config(name)] == []
