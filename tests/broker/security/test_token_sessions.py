"""The sessions of clients that log in with a delegation token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.control.token_changes import expire_token, issue_token
from minibroker.broker.security.delegation import encode_token_secret
from minibroker.broker.security.principals import Principal
from minibroker.client.client_mechanisms import authenticate_by_scram
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.delegation_tokens import DescribeDelegationTokenRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.metadata_records import DelegationTokenRecord
from minibroker.protocol.messages.security import SaslAuthenticateRequest
from tests.broker.harness import Harness, frame_of
from tests.broker.security.sasl import SaslClient, sasl_client, sasl_harness

SETTINGS = {"sasl.enabled.mechanisms": "SCRAM-SHA-256", "delegation.token.secret.key": "a key"}
ALICE = Principal("User", "alice")
LIFETIME_MS, DELAY_MS = 5000, 100
ANYTHING = MetadataRequest(topics=[])
Holder = tuple[Harness, SaslClient, DelegationTokenRecord]


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Holder]:
    """A client, and a token of alice."""
    with Harness(tmp_path, settings=SETTINGS) as harness:
        yield harness, sasl_client(harness), issue_token(harness.cluster, ALICE, ALICE, (), LIFETIME_MS)


def last_token(harness: Harness, client: SaslClient, token_id: str) -> bytes:
    """What the client says last, after a handshake and the first half of the exchange."""
    secret = encode_token_secret(harness.cluster.image.tokens.compute_token_secret(token_id))
    exchange = authenticate_by_scram("sha256", token_id, secret, is_token=True)
    assert client.handshake("SCRAM-SHA-256").error_code == 0
    return exchange.send(client.authenticate(next(exchange)).auth_bytes)


def log_in(holder: Holder) -> Any:
    harness, client, token = holder
    return client.authenticate(last_token(harness, client, token.token_id))


def asks(client: SaslClient, request: Message) -> bool:
    """Whether the client gets an answer, and is not cut off instead."""
    client.send(request)
    return len(list(client.responses())) == 1 and not client.closed


def test_a_client_that_logs_in_with_a_token_acts_as_its_owner_and_cannot_create_tokens(holder: Holder) -> None:
    _, client, _ = holder
    assert log_in(holder).session_lifetime_ms == LIFETIME_MS
    assert (client.connection.principal, client.connection.has_token) == (ALICE, True)
    client.send(DescribeDelegationTokenRequest(owners=None))
    assert client.answer().error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_a_session_ends_when_its_token_expires(holder: Holder) -> None:
    harness, client, _ = holder
    log_in(holder)
    harness.clock.advance(3000)
    assert log_in(holder).session_lifetime_ms == 2000
    harness.clock.advance(1999)
    assert asks(client, ANYTHING)
    harness.clock.advance(1)
    assert not asks(client, ANYTHING) and client.closed


def test_a_session_with_an_expired_token_ends_immediately(holder: Holder) -> None:
    harness, client, token = holder
    harness.clock.advance(LIFETIME_MS + 1)
    last = last_token(harness, client, token.token_id)
    requests = SaslAuthenticateRequest(auth_bytes=last), ANYTHING
    client.send_bytes(b"".join(frame_of(request, 1) for request in requests))  # the second one does not wait
    client._asked.append((SaslAuthenticateRequest.api_key, 1))
    ((_, answer),) = client.responses()
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    assert client.closed


def test_a_removed_token_does_not_authenticate(holder: Holder) -> None:
    harness, client, token = holder
    last = last_token(harness, client, token.token_id)
    expire_token(harness.cluster, harness.cluster.image.tokens.compute_token_secret(token.token_id), ALICE, -1)
    assert client.authenticate(last).error_code == 0  # what was begun before goes on
    harness.clock.advance(1000)
    client.send(SaslAuthenticateRequest(auth_bytes=last_token(harness, client, token.token_id)))
    harness.clock.advance(DELAY_MS)
    assert client.answer().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.closed


def test_a_client_with_a_password_may_create_tokens(tmp_path: Path) -> None:
    with sasl_harness(tmp_path, delegation_token_secret_key="a key") as harness:
        client = sasl_client(harness)
        client.log_in()
        client.send(DescribeDelegationTokenRequest(owners=None))
        assert (client.answer().error_code, client.connection.has_token) == (0, False)
