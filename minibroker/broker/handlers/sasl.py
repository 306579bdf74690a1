"""SaslHandshake and SaslAuthenticate: a client chooses a mechanism and authenticates by it (KIP-43, KIP-152).

Behaviour: `Authenticator` enforces the order of the two requests and the lifetime of sessions. Both are answered with
ILLEGAL_SASL_STATE, and the connection stays open, on a listener without SASL and after an authentication without a
time limit.

Versions: after a handshake of version 0, tokens are sent without headers, and SaslAuthenticate is not used.
SaslAuthenticate 1 brought the lifetime of the session (KIP-368).

Not implemented: GSSAPI, which is not enabled.
"""

from __future__ import annotations

from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.routes import UnanswerableRequest
from minibroker.broker.requests.served import handles
from minibroker.broker.security.exchanges import SaslReply
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


@handles(ApiKey.SASL_HANDSHAKE)
async def sasl_handshake(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    authenticator = context.connection.authenticator
    if authenticator is not None and authenticator.may_begin_handshake():
        authenticator.client_id = context.client_id
        return await authenticator.begin_sasl_exchange(request.mechanism, context.version, _make_handshake_response)
    if context.connection.must_authenticate:
        raise UnanswerableRequest("it authenticates more than once a second")
    return _make_handshake_response(ErrorCode.ILLEGAL_SASL_STATE, [])


def _make_handshake_response(error_code: ErrorCode, mechanisms: list[str]) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=error_code, mechanisms=mechanisms)


@handles(ApiKey.SASL_AUTHENTICATE)
async def sasl_authenticate(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    connection = context.connection
    if connection.authenticator is not None and connection.must_authenticate:
        return await connection.authenticator.evaluate_token(bytes(request.auth_bytes), _make_authenticate_response)
    message = "SaslAuthenticate request received after successful authentication"
    return _make_authenticate_response(SaslReply(ErrorCode.ILLEGAL_SASL_STATE, message, b"", 0))


def _make_authenticate_response(reply: SaslReply) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=reply.error_code,
        error_message=reply.message,
        auth_bytes=reply.token,
        session_lifetime_ms=reply.session_lifetime_ms,
    )
