"""The life of a delegation token: issued, renewed, expired, removed; and who may do that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.control import token_changes
from minibroker.broker.security.principals import Principal
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata_records import DelegationTokenRecord
from tests.broker.harness import Harness

ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
LONGEST_MS, RENEWAL_MS = 1000, 300
SETTINGS = {
    "delegation.token.secret.key": "a key",
    "delegation.token.max.lifetime.ms": str(LONGEST_MS),
    "delegation.token.expiry.time.ms": str(RENEWAL_MS),
}
LONG_MAX = (1 << 63) - 1
NOT_FOUND, EXPIRED = ErrorCode.DELEGATION_TOKEN_NOT_FOUND, ErrorCode.DELEGATION_TOKEN_EXPIRED
MISMATCH = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
CHANGES = token_changes.renew_token, token_changes.expire_token


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with Harness(tmp_path, settings=SETTINGS) as opened:
        yield opened


def issue(harness: Harness, lifetime_ms: int = -1, **more: Any) -> tuple[DelegationTokenRecord, bytes]:
    """A token of alice that bob has asked for and carol may renew; and its secret."""
    who = {"owner": ALICE, "requester": BOB, "renewers": [CAROL], **more}
    record = token_changes.issue_token(harness.cluster, lifetime_ms=lifetime_ms, **who)
    return record, harness.cluster.image.tokens.compute_token_secret(record.token_id)


def refusal(change: Callable[..., int], *arguments: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        change(*arguments)
    return refused.value.code


@pytest.mark.parametrize(
    ("asked_ms", "expires_ms", "ends_ms"),
    [(-1, RENEWAL_MS, LONGEST_MS), (0, RENEWAL_MS, LONGEST_MS), (20, 20, 20), (LONG_MAX, RENEWAL_MS, LONGEST_MS)],
)
def test_a_tokens_lifetime_is_the_requested_one_up_to_the_maximum(
    harness: Harness, asked_ms: int, expires_ms: int, ends_ms: int
) -> None:
    now_ms = harness.clock.wall_ms()
    record, _ = issue(harness, asked_ms)
    times = record.issue_timestamp, record.expiration_timestamp, record.max_timestamp
    assert times == (now_ms, now_ms + expires_ms, now_ms + ends_ms)
    assert (record.owner, record.requester, record.renewers) == ("User:alice", "User:bob", ["User:carol"])
    assert harness.cluster.image.tokens.by_id == {record.token_id: record}


def test_only_users_can_be_renewers_of_a_token(harness: Harness) -> None:
    assert refusal(lambda: issue(harness, renewers=[Principal("Group", "a")])[0].max_timestamp) == (
        ErrorCode.INVALID_PRINCIPAL_TYPE
    )


def test_an_unlimited_token_lifetime_does_not_overflow(harness: Harness) -> None:
    names = "delegation.token.max.lifetime.ms", "delegation.token.expiry.time.ms"
    harness.restart(settings=dict.fromkeys(names, str(LONG_MAX)))
    record, secret = issue(harness)
    assert (record.expiration_timestamp, record.max_timestamp) == (LONG_MAX, LONG_MAX)
    assert token_changes.expire_token(harness.cluster, secret, ALICE, LONG_MAX) == LONG_MAX


def test_a_token_can_be_renewed_up_to_its_maximum_lifetime(harness: Harness) -> None:
    record, secret = issue(harness)
    for later_ms, period_ms, expires_ms in ((0, 50, 50), (40, -1, 340), (300, 1 << 40, 640), (300, 0, 940)):
        harness.clock.advance(later_ms)
        assert (
            token_changes.renew_token(harness.cluster, secret, CAROL, period_ms) - record.issue_timestamp == expires_ms
        )
    harness.clock.advance(300)
    assert token_changes.renew_token(harness.cluster, secret, ALICE, -1) == record.max_timestamp
    harness.clock.advance(61)
    assert [refusal(change, harness.cluster, secret, ALICE, 1) for change in CHANGES] == [EXPIRED] * 2


def test_a_token_can_be_expired_now_or_later(harness: Harness) -> None:
    record, secret = issue(harness)
    assert token_changes.expire_token(harness.cluster, secret, ALICE, 700) - record.issue_timestamp == 700
    assert token_changes.expire_token(harness.cluster, secret, CAROL, 0) == record.issue_timestamp
    harness.clock.advance(1)
    assert [refusal(change, harness.cluster, secret, ALICE, 1) for change in CHANGES] == [EXPIRED] * 2
    assert token_changes.expire_token(harness.cluster, secret, ALICE, -5) == harness.clock.wall_ms()
    assert [refusal(change, harness.cluster, secret, ALICE, 1) for change in CHANGES] == [NOT_FOUND] * 2
    assert harness.cluster.image.tokens.by_id == {}


def test_only_owners_and_renewers_can_change_a_token(harness: Harness) -> None:
    record, secret = issue(harness)
    assert [refusal(change, harness.cluster, secret, BOB, -1) for change in CHANGES] == [MISMATCH] * 2
    harness.clock.advance(RENEWAL_MS + 1)
    # Of a token that has expired, Kafka's answers differ.
    assert [refusal(change, harness.cluster, secret, BOB, 1) for change in CHANGES] == [EXPIRED, MISMATCH]
    assert harness.cluster.image.tokens.by_id == {record.token_id: record}


def test_only_expired_tokens_are_removed(harness: Harness) -> None:
    (record, _), (renewed, secret) = issue(harness), issue(harness)
    token_changes.expire_token(harness.cluster, secret, ALICE, RENEWAL_MS + 1)
    harness.clock.advance(RENEWAL_MS + 1)
    for token_id in (record.token_id, renewed.token_id, record.token_id):
        token_changes.remove_token_if_expired(harness.cluster, token_id)
    assert list(harness.cluster.image.tokens.by_id) == [renewed.token_id]
