"""SASL mechanisms as state machines without I/O. Each yields the client's messages, and gets the broker's by `send`.

    exchange = plain("alice", "secret")
    first = next(exchange)          # the client's first message
    exchange.send(answer)           # the client's next message; StopIteration at the end

They are PLAIN (RFC 4616), SCRAM (RFC 5802, 7677) and OAUTHBEARER (RFC 7628). As in Kafka, names and passwords are UTF-8
without SASLprep, and there is no channel binding. All raise `AuthenticationFailed`, which contains no secret.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Generator, Mapping
from typing import Final

from minibroker.client.client_errors import AuthenticationFailed

MechanismExchange = Generator[bytes, bytes, None]

SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN: Final = 4096  # of RFC 5802 and 7677, and of Kafka
ITERATIONS_MAX: Final = 1_000_000  # about a second: a hostile broker must not cost more
GS2_HEADER: Final = "n,,"  # no channel binding, no authorization id
NONCE_BYTES: Final = 24


def authenticate_by_plain(username: str, password: str) -> MechanismExchange:
    """Yield the one message to send: name and password (RFC 4616). The broker's answer is empty."""
    yield f"\0{username}\0{password}".encode()


def authenticate_by_oauthbearer(token: str, extensions: Mapping[str, str]) -> MechanismExchange:
    """Send a bearer token and Kafka's extensions (KIP-342). A broker that refuses them answers with a reason."""
    said = "".join(f"{name}={value}\x01" for name, value in extensions.items())
    refusal = yield f"{GS2_HEADER}\x01auth=Bearer {token}\x01{said}\x01".encode()
    if refusal:
        yield b"\x01"
        raise AuthenticationFailed("OAUTHBEARER: the broker refuses the token")


def authenticate_by_scram(
    hash_name: str, username: str, password: str, nonce: str | None = None, *, is_token: bool = False
) -> MechanismExchange:
    """Prove that we know the password, and check the broker's proof that it knows it, too.

    With `is_token`, name and password are the id and the HMAC of a delegation token (KIP-48).
    """
    nonce = nonce or base64.b64encode(os.urandom(NONCE_BYTES)).decode()
    name = username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}" + (",tokenauth=true" if is_token else "")
    server_first = _decode_text((yield (GS2_HEADER + first).encode()))
    server_nonce, salt, iterations = _parse_scram_challenge(_parse_attributes(server_first), nonce)
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    binding = base64.b64encode(GS2_HEADER.encode()).decode()
    final = f"c={binding},r={server_nonce}"
    auth_message = f"{first},{server_first},{final}".encode()
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), auth_message, hash_name)
    proof = bytes(key ^ part for key, part in zip(client_key, signature, strict=True))
    answer = _parse_attributes(_decode_text((yield f"{final},p={base64.b64encode(proof).decode()}".encode())))
    if "e" in answer:
        raise AuthenticationFailed(f"SCRAM: the broker answers {answer['e'][:100]!r}")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", hash_name), auth_message, hash_name)
    if not hmac.compare_digest(_decode_base64(answer.get("v", "")), expected):
        raise AuthenticationFailed("SCRAM: the broker does not prove that it knows the password")


def _parse_scram_challenge(attributes: Mapping[str, str], nonce: str) -> tuple[str, bytes, int]:
    """Return the combined nonce, the salt and the number of iterations from the broker's first message."""
    if "m" in attributes:
        raise AuthenticationFailed("SCRAM: the broker demands an unknown extension")
    if not attributes.get("r", "").startswith(nonce) or len(attributes["r"]) == len(nonce):
        raise AuthenticationFailed("SCRAM: the broker's nonce does not continue ours")
    iterations = attributes.get("i", "")
    if not (iterations.isascii() and iterations.isdigit() and len(iterations) < 10):
        raise AuthenticationFailed("SCRAM: the broker sends no valid number of iterations")
    if not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise AuthenticationFailed(
            f"SCRAM: the broker wants {iterations} iterations, not {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    salt = _decode_base64(attributes.get("s", ""))
    if not salt:
        raise AuthenticationFailed("SCRAM: the broker sends no salt")
    return attributes["r"], salt, int(iterations)


def _decode_text(data: bytes) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("SCRAM: the broker's message is not UTF-8") from None


def _parse_attributes(message: str) -> dict[str, str]:
    """Parse `r=...,s=...,i=...` into a dict by letter. If a letter comes twice, the first value counts."""
    found: dict[str, str] = {}
    for part in message.split(","):
        name, equals, value = part.partition("=")
        if not equals or len(name) != 1:
            raise AuthenticationFailed("SCRAM: the broker's message is malformed")
        found.setdefault(name, value)
    return found


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AuthenticationFailed("SCRAM: the broker's message is not in base64") from None
