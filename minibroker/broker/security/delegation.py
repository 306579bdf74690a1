"""Delegation tokens: with their secrets, clients authenticate as a user for a limited time (KIP-48).

    token id    random, in the metadata log, with the owner, the renewers and the times
    secret      HMAC-SHA-512 of the id under `delegation.token.secret.key`; it is not stored
    password    the secret in base64; a client logs in by SCRAM with the id as its name, and is then the owner

    issued ----- renewed, by the owner or a renewer ----- expiry ----- max timestamp
                 now + delegation.token.expiry.time.ms, at most ------------^

An expired token cannot be used, and is removed later. `control/token_changes.py` has the rules.
"""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Final

from minibroker.broker.security.principals import Principal
from minibroker.protocol.messages.metadata_records import DelegationTokenRecord, UserScramCredentialRecord

if TYPE_CHECKING:
    from minibroker.broker.security.scram import ScramMechanism, TokenLogin

SECRET_KEY: Final = "delegation.token.secret.key"
_KEY: Final = os.urandom(32)  # of this process, so that the time of a look-up tells a client nothing about secrets


class DelegationTokens:
    """The tokens, a fold over the records of the metadata log. Without a secret key it has only the records."""

    def __init__(self, secret_key: str | None) -> None:
        self.by_id: dict[str, DelegationTokenRecord] = {}
        self._secret_key = (secret_key or "").encode()
        self._ids: dict[bytes, str] = {}  # by a digest of the token's secret
        self._credentials: dict[str, dict[ScramMechanism, UserScramCredentialRecord]] = {}

    @property
    def are_enabled(self) -> bool:
        """Return whether there is a secret key."""
        return bool(self._secret_key)

    def add_token(self, record: DelegationTokenRecord) -> None:
        """Add or replace a token."""
        if self.are_enabled and record.token_id not in self.by_id:
            self._ids[_hash_secret(self.compute_token_secret(record.token_id))] = record.token_id
        self.by_id[record.token_id] = record

    def remove_token(self, token_id: str) -> None:
        """Remove a token if it exists."""
        if self.by_id.pop(token_id, None) is not None and self.are_enabled:
            del self._ids[_hash_secret(self.compute_token_secret(token_id))]
            self._credentials.pop(token_id, None)

    def compute_token_secret(self, token_id: str) -> bytes:
        """Return the HMAC of a token."""
        return _compute_hmac(self._secret_key, token_id.encode(), "sha512")

    def find_token_by_secret(self, secret: bytes) -> DelegationTokenRecord | None:
        """Return the token with this HMAC, or None."""
        token_id = self._ids.get(_hash_secret(secret))
        return None if token_id is None else self.by_id[token_id]

    def find_token_login(self, token_id: str, mechanism: ScramMechanism) -> TokenLogin | None:
        """Return what SCRAM needs to authenticate by a token, or None if the id is unknown.

        As in Kafka, an expired token is found until it is removed; the session then ends when it begins.
        """
        from minibroker.broker.security.scram import TokenLogin  # imported by now

        record = self.by_id.get(token_id)
        if record is None or not self.are_enabled:
            return None
        credentials = self._credentials.setdefault(token_id, {})
        if mechanism not in credentials:
            credentials[mechanism] = _make_scram_credential_of_token(
                token_id, mechanism, encode_token_secret(self.compute_token_secret(token_id))
            )
        return TokenLogin(credentials[mechanism], parse_principal(record.owner).name, record.expiration_timestamp)


def _make_scram_credential_of_token(
    token_id: str, mechanism: ScramMechanism, password: str
) -> UserScramCredentialRecord:
    """Return the credential of a token. This takes some ms."""
    from minibroker.broker.security.scram import (  # imported by now
        MIN_ITERATIONS,
        SALT_BYTES,
        make_scram_credential,
        salt_password,
    )

    salt = os.urandom(SALT_BYTES)
    salted = salt_password(mechanism, password, salt, MIN_ITERATIONS)
    return make_scram_credential(token_id, mechanism, salt, MIN_ITERATIONS, salted)


def _compute_hmac(key: bytes, data: bytes, hash_name: str) -> bytes:
    import hmac  # imported late: it takes some ms

    return hmac.digest(key, data, hash_name)


def _hash_secret(secret: bytes) -> bytes:
    """Return a hash of the secret that nobody else can compute, so that the time of a look-up tells nothing."""
    return _compute_hmac(_KEY, secret, "sha256")


def encode_token_secret(secret: bytes) -> str:
    """Return the secret of a token as a password."""
    return base64.b64encode(secret).decode()


def parse_principal(principal: str) -> Principal:
    """Return the principal of a text in a record."""
    kind, _, name = principal.partition(":")
    return Principal(kind, name)


def is_token_expired(record: DelegationTokenRecord, now_ms: int) -> bool:
    """Return whether a token has expired."""
    return min(record.max_timestamp, record.expiration_timestamp) < now_ms


def is_owner_or_renewer(record: DelegationTokenRecord, principals: frozenset[str]) -> bool:
    """Return whether one of the principals is a token's owner, requester or renewer."""
    return not principals.isdisjoint((record.owner, record.requester, *record.renewers))
