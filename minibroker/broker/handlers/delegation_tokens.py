"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken (KIP-48, KIP-373).

Behaviour: only clients that have authenticated otherwise than by a token may send these requests. A client may create
tokens for its own user; a token for another user needs the right CREATE_TOKENS on that user. The owner and the renewers
may renew and expire a token. The owner, the requester and the renewers may describe it; other clients need the right
DESCRIBE on the token, or DESCRIBE_TOKENS on its owner. Without `delegation.token.secret.key` all requests are answered
with DELEGATION_TOKEN_AUTH_DISABLED. `broker/control/token_changes.py` has the rules of a token's life.

Versions: 2 brought flexible fields, 3 tokens for other users.

`broker/security/scram.py` authenticates clients by tokens.
"""

from __future__ import annotations

from minibroker.broker.control import token_changes
from minibroker.broker.delayed_operations import pause, run_in_slices
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security import delegation
from minibroker.broker.security.operations import CREATE_TOKENS, DESCRIBE_TOKEN, DESCRIBE_TOKENS
from minibroker.broker.security.principals import ANONYMOUS, USER, Principal
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
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
from minibroker.protocol.messages.metadata_records import DelegationTokenRecord
from minibroker.protocol.steps import apply_to_items_in_steps

NO_TIME = -1
MAX_RENEWERS = 1000  # of a token; Kafka is only limited by the size of a record

DescribedToken = DescribeDelegationTokenResponse.DescribedDelegationToken


@handles(ApiKey.CREATE_DELEGATION_TOKEN, durable=True)
async def create_delegation_token(
    context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    requester, owner = context.principal, context.principal
    if request.owner_principal_name:
        if request.owner_principal_type is None:  # then Kafka fails, and names nobody
            return CreateDelegationTokenResponse(
                error_code=ErrorCode.UNKNOWN_SERVER_ERROR,
                principal_type=ANONYMOUS.type,
                principal_name=ANONYMOUS.name,
                token_requester_principal_type=ANONYMOUS.type,
                token_requester_principal_name=ANONYMOUS.name,
                issue_timestamp_ms=NO_TIME,
                expiry_timestamp_ms=NO_TIME,
                max_timestamp_ms=NO_TIME,
            )
        owner = Principal(request.owner_principal_type, request.owner_principal_name)
    response = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
    )
    renewers = await run_in_slices(
        apply_to_items_in_steps(lambda one: Principal(one.principal_type, one.principal_name), request.renewers)
    )
    try:
        _check_may_create_token(context, owner, renewers)
    except KafkaError as error:
        response.error_code = error.code
        response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = NO_TIME
        return response
    try:
        record = token_changes.issue_token(context.cluster, owner, requester, renewers, request.max_lifetime_ms)
    except KafkaError as error:
        response.error_code = error.code
        return response
    response.issue_timestamp_ms = record.issue_timestamp
    response.expiry_timestamp_ms = record.expiration_timestamp
    response.max_timestamp_ms = record.max_timestamp
    response.token_id = record.token_id
    response.hmac = context.cluster.image.tokens.compute_token_secret(record.token_id)
    return response


def _check_may_create_token(context: RequestContext, owner: Principal, renewers: list[Principal]) -> None:
    """Check the client and the principals of a new token.

    Raises KafkaError(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_AUTHORIZATION_FAILED or
    INVALID_PRINCIPAL_TYPE).
    """
    _check_may_manage_tokens(context)
    if owner != context.principal:
        context.authorize(CREATE_TOKENS, str(owner))
    if any(renewer.type != USER for renewer in renewers):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    if len(renewers) > MAX_RENEWERS:
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def _check_may_manage_tokens(context: RequestContext) -> None:
    """Check that the client has authenticated, by SASL or with a certificate, and not by a token.

    Raises KafkaError(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED).
    """
    connection = context.connection
    has_authenticated = connection.authenticator is not None or connection.principal != ANONYMOUS
    if connection.has_token or not has_authenticated:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


@handles(ApiKey.RENEW_DELEGATION_TOKEN, durable=True)
def renew_delegation_token(
    context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    try:
        _check_may_manage_tokens(context)
    except KafkaError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=NO_TIME)
    expiry_ms = token_changes.renew_token(context.cluster, request.hmac, context.principal, request.renew_period_ms)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)


@handles(ApiKey.EXPIRE_DELEGATION_TOKEN, durable=True)
def expire_delegation_token(
    context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    try:
        _check_may_manage_tokens(context)
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=NO_TIME)
    expiry_ms = token_changes.expire_token(
        context.cluster, request.hmac, context.principal, request.expiry_time_period_ms
    )
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)


@handles(ApiKey.DESCRIBE_DELEGATION_TOKEN)
async def describe_delegation_token(
    context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    _check_may_manage_tokens(context)
    if not context.cluster.image.tokens.are_enabled:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = frozenset(
            await run_in_slices(
                apply_to_items_in_steps(lambda one: f"{one.principal_type}:{one.principal_name}", request.owners)
            )
        )
    tokens, own = [], frozenset({str(context.principal)})
    for record in list(context.cluster.image.tokens.by_id.values()):
        if (owners is None or delegation.is_owner_or_renewer(record, owners)) and _may_see_token(context, record, own):
            tokens.append(_describe_token(context, record))
        await pause()
    return DescribeDelegationTokenResponse(tokens=tokens)


def _may_see_token(context: RequestContext, record: DelegationTokenRecord, own_principals: frozenset[str]) -> bool:
    if delegation.is_owner_or_renewer(record, own_principals):
        return True
    return context.allows(DESCRIBE_TOKEN, record.token_id) or context.allows(DESCRIBE_TOKENS, record.owner)


def _describe_token(context: RequestContext, record: DelegationTokenRecord) -> DescribedToken:
    owner, requester = delegation.parse_principal(record.owner), delegation.parse_principal(record.requester)
    renewers = map(delegation.parse_principal, record.renewers)
    return DescribedToken(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp=record.issue_timestamp,
        expiry_timestamp=record.expiration_timestamp,
        max_timestamp=record.max_timestamp,
        token_id=record.token_id,
        hmac=context.cluster.image.tokens.compute_token_secret(record.token_id),
        renewers=[
            DescribedToken.DescribedDelegationTokenRenewer(principal_type=one.type, principal_name=one.name)
            for one in renewers
        ],
    )
