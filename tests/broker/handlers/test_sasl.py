"""SaslHandshake and SaslAuthenticate where no listener asks for them."""

from __future__ import annotations

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.broker.harness import Harness, served_versions
from tests.cases import for_each


@for_each("version", served_versions(SaslHandshakeRequest))
@for_each("mechanism", ["PLAIN", "SCRAM-SHA-256", ""])
def test_a_plaintext_listener_offers_no_sasl_mechanism(harness: Harness, version: int, mechanism: str) -> None:
    answer = harness.request(SaslHandshakeRequest(mechanism=mechanism), version)
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])


@pytest.mark.parametrize("version", served_versions(SaslAuthenticateRequest))
def test_sasl_authenticate_without_a_handshake_is_an_illegal_state(harness: Harness, version: int) -> None:
    answer = harness.request(SaslAuthenticateRequest(auth_bytes=b"\0ann\0secret"), version)
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (ErrorCode.ILLEGAL_SASL_STATE, b"", 0)
    assert answer.error_message == "SaslAuthenticate request received after successful authentication"


def test_a_connection_without_sasl_stays_open_after_rejected_sasl_requests(harness: Harness) -> None:
    client = harness.client()
    for request in (SaslHandshakeRequest(mechanism="PLAIN"), SaslAuthenticateRequest(auth_bytes=b"x")):
        client.send(request)
        assert client.sent_bytes()
    client.send(MetadataRequest(topics=[]))
    assert client.sent_bytes() and not client.closed
