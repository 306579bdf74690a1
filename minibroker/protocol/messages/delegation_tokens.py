"""Delegation tokens: secrets that authenticate a principal for a limited time (KIP-48)."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, int16, int32, int64


class CreateDelegationTokenRequest(Message, api_key=38, versions="0-3", flexible="2+"):
    """Asks for a token for the own principal or, from version 3 on, for another owner."""

    owner_principal_type: str | None = field("3+")
    owner_principal_name: str | None = field("3+")
    renewers: list[CreatableRenewers] = field()
    max_lifetime_ms: int64 = field()

    class CreatableRenewers(Struct):
        principal_type: str = field()
        principal_name: str = field()


class CreateDelegationTokenResponse(Message, api_key=38, versions="0-3", flexible="2+"):
    """Answers with the token id, its HMAC and its times."""

    error_code: int16 = field()
    principal_type: str = field()
    principal_name: str = field()
    token_requester_principal_type: str = field("3+")
    token_requester_principal_name: str = field("3+")
    issue_timestamp_ms: int64 = field()
    expiry_timestamp_ms: int64 = field()
    max_timestamp_ms: int64 = field()
    token_id: str = field()
    hmac: bytes = field()
    throttle_time_ms: int32 = field()


class RenewDelegationTokenRequest(Message, api_key=39, versions="0-2", flexible="2+"):
    """Asks to extend the lifetime of a token."""

    hmac: bytes = field()
    renew_period_ms: int64 = field()


class RenewDelegationTokenResponse(Message, api_key=39, versions="0-2", flexible="2+"):
    """Says when it expires now."""

    error_code: int16 = field()
    expiry_timestamp_ms: int64 = field()
    throttle_time_ms: int32 = field()


class ExpireDelegationTokenRequest(Message, api_key=40, versions="0-2", flexible="2+"):
    """Asks to expire a token earlier, or at once."""

    hmac: bytes = field()
    expiry_time_period_ms: int64 = field()


class ExpireDelegationTokenResponse(Message, api_key=40, versions="0-2", flexible="2+"):
    """Says when it expires now."""

    error_code: int16 = field()
    expiry_timestamp_ms: int64 = field()
    throttle_time_ms: int32 = field()


class DescribeDelegationTokenRequest(Message, api_key=41, versions="0-3", flexible="2+"):
    """Asks for the tokens of some owners; null: of all."""

    owners: list[DescribeDelegationTokenOwner] | None = field()

    class DescribeDelegationTokenOwner(Struct):
        principal_type: str = field()
        principal_name: str = field()


class DescribeDelegationTokenResponse(Message, api_key=41, versions="0-3", flexible="2+"):
    """Lists the tokens."""

    error_code: int16 = field()
    tokens: list[DescribedDelegationToken] = field()
    throttle_time_ms: int32 = field()

    class DescribedDelegationToken(Struct):
        principal_type: str = field()
        principal_name: str = field()
        token_requester_principal_type: str = field("3+")
        token_requester_principal_name: str = field("3+")
        issue_timestamp: int64 = field()
        expiry_timestamp: int64 = field()
        max_timestamp: int64 = field()
        token_id: str = field()
        hmac: bytes = field()
        renewers: list[DescribedDelegationTokenRenewer] = field()

        class DescribedDelegationTokenRenewer(Struct):
            principal_type: str = field()
            principal_name: str = field()
