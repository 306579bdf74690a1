"""Clients that authenticate by SASL: the same conversations, request by request, with minibroker and Apache Kafka."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from conformance.conftest import StartMinibroker
from conformance.kafka_reference import KafkaProcess
from conformance.wire.connection import Connection, ConnectionClosed
from minibroker.client.client_mechanisms import authenticate_by_scram
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.groups import ListGroupsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.clients.ports import free_ports

MODULES = "org.apache.kafka.common.security"
PREFIX = "listener.name.sasl"
DELAY_MS, REAUTH_MS = 300, 2500
PROPERTIES = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "connection.failed.authentication.delay.ms": str(DELAY_MS),
    f"{PREFIX}.plain.sasl.jaas.config": f'{MODULES}.plain.PlainLoginModule required user_alice="a-secret" user_bob=b;',
    f"{PREFIX}.plain.connections.max.reauth.ms": str(REAUTH_MS),
    f"{PREFIX}.scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    f"{PREFIX}.scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    f"{PREFIX}.oauthbearer.sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="broker" unsecuredValidatorRequiredScope="kafka";',
}
ALICE = b"\0alice\0a-secret"
HELLO = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
ANYTHING = MetadataRequest(topics=[])
INVALID = "Authentication failed during authentication due to invalid credentials with SASL mechanism"


class KafkaWithSasl(KafkaProcess):
    """Two listeners: one without security, one with SASL."""

    def _write_properties(self, controller_port: int, properties: Mapping[str, str]) -> None:
        self.sasl_address = f"127.0.0.1:{free_ports(1)}"
        listeners = f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{controller_port}"
        given = {
            "listeners": f"{listeners},SASL://{self.sasl_address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
        }
        super()._write_properties(controller_port, {**given, **properties})


@pytest.fixture(scope="module")
def sasl_address(
    against: str, start_minibroker: StartMinibroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a listener with SASL, of a broker with the user alice for SCRAM."""
    directory = tmp_path_factory.mktemp("sasl")
    if against == "kafka":
        kafka = KafkaWithSasl(directory, PROPERTIES)
        kafka.start()
        try:
            add_alice(kafka.bootstrap_servers)
            time.sleep(1)  # until the credentials have reached the broker from the controller
            yield kafka.sasl_address
        finally:
            kafka.kill()
    else:
        more = {
            "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        }
        with start_minibroker(directory, {**PROPERTIES, **more}) as ours:
            plain, sasl = ours.bootstrap_servers.split(",")
            add_alice(plain)
            yield sasl


def add_alice(address: str) -> None:
    import hashlib

    shape = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    changes = [
        shape(
            name="alice",
            mechanism=number,
            iterations=4096,
            salt=b"salt",
            salted_password=hashlib.pbkdf2_hmac(name, b"a-secret", b"salt", 4096),
        )
        for number, name in ((1, "sha256"), (2, "sha512"))
    ]
    with Connection(address) as connection:
        for change in changes:
            answer = connection.ask(AlterUserScramCredentialsRequest(upsertions=[change]), 0)
            assert answer.results[0].error_code == 0, answer


@pytest.fixture
def client(sasl_address: str) -> Iterator[Connection]:
    with Connection(sasl_address) as connection:
        yield connection


def handshake(client: Connection, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return client.ask(SaslHandshakeRequest(mechanism=mechanism), version)


def authenticate(client: Connection, token: bytes = ALICE, version: int = 2) -> Any:
    return client.ask(SaslAuthenticateRequest(auth_bytes=token), version)


def is_served(client: Connection) -> bool:
    try:
        return bool(client.ask(ANYTHING, 9).brokers)
    except (ConnectionClosed, OSError):
        return False


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("asks_first", [False, True])
def test_a_client_authenticates_with_plain(client: Connection, version: int, asks_first: bool) -> None:
    if asks_first:
        assert client.ask(HELLO, 3).error_code == 0
    hello = handshake(client)
    assert (hello.error_code, sorted(hello.mechanisms)) == (
        0,
        ["OAUTHBEARER", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"],
    )
    answer = authenticate(client, version=version)
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, "", b"")
    assert answer.session_lifetime_ms == (REAUTH_MS if version else 0)
    assert is_served(client)


def test_sasl_tokens_have_no_request_header_after_a_version_0_handshake(client: Connection) -> None:
    assert handshake(client, version=0).error_code == 0
    client.send_frame(ALICE)
    assert client.frame() == b""
    assert is_served(client)


def test_a_sasl_token_may_be_shorter_than_any_request(client: Connection) -> None:
    assert handshake(client, version=0).error_code == 0
    client.send_frame(b"\0bob\0b")
    assert client.frame() == b""
    assert is_served(client)


@pytest.mark.parametrize(("mechanism", "hash_name"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
def test_a_client_authenticates_with_scram(client: Connection, mechanism: str, hash_name: str) -> None:
    assert handshake(client, mechanism).error_code == 0
    exchange = authenticate_by_scram(hash_name, "alice", "a-secret")
    answer = authenticate(client, next(exchange))
    answer = authenticate(client, exchange.send(answer.auth_bytes))
    with pytest.raises(StopIteration):
        exchange.send(answer.auth_bytes)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    assert is_served(client)


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0a-secret", "Authentication failed: Invalid username or password"),
        (
            b"bob\0alice\0a-secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0\0a-secret", "Authentication failed: username not specified"),
        (b"\0\0", "Authentication failed: username not specified"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0a-secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0alice\0a-secret\0\0\0x", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    ],
)
def test_a_failed_authentication_is_answered_after_a_delay_and_closes_the_connection(
    client: Connection, token: bytes, told: str
) -> None:
    handshake(client)
    begun = time.monotonic()
    answer = authenticate(client, token)
    assert time.monotonic() - begun > 0.9 * DELAY_MS / 1000
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, told)
    assert (answer.auth_bytes, answer.session_lifetime_ms) == (b"", 0)
    assert client.is_closed()


def test_scram_rejects_a_wrong_password(client: Connection) -> None:
    handshake(client, "SCRAM-SHA-512")
    exchange = authenticate_by_scram("sha512", "alice", "wrong")
    answer = authenticate(client, next(exchange))
    answer = authenticate(client, exchange.send(answer.auth_bytes))
    assert answer.error_message == f"{INVALID} SCRAM-SHA-512"
    assert client.is_closed()


def test_a_failed_authentication_after_a_version_0_handshake_only_closes_the_connection(client: Connection) -> None:
    handshake(client, version=0)
    client.send_frame(b"\0alice\0wrong")
    assert client.is_closed()


@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", ""])
@pytest.mark.parametrize("version", [0, 1])
def test_a_disabled_mechanism_is_rejected(client: Connection, mechanism: str, version: int) -> None:
    answer = handshake(client, mechanism, version)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert sorted(answer.mechanisms) == ["OAUTHBEARER", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert client.is_closed()


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.send(ANYTHING, 9),
        lambda client: client.send(SaslAuthenticateRequest(auth_bytes=ALICE), 2),
        lambda client: (client.ask(HELLO, 3), client.send(HELLO, 3)),
        lambda client: (client.ask(HELLO, 3), client.send(ANYTHING, 9)),
        lambda client: client.send_bytes(((512 << 10) + 1).to_bytes(4, "big")),
    ],
    ids=["another API", "no handshake", "versions twice", "another API after the versions", "too large"],
)
def test_an_out_of_order_or_too_large_request_before_authentication_closes_the_connection(
    client: Connection, ask: Callable[[Connection], Any]
) -> None:
    ask(client)
    assert client.is_closed()


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (HELLO, 0),
        (HELLO, 3),
        (SaslHandshakeRequest(mechanism="PLAIN"), 0),
        (SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1),
        (SaslHandshakeRequest(mechanism="unknown"), 1),
        (FetchRequest(), 12),
        (ListGroupsRequest(), 0),
    ],
)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_another_request_during_the_exchange_is_rejected(
    client: Connection, mechanism: str, request_: Message, version: int
) -> None:
    handshake(client, mechanism)
    if mechanism == "SCRAM-SHA-256":
        assert authenticate(client, next(authenticate_by_scram("sha256", "alice", "a-secret"))).error_code == 0
    begun = time.monotonic()
    assert client.ask(request_, version).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert time.monotonic() - begun > 0.9 * DELAY_MS / 1000
    assert client.is_closed()


def test_an_unanswerable_request_during_the_exchange_closes_the_connection(client: Connection) -> None:
    handshake(client)
    client.send_request(999, 0, b"")
    assert client.is_closed()


def test_bytes_after_a_version_0_handshake_are_read_as_a_sasl_token(client: Connection) -> None:
    handshake(client, version=0)
    client.send(HELLO, 3)
    assert client.is_closed()


def test_api_versions_may_be_requested_again_in_a_supported_version(client: Connection) -> None:
    client.send_request(ApiVersionsRequest.api_key, 99, b"\0")
    assert client.frame()[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
    assert client.ask(HELLO, 3).error_code == 0
    assert handshake(client).error_code == 0


# --- sessions -----------------------------------------------------------------------------------


def test_a_client_reauthenticates(client: Connection) -> None:
    handshake(client)
    authenticate(client)
    for _ in range(2):
        time.sleep(1.1)
        assert handshake(client).error_code == 0
        assert authenticate(client).session_lifetime_ms == REAUTH_MS
        assert is_served(client)


def test_a_client_reauthenticates_after_its_session_expired(client: Connection) -> None:
    handshake(client)
    authenticate(client)
    time.sleep(REAUTH_MS / 1000 + 0.2)
    assert handshake(client).error_code == 0
    assert authenticate(client).error_code == 0
    assert is_served(client)


def test_a_client_that_does_not_reauthenticate_is_disconnected(client: Connection) -> None:
    handshake(client)
    authenticate(client)
    time.sleep(REAUTH_MS / 1000 + 0.2)
    assert not is_served(client)


def test_a_second_reauthentication_within_a_second_is_rejected(client: Connection) -> None:
    handshake(client)
    authenticate(client)
    assert handshake(client).error_code == 0
    assert authenticate(client).error_code == 0
    answer = handshake(client)
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert is_served(client)


def test_a_reauthentication_cannot_change_the_principal(client: Connection) -> None:
    handshake(client)
    authenticate(client)
    handshake(client)
    answer = authenticate(client, b"\0bob\0b")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert client.is_closed()


def test_a_wrong_password_at_the_reauthentication_closes_the_connection(client: Connection) -> None:
    handshake(client)
    authenticate(client)
    handshake(client)
    told = "Authentication failed: Invalid username or password"
    assert authenticate(client, b"\0alice\0wrong").error_message == told
    assert client.is_closed()


def test_reauthentication_is_rejected_without_a_session_lifetime(client: Connection) -> None:
    handshake(client, "SCRAM-SHA-256")
    exchange = authenticate_by_scram("sha256", "alice", "a-secret")
    answer = authenticate(client, next(exchange))
    assert authenticate(client, exchange.send(answer.auth_bytes)).error_code == 0
    assert handshake(client).error_code == ErrorCode.ILLEGAL_SASL_STATE
    answer = authenticate(client)
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.ILLEGAL_SASL_STATE,
        "SaslAuthenticate request received after successful authentication",
    )
    assert is_served(client)


# --- tokens -------------------------------------------------------------------------------------


def token(alg: str = "none", **claims: Any) -> str:
    said = {"sub": "alice", "exp": time.time() + 60, "scope": ["kafka"], **claims}
    kept = {name: value for name, value in said.items() if value is not None}
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).decode() for each in ({"alg": alg}, kept)]
    return ".".join(part.rstrip("=") for part in parts) + "."


def first_message(said: str, header: str = "n,,", more: str = "") -> bytes:
    return f"{header}\x01auth=Bearer {said}\x01{more}\x01".encode()


def test_a_client_authenticates_with_oauthbearer(client: Connection) -> None:
    handshake(client, "OAUTHBEARER")
    answer = authenticate(client, first_message(token(), more="pool=x y\x01"))
    assert (answer.error_code, answer.auth_bytes) == (0, b"")
    assert 50_000 < answer.session_lifetime_ms <= 60_000
    assert is_served(client)


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"exp": 1}, '{"status":"invalid_token"}'),
        ({"exp": None}, '{"status":"invalid_token"}'),
        ({"exp": "x"}, '{"status":"invalid_token"}'),
        ({"sub": None}, '{"status":"invalid_token"}'),
        ({"sub": ""}, '{"status":"invalid_token"}'),
        ({"sub": 1}, '{"status":"invalid_token"}'),
        ({"iat": 1e11}, '{"status":"invalid_token"}'),
        ({"alg": "RS256"}, '{"status":"invalid_token"}'),
        ({"scope": None}, '{"status":"insufficient_scope", "scope":"[kafka]"}'),
        ({"scope": "a kafka"}, '{"status":"insufficient_scope", "scope":"[kafka]"}'),
    ],
)
def test_an_invalid_oauthbearer_token_is_rejected(client: Connection, claims: dict[str, Any], told: str) -> None:
    handshake(client, "OAUTHBEARER")
    answer = authenticate(client, first_message(token(**claims)))
    assert (answer.error_code, answer.auth_bytes.decode()) == (0, told)
    answer = authenticate(client, b"\x01")
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, told)
    assert client.is_closed()


@pytest.mark.parametrize(
    "message",
    [b"", b"x", b"n,,\x01\x01", first_message("a b"), first_message("x", "y,,")],
)
def test_a_malformed_oauthbearer_message_is_rejected(client: Connection, message: bytes) -> None:
    handshake(client, "OAUTHBEARER")
    assert authenticate(client, message).error_message == f"{INVALID} OAUTHBEARER"
    assert client.is_closed()


def test_an_authorization_id_that_differs_from_the_user_is_rejected(client: Connection) -> None:
    handshake(client, "OAUTHBEARER")
    answer = authenticate(client, first_message(token(), "n,a=bob,"))
    assert answer.error_message == (
        "Authentication failed: Client requested an authorization id (bob) that is different from the token's "
        "principal name (alice)"
    )


# --- delegation tokens --------------------------------------------------------------------------


def test_delegation_tokens_require_a_secret_key(client: Connection) -> None:
    handshake(client)
    assert authenticate(client).error_code == 0
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    made = client.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
    assert (made.error_code, made.principal_name, made.token_id, made.hmac) == (disabled, "alice", "", b"")
    assert (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms) == (0, 0, 0)
    renewed = client.ask(RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1), 2)
    expired = client.ask(ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1), 2)
    assert [(one.error_code, one.expiry_timestamp_ms) for one in (renewed, expired)] == [(disabled, 0)] * 2
    listed = client.ask(DescribeDelegationTokenRequest(owners=None), 3)
    assert (listed.error_code, listed.tokens) == (disabled, [])
