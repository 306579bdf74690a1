"""Clients that authenticate with OAuth tokens: how long their sessions last, and what they wait for."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from minibroker.protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.broker.harness import Harness, served_versions
from tests.broker.security.sasl import (
    ALICE,
    ANYTHING,
    DELAY_MS,
    LISTENER,
    OAUTH,
    PLAIN,
    asks,
    principal,
    sasl_client,
)

SIGNED = {
    **OAUTH,
    f"{LISTENER}oauthbearer.sasl.server.callback.handler.class": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    ),
    "sasl.oauthbearer.allow.unverified.audience": "true",
    "sasl.oauthbearer.allow.unverified.issuer": "true",
}


def unsecured(harness: Harness, seconds: int, name: str = "alice") -> bytes:
    """The first message of a client whose token lasts for this long."""
    claims = {"sub": name, "exp": harness.clock.wall_ms() // 1000 + seconds}
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).decode() for each in ({"alg": "none"}, claims)]
    return f"n,,\x01auth=Bearer {'.'.join(part.rstrip('=') for part in parts)}.\x01\x01".encode()


@pytest.mark.parametrize(("max_reauth_ms", "lifetime_ms"), [("0", 30_000), ("60000", 30_000), ("7000", 7000)])
def test_a_session_lasts_at_most_as_long_as_the_token(tmp_path: Path, max_reauth_ms: str, lifetime_ms: int) -> None:
    with Harness(tmp_path, settings={**OAUTH, "connections.max.reauth.ms": max_reauth_ms}) as harness:
        client = sasl_client(harness)
        client.handshake("OAUTHBEARER")
        assert client.authenticate(unsecured(harness, 30)).session_lifetime_ms == lifetime_ms
        harness.clock.advance(lifetime_ms - 1)
        client.handshake("OAUTHBEARER")
        assert client.authenticate(unsecured(harness, 5)).session_lifetime_ms == 5000 - (lifetime_ms - 1) % 1000
        harness.clock.advance(5000)
        assert not asks(client, ANYTHING)


def test_an_expired_token_is_rejected_first_by_a_status_and_then_by_an_error(tmp_path: Path) -> None:
    with Harness(tmp_path, settings=OAUTH) as harness:
        client = sasl_client(harness)
        client.handshake("OAUTHBEARER")
        answer = client.authenticate(unsecured(harness, -1))
        assert (answer.error_code, answer.auth_bytes) == (0, b'{"status":"invalid_token"}')
        client.send(SaslAuthenticateRequest(auth_bytes=b"\x01"))
        harness.clock.advance(DELAY_MS)
        assert client.answer().error_message == '{"status":"invalid_token"}'
        assert client.closed


def test_the_mechanism_of_a_session_cannot_change(tmp_path: Path) -> None:
    settings = {**PLAIN, **OAUTH, "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER"}
    with Harness(tmp_path, settings=settings) as harness:
        client = sasl_client(harness)
        client.handshake("OAUTHBEARER")
        client.authenticate(unsecured(harness, 30))
        assert client.handshake("PLAIN").error_code == 0
        client.send(SaslAuthenticateRequest(auth_bytes=ALICE))
        harness.clock.advance(DELAY_MS)
        assert client.answer().error_message == (
            "SASL mechanism 'PLAIN' requested by client is not supported for re-authentication of mechanism "
            "'OAUTHBEARER'"
        )
        assert client.closed


@pytest.mark.parametrize("version", served_versions(SaslHandshakeRequest))
def test_a_client_that_logs_in_with_a_token_waits_for_the_issuers_keys(tmp_path: Path, version: int) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [ECAlgorithm.to_jwk(private.public_key(), as_dict=True)]}))
    url = {f"{LISTENER}oauthbearer.sasl.oauthbearer.jwks.endpoint.url": file.as_uri()}
    with Harness(tmp_path, settings={**SIGNED, **url}) as harness:
        harness.clock.holds_aside = True
        clients = [sasl_client(harness) for _ in range(3)]
        now_s = harness.clock.wall_ms() // 1000
        token = jwt.encode({"sub": "alice", "iat": now_s, "exp": now_s + 60}, private, algorithm="ES256")
        first = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        for client in clients:
            client.handshake("OAUTHBEARER", version)
            if version == 0:
                client.send_token(first)
            else:
                client.send(SaslAuthenticateRequest(auth_bytes=first))
            assert principal(client) == "User:ANONYMOUS"
        clients[0].connection.drop_lost_client()
        harness.clock.do_aside()
        assert [principal(client) for client in clients] == ["User:ANONYMOUS", "User:alice", "User:alice"]
        assert clients[1].connection.has_delayed_request is False
