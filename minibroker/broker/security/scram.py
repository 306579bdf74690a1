"""SCRAM (RFC 5802, RFC 7677) by SHA-256 and SHA-512: a client proves that it knows a password, and so does the broker.

    client   n,,n=alice,r=CLIENT                the name, and a nonce
    broker   r=CLIENTSERVER,s=SALT,i=4096       a longer nonce; the salt, and the number of iterations
    client   c=biws,r=CLIENTSERVER,p=PROOF
    broker   v=SIGNATURE

As in Kafka, there is no SASLprep of names and passwords, names are ASCII, and there is no channel binding. Unlike in
Kafka, an unknown name gets a salt and fails only after its proof, so that clients cannot find out which names exist: it
looks like those of the users that there are, and stays the same.

With the extension tokenauth=true, the name is the id of a delegation token, the password its secret in base64, and the
client is the token's owner.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from minibroker.broker.security.exchanges import AuthenticatedClient, AuthenticationFailed, Exchange, InvalidCredentials
from minibroker.protocol.messages.metadata_records import UserScramCredentialRecord

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
MESSAGE_BYTES_MAX: Final = 16 << 10  # of any message; clients send much shorter ones
SALT_BYTES: Final = 24
_KEY: Final = os.urandom(32)  # of this process, for salts that stay the same and cannot be predicted
DIGEST_BYTES: Final = 32
DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"

SAFE: Final = r"[\x01-\x2b\x2d-\x7f]+"  # a value: ASCII without commas
NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
EXTENSIONS: Final = rf"(?:,[A-Za-z]+={SAFE})*"
FIRST: Final = re.compile(
    rf"(?P<header>n,(?:a=(?P<identity>{NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{NAME}),r=(?P<nonce>{NONCE})(?P<extensions>{EXTENSIONS}))"
)
FINAL: Final = re.compile(
    rf"(?P<without_proof>c=(?P<channel>[a-zA-Z0-9/+=]+),r=(?P<nonce>{NONCE}){EXTENSIONS}),p=(?P<proof>[a-zA-Z0-9/+=]+)"
)


class ScramMechanism(IntEnum):
    """Kafka's ScramMechanism, by number."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def text(self) -> str:
        """The name of the mechanism."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The name of its hash function, for hashlib."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"


BY_NAME: Final = {mechanism.text: mechanism for mechanism in ScramMechanism}


class TokenLogin(NamedTuple):
    """What SCRAM needs of a token: a credential, the owner's name, and when the token expires."""

    credential: UserScramCredentialRecord
    owner: str
    expires_ms: int


class KnownCredentials(Protocol):
    """The users and the tokens that a broker knows."""

    def find_credential(self, name: str, mechanism: int) -> UserScramCredentialRecord | None:
        """Return the credential of a user, or None."""

    def iterate_credentials(self, mechanism: int) -> Iterable[UserScramCredentialRecord]:
        """Yield credentials for a mechanism: those of all users or, if there are many, of some."""

    def find_token_login(self, token_id: str, mechanism: ScramMechanism) -> TokenLogin | None:
        """Return what SCRAM needs to authenticate by a token, or None."""


def salt_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password, which is as secret as the password itself."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def make_scram_credential(
    name: str, mechanism: ScramMechanism, salt: bytes, iterations: int, salted_password: bytes
) -> UserScramCredentialRecord:
    """Return the record of a user. The salted password cannot be computed from it."""
    client_key = hmac.digest(salted_password, b"Client Key", mechanism.hash_name)
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=salt,
        stored_key=hashlib.new(mechanism.hash_name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", mechanism.hash_name),
        iterations=iterations,
    )


def exchange_scram_proof(mechanism: ScramMechanism, clients: KnownCredentials, server_nonce: str) -> Exchange:
    """Run a SASL/SCRAM exchange: check that the client knows a user's password or the secret of a delegation token."""
    first = _match_scram_message(FIRST, (yield b""))
    name = first["name"].replace("=2C", ",").replace("=3D", "=")
    if first["identity"] and first["identity"] != name:
        raise AuthenticationFailed(
            "Authentication failed: Client requested an authorization id that is different from username"
        )
    token, credential_of_client = None, None
    others: Iterable[UserScramCredentialRecord] = ()
    if _is_token_login(first):
        token = clients.find_token_login(name, mechanism)
        credential_of_client = None if token is None else token.credential
    else:
        credential_of_client, others = clients.find_credential(name, mechanism), clients.iterate_credentials(mechanism)
    known = credential_of_client or _make_fake_credential(name, mechanism, others)
    if known.iterations < MIN_ITERATIONS:
        raise InvalidCredentials(f"{known.iterations} iterations are less than {MIN_ITERATIONS}")
    nonce = first["nonce"] + server_nonce
    challenge = f"r={nonce},s={base64.b64encode(known.salt).decode()},i={known.iterations}"
    final = _match_scram_message(FINAL, (yield challenge.encode()))
    if final["nonce"] != nonce:
        raise InvalidCredentials("the nonce is not that of the challenge; Kafka 4 also refuses librdkafka before 2.6.1")
    if _decode_base64(final["channel"]) != first["header"].encode():
        raise InvalidCredentials("the channel binding is not that of the first message")
    signed = f"{first['bare']},{challenge},{final['without_proof']}".encode()
    if not _is_valid_proof(mechanism, known, signed, _decode_base64(final["proof"])) or credential_of_client is None:
        raise InvalidCredentials("the client does not prove that it knows the password")
    signature = hmac.digest(known.server_key, signed, mechanism.hash_name)
    last = b"v=" + base64.b64encode(signature)
    return (
        AuthenticatedClient(last, name)
        if token is None
        else AuthenticatedClient(last, token.owner, token.expires_ms, True)
    )


def _is_token_login(first_message_match: re.Match[str]) -> bool:
    """Return whether the name in a first message is a token's id. Of equal extensions, the last one counts."""
    extensions = dict(one.split("=", 1) for one in first_message_match["extensions"].split(",")[1:])
    return extensions.get("tokenauth", "").lower() == "true"


def _is_valid_proof(
    mechanism: ScramMechanism, credential: UserScramCredentialRecord, authentication_message: bytes, proof: bytes
) -> bool:
    """Return whether a proof was made with the password."""
    signature = hmac.digest(credential.stored_key, authentication_message, mechanism.hash_name)
    if len(proof) != len(signature):
        return False
    client_key = bytes(part ^ key for part, key in zip(signature, proof, strict=True))
    return hmac.compare_digest(hashlib.new(mechanism.hash_name, client_key).digest(), credential.stored_key)


class CredentialFormat(NamedTuple):
    """What a client sees of a credential, besides the salt's value. Kafka's tools make salts of digits and letters."""

    salt_bytes: int = SALT_BYTES
    iterations: int = MIN_ITERATIONS
    is_text: bool = False


def _make_fake_credential(
    name: str, mechanism: ScramMechanism, other_credentials: Iterable[UserScramCredentialRecord]
) -> UserScramCredentialRecord:
    """Return a credential for an unknown user that no password matches, in one of the shapes that others have."""
    shapes = {CredentialFormat(len(each.salt), each.iterations, each.salt.isalnum()) for each in other_credentials} or {
        CredentialFormat()
    }
    # Chosen so that another shape changes as few names as possible.
    shape = max(shapes, key=lambda shape: _hash_text(f"{mechanism} {name} {shape}"))
    parts = (_hash_text(f"{mechanism} {name} {part}") for part in range(0, shape.salt_bytes, DIGEST_BYTES))
    salt = b"".join(parts)[: shape.salt_bytes]
    if shape.is_text:
        salt = bytes(DIGITS[byte % len(DIGITS)] for byte in salt)
    key = bytes(hashlib.new(mechanism.hash_name).digest_size)
    return UserScramCredentialRecord(
        name=name, mechanism=mechanism, salt=salt, stored_key=key, server_key=key, iterations=shape.iterations
    )


def _hash_text(text: str) -> bytes:
    """Return a hash of the text that is the same during the process, and that nobody else can compute."""
    return hmac.digest(_KEY, text.encode(), "sha256")


def _match_scram_message(pattern: re.Pattern[str], token: bytes) -> re.Match[str]:
    """Return the match of a SCRAM message with its pattern. Raises InvalidCredentials."""
    try:
        match = pattern.fullmatch(token.decode("ascii")) if len(token) <= MESSAGE_BYTES_MAX else None
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise InvalidCredentials("the message is not one of SCRAM")
    return match


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidCredentials("the message is not in base64") from None
