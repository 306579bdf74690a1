"""OAUTHBEARER (RFC 7628): a client shows a token of an issuer that the broker trusts.

    client   n,,^Aauth=Bearer TOKEN^A^A         ^A is the byte 1; Kafka's extensions follow the token
    broker   (nothing: the client is let in)    or {"status":"invalid_token"}
    client                                         ^A, and the exchange has failed

`TokenValidator` validates tokens: `signed_tokens` has those for tokens with and without a signature.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any, Final, NamedTuple, Protocol

from minibroker.broker.security.exchanges import (
    AuthenticatedClient,
    AuthenticationFailed,
    Exchange,
    InvalidCredentials,
    WaitForResult,
)
from minibroker.broker.security.scram import NAME

FIRST: Final = re.compile(rf"n,(?:a=(?P<identity>{NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01")
AUTH: Final = re.compile(r"(?P<scheme>[A-Za-z0-9_]+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")
MESSAGE_BYTES_MAX: Final = 32 << 10  # handling a larger one would delay other clients
FAILED: Final = b"\x01"
LONG_MAX: Final = (1 << 63) - 1
SECTIONS: Final = 3  # of a JSON web token: header, claims, signature


class TokenIdentity(NamedTuple):
    """The principal's name in a token, and when the token expires."""

    name: str
    expires_ms: int


class TokenRefused(Exception):
    """An invalid token. The reason is for the log. `scope` is the required scope, if the token lacks it."""

    def __init__(self, reason: str, scope: str | None = None) -> None:
        super().__init__(reason)
        self.scope = scope


class TokenValidator(Protocol):
    """A validator of tokens."""

    def make_wait_for_key(self, token: str) -> WaitForResult | None:
        """Return the wait until the key that signed a token is read, or None if it is known or not needed."""

    def get_identity_of_token(self, token: str) -> TokenIdentity:
        """Return the identity of a valid token. Raises TokenRefused."""


def exchange_oauthbearer_token(validator: TokenValidator) -> Exchange:
    """Run a SASL/OAUTHBEARER exchange: receive a token, and have `validator` check it."""
    wanted, token = _parse_first_message((yield b""))
    wait = validator.make_wait_for_key(token)
    if wait is not None:
        yield wait
    try:
        identity = validator.get_identity_of_token(token)
    except TokenRefused as refused:
        refusal = _encode_refusal(refused)
        if (yield refusal.encode()) == FAILED:
            raise AuthenticationFailed(refusal) from None
        raise InvalidCredentials("the client goes on although its token was refused") from None
    if wanted not in ("", identity.name):
        raise AuthenticationFailed(
            f"Authentication failed: Client requested an authorization id ({wanted}) that is different from the "
            f"token's principal name ({identity.name})"
        )
    return AuthenticatedClient(b"", identity.name, identity.expires_ms)


def _parse_first_message(message: bytes) -> tuple[str, str]:
    """Return the authorization id and the token of a client's first message. Raises InvalidCredentials."""
    try:
        match = FIRST.fullmatch(message.decode("ascii")) if len(message) <= MESSAGE_BYTES_MAX else None
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise InvalidCredentials("Invalid OAUTHBEARER client first message")
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01") if pair)
    auth = AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise InvalidCredentials("Invalid OAUTHBEARER client first message: invalid 'auth' format")
    return match["identity"] or "", auth["token"]


def _encode_refusal(refusal: TokenRefused) -> str:
    """Return the JSON that tells the client why its token is refused."""
    if refusal.scope is None:
        return '{"status":"invalid_token"}'
    return f'{{"status":"insufficient_scope", "scope":"{refusal.scope}"}}'


# --- JSON web tokens ----------------------------------------------------------------------------


def decode_token_parts(token: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return header and claims of a token, and its signature as a text. Raises TokenRefused."""
    parts = token.split(".")
    if len(parts) != SECTIONS:
        raise TokenRefused("it has not three parts")
    return _decode_token_part(parts[0]), _decode_token_part(parts[1]), parts[2]


def _decode_token_part(part: str) -> dict[str, Any]:
    try:
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise TokenRefused("a part of it is no JSON object")
    return found


def get_time_claim_ms(claims: dict[str, Any], name: str) -> int | None:
    """Return a time in ms; the claim has it in seconds. Return None if it is missing. Raises TokenRefused."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LONG_MAX < value * 1000 < LONG_MAX:
        raise TokenRefused(f"its {name} is no time")
    return int(value * 1000)


def get_name_claim(claims: dict[str, Any], claim_name: str) -> str:
    """Return the principal's name in the claim. Raises TokenRefused if it is missing or empty."""
    name = claims.get(claim_name)
    if not isinstance(name, str) or not name.strip():
        raise TokenRefused(f"its claim {claim_name} names nobody")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise TokenRefused(f"its claim {claim_name} has half of a surrogate pair, which is no text") from None
    return name
