"""Delegation tokens as a fold: what follows from the records and the secret key."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import pytest

from minibroker.broker.security.delegation import (
    DelegationTokens,
    encode_token_secret,
    is_owner_or_renewer,
    is_token_expired,
    parse_principal,
)
from minibroker.broker.security.scram import ScramMechanism, make_scram_credential, salt_password
from minibroker.protocol.messages.metadata_records import DelegationTokenRecord

KEY = "a key: ä"


def record(token_id: str = "id", **more: Any) -> DelegationTokenRecord:
    fields = {"owner": "User:alice", "requester": "User:bob", "renewers": ["User:carol"], "issue_timestamp": 1}
    times = {"max_timestamp": 100, "expiration_timestamp": 10}
    return DelegationTokenRecord(token_id=token_id, **{**fields, **times, **more})


def test_a_token_secret_is_computed_as_in_kafka() -> None:
    tokens = DelegationTokens(KEY)
    expected = hmac.new(KEY.encode(), b"id", hashlib.sha512).digest()
    assert tokens.compute_token_secret("id") == expected
    assert encode_token_secret(expected) == base64.b64encode(expected).decode()


def test_a_token_is_found_by_its_secret_until_it_is_removed() -> None:
    tokens = DelegationTokens(KEY)
    tokens.add_token(record("a"))
    tokens.add_token(record("b"))
    tokens.add_token(record("a", expiration_timestamp=20))
    found = tokens.find_token_by_secret(tokens.compute_token_secret("a"))
    assert found is not None and (found.token_id, found.expiration_timestamp) == ("a", 20)
    tokens.remove_token("a")
    tokens.remove_token("a")
    assert tokens.find_token_by_secret(tokens.compute_token_secret("a")) is None
    assert (
        tokens.find_token_by_secret(b"") is tokens.find_token_by_secret(tokens.compute_token_secret("b")[:-1]) is None
    )
    assert list(tokens.by_id) == ["b"]


@pytest.mark.parametrize("key", [None, ""])
def test_no_token_is_accepted_without_a_secret_key(key: str | None) -> None:
    tokens = DelegationTokens(key)
    tokens.add_token(record())
    assert not tokens.are_enabled
    assert tokens.find_token_login("id", ScramMechanism.SCRAM_SHA_512) is None
    assert tokens.find_token_by_secret(DelegationTokens(KEY).compute_token_secret("id")) is None
    tokens.remove_token("id")
    assert tokens.by_id == {}


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_token_login_uses_a_scram_credential_derived_from_the_token_secret(mechanism: ScramMechanism) -> None:
    tokens = DelegationTokens(KEY)
    assert tokens.find_token_login("id", mechanism) is None
    tokens.add_token(record())
    login = tokens.find_token_login("id", mechanism)
    assert login is not None and (login.owner, login.expires_ms) == ("alice", 10)
    salt = login.credential.salt
    salted = salt_password(mechanism, encode_token_secret(tokens.compute_token_secret("id")), salt, 4096)
    assert login.credential == make_scram_credential("id", mechanism, salt, 4096, salted)
    tokens.add_token(record(expiration_timestamp=20))
    again = tokens.find_token_login("id", mechanism)
    assert again is not None and (again.credential, again.expires_ms) == (login.credential, 20)
    tokens.remove_token("id")
    assert tokens.find_token_login("id", mechanism) is None


@pytest.mark.parametrize(
    ("times", "now_ms", "expected"), [((10, 100), 10, False), ((10, 100), 11, True), ((100, 10), 11, True)]
)
def test_a_token_is_valid_until_it_expires(times: tuple[int, int], now_ms: int, expected: bool) -> None:
    assert is_token_expired(record(expiration_timestamp=times[0], max_timestamp=times[1]), now_ms) is expected


@pytest.mark.parametrize(
    ("name", "expected"), [("User:alice", True), ("User:bob", True), ("User:carol", True), ("User:dave", False)]
)
def test_a_token_is_visible_to_its_owner_requester_and_renewers(name: str, expected: bool) -> None:
    assert is_owner_or_renewer(record(), frozenset({name, "User:eve"})) is expected


def test_a_principal_may_have_colons_in_its_name() -> None:
    assert parse_principal("User:a:b") == ("User", "a:b")
