"""What all SASL mechanisms share: an exchange of tokens as a state machine without I/O.

    exchange = begun(plain(users))
    challenge = exchange.send(token)    # StopIteration with an Authenticated: the client is authenticated

An exchange receives the client's tokens, and yields the broker's. If it needs the keys of a token's issuer first, it
yields a `WaitForResult` instead: the caller calls it, and sends the same token again later.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Generator
from typing import Final, NamedTuple

from minibroker.protocol.errors import ErrorCode


class AuthenticatedClient(NamedTuple):
    """The end of an exchange: the last token for the client, the client's name, and when its credential expires."""

    token: bytes
    name: str
    expires_ms: int | None = None  # since 1970
    has_token: bool = False  # whether the client has authenticated by a delegation token


class SaslReply(NamedTuple):
    """The reply to a client's token: an error with its message, or the broker's next token."""

    error_code: ErrorCode
    message: str | None
    token: bytes
    session_lifetime_ms: int


WaitForResult = Callable[[Callable[[], None]], None]  # calls back when the keys were read, or could not be read
Exchange = Generator[bytes | WaitForResult, bytes, AuthenticatedClient]


class InvalidCredentials(Exception):
    """The client failed to authenticate. The text is for the log only, and has no secret."""


class AuthenticationFailed(Exception):
    """The client failed to authenticate. The text is Kafka's message to the client."""


def start_sasl_exchange(exchange: Exchange) -> Exchange:
    """Return the exchange, ready for the client's first token."""
    next(exchange)
    return exchange


_KEY: Final = os.urandom(32)  # of this process, so that timing tells a client nothing about the compared digests


def are_secrets_equal(first: bytes, second: bytes) -> bool:
    """Return whether two secrets are equal. The time that this takes depends only on their lengths."""
    return hmac.compare_digest(hmac.digest(_KEY, first, "sha256"), hmac.digest(_KEY, second, "sha256"))
