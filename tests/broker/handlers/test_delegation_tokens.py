"""Delegation tokens: who may ask for them, and what the broker answers. `conformance/wire` has the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.handlers.delegation_tokens import MAX_RENEWERS
from minibroker.broker.security.operations import CREATE_TOKENS, DESCRIBE_TOKEN, DESCRIBE_TOKENS
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from tests.broker.harness import Harness, served_versions

KEY = {"delegation.token.secret.key": "a key"}
GUARDED = {
    **KEY,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
DAY_MS = 86_400_000
NOT_ALLOWED, DISABLED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
DENIED = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
Renewer = CreateDelegationTokenRequest.CreatableRenewers


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[Harness]:
    """A cluster with tokens and ACLs."""
    with Harness(tmp_path, settings=GUARDED) as harness:
        yield harness


def create(harness: Harness, user: str, owner: str | None = None, *renewers: str, version: int = 3) -> Any:
    named = [Renewer(principal_type="User", principal_name=name) for name in renewers]
    request = CreateDelegationTokenRequest(renewers=named, max_lifetime_ms=-1)
    if owner is not None:
        request.owner_principal_type, request.owner_principal_name = "User", owner
    return harness.request(request, version, user=user)


def changes(harness: Harness, user: str, hmac: bytes) -> list[Any]:
    """The answers to a renewal and to an expiry of one second."""
    return [
        harness.request(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=-1), user=user),
        harness.request(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=1000), user=user),
    ]


def described(harness: Harness, user: str, version: int = 3) -> Any:
    return harness.request(DescribeDelegationTokenRequest(owners=None), version, user=user)


def ids(harness: Harness, user: str) -> list[str]:
    return [token.token_id for token in described(harness, user).tokens]


@pytest.mark.parametrize("version", served_versions(CreateDelegationTokenRequest))
def test_unauthenticated_clients_get_no_tokens(harness: Harness, version: int) -> None:
    answer = create(harness, "ANONYMOUS", version=version)
    assert (answer.error_code, answer.token_id, answer.hmac, answer.max_timestamp_ms) == (NOT_ALLOWED, "", b"", -1)
    assert (answer.principal_type, answer.principal_name) == ("User", "ANONYMOUS")
    assert create(harness, "ANONYMOUS", "bob").principal_name == "bob"
    renewed, expired = changes(harness, "ANONYMOUS", b"x")
    listed = described(harness, "ANONYMOUS", version)
    assert [one.error_code for one in (renewed, expired, listed)] == [NOT_ALLOWED] * 3
    assert (renewed.expiry_timestamp_ms, expired.expiry_timestamp_ms, listed.tokens) == (-1, -1, [])


def test_delegation_tokens_require_a_secret_key(harness: Harness) -> None:
    answer = create(harness, "alice")
    assert (answer.error_code, answer.principal_name, answer.hmac, answer.max_timestamp_ms) == (
        DISABLED,
        "alice",
        b"",
        0,
    )
    renewed, expired = changes(harness, "alice", b"x")
    assert [one.error_code for one in (renewed, expired, described(harness, "alice"))] == [DISABLED] * 3
    assert (renewed.expiry_timestamp_ms, expired.expiry_timestamp_ms) == (0, 0)


def test_delegation_tokens_are_rejected_at_the_metadata_version_of_kafka_3_5(tmp_path: Path) -> None:
    with Harness(tmp_path, settings=KEY) as harness:
        harness.cluster.image.features["metadata.version"] = 13
        answers = [create(harness, "alice"), *changes(harness, "alice", b"x")]
        assert [one.error_code for one in answers] == [ErrorCode.UNSUPPORTED_VERSION] * 3
        assert described(harness, "alice").error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", served_versions(CreateDelegationTokenRequest))
def test_a_token_is_described_as_it_was_created(tokens: Harness, version: int) -> None:
    now_ms = tokens.clock.wall_ms()
    made = create(tokens, "alice", None, "bob", version=version)
    assert (made.error_code, made.issue_timestamp_ms) == (ErrorCode.NONE, now_ms)
    assert (made.expiry_timestamp_ms, made.max_timestamp_ms) == (now_ms + DAY_MS, now_ms + 7 * DAY_MS)
    (seen,) = described(tokens, "alice", version).tokens
    assert (seen.token_id, seen.hmac, seen.principal_name) == (made.token_id, made.hmac, "alice")
    assert (seen.issue_timestamp, seen.expiry_timestamp) == (now_ms, now_ms + DAY_MS)
    assert [(one.principal_type, one.principal_name) for one in seen.renewers] == [("User", "bob")]


def test_a_token_for_another_owner_requires_permission(tokens: Harness) -> None:
    refused = create(tokens, "alice", "bob")
    assert (refused.error_code, refused.principal_name, refused.hmac) == (DENIED, "bob", b"")
    assert refused.token_requester_principal_name == "alice"
    tokens.add_acl(CREATE_TOKENS, "User:bob")
    made = create(tokens, "alice", "bob")
    assert (made.error_code, made.principal_name) == (ErrorCode.NONE, "bob")
    assert create(tokens, "alice", "carol").error_code == DENIED
    assert ids(tokens, "bob") == ids(tokens, "alice") == [made.token_id]


def test_tokens_of_others_are_visible_with_permission(tokens: Harness) -> None:
    first, second = create(tokens, "bob").token_id, create(tokens, "bob").token_id
    assert ids(tokens, "alice") == []
    tokens.add_acl(DESCRIBE_TOKEN, second)
    assert ids(tokens, "alice") == [second]
    tokens.add_acl(DESCRIBE_TOKENS, "User:bob")
    assert ids(tokens, "alice") == [first, second]


def test_a_token_survives_a_crash(tokens: Harness) -> None:
    made, gone = create(tokens, "alice"), create(tokens, "alice")
    tokens.request(ExpireDelegationTokenRequest(hmac=gone.hmac, expiry_time_period_ms=-1), user="alice")
    tokens.restart(crash=True)
    (seen,) = described(tokens, "alice").tokens
    assert (seen.token_id, seen.hmac, seen.expiry_timestamp) == (made.token_id, made.hmac, made.expiry_timestamp_ms)
    assert [one.error_code for one in changes(tokens, "alice", made.hmac)] == [ErrorCode.NONE] * 2
    not_found = [ErrorCode.DELEGATION_TOKEN_NOT_FOUND] * 2
    assert [one.error_code for one in changes(tokens, "alice", gone.hmac)] == not_found


def test_another_secret_key_changes_the_token_secrets(tokens: Harness) -> None:
    made = create(tokens, "alice")
    tokens.restart(settings={"delegation.token.secret.key": "another key"})
    (seen,) = described(tokens, "alice").tokens
    assert seen.token_id == made.token_id and seen.hmac != made.hmac
    not_found = [ErrorCode.DELEGATION_TOKEN_NOT_FOUND] * 2
    assert [one.error_code for one in changes(tokens, "alice", made.hmac)] == not_found


def test_the_number_of_token_renewers_is_limited(tokens: Harness) -> None:
    assert create(tokens, "alice", None, *["bob"] * MAX_RENEWERS).error_code == ErrorCode.NONE
    assert create(tokens, "alice", None, *["bob"] * (MAX_RENEWERS + 1)).error_code == ErrorCode.INVALID_REQUEST
