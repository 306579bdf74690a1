"""SaslHandshake and SaslAuthenticate: a client says by which mechanism it authenticates, and does (KIP-43, KIP-152).

Behaviour: no listener asks for SASL, so a client has passed as soon as it connects. As on Kafka's listeners without
SASL both requests are announced all the same; a client that sends one gets ILLEGAL_SASL_STATE, and its connection goes
on.

Versions: of SaslAuthenticate 1 brought how long the session lasts.

Not implemented: authentication.
"""

from __future__ import annotations

from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


@handles(ApiKey.SASL_HANDSHAKE, authenticated=False)
def sasl_handshake(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


@handles(ApiKey.SASL_AUTHENTICATE, authenticated=False)
def sasl_authenticate(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    message = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)
