"""Delegation tokens: secrets that authenticate a principal for a limited time (KIP-48)."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, int16, int32, int64


class CreateDelegationTokenRequest(
    Message, api_key=38, versions="0-3", flexible="2+", kips={0: 48, 1: 219, 2: 482, 3: 373}
):
    """Asks for a token for the own principal or, from version 3 on, for another owner."""

    owner_principal_type: str | None = field(
        "3+", about='The kind of principal the token should stand for, such as "User"; null for the client itself.'
    )
    owner_principal_name: str | None = field(
        "3+", about="The user the token should stand for; null for the client itself."
    )
    renewers: list[CreatableRenewers] = field(about="Who else may renew the token, besides its owner.")
    max_lifetime_ms: int64 = field(
        about="How long the token may live in all, however often it is renewed; -1 for the broker's limit."
    )

    class CreatableRenewers(Struct):
        principal_type: str = field(about='The kind of principal, such as "User".')
        principal_name: str = field(about="Who may renew the token.")


class CreateDelegationTokenResponse(
    Message, api_key=38, versions="0-3", flexible="2+", kips={0: 48, 1: 219, 2: 482, 3: 373}
):
    """Answers with the token id, its HMAC and its times."""

    error_code: int16 = field()
    principal_type: str = field(about='The kind of principal the token stands for, such as "User".')
    principal_name: str = field(about="The user the token stands for.")
    token_requester_principal_type: str = field("3+", about="The kind of principal that has asked for the token.")
    token_requester_principal_name: str = field("3+", about="Who has asked for the token.")
    issue_timestamp_ms: int64 = field(about="When the token was made.")
    expiry_timestamp_ms: int64 = field(about="When the token ends unless it is renewed.")
    max_timestamp_ms: int64 = field(about="When the token ends even if it is renewed.")
    token_id: str = field(about="What the token is called, and the user name to log in by it.")
    hmac: bytes = field(
        about="The secret: its base64 is the password to log in by, and it names the token in later requests."
    )
    throttle_time_ms: int32 = field()


class RenewDelegationTokenRequest(Message, api_key=39, versions="0-2", flexible="2+", kips={0: 48, 1: 219, 2: 482}):
    """Asks to extend the lifetime of a token."""

    hmac: bytes = field(about="The token to renew, by its secret.")
    renew_period_ms: int64 = field(about="How long it should live from now on; -1 for the broker's default.")


class RenewDelegationTokenResponse(Message, api_key=39, versions="0-2", flexible="2+", kips={0: 48, 1: 219, 2: 482}):
    """Says when it expires now."""

    error_code: int16 = field()
    expiry_timestamp_ms: int64 = field(about="When the token ends now.")
    throttle_time_ms: int32 = field()


class ExpireDelegationTokenRequest(Message, api_key=40, versions="0-2", flexible="2+", kips={0: 48, 1: 219, 2: 482}):
    """Asks to expire a token earlier, or at once."""

    hmac: bytes = field(about="The token to end, by its secret.")
    expiry_time_period_ms: int64 = field(about="How long it should live from now on; a negative value ends it at once.")


class ExpireDelegationTokenResponse(Message, api_key=40, versions="0-2", flexible="2+", kips={0: 48, 1: 219, 2: 482}):
    """Says when it expires now."""

    error_code: int16 = field()
    expiry_timestamp_ms: int64 = field(about="When the token ends now.")
    throttle_time_ms: int32 = field()


class DescribeDelegationTokenRequest(
    Message, api_key=41, versions="0-3", flexible="2+", kips={0: 48, 1: 219, 2: 482, 3: 373}
):
    """Asks for the tokens of some owners; null: of all."""

    owners: list[DescribeDelegationTokenOwner] | None = field(
        about="Whose tokens to describe; null for all that the client may see."
    )

    class DescribeDelegationTokenOwner(Struct):
        principal_type: str = field(about='The kind of principal, such as "User".')
        principal_name: str = field(about="Whose tokens to describe.")


class DescribeDelegationTokenResponse(
    Message, api_key=41, versions="0-3", flexible="2+", kips={0: 48, 1: 219, 2: 482, 3: 373}
):
    """Lists the tokens."""

    error_code: int16 = field()
    tokens: list[DescribedDelegationToken] = field(
        about="The tokens that the client may see: its own, and those it has rights for."
    )
    throttle_time_ms: int32 = field()

    class DescribedDelegationToken(Struct):
        principal_type: str = field(about='The kind of principal the token stands for, such as "User".')
        principal_name: str = field(about="The user the token stands for.")
        token_requester_principal_type: str = field("3+", about="The kind of principal that has asked for the token.")
        token_requester_principal_name: str = field("3+", about="Who has asked for the token.")
        issue_timestamp: int64 = field(about="When the token was made.")
        expiry_timestamp: int64 = field(about="When the token ends unless it is renewed.")
        max_timestamp: int64 = field(about="When the token ends even if it is renewed.")
        token_id: str = field(about="What the token is called, and the user name to log in by it.")
        hmac: bytes = field(
            about="The secret: its base64 is the password to log in by, and it names the token in requests."
        )
        renewers: list[DescribedDelegationTokenRenewer] = field(
            about="Who else may renew the token, besides its owner."
        )

        class DescribedDelegationTokenRenewer(Struct):
            principal_type: str = field(about='The kind of principal, such as "User".')
            principal_name: str = field(about="Who may renew the token.")
