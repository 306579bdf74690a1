"""What all SASL mechanisms have in common: an exchange of tokens as a state machine without I/O.

    exchange = begun(plain(users))
    challenge = exchange.send(token)    # StopIteration with an Authenticated: the client has proven who it is

Once begun, an exchange takes the client's tokens, and yields the broker's. Where it cannot go on without the keys of a
token's issuer, it yields a `Wait` instead: whoever runs it calls that, and sends the same token again later.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Generator
from typing import Final, NamedTuple

from minibroker.protocol.errors import ErrorCode


class Authenticated(NamedTuple):
    """The end of an exchange: the last token for the client, its name, and when its credential expires, if it does."""

    token: bytes
    name: str
    expires_ms: int | None = None  # since 1970
    has_token: bool = False  # whether it has proven to hold a delegation token, instead of knowing a password


class Reply(NamedTuple):
    """What a client is told of its token: an error and what it may read of it, or the broker's next token."""

    error_code: ErrorCode
    message: str | None
    token: bytes
    session_lifetime_ms: int


Wait = Callable[[Callable[[], None]], None]  # calls back once there is what was waited for, or will not be
Exchange = Generator[bytes | Wait, bytes, Authenticated]


class InvalidCredentials(Exception):
    """A client has not proven who it is. The text is for the log, has no secret, and is not told to the client."""


class AuthenticationFailed(Exception):
    """A client has not proven who it is, and may read the text, which is Kafka's."""


def begun(exchange: Exchange) -> Exchange:
    """Return the exchange, ready for the client's first token."""
    next(exchange)
    return exchange


_KEY: Final = os.urandom(32)  # of this process: nobody outside can tell what is compared


def equal(one: bytes, other: bytes) -> bool:
    """Return whether two secrets are the same, in a time that tells nothing of them but the length of each."""
    return hmac.compare_digest(hmac.digest(_KEY, one, "sha256"), hmac.digest(_KEY, other, "sha256"))
