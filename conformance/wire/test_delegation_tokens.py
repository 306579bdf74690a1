"""Delegation tokens, of clients that have authenticated: the same requests to minibroker and Apache Kafka 4.4."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.conftest import StartMinibroker
from conformance.wire.connection import Connection, ConnectionClosed
from conformance.wire.requests import repeated
from conformance.wire.test_rights import MADE, create, creation
from conformance.wire.test_sasl import INVALID, MODULES, PREFIX, KafkaWithSasl, authenticate, handshake, is_served
from minibroker.broker.configs.valid_values import STANDARD_AUTHORIZER
from minibroker.broker.security.operations import CREATE_TOKENS, DESCRIBE_CLUSTER, DESCRIBE_TOKEN, DESCRIBE_TOKENS
from minibroker.client.client_mechanisms import authenticate_by_scram
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from minibroker.protocol.messages.security import DescribeUserScramCredentialsRequest

MAX_LIFETIME_MS, EXPIRY_MS, CHECK_MS = 3_000_000, 1_000_000, 3000
NAMES = ("admin", "alice", "bob", "carol")
USERS = " ".join(f'user_{name}="{name}-secret"' for name in NAMES)
PROPERTIES = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"{PREFIX}.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required {USERS};",
    f"{PREFIX}.scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    f"{PREFIX}.scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin;User:ANONYMOUS",
    "connection.failed.authentication.delay.ms": "50",
    "delegation.token.secret.key": "a key for tests",
    "delegation.token.max.lifetime.ms": str(MAX_LIFETIME_MS),
    "delegation.token.expiry.time.ms": str(EXPIRY_MS),
    "delegation.token.expiry.check.interval.ms": str(CHECK_MS),
}
NOT_ALLOWED, NOT_FOUND = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ErrorCode.DELEGATION_TOKEN_NOT_FOUND
MISMATCH, EXPIRED = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, ErrorCode.DELEGATION_TOKEN_EXPIRED
DENIED = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
Renewer = CreateDelegationTokenRequest.CreatableRenewers
Owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
LogIn = Callable[[str], Connection]


@pytest.fixture(scope="module")
def address(against: str, start_minibroker: StartMinibroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A listener with SASL, of a broker with an authorizer and delegation tokens."""
    directory = tmp_path_factory.mktemp("tokens")
    if against == "kafka":
        kafka = KafkaWithSasl(directory, PROPERTIES)
        kafka.start()
        try:
            grant(kafka.sasl_address)
            yield kafka.sasl_address
        finally:
            kafka.kill()
    else:
        more = {"listeners": "SASL://127.0.0.1:0", "listener.security.protocol.map": "SASL:SASL_PLAINTEXT"}
        with start_minibroker(directory, {**PROPERTIES, **more}) as ours:
            grant(ours.bootstrap_servers)
            yield ours.bootstrap_servers


def grant(address: str) -> None:
    """Alice may describe the cluster, and create tokens for bob; carol may see all tokens of bob."""
    wanted = [
        ("kafka-cluster", "alice", DESCRIBE_CLUSTER),
        ("User:bob", "alice", CREATE_TOKENS),
        ("User:bob", "carol", DESCRIBE_TOKENS),
    ]
    creations = [
        creation(name, resource_type=right.resource_type, operation=right.operation, principal=f"User:{user}", host="*")
        for name, user, right in wanted
    ]
    with logged_in(address, "admin") as admin:
        assert create(admin, *creations) == [MADE] * len(creations)
    with logged_in(address, "alice") as alice:
        assert repeated(lambda: may_describe_cluster(alice), bool)


def logged_in(address: str, name: str) -> Connection:
    client = Connection(address)
    assert handshake(client).error_code == 0
    assert authenticate(client, f"\0{name}\0{name}-secret".encode()).error_code == 0
    return client


def may_describe_cluster(client: Connection) -> bool:
    try:
        answer = client.ask(DescribeUserScramCredentialsRequest(users=[]), 0)
    except ConnectionClosed:
        return False
    return bool(answer.error_code == 0)


@pytest.fixture
def log_in(address: str) -> Iterator[LogIn]:
    opened: list[Connection] = []

    def connect(name: str) -> Connection:
        opened.append(logged_in(address, name))
        return opened[-1]

    yield connect
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def alice(log_in: LogIn) -> Connection:
    return log_in("alice")


@pytest.fixture
def bob(log_in: LogIn) -> Connection:
    return log_in("bob")


def made(client: Connection, *renewers: str, version: int = 3, lifetime_ms: int = -1, **more: Any) -> Any:
    """A new token, once the broker knows it: Kafka's brokers learn of it from the controller."""
    answer = asked(client, *renewers, version=version, lifetime_ms=lifetime_ms, **more)
    assert answer.error_code == 0, answer
    repeated(lambda: described(client), lambda seen: answer.token_id in seen)
    return answer


def asked(client: Connection, *renewers: str, version: int = 3, lifetime_ms: int = -1, **more: Any) -> Any:
    named = [Renewer(principal_type="User", principal_name=name) for name in renewers]
    return client.ask(CreateDelegationTokenRequest(renewers=named, max_lifetime_ms=lifetime_ms, **more), version)


def for_bob() -> dict[str, str]:
    return {"owner_principal_type": "User", "owner_principal_name": "bob"}


def described(client: Connection, *owners: str, version: int = 3, of_all: bool = True) -> dict[str, Any]:
    """The tokens that a client sees, by id: those of `owners` if there are any or not `of_all`."""
    named = [Owner(principal_type="User", principal_name=name) for name in owners]
    answer = client.ask(DescribeDelegationTokenRequest(owners=named if owners or not of_all else None), version)
    assert answer.error_code == 0, answer
    return {token.token_id: token for token in answer.tokens}


def renew(client: Connection, hmac: bytes, period_ms: int = -1, version: int = 2) -> tuple[int, int]:
    answer = client.ask(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), version)
    return answer.error_code, answer.expiry_timestamp_ms


def expire(client: Connection, hmac: bytes, period_ms: int = -1, version: int = 2) -> tuple[int, int]:
    answer = client.ask(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), version)
    return answer.error_code, answer.expiry_timestamp_ms


@pytest.mark.parametrize("version", range(1, 4))
def test_a_user_creates_a_token_for_itself(alice: Connection, version: int) -> None:
    token = made(alice, "bob", "carol", version=version)
    assert (token.principal_type, token.principal_name) == ("User", "alice")
    requester = ("User", "alice") if version >= 3 else ("", "")
    assert (token.token_requester_principal_type, token.token_requester_principal_name) == requester
    assert token.max_timestamp_ms - token.issue_timestamp_ms == MAX_LIFETIME_MS
    assert token.expiry_timestamp_ms - token.issue_timestamp_ms == EXPIRY_MS
    assert abs(token.issue_timestamp_ms - time.time() * 1000) < 60_000
    assert (len(token.token_id), len(token.hmac)) == (22, 64)
    seen = described(alice, version=version)[token.token_id]
    assert (seen.principal_type, seen.principal_name) == ("User", "alice")
    assert (seen.token_requester_principal_type, seen.token_requester_principal_name) == requester
    assert (seen.issue_timestamp, seen.expiry_timestamp) == (token.issue_timestamp_ms, token.expiry_timestamp_ms)
    assert (seen.max_timestamp, seen.hmac) == (token.max_timestamp_ms, token.hmac)
    assert [(one.principal_type, one.principal_name) for one in seen.renewers] == [("User", "bob"), ("User", "carol")]


@pytest.mark.parametrize(
    ("asked_ms", "expiry_ms", "max_ms"),
    [
        (-1, EXPIRY_MS, MAX_LIFETIME_MS),
        (-5, EXPIRY_MS, MAX_LIFETIME_MS),
        (0, EXPIRY_MS, MAX_LIFETIME_MS),
        (90_000, 90_000, 90_000),
        (2_000_000, EXPIRY_MS, 2_000_000),
        (1 << 62, EXPIRY_MS, MAX_LIFETIME_MS),
    ],
)
def test_a_tokens_lifetime_is_the_requested_one_up_to_the_maximum(
    alice: Connection, asked_ms: int, expiry_ms: int, max_ms: int
) -> None:
    token = made(alice, lifetime_ms=asked_ms)
    lasts = token.expiry_timestamp_ms - token.issue_timestamp_ms, token.max_timestamp_ms - token.issue_timestamp_ms
    assert lasts == (expiry_ms, max_ms)


def test_only_users_can_be_renewers_of_a_token(alice: Connection) -> None:
    renewers = [Renewer(principal_type="Group", principal_name="bob")]
    answer = alice.ask(CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1), 3)
    assert answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert (answer.issue_timestamp_ms, answer.expiry_timestamp_ms, answer.max_timestamp_ms) == (-1, -1, -1)
    assert (answer.token_id, answer.hmac, answer.principal_name) == ("", b"", "alice")
    many = [Renewer(principal_type="User", principal_name=name) for name in ("bob", "bob", "alice")]
    token = alice.ask(CreateDelegationTokenRequest(renewers=many, max_lifetime_ms=-1), 3)
    assert token.error_code == 0
    seen = repeated(lambda: described(alice), lambda found: token.token_id in found)[token.token_id]
    assert [one.principal_name for one in seen.renewers] == ["bob", "bob", "alice"]


def test_a_token_for_another_owner_requires_permission(alice: Connection, bob: Connection, log_in: LogIn) -> None:
    token = made(alice, **for_bob())
    assert (token.principal_name, token.token_requester_principal_name) == ("bob", "alice")
    refused = asked(bob, owner_principal_type="User", owner_principal_name="alice")
    assert (refused.error_code, refused.principal_name) == (DENIED, "alice")
    assert (refused.token_requester_principal_name, refused.issue_timestamp_ms, refused.hmac) == ("bob", -1, b"")
    assert asked(bob, **for_bob()).error_code == 0
    assert asked(bob, owner_principal_type="User", owner_principal_name="").error_code == 0
    assert made(log_in("admin"), **for_bob()).principal_name == "bob"


def test_an_owner_without_a_principal_type_is_rejected(alice: Connection) -> None:
    answer = asked(alice, owner_principal_type=None, owner_principal_name="bob")
    assert (answer.error_code, answer.token_id, answer.hmac) == (ErrorCode.UNKNOWN_SERVER_ERROR, "", b"")
    assert (answer.principal_name, answer.token_requester_principal_name) == ("ANONYMOUS", "ANONYMOUS")
    assert (answer.issue_timestamp_ms, answer.expiry_timestamp_ms, answer.max_timestamp_ms) == (-1, -1, -1)


def test_an_owner_that_is_not_a_user_is_rejected(log_in: LogIn) -> None:
    answer = asked(log_in("admin"), owner_principal_type="Group", owner_principal_name="staff")
    assert (answer.error_code, answer.principal_type) == (0, "Group")


def test_tokens_are_visible_to_owners_renewers_and_authorized_users(
    alice: Connection, bob: Connection, log_in: LogIn
) -> None:
    carol, admin = log_in("carol"), log_in("admin")
    own, of_bob, renewable = made(alice).token_id, made(alice, **for_bob()).token_id, made(alice, "carol").token_id
    repeated(lambda: described(admin), lambda seen: {own, of_bob, renewable} <= set(seen))

    def seen(client: Connection, *owners: str) -> list[bool]:
        found = described(client, *owners)
        return [token_id in found for token_id in (own, of_bob, renewable)]

    assert seen(alice) == [True, True, True]
    assert seen(bob) == [False, True, False]
    assert seen(carol) == [False, True, True]
    assert seen(admin) == [True, True, True]
    assert seen(alice, "bob") == [False, True, False]
    assert seen(alice, "bob", "alice") == [True, True, True]
    assert seen(alice, "carol") == [False, False, True]
    assert seen(admin, "alice") == [True, True, True]
    assert seen(admin, "nobody") == [False, False, False]
    assert described(admin, of_all=False) == {}
    right = DESCRIBE_TOKEN
    acl = creation(own, resource_type=right.resource_type, operation=right.operation, principal="User:bob", host="*")
    assert create(admin, acl) == [MADE]
    assert repeated(lambda: seen(bob), lambda found: found[0]) == [True, True, False]


def test_only_owners_and_renewers_renew_and_expire_a_token(alice: Connection, bob: Connection, log_in: LogIn) -> None:
    admin = log_in("admin")
    token, of_bob = made(alice, "carol"), made(alice, **for_bob())
    assert [change(bob, token.hmac) for change in (renew, expire)] == [(MISMATCH, 0)] * 2
    assert [change(admin, token.hmac) for change in (renew, expire)] == [(MISMATCH, 0)] * 2
    assert [change(alice, of_bob.hmac) for change in (renew, expire)] == [(MISMATCH, 0)] * 2
    assert renew(bob, of_bob.hmac)[0] == renew(log_in("carol"), token.hmac)[0] == renew(alice, token.hmac)[0] == 0
    assert expire(log_in("carol"), token.hmac, 1000)[0] == expire(bob, of_bob.hmac)[0] == 0


@pytest.mark.parametrize("version", range(1, 3))
@pytest.mark.parametrize("hmac", [b"", b"x", bytes(64)])
def test_renewing_or_expiring_an_unknown_token_is_rejected(alice: Connection, version: int, hmac: bytes) -> None:
    assert renew(alice, hmac, version=version) == (NOT_FOUND, 0)
    assert expire(alice, hmac, version=version) == (NOT_FOUND, 0)


def settle(client: Connection, token: Any, expiry_ms: int | None) -> None:
    """Wait until the broker knows of a change: Kafka's learn of it from the controller. None: the token is gone."""

    def seen() -> int | None:
        found = described(client).get(token.token_id)
        return None if found is None else found.expiry_timestamp  # type: ignore[no-any-return]

    assert repeated(seen, lambda at: at == expiry_ms) == expiry_ms
    time.sleep(0.01)  # the controller may learn a little later than the broker; and an expiry of now is over then


def await_check(client: Connection) -> None:
    """Return when what has expired was just removed: for a while no token is, whose expiry a test has to see."""
    token = made(client)
    expire(client, token.hmac, 0)
    settle(client, token, None)


@pytest.mark.parametrize("version", range(1, 3))
def test_a_token_is_renewed(alice: Connection, version: int) -> None:
    await_check(alice)
    token = made(alice, lifetime_ms=600_000)
    for period_ms, lasts_ms in ((100_000, 100_000), (-1, 600_000), (0, 600_000), (1, 1)):
        code, expiry_ms = renew(alice, token.hmac, period_ms, version)
        assert code == 0
        assert abs(expiry_ms - (token.issue_timestamp_ms + lasts_ms)) < 30_000
    settle(alice, token, expiry_ms)
    assert renew(alice, token.hmac, version=version) == (EXPIRED, 0)
    assert expire(alice, token.hmac, 1000, version=version) == (EXPIRED, 0)
    assert expire(alice, token.hmac, version=version)[0] == 0


@pytest.mark.parametrize("version", range(1, 3))
def test_a_token_is_expired(alice: Connection, version: int) -> None:
    token = made(alice)
    for period_ms, lasts_ms in ((100_000, 100_000), (1 << 40, MAX_LIFETIME_MS)):
        code, expiry_ms = expire(alice, token.hmac, period_ms, version)
        assert code == 0
        assert abs(expiry_ms - (token.issue_timestamp_ms + lasts_ms)) < 30_000
    settle(alice, token, expiry_ms)
    code, expiry_ms = expire(alice, token.hmac, -7, version)
    assert code == 0 and abs(expiry_ms - token.issue_timestamp_ms) < 30_000
    settle(alice, token, None)
    assert renew(alice, token.hmac, version=version) == (NOT_FOUND, 0)


def test_an_immediately_expired_token_cannot_be_renewed_and_is_removed_later(alice: Connection) -> None:
    await_check(alice)
    token = made(alice)
    code, expiry_ms = expire(alice, token.hmac, 0)
    assert code == 0 and abs(expiry_ms - token.issue_timestamp_ms) < 30_000
    settle(alice, token, expiry_ms)
    assert renew(alice, token.hmac) == (EXPIRED, 0)
    settle(alice, token, None)  # by the next check


# --- logging in ---------------------------------------------------------------------------------


def log_in_by(client: Connection, token: Any, mechanism: str = "SCRAM-SHA-512", secret: bytes | None = None) -> Any:
    """The last answer of the exchange."""
    assert handshake(client, mechanism).error_code == 0
    password = base64.b64encode(token.hmac if secret is None else secret).decode()
    exchange = authenticate_by_scram(HASHES[mechanism], token.token_id, password, is_token=True)
    answer = authenticate(client, next(exchange))
    if answer.error_code:
        return answer
    return authenticate(client, exchange.send(answer.auth_bytes))


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_client_that_logs_in_with_a_token_has_the_principal_of_its_owner(
    address: str, alice: Connection, bob: Connection, mechanism: str
) -> None:
    for client, owner_may in ((alice, True), (bob, False)):
        token = made(client)
        with Connection(address) as session:
            answer = log_in_by(session, token, mechanism)
            assert (answer.error_code, answer.error_message) == (0, "")
            assert EXPIRY_MS - 60_000 < answer.session_lifetime_ms <= EXPIRY_MS
            assert is_served(session)
            assert may_describe_cluster(session) is owner_may


def test_a_client_with_a_token_cannot_create_tokens(address: str, alice: Connection) -> None:
    token = made(alice)
    with Connection(address) as session:
        assert log_in_by(session, token).error_code == 0
        answer = asked(session)
        assert (answer.error_code, answer.principal_name, answer.issue_timestamp_ms) == (NOT_ALLOWED, "alice", -1)
        assert [change(session, token.hmac) for change in (renew, expire)] == [(NOT_ALLOWED, -1)] * 2
        listed = session.ask(DescribeDelegationTokenRequest(owners=None), 3)
        assert (listed.error_code, listed.tokens) == (NOT_ALLOWED, [])


def test_a_wrong_token_secret_is_rejected(address: str, alice: Connection) -> None:
    token = made(alice)
    with Connection(address) as session:
        answer = log_in_by(session, token, secret=bytes(64))
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            f"{INVALID} SCRAM-SHA-512",
        )
        assert session.is_closed()


def test_a_removed_token_is_rejected(address: str, alice: Connection) -> None:
    token = made(alice)
    assert expire(alice, token.hmac)[0] == 0
    settle(alice, token, None)
    with Connection(address) as session:
        answer = log_in_by(session, token)
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            f"{INVALID} SCRAM-SHA-512",
        )


def test_a_session_ends_when_its_token_expires(address: str, alice: Connection) -> None:
    token = made(alice, lifetime_ms=1900)
    with Connection(address) as session, Connection(address) as other:
        lifetime_ms = log_in_by(session, token).session_lifetime_ms
        assert 0 < lifetime_ms <= 1900
        assert log_in_by(other, token).error_code == 0
        time.sleep(1.1)  # nobody authenticates anew within a second
        answer = log_in_by(other, token)
        assert (answer.error_code, answer.session_lifetime_ms < lifetime_ms) == (0, True)
        time.sleep(lifetime_ms / 1000)
        assert not is_served(session)
        assert not is_served(other)


def test_a_session_with_an_expired_token_is_closed(address: str, alice: Connection) -> None:
    """Until it is removed, one may log in with it."""
    await_check(alice)
    token = made(alice)
    settle(alice, token, expire(alice, token.hmac, 0)[1])
    with Connection(address) as session:
        answer = log_in_by(session, token)
        assert (answer.error_code, answer.session_lifetime_ms) in [(0, 0), (ErrorCode.SASL_AUTHENTICATION_FAILED, 0)]
        assert not is_served(session)
