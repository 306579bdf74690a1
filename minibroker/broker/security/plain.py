"""PLAIN (RFC 4616): a client sends its name and password.

Passwords are compared as UTF-8, without SASLprep, as in Kafka. A check takes as long for an unknown name as for a
known one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from minibroker.broker.security.exchanges import Authenticated, AuthenticationFailed, Exchange, are_secrets_equal

TOKENS: Final = 3  # authorization id, name and password
USER_PREFIX: Final = "user_"
INVENTED: Final = "the password of no user"


def parse_plain_users(options: Mapping[str, str]) -> dict[str, str]:
    """Return the passwords by user name from the options of a PlainLoginModule."""
    return {key.removeprefix(USER_PREFIX): value for key, value in options.items() if key.startswith(USER_PREFIX)}


def exchange_plain_password(users: Mapping[str, str]) -> Exchange:
    """Authenticate a client by the password of one of these users."""
    tokens = (yield b"").decode("utf-8", "replace").split("\0", TOKENS)
    if len(tokens) != TOKENS:
        raise AuthenticationFailed(f"Invalid SASL/PLAIN response: expected {TOKENS} tokens, got {len(tokens)}")
    identity, name, password = tokens
    if not name:
        raise AuthenticationFailed("Authentication failed: username not specified")
    if not password:
        raise AuthenticationFailed("Authentication failed: password not specified")
    known = are_secrets_equal(password.encode(), users.get(name, INVENTED).encode("utf-8", "surrogatepass"))
    if not known or name not in users:
        raise AuthenticationFailed("Authentication failed: Invalid username or password")
    if identity not in ("", name):
        raise AuthenticationFailed(
            "Authentication failed: Client requested an authorization id that is different from username"
        )
    return Authenticated(b"", name)
