"""CreateDelegationToken, Renew-, Expire- and DescribeDelegationToken: not for connections like these (KIP-48).

Behaviour: only who has authenticated, and by something else than a token, may ask for tokens. No listener authenticates
here, so all are answered with DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as on a PLAINTEXT listener of Kafka's.

Versions: 2 brought flexible fields, 3 tokens for others than oneself.

Not implemented: tokens.
"""

from __future__ import annotations

from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
NO_TIME = -1
FIRST_WITH_OWNER = 3


@handles(ApiKey.CREATE_DELEGATION_TOKEN)
def create_delegation_token(
    context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    who, name = context.principal
    response = CreateDelegationTokenResponse(error_code=NOT_ALLOWED, principal_type=who, principal_name=name)
    response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = NO_TIME
    if context.version >= FIRST_WITH_OWNER:
        response.token_requester_principal_type, response.token_requester_principal_name = who, name
        if request.owner_principal_name:
            response.principal_type = request.owner_principal_type or ""
            response.principal_name = request.owner_principal_name
    return response


@handles(ApiKey.RENEW_DELEGATION_TOKEN)
def renew_delegation_token(
    context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=NOT_ALLOWED, expiry_timestamp_ms=NO_TIME)


@handles(ApiKey.EXPIRE_DELEGATION_TOKEN)
def expire_delegation_token(
    context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=NOT_ALLOWED, expiry_timestamp_ms=NO_TIME)


@handles(ApiKey.DESCRIBE_DELEGATION_TOKEN)
def describe_delegation_token(
    context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=NOT_ALLOWED)
