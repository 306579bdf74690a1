"""Java's own format of key stores, JKS, which keytool wrote before Java 9, and writes with `-storetype JKS`.

    magic feedfeed | version (1 or 2) | entries | entry ... | SHA-1 of a secret and all that is before
    entry: 1 | alias | time | length and key | certificates | certificate ...    a private key with its chain
           2 | alias | time | certificate                                        a trusted certificate
    certificate: type (since version 2) | length and certificate

Numbers are of 4 bytes, times of 8; texts are modified UTF-8 after a length of 2 bytes. A key is PKCS#8, encrypted by a
keystream of SHA-1s of the password, in an EncryptedPrivateKeyInfo of Java's own algorithm.
"""

from __future__ import annotations

import hmac
from hashlib import sha1
from typing import Final, NamedTuple

MAGIC: Final = b"\xfe\xed\xfe\xed"
VERSIONS: Final = (1, 2)
FIRST_WITH_TYPES: Final = 2
PRIVATE_KEY, TRUSTED_CERTIFICATE = 1, 2
X509: Final = b"X.509"
DIGEST_BYTES: Final = 20
WHITENER: Final = b"Mighty Aphrodite"  # Java's own constant
# The AlgorithmIdentifier of the keystream: 1.3.6.1.4.1.42.2.17.1.1, without parameters.
KEYSTREAM: Final = bytes.fromhex("300e060a2b060104012a021101010500")
SEQUENCE, OCTETS = 0x30, 0x04


class KeyStoreError(ValueError):
    """A store that cannot be read; the message says what is wrong, without secrets."""


class WrongPassword(KeyStoreError):
    """A password that is not that of the store or key, or bytes that were changed."""


class PrivateKey(NamedTuple):
    """A private key, encrypted, and its certificates in DER, its own first."""

    encrypted: bytes
    chain: tuple[bytes, ...]


class JavaKeyStore(NamedTuple):
    """The entries of a store, in the order of the file; certificates in DER."""

    keys: tuple[PrivateKey, ...]
    trusted: tuple[bytes, ...]


def read_java_key_store(content: bytes, password: str | None) -> JavaKeyStore:
    """Return the entries of a JKS file; without a password its digest is not checked, as in Java.

    Raises KeyStoreError.
    """
    body, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    reader = _Reader(body)
    if reader.read_bytes(len(MAGIC)) != MAGIC:
        raise KeyStoreError("it is not JKS")
    version = reader.read_number()
    if version not in VERSIONS:
        raise KeyStoreError(f"it is of version {version} of JKS")
    keys, trusted = [], []
    for _ in range(reader.read_number()):
        tag = reader.read_number()
        reader.read_sized_text()  # the alias
        reader.read_bytes(8)  # when it was added
        if tag == PRIVATE_KEY:
            encrypted = reader.read_sized_bytes()
            keys.append(
                PrivateKey(encrypted, tuple(reader.read_certificate(version) for _ in range(reader.read_number())))
            )
        elif tag == TRUSTED_CERTIFICATE:
            trusted.append(reader.read_certificate(version))
        else:
            raise KeyStoreError(f"it has an entry of the unknown kind {tag}")
    if not reader.is_at_end:
        raise KeyStoreError("there are bytes after its last entry")
    if password is not None and not hmac.compare_digest(
        _hash_with_sha1(_encode_password(password), WHITENER, body), digest
    ):
        raise WrongPassword("the password is wrong, or the file was changed")
    return JavaKeyStore(tuple(keys), tuple(trusted))


def decrypt_private_key(encrypted: bytes, password: str) -> bytes:
    """Return a private key as PKCS#8 in DER. Raises KeyStoreError."""
    info, rest = _read_der_element(SEQUENCE, encrypted)
    if rest or not info.startswith(KEYSTREAM):
        raise KeyStoreError("the private key has another encryption than JKS has")
    data, rest = _read_der_element(OCTETS, info[len(KEYSTREAM) :])
    if rest or len(data) < 2 * DIGEST_BYTES:
        raise KeyStoreError("the encrypted private key is cut")
    secret = _encode_password(password)
    block, body, check = data[:DIGEST_BYTES], data[DIGEST_BYTES:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    keystream = bytearray()
    while len(keystream) < len(body):
        block = _hash_with_sha1(secret, block)
        keystream += block
    key = bytes(one ^ other for one, other in zip(body, keystream, strict=False))
    if not hmac.compare_digest(_hash_with_sha1(secret, key), check):
        raise WrongPassword("the password of the private key is wrong")
    return key


def _hash_with_sha1(*parts: bytes) -> bytes:
    return sha1(b"".join(parts), usedforsecurity=False).digest()


def _encode_password(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


def _read_der_element(tag: int, data: bytes) -> tuple[bytes, bytes]:
    """Return the content of an element with this tag, and what follows. Raises KeyStoreError."""
    if len(data) < 2 or data[0] != tag:
        raise KeyStoreError("the private key is no EncryptedPrivateKeyInfo")
    length, start = data[1], 2
    if length > 0x7F:
        start += length & 0x7F
        length = int.from_bytes(data[2:start])
    if start + length > len(data):
        raise KeyStoreError("the private key is cut")
    return data[start : start + length], data[start + length :]


class _Reader:
    """The position in a file. Its methods raise KeyStoreError at the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def is_at_end(self) -> bool:
        return self._position == len(self._data)

    def read_bytes(self, count: int) -> bytes:
        taken = self._data[self._position : self._position + count]
        if len(taken) < count:
            raise KeyStoreError("it is cut")
        self._position += count
        return taken

    def read_number(self) -> int:
        return int.from_bytes(self.read_bytes(4))

    def read_sized_text(self) -> bytes:
        return self.read_bytes(int.from_bytes(self.read_bytes(2)))

    def read_sized_bytes(self) -> bytes:
        return self.read_bytes(self.read_number())

    def read_certificate(self, version: int) -> bytes:
        kind = self.read_sized_text() if version >= FIRST_WITH_TYPES else X509
        if kind != X509:
            raise KeyStoreError("it has a certificate that is not X.509")
        return self.read_sized_bytes()
