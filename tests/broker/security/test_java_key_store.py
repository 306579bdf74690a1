"""JKS: files built byte by byte, and what is wrong with others. `test_key_stores` reads those that Java writes."""

from __future__ import annotations

from hashlib import sha1

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.security.java_key_store import (
    KeyStoreError,
    PrivateKey,
    WrongPassword,
    decrypt_private_key,
    read_java_key_store,
)
from tests.cases import for_each

PASSWORD = "größe 🔑"
WIDE = PASSWORD.encode("utf-16-be")


def block(data: bytes, length_bytes: int = 4) -> bytes:
    return len(data).to_bytes(length_bytes) + data


def number(value: int) -> bytes:
    return value.to_bytes(4)


def certificate(data: bytes, kind: bytes = b"X.509") -> bytes:
    return block(kind, 2) + block(data)


def entry(tag: int, content: bytes) -> bytes:
    return number(tag) + block(b"alias", 2) + bytes(8) + content


def store(*entries: bytes, version: int = 2, count: int | None = None, more: bytes = b"") -> bytes:
    body = b"\xfe\xed\xfe\xed" + number(version) + number(len(entries) if count is None else count)
    body += b"".join(entries) + more
    return body + sha1(WIDE + b"Mighty Aphrodite" + body).digest()


TRUSTED = entry(2, certificate(b"trusted"))
KEY = entry(1, block(b"encrypted") + number(2) + certificate(b"own") + certificate(b"issuer"))


def test_entries_of_a_key_store_are_read_in_order() -> None:
    found = read_java_key_store(store(TRUSTED, KEY, TRUSTED), PASSWORD)
    assert found.keys == (PrivateKey(b"encrypted", (b"own", b"issuer")),)
    assert found.trusted == (b"trusted", b"trusted")
    assert read_java_key_store(store(), PASSWORD) == ((), ())


def test_certificates_of_key_stores_of_version_1_are_read() -> None:
    assert read_java_key_store(store(entry(2, block(b"trusted")), version=1), PASSWORD).trusted == (b"trusted",)


def test_the_digest_of_a_key_store_is_checked_only_if_a_password_is_given() -> None:
    changed = bytearray(store(TRUSTED))
    changed[-21] ^= 1
    assert read_java_key_store(bytes(changed), None).trusted
    for content, password in ((bytes(changed), PASSWORD), (store(TRUSTED), "x"), (store(TRUSTED), "")):
        with pytest.raises(WrongPassword):
            read_java_key_store(content, password)


@for_each(
    ("content", "reason"),
    [
        (b"", "cut"),
        (bytes(100), "not JKS"),
        (store(version=3), "version 3"),
        (store(entry(3, b"")), "unknown kind 3"),
        (store(TRUSTED, more=b"x"), "after its last entry"),
        (store(TRUSTED, count=(1 << 32) - 1), "cut"),
        (store(entry(1, block(b"key") + number((1 << 32) - 1) + certificate(b"one"))), "cut"),
        (store(entry(2, number((1 << 32) - 1))), "not X.509|cut"),
        (store(entry(2, certificate(b"c", b"PGP"))), "not X.509"),
    ],
)
def test_a_corrupt_key_store_is_rejected(content: bytes, reason: str) -> None:
    with pytest.raises(KeyStoreError, match=reason):
        read_java_key_store(content, PASSWORD)


@given(st.data())
def test_a_key_store_truncated_at_any_byte_is_rejected(data: st.DataObject) -> None:
    whole = store(TRUSTED, KEY)
    with pytest.raises(KeyStoreError):
        read_java_key_store(whole[: data.draw(st.integers(0, len(whole) - 1))], PASSWORD)


# --- keys -------------------------------------------------------------------------------------------


def der(tag: int, data: bytes) -> bytes:
    size = len(data)
    length = bytes([size]) if size < 128 else bytes([0x82]) + size.to_bytes(2)
    return bytes([tag]) + length + data


ALGORITHM = bytes.fromhex("300e060a2b060104012a021101010500")


def encrypted(key: bytes, password: bytes = WIDE) -> bytes:
    salt = bytes(range(20))
    stream, last = b"", salt
    while len(stream) < len(key):
        last = sha1(password + last).digest()
        stream += last
    data = bytes(one ^ other for one, other in zip(key, stream, strict=False))
    return der(0x30, ALGORITHM + der(0x04, salt + data + sha1(password + key).digest()))


@pytest.mark.parametrize("size", [0, 1, 20, 138, 1217])
def test_a_private_key_of_a_jks_file_is_decrypted(size: int) -> None:
    assert decrypt_private_key(encrypted(b"k" * size), PASSWORD) == b"k" * size


def test_a_wrong_password_of_a_key_is_rejected() -> None:
    with pytest.raises(WrongPassword):
        decrypt_private_key(encrypted(b"key"), "x")


@for_each(
    ("data", "reason"),
    [
        (b"", "no EncryptedPrivateKeyInfo"),
        (b"encrypted", "no EncryptedPrivateKeyInfo"),
        (encrypted(b"key")[:-1], "cut"),
        (encrypted(b"key") + b"x", "another encryption"),
        (der(0x30, ALGORITHM[:-3] + b"\x02\x05\x00" + der(0x04, bytes(50))), "another encryption"),
        (der(0x30, ALGORITHM + der(0x04, bytes(39))), "cut"),
        (der(0x30, ALGORITHM), "no EncryptedPrivateKeyInfo"),
        (b"\x30\xff", "another encryption|cut"),
    ],
)
def test_a_corrupt_private_key_is_rejected(data: bytes, reason: str) -> None:
    with pytest.raises(KeyStoreError, match=reason):
        decrypt_private_key(data, PASSWORD)
