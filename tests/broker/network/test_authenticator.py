"""The order of requests with which a client authenticates, its sessions, and how failures end."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minibroker.broker.network.authenticator import SaslListener
from minibroker.broker.network.framing import PREFIX
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.groups import DescribeGroupsRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.broker.harness import Harness, TopicData, batch, frame_of, served_versions
from tests.broker.security.sasl import (
    ALICE,
    ANYTHING,
    DELAY_MS,
    OAUTH,
    PLAIN,
    SaslClient,
    asks,
    principal,
    sasl_client,
    sasl_harness,
)

VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with sasl_harness(tmp_path) as made:
        yield made


@pytest.fixture
def client(harness: Harness) -> SaslClient:
    return sasl_client(harness)


# --- who is let in ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", served_versions(SaslAuthenticateRequest))
def test_a_client_authenticates_and_is_served(client: SaslClient, version: int) -> None:
    client.send(VERSIONS)
    assert client.answer().error_code == 0
    hello = client.handshake()
    assert (hello.error_code, hello.mechanisms) == (0, ["PLAIN"])
    assert client.connection.must_authenticate and principal(client) == "User:ANONYMOUS"
    answer = client.authenticate(ALICE, version)
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, "", b"")
    assert answer.session_lifetime_ms == 0
    assert principal(client) == "User:alice" and not client.connection.must_authenticate
    assert asks(client, ANYTHING)
    assert client.counts == (1, 0, 0, 0, 0)


def test_a_client_can_authenticate_without_api_versions(client: SaslClient) -> None:
    client.log_in()
    assert asks(client, ANYTHING)


def test_tokens_have_no_headers_after_a_version_0_handshake(client: SaslClient) -> None:
    assert client.handshake(version=0).error_code == 0
    before = len(client.sent_bytes())
    client.send_token(ALICE)
    assert client.sent_bytes()[before:] == PREFIX.pack(0)
    client._read = len(client.sent_bytes())
    assert principal(client) == "User:alice"
    assert asks(client, ANYTHING)


def test_a_token_and_the_next_request_may_arrive_byte_by_byte(client: SaslClient) -> None:
    assert client.handshake(version=0).error_code == 0
    frames = PREFIX.pack(len(ALICE)) + ALICE + frame_of(ANYTHING, 9)
    before = len(client.sent_bytes())
    for byte in frames:
        client.send_bytes(bytes([byte]))
    answers = client.sent_bytes()[before:]
    assert answers.startswith(PREFIX.pack(0)) and len(answers) > 20


def test_a_sasl_token_may_be_shorter_than_any_request(harness: Harness, client: SaslClient) -> None:
    assert client.handshake(version=0).error_code == 0
    client.send_token(b"\0bob\0b"[:6])
    assert principal(client) == "User:bob"


# --- who is not ---------------------------------------------------------------------------------


def test_a_wrong_password_is_answered_after_a_delay_and_closes_the_connection(
    harness: Harness, client: SaslClient
) -> None:
    client.handshake()
    client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"))
    harness.clock.advance(DELAY_MS - 1)
    assert list(client.responses()) == [] and not client.closed
    harness.clock.advance(1)
    answer = client.answer()
    assert (answer.error_code, answer.auth_bytes) == (ErrorCode.SASL_AUTHENTICATION_FAILED, b"")
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert client.closed and principal(client) == "User:ANONYMOUS"
    assert client.counts == (0, 1, 0, 0, 0)


def test_requests_after_a_wrong_password_are_not_served(harness: Harness, client: SaslClient) -> None:
    client.handshake()
    client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"))
    client.send(SaslAuthenticateRequest(auth_bytes=ALICE))
    client.send(ANYTHING)
    harness.clock.advance(DELAY_MS)
    client.outlet.run_soon()
    assert len(list(client.responses())) == 1
    assert client.closed and principal(client) == "User:ANONYMOUS"


def test_a_failed_authentication_is_answered_immediately_if_no_delay_is_configured(tmp_path: Path) -> None:
    with sasl_harness(tmp_path, connection_failed_authentication_delay_ms="0") as harness:
        client = sasl_client(harness)
        client.handshake()
        assert client.authenticate(b"\0alice\0wrong").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.closed


def test_a_client_that_disconnects_before_its_delayed_failure_gets_no_response(
    harness: Harness, client: SaslClient
) -> None:
    client.handshake()
    client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"))
    client.connection.drop_lost_client()
    harness.clock.advance(DELAY_MS)
    assert list(client.responses()) == []


def test_a_malformed_token_gets_a_generic_error(tmp_path: Path) -> None:
    with sasl_harness(tmp_path, sasl_enabled_mechanisms="SCRAM-SHA-256") as harness:
        client = sasl_client(harness)
        client.handshake("SCRAM-SHA-256")
        client.send(SaslAuthenticateRequest(auth_bytes=b"alice"))
        harness.clock.advance(DELAY_MS)
        told = "Authentication failed during authentication due to invalid credentials with SASL mechanism"
        assert client.answer().error_message == f"{told} SCRAM-SHA-256"


def test_the_reason_of_a_failed_sasl_exchange_is_logged_and_not_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old_librdkafka = b"c=biws,r=mine" + b"mine" + b"servers,p=AAAA"  # which sends its own nonce twice
    with sasl_harness(tmp_path, sasl_enabled_mechanisms="SCRAM-SHA-256") as harness, caplog.at_level(logging.INFO):
        client = sasl_client(harness)
        client.handshake("SCRAM-SHA-256")
        client.authenticate(b"n,,n=alice,r=mine")
        client.send(SaslAuthenticateRequest(auth_bytes=old_librdkafka))
        harness.clock.advance(DELAY_MS)
        assert "nonce" not in client.answer().error_message
    assert (
        "SCRAM-SHA-256: the nonce is not that of the challenge; Kafka 4 also refuses librdkafka before" in caplog.text
    )


def test_a_wrong_password_after_a_version_0_handshake_only_closes_the_connection(
    harness: Harness, client: SaslClient
) -> None:
    client.handshake(version=0)
    before = client.sent_bytes()
    client.send_token(b"\0alice\0wrong")
    harness.clock.advance(DELAY_MS - 1)
    assert not client.closed
    harness.clock.advance(1)
    assert client.closed and client.sent_bytes() == before


@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", "SCRAM-SHA-256", ""])
@pytest.mark.parametrize("version", served_versions(SaslHandshakeRequest))
def test_a_disabled_mechanism_is_rejected(harness: Harness, client: SaslClient, mechanism: str, version: int) -> None:
    client.send(SaslHandshakeRequest(mechanism=mechanism), version)
    assert list(client.responses()) == []
    harness.clock.advance(DELAY_MS)
    answer = client.answer()
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN"])
    assert client.closed


@pytest.mark.parametrize(
    ("before", "request_of_the_client"),
    [
        ([], ANYTHING),
        ([], SaslAuthenticateRequest(auth_bytes=ALICE)),
        ([VERSIONS], VERSIONS),
        ([VERSIONS], ANYTHING),
        ([VERSIONS], SaslAuthenticateRequest(auth_bytes=ALICE)),
    ],
)
def test_requests_before_authentication_close_the_connection(
    client: SaslClient, before: list[Message], request_of_the_client: Message
) -> None:
    for request in before:
        assert asks(client, request)
    assert not asks(client, request_of_the_client)
    assert client.closed
    assert client.failure is not None and client.failure.endswith("before the client has authenticated")


@pytest.mark.parametrize("request_", [VERSIONS, SaslHandshakeRequest(mechanism="PLAIN"), FetchRequest()])
def test_a_request_during_a_sasl_exchange_is_rejected_after_the_delay(
    harness: Harness, client: SaslClient, request_: Message
) -> None:
    client.handshake()
    client.send(request_)
    client.send(SaslAuthenticateRequest(auth_bytes=ALICE))
    harness.clock.advance(DELAY_MS - 1)
    assert list(client.responses()) == [] and not client.closed
    harness.clock.advance(1)
    assert client.answer().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert list(client.responses()) == [] and client.closed and principal(client) == "User:ANONYMOUS"


@pytest.mark.parametrize(
    "frame",
    [
        frame_of(DescribeGroupsRequest(), 5),
        PREFIX.pack(10) + bytes.fromhex("03e7 0000 00000000 ffff"),
        frame_of(SaslHandshakeRequest(mechanism="PLAIN"), 1)[:-1],
    ],
    ids=["no error code", "unknown API", "cut"],
)
def test_a_request_that_cannot_be_rejected_only_closes_the_connection(client: SaslClient, frame: bytes) -> None:
    client.handshake()
    client.send_bytes(PREFIX.pack(len(frame) - 4) + frame[4:])
    assert list(client.responses()) == [] and client.closed


def test_api_versions_may_be_requested_again_in_a_supported_version(client: SaslClient) -> None:
    client._asked.append((ApiVersionsRequest.api_key, 0))
    client.send_bytes(frame_of(ApiVersionsRequest(), 0).replace(b"\0\x12\0\0", b"\0\x12\0\x63", 1))
    assert client.answer().error_code == ErrorCode.UNSUPPORTED_VERSION
    assert asks(client, VERSIONS)
    assert client.handshake().error_code == 0


def test_a_large_request_is_rejected_before_authentication(client: SaslClient) -> None:
    assert client.connection.limit_bytes == 512 << 10
    client.log_in()
    assert client.connection.limit_bytes == 1 << 20


def test_a_request_above_the_size_limit_closes_the_connection(client: SaslClient) -> None:
    client.send_bytes(PREFIX.pack((512 << 10) + 1) + bytes(8))
    assert client.closed


def test_reauthentication_is_rejected_without_a_session_lifetime(client: SaslClient) -> None:
    client.log_in()
    hello = client.handshake()
    assert (hello.error_code, hello.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert client.authenticate().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert asks(client, ANYTHING)


def alter(harness: Harness, name: str, value: str) -> int:
    shape = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = shape(resource_type=4, resource_name="1", configs=[shape.AlterableConfig(name=name, value=value)])
    (answer,) = harness.request(IncrementalAlterConfigsRequest(resources=[change])).responses
    code: int = answer.error_code
    return code


def test_sasl_mechanisms_can_be_enabled_while_the_broker_runs(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    client = sasl_client(harness)
    assert alter(harness, "sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-512") == 0
    assert client.handshake().mechanisms == ["PLAIN", "SCRAM-SHA-512"]
    listener = SaslListener("SASL_PLAINTEXT", lambda: harness.cluster, harness.clock)
    assert alter(harness, "sasl.enabled.mechanisms", "OAUTHBEARER") == 0  # of which no token could be checked
    listener.reload_settings()
    assert list(listener.mechanisms) == ["PLAIN", "SCRAM-SHA-512"]
    assert "clients authenticate as before: listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config" in caplog.text
    harness.restart()
    assert sasl_client(harness).handshake().mechanisms == ["PLAIN"]  # what the start gives


# --- sessions that end --------------------------------------------------------------------------

REAUTH_MS = 60_000


@pytest.fixture
def session(tmp_path: Path) -> Iterator[tuple[Harness, SaslClient]]:
    """A client that has authenticated for a minute."""
    with sasl_harness(tmp_path, connections_max_reauth_ms=str(REAUTH_MS)) as harness:
        client = sasl_client(harness)
        assert client.log_in().session_lifetime_ms == REAUTH_MS
        yield harness, client


def test_a_client_that_has_not_reauthenticated_is_disconnected_at_its_next_request(
    session: tuple[Harness, SaslClient],
) -> None:
    harness, client = session
    harness.clock.advance(REAUTH_MS - 1)
    assert asks(client, ANYTHING)
    harness.clock.advance(1)
    assert not client.closed
    assert not asks(client, ANYTHING) and client.closed
    assert client.failure == "Metadata after the session of the client has ended"
    assert client.counts == (1, 0, 0, 0, 1)


@pytest.mark.parametrize("after_ms", [2000, REAUTH_MS - 1, REAUTH_MS, 10 * REAUTH_MS])
def test_a_client_can_reauthenticate_before_or_after_the_session_expires(
    session: tuple[Harness, SaslClient], after_ms: int
) -> None:
    harness, client = session
    harness.clock.advance(after_ms)
    client.log_in()
    assert principal(client) == "User:alice"
    assert client.counts == (1, 0, 1, 0, 0)
    harness.clock.advance(REAUTH_MS - 1)
    assert asks(client, ANYTHING)
    harness.clock.advance(1)
    assert not asks(client, ANYTHING)


def test_other_requests_are_not_served_during_a_reauthentication(session: tuple[Harness, SaslClient]) -> None:
    harness, client = session
    assert client.handshake().error_code == 0
    client.send(FetchRequest())
    harness.clock.advance(DELAY_MS)
    assert client.answer().error_code == ErrorCode.ILLEGAL_SASL_STATE and client.closed


def test_a_session_does_not_expire_during_a_reauthentication(session: tuple[Harness, SaslClient]) -> None:
    harness, client = session
    harness.clock.advance(REAUTH_MS - 1)
    assert client.handshake().error_code == 0
    harness.clock.advance(1)
    assert client.authenticate().session_lifetime_ms == REAUTH_MS
    assert asks(client, ANYTHING)


def test_a_second_reauthentication_within_a_second_is_rejected(session: tuple[Harness, SaslClient]) -> None:
    harness, client = session
    client.log_in()
    assert client.handshake().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert asks(client, ANYTHING)
    harness.clock.advance(1000)
    client.log_in()


def test_a_reauthentication_cannot_change_the_principal(session: tuple[Harness, SaslClient]) -> None:
    harness, client = session
    client.handshake()
    client.send(SaslAuthenticateRequest(auth_bytes=b"\0bob\0b"))
    harness.clock.advance(DELAY_MS)
    answer = client.answer()
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert client.closed and principal(client) == "User:alice"


def test_a_failed_reauthentication_closes_the_connection(session: tuple[Harness, SaslClient]) -> None:
    harness, client = session
    client.handshake()
    client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"))
    harness.clock.advance(DELAY_MS)
    assert client.answer().error_message == "Authentication failed: Invalid username or password"
    assert client.closed
    assert client.counts == (1, 0, 0, 1, 0)


def test_a_client_that_repeats_a_cached_request_is_disconnected_after_its_session_expires(
    session: tuple[Harness, SaslClient],
) -> None:
    harness, client = session
    harness.create_topic("t")
    partition = TopicData.PartitionProduceData(index=0, records=batch("v"))
    produce = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicData(name="t", partition_data=[partition])])
    for _ in range(3):
        client.send(produce, 9)
        assert client.answer().responses[0].partition_responses[0].error_code == 0
    known = client.connection.template
    assert known is not None
    harness.clock.advance(REAUTH_MS)
    assert client.connection.template is None
    client.connection.template = known  # as by a Produce that was under way
    assert not asks(client, produce) and client.closed
    assert harness.partition("t").log.log_end_offset == 3


def test_listeners_and_mechanisms_have_their_own_session_limits(tmp_path: Path) -> None:
    own = {"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "7000", "connections.max.reauth.ms": "9000"}
    with Harness(tmp_path, settings={**PLAIN, **own}) as harness:
        assert sasl_client(harness).log_in().session_lifetime_ms == 7000


# --- whatever comes -----------------------------------------------------------------------------


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    mechanism=st.sampled_from(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]),
    version=st.sampled_from([0, 1]),
    tokens=st.lists(st.binary(max_size=40) | st.sampled_from([b"n,,n=alice,r=c", b"n,,\x01auth=Bearer a.b.\x01\x01"])),
    pieces=st.integers(1, 9),
)
def test_arbitrary_tokens_never_authenticate(
    tmp_path: Path, mechanism: str, version: int, tokens: list[bytes], pieces: int
) -> None:
    enabled = {**PLAIN, **OAUTH, "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER"}
    with tempfile.TemporaryDirectory(dir=tmp_path) as directory, Harness(Path(directory), settings=enabled) as harness:
        client = sasl_client(harness)
        assert client.handshake(mechanism, version).error_code == 0
        frames = [
            PREFIX.pack(len(token)) + token if version == 0 else frame_of(SaslAuthenticateRequest(auth_bytes=token), 2)
            for token in tokens
        ]
        sent = b"".join(frames)
        for begin in range(0, len(sent), pieces):
            client.send_bytes(sent[begin : begin + pieces])
        harness.clock.advance(DELAY_MS)
        client.outlet.run_soon()
        assert principal(client) == "User:ANONYMOUS" and client.connection.must_authenticate
        client.send(ANYTHING)
        harness.clock.advance(DELAY_MS)
        client.outlet.run_soon()
        assert client.closed or version == 0 or not tokens
