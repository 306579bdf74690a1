"""Creates, renews and expires delegation tokens, with the rules for rights and times.

`security/delegation` keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from minibroker.broker.metadata.features import LOWEST_METADATA_VERSION, METADATA_VERSION
from minibroker.broker.security.delegation import is_token_expired
from minibroker.broker.security.principals import USER, Principal
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from minibroker.protocol.primitives import format_uuid

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster

FIRST_LEVEL: Final = 14  # of metadata.version with tokens, 3.6-IV2
LONG_MAX: Final = (1 << 63) - 1


def issue_token(
    cluster: Cluster, owner: Principal, requester: Principal, renewers: Sequence[Principal], lifetime_ms: int
) -> DelegationTokenRecord:
    """Create a token with a lifetime of at most `lifetime_ms`, or of the maximum if that is not positive.

    Raises KafkaError(DELEGATION_TOKEN_AUTH_DISABLED or INVALID_PRINCIPAL_TYPE).
    """
    _check_tokens_enabled(cluster)
    if any(renewer.type != USER for renewer in renewers):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    now_ms = cluster.clock.wall_ms()
    max_timestamp = _compute_expiry_ms(now_ms, lifetime_ms, cluster.settings["delegation.token.max.lifetime.ms"])
    record = DelegationTokenRecord(
        owner=str(owner),
        requester=str(requester),
        renewers=[str(renewer) for renewer in renewers],
        issue_timestamp=now_ms,
        max_timestamp=max_timestamp,
        expiration_timestamp=min(
            max_timestamp, _compute_expiry_ms(now_ms, 0, cluster.settings["delegation.token.expiry.time.ms"])
        ),
        token_id=format_uuid(cluster.make_uuid()),
    )
    cluster.commit_metadata_records([record])
    return record


def renew_token(cluster: Cluster, secret: bytes, renewer: Principal, period_ms: int) -> int:
    """Set the token's expiry to `period_ms` from now, or the latest time if that is not positive; return it.

    It is in ms since 1970. Raises KafkaError with a code of DELEGATION_TOKEN: AUTH_DISABLED, NOT_FOUND,
    EXPIRED, OWNER_MISMATCH, in this order.
    """
    record, now_ms = _find_token(cluster, secret), cluster.clock.wall_ms()
    _check_not_expired(record, now_ms)
    _check_may_renew(record, renewer)
    return _set_token_expiry(
        cluster, record, _compute_expiry_ms(now_ms, period_ms, cluster.settings["delegation.token.expiry.time.ms"])
    )


def expire_token(cluster: Cluster, secret: bytes, renewer: Principal, period_ms: int) -> int:
    """Set the token's expiry to `period_ms` from now, or remove the token if that is negative; return the expiry.

    It is in ms since 1970. Raises KafkaError with a code of DELEGATION_TOKEN: AUTH_DISABLED, NOT_FOUND,
    OWNER_MISMATCH, EXPIRED, in this order.
    """
    record, now_ms = _find_token(cluster, secret), cluster.clock.wall_ms()
    _check_may_renew(record, renewer)
    if period_ms < 0:
        cluster.commit_metadata_records([RemoveDelegationTokenRecord(token_id=record.token_id)])
        return now_ms
    _check_not_expired(record, now_ms)
    return _set_token_expiry(cluster, record, _add_without_overflow(now_ms, period_ms))


def remove_token_if_expired(cluster: Cluster, token_id: str) -> None:
    """Remove a token if it has expired. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
    record = cluster.image.tokens.by_id.get(token_id)
    if record is not None and is_token_expired(record, cluster.clock.wall_ms()):
        cluster.commit_metadata_records([RemoveDelegationTokenRecord(token_id=token_id)])


def _check_tokens_enabled(cluster: Cluster) -> None:
    """Raise KafkaError(DELEGATION_TOKEN_AUTH_DISABLED) without a secret key, (UNSUPPORTED_VERSION) for old metadata."""
    if not cluster.image.tokens.are_enabled:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if cluster.image.features.get(METADATA_VERSION, LOWEST_METADATA_VERSION) < FIRST_LEVEL:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _find_token(cluster: Cluster, secret: bytes) -> DelegationTokenRecord:
    _check_tokens_enabled(cluster)
    record = cluster.image.tokens.find_token_by_secret(secret)
    if record is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return record


def _check_not_expired(record: DelegationTokenRecord, now_ms: int) -> None:
    if is_token_expired(record, now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _check_may_renew(record: DelegationTokenRecord, renewer: Principal) -> None:
    if str(renewer) not in (record.owner, *record.renewers):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _compute_expiry_ms(now_ms: int, requested_ms: int, max_lifetime_ms: int) -> int:
    """Return the time that is `requested_ms` from now, or `max_lifetime_ms` if that is less or nothing is requested."""
    return _add_without_overflow(now_ms, min(requested_ms, max_lifetime_ms) if requested_ms > 0 else max_lifetime_ms)


def _add_without_overflow(now_ms: int, period_ms: int) -> int:
    """Return the sum, or the largest int64 if that is less."""
    return min(LONG_MAX, now_ms + period_ms)


def _set_token_expiry(cluster: Cluster, record: DelegationTokenRecord, expiry_ms: int) -> int:
    """Record the new expiry, at most the token's maximum; return it in ms since 1970."""
    changed = DelegationTokenRecord(
        owner=record.owner,
        requester=record.requester,
        renewers=record.renewers,
        issue_timestamp=record.issue_timestamp,
        max_timestamp=record.max_timestamp,
        expiration_timestamp=min(record.max_timestamp, expiry_ms),
        token_id=record.token_id,
    )
    cluster.commit_metadata_records([changed])
    return changed.expiration_timestamp
