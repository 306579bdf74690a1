"""SaslHandshake and SaslAuthenticate: a client says by which mechanism it authenticates, and does (KIP-43, KIP-152).

Behaviour: `Authenticator` keeps the order of the two, and the sessions that follow. On a listener without SASL, and
once a client has authenticated for as long as it likes, both get ILLEGAL_SASL_STATE, and its connection goes on.

Versions: after a handshake of version 0 tokens come without headers, and SaslAuthenticate is not used. Version 1 of
that brought how long the session lasts (KIP-368).

Not implemented: GSSAPI, which is not enabled.
"""

from __future__ import annotations

from typing import Any

from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.routes import Unanswerable
from minibroker.broker.requests.served import handles
from minibroker.broker.security.exchanges import Reply
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


@handles(ApiKey.SASL_HANDSHAKE)
def sasl_handshake(context: RequestContext, request: SaslHandshakeRequest) -> Any:
    authenticator = context.connection.authenticator
    if authenticator is not None and authenticator.may_begin():
        authenticator.client_id = context.client_id
        return authenticator.begin(request.mechanism, context.version, _hello)
    if context.connection.must_authenticate:
        raise Unanswerable("it authenticates more than once a second")
    return _hello(ErrorCode.ILLEGAL_SASL_STATE, [])


def _hello(error_code: ErrorCode, mechanisms: list[str]) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=error_code, mechanisms=mechanisms)


@handles(ApiKey.SASL_AUTHENTICATE)
def sasl_authenticate(context: RequestContext, request: SaslAuthenticateRequest) -> Any:
    connection = context.connection
    if connection.authenticator is not None and connection.must_authenticate:
        return connection.authenticator.evaluate(bytes(request.auth_bytes), _response)
    message = "SaslAuthenticate request received after successful authentication"
    return _response(Reply(ErrorCode.ILLEGAL_SASL_STATE, message, b"", 0))


def _response(reply: Reply) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=reply.error_code,
        error_message=reply.message,
        auth_bytes=reply.token,
        session_lifetime_ms=reply.session_lifetime_ms,
    )
