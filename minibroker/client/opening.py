"""The first requests on a connection: ApiVersions, and authentication by SASL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from minibroker import __version__
from minibroker.client.client_errors import (
    AuthenticationFailed,
    ForeignServer,
    ProtocolError,
    UnsupportedVersion,
    get_error_name,
)
from minibroker.client.connection_settings import ClientSettings
from minibroker.client.network import Network, NetworkLink
from minibroker.protocol.apis import ApiKey, get_api_name
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest

if TYPE_CHECKING:
    from minibroker.client.client_mechanisms import MechanismExchange

VERSION = __version__.partition("+")[0]  # brokers refuse a version that names a commit, as it has a plus sign
SendRequest = Callable[[Message, int], Awaitable[Any]]
"""Sends a request in a version, and waits for the answer."""

NEEDS_TLS = ": does the broker require TLS (security.protocol)?"
RENEW_AT = 0.85  # of the session's lifetime; Kafka's clients re-authenticate after 85 to 95 %


async def negotiate_and_authenticate(
    link: NetworkLink, settings: ClientSettings, network: Network, timeout_s: float
) -> None:
    """Negotiate versions and authenticate. Raises one of `FAILURES`."""
    ask = _make_request_sender(link, settings, network, timeout_s)
    request = ApiVersionsRequest(client_software_name="minibroker", client_software_version=VERSION)
    answer = await ask(request, ApiVersionsRequest.versions[-1])
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        known = [each.max_version for each in answer.api_keys if each.api_key == ApiVersionsRequest.api_key]
        answer = await ask(request, min([*known, ApiVersionsRequest.versions[-1]]) if known else 0)
    if answer.error_code:
        raise UnsupportedVersion(f"ApiVersions: {get_error_name(answer.error_code)}")
    link.connection.versions = {each.api_key: range(each.min_version, each.max_version + 1) for each in answer.api_keys}
    await _choose_mechanism_and_authenticate(ask, link, settings, network)


async def reauthenticate(link: NetworkLink, settings: ClientSettings, network: Network, timeout_s: float) -> None:
    """Authenticate again on an open connection, on which nobody else awaits an answer. Raises one of `FAILURES`."""
    await _choose_mechanism_and_authenticate(
        _make_request_sender(link, settings, network, timeout_s), link, settings, network
    )


def _make_request_sender(
    link: NetworkLink, settings: ClientSettings, network: Network, timeout_s: float
) -> SendRequest:
    """Return a function that sends a request and waits for its answer, until all time is used up."""
    deadline_s = network.read_clock_s() + timeout_s

    async def send_request(request: Message, version: int) -> Any:
        left_s = deadline_s - network.read_clock_s()
        if left_s <= 0:
            raise TimeoutError
        correlation_id, data = link.connection.encode_request(request, version)
        await link.write(data, left_s)
        try:
            return await link.wait_for_answer(correlation_id, left_s)
        except ForeignServer:
            raise
        except (ConnectionError, ProtocolError) as error:
            api = get_api_name(request.api_key)
            needs_tls = NEEDS_TLS if settings.tls is None and request.api_key == ApiKey.API_VERSIONS else ""
            if isinstance(error, ConnectionError):
                raise type(error)(f"the broker closed the connection on {api}{needs_tls}") from None
            raise ProtocolError(f"{error}{needs_tls}") from None

    return send_request


async def _choose_mechanism_and_authenticate(
    send_request: SendRequest, link: NetworkLink, settings: ClientSettings, network: Network
) -> None:
    """Authenticate, if there are credentials, and note when to do so again."""
    if settings.credentials is not None:
        exchange = await network.call_blocking(settings.credentials.exchange)
        lifetime_ms = await _authenticate_link(send_request, link, settings.credentials.mechanism, exchange)
        link.expires_s = network.read_clock_s() + lifetime_ms / 1000 * RENEW_AT if lifetime_ms else float("inf")


async def _authenticate_link(
    send_request: SendRequest, link: NetworkLink, mechanism: str, exchange: MechanismExchange
) -> int:
    """Authenticate. Return for how many ms the authentication is valid, 0: for ever."""
    versions = link.connection.choose_version
    hello = await send_request(SaslHandshakeRequest(mechanism=mechanism), versions(SaslHandshakeRequest, 1))
    if hello.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise AuthenticationFailed(f"{mechanism} is not enabled at the broker, but {', '.join(hello.mechanisms)}")
    if hello.error_code:
        raise AuthenticationFailed(f"{mechanism}: {get_error_name(hello.error_code)}")
    token = next(exchange)
    while True:
        answer = await send_request(SaslAuthenticateRequest(auth_bytes=token), versions(SaslAuthenticateRequest))
        if answer.error_code:
            why = answer.error_message or get_error_name(answer.error_code)
            raise AuthenticationFailed(f"authentication by {mechanism} failed: {' '.join(why.split())}")
        try:
            token = exchange.send(bytes(answer.auth_bytes))
        except StopIteration:
            return int(answer.session_lifetime_ms)
