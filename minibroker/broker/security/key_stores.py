"""Key stores and trust stores: the broker's key and certificates, and the certificates that it trusts.

The `ssl.*` settings contain them as PEM texts, or name files in PEM, PKCS12 or JKS. As in Java, a store of type PKCS12
may be a JKS file, and the other way round: its first bytes tell. Kafka's rules say which settings may be combined. Only
a broker with a TLS listener imports this file, and with it `cryptography`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat, pkcs12

from minibroker.broker.security import java_key_store

PEM, JKS = "PEM", "JKS"
TYPES: Final = (PEM, "PKCS12", JKS)
JCEKS: Final = b"\xce\xce\xce\xce"  # begins Java's other format, whose keys have another encryption
FILE_SIZE_MAX = 1 << 20
ENTRY: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
HEADER: Final = re.compile(r"^[^\r\n:]+:[^\r\n]*$", re.MULTILINE)
TO_PKCS12 = "convert it: keytool -importkeystore -srckeystore {0} -destkeystore {0}.p12 -deststoretype PKCS12"

GetSetting = Callable[[str], Any]  # a setting's value, by its name


class StoreError(ValueError):
    """A store that cannot be used. The message is one line without secrets."""


class BrokerIdentity(NamedTuple):
    """The broker's private key and its certificate chain, its own certificate first."""

    key: CertificateIssuerPrivateKeyTypes
    chain: tuple[x509.Certificate, ...]

    def encode_pem(self) -> bytes:
        """Return key and chain in PEM, the key unencrypted."""
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return key + b"".join(certificate.public_bytes(Encoding.PEM) for certificate in self.chain)


def load_key_and_certificates(get_setting: GetSetting) -> BrokerIdentity:
    """Return the identity from the `ssl.keystore` settings. Raises StoreError."""
    key, chain, location = (
        get_setting("ssl.keystore.key"),
        get_setting("ssl.keystore.certificate.chain"),
        get_setting("ssl.keystore.location"),
    )
    if key is None and chain is None and location is None:
        raise StoreError("it has no key: set ssl.keystore.location, or ssl.keystore.key and certificate.chain")
    kind = _get_store_type("ssl.keystore.type", get_setting)
    if (key is None) != (chain is None):
        raise StoreError("ssl.keystore.key and ssl.keystore.certificate.chain go together, and one of them is not set")
    _check_single_key_source("ssl.keystore", kind, key, location, get_setting)
    if kind == PEM:
        text = _read_pem_or_key_file("ssl.keystore.location", location).decode("latin-1") if key is None else None
        pair = _parse_pem_identity(text or key, text or chain, get_setting("ssl.key.password"))
    else:
        content = _read_store_file("ssl.keystore", location)
        read = _parse_jks_identity if content.startswith(java_key_store.MAGIC) else _parse_pkcs12_identity
        pair = read(content, location, get_setting)
    return _check_key_matches_certificate(pair)


def load_trusted_certificates(get_setting: GetSetting) -> tuple[x509.Certificate, ...] | None:
    """Return the trusted certificates from the `ssl.truststore` settings; None if none are set. Raises StoreError."""
    given, location = get_setting("ssl.truststore.certificates"), get_setting("ssl.truststore.location")
    kind = _get_store_type("ssl.truststore.type", get_setting)
    if given is None and location is None:
        if get_setting("ssl.truststore.password") is not None:
            raise StoreError("ssl.truststore.password is set, and ssl.truststore.location is not")
        return None
    _check_single_key_source("ssl.truststore", kind, given, location, get_setting)
    if kind == PEM:
        text = _read_pem_or_key_file("ssl.truststore.location", location).decode("latin-1") if given is None else given
        return _parse_certificates("ssl.truststore", text)
    content, password = _read_store_file("ssl.truststore", location), get_setting("ssl.truststore.password")
    read = _parse_jks_trust_store if content.startswith(java_key_store.MAGIC) else _parse_pkcs12_certificates
    certificates = read(content, location, password)
    if not certificates:
        raise StoreError(f"ssl.truststore.location: {location} holds no certificate")
    return certificates


def _get_store_type(name: str, get_setting: GetSetting) -> str:
    """Return the type of a store, PEM, PKCS12 or JKS, from its setting. Raises StoreError for another one."""
    kind: str = get_setting(name)
    if kind != PEM and kind.upper() not in TYPES[1:]:
        raise StoreError(f"{name}={kind} is none of {', '.join(TYPES)}")
    return kind if kind == PEM else kind.upper()


def _check_single_key_source(
    store: str, kind: str, key_text: str | None, location: str | None, get_setting: GetSetting
) -> None:
    """Raise StoreError unless a store has exactly one source, and a password if its type needs one."""
    password = get_setting(f"{store}.password")
    if key_text is not None and kind != PEM:
        raise StoreError(f"{store}.type={kind}: only PEM can be given as a text, and not as a file")
    if key_text is not None and location is not None:
        raise StoreError(f"{store}.location is set, and so is the PEM text: only one of them can be")
    if kind == PEM and password is not None:
        raise StoreError(f"{store}.password has no meaning for PEM; an encrypted key has ssl.key.password")
    if kind != PEM and password is None and store == "ssl.keystore":
        raise StoreError(f"{store}.location is set, and {store}.password is not")


def _read_pem_or_key_file(name: str, location: str) -> bytes:
    try:
        with Path(location).open("rb") as stream:
            content = stream.read(FILE_SIZE_MAX + 1)
    except (OSError, ValueError) as error:
        raise StoreError(f"{name}: {location}: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > FILE_SIZE_MAX:
        raise StoreError(f"{name}: {location} is larger than {FILE_SIZE_MAX} bytes, so it is no store")
    return content


# --- PEM ------------------------------------------------------------------------------------------


def _parse_pem_identity(key_text: str, chain_text: str, password: str | None) -> BrokerIdentity:
    keys = [
        (label, content) for label, content in _parse_pem_entries("the key", key_text) if label.endswith("PRIVATE KEY")
    ]
    if len(keys) != 1:
        raise StoreError(f"one private key is needed in the key store, and there are {len(keys)}")
    if keys[0][0].startswith("ENCRYPTED") and password is None:
        raise StoreError("the private key is encrypted, and ssl.key.password is not set")
    try:
        key = serialization.load_der_private_key(keys[0][1], None if password is None else password.encode())
    except TypeError:
        raise StoreError("ssl.key.password is set, and the private key is not encrypted") from None
    except (ValueError, UnsupportedAlgorithm):
        hint = "it is not PKCS#8" if password is None else "ssl.key.password may be wrong"
        raise StoreError(f"the private key cannot be read: {hint}") from None
    return BrokerIdentity(key, _parse_certificates("ssl.keystore", chain_text))  # type: ignore[arg-type]  # `_check_key_matches_certificate` sees to it


def _parse_certificates(store: str, text: str) -> tuple[x509.Certificate, ...]:
    contents = [content for label, content in _parse_pem_entries(store, text) if label == "CERTIFICATE"]
    if not contents:
        raise StoreError(f"{store} holds no certificate in PEM")
    try:
        return tuple(x509.load_der_x509_certificate(content) for content in contents)
    except ValueError:
        raise StoreError(f"{store}: a certificate cannot be read") from None


def _parse_pem_entries(source: str, text: str) -> list[tuple[str, bytes]]:
    """Return (label, content) of each entry of a PEM text, which may have spaces instead of line ends."""
    entries = []
    for label, body in ENTRY.findall(text):
        if "DEK-Info:" in body:
            raise StoreError("the private key has OpenSSL's older encryption: convert it with openssl pkcs8 -topk8")
        try:
            content = base64.b64decode("".join(HEADER.sub("", body).split()), validate=True)
        except (binascii.Error, ValueError):
            raise StoreError(f"{source}: what is between BEGIN {label} and END is not base64") from None
        entries.append((label, content))
    return entries


# --- PKCS12 ---------------------------------------------------------------------------------------


def _read_store_file(store: str, location: str) -> bytes:
    """Return the content of a file in PKCS12 or JKS. Raises StoreError if it is neither."""
    content = _read_pem_or_key_file(f"{store}.location", location)
    if content.startswith(JCEKS):
        raise StoreError(f"{store}.location: {location} is a JCEKS file, {TO_PKCS12.format(location)}")
    if b"-----BEGIN " in content:
        raise StoreError(f"{store}.location: {location} is PEM: set {store}.type=PEM")
    return content


def _parse_pkcs12_identity(content: bytes, location: str, get_setting: GetSetting) -> BrokerIdentity:
    password, of_key = get_setting("ssl.keystore.password"), get_setting("ssl.key.password")
    if of_key not in (None, password):
        raise StoreError("ssl.key.password differs from ssl.keystore.password; in PKCS12 they have to be the same")
    store = _parse_pkcs12("ssl.keystore", content, location, password)
    if store.key is None or store.cert is None:
        raise StoreError(f"ssl.keystore.location: {location} holds no private key with a certificate")
    others = [entry.certificate for entry in store.additional_certs]
    return BrokerIdentity(store.key, _order_certificate_chain(store.cert.certificate, others))  # type: ignore[arg-type]  # as above


def _parse_pkcs12_certificates(content: bytes, location: str, password: str | None) -> tuple[x509.Certificate, ...]:
    store = _parse_pkcs12("ssl.truststore", content, location, password)
    entries = (store.cert, *store.additional_certs) if store.cert else store.additional_certs
    return tuple(entry.certificate for entry in entries)


def _parse_pkcs12(name: str, content: bytes, location: str, password: str | None) -> pkcs12.PKCS12KeyAndCertificates:
    try:
        return pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except (ValueError, UnsupportedAlgorithm):
        reason = f"{name}.password may be wrong" if content.startswith(b"\x30") else "it is not PKCS12"
        raise StoreError(f"{name}.location: {location} cannot be read: {reason}") from None


def _order_certificate_chain(
    certificate: x509.Certificate, others: list[x509.Certificate]
) -> tuple[x509.Certificate, ...]:
    """Return the chain from the broker's own certificate upwards, as far as the store has the issuers."""
    chain = [certificate]
    while others and chain[-1].issuer != chain[-1].subject:
        issuer = next((other for other in others if other.subject == chain[-1].issuer), None)
        if issuer is None:
            break
        others.remove(issuer)
        chain.append(issuer)
    return tuple(chain)


# --- JKS ------------------------------------------------------------------------------------------


def _parse_jks_identity(content: bytes, location: str, get_setting: GetSetting) -> BrokerIdentity:
    """Return the first private key of a JKS file with its chain. The key may have its own password."""
    name, password, of_key = "ssl.keystore", get_setting("ssl.keystore.password"), get_setting("ssl.key.password")
    store = _parse_jks(name, content, location, password)
    if not store.keys or not store.keys[0].chain:
        raise StoreError(f"{name}.location: {location} holds no private key with a certificate")
    try:
        key = java_key_store.decrypt_private_key(store.keys[0].encrypted, password if of_key is None else of_key)
        loaded = serialization.load_der_private_key(key, None)
    except java_key_store.WrongPassword:
        wrong = "of the key is another, set ssl.key.password" if of_key is None else "in ssl.key.password is wrong"
        raise StoreError(f"{name}.location: {location} cannot be read: the password {wrong}") from None
    except java_key_store.KeyStoreError as error:
        raise StoreError(f"{name}.location: {location} cannot be read: {error}") from None
    except (ValueError, UnsupportedAlgorithm):
        raise StoreError(f"{name}.location: {location} cannot be read: the key is of an unknown kind") from None
    return BrokerIdentity(loaded, _parse_jks_certificates(name, location, store.keys[0].chain))  # type: ignore[arg-type]  # as above


def _parse_jks_trust_store(content: bytes, location: str, password: str | None) -> tuple[x509.Certificate, ...]:
    """Return the trusted certificates and, as Java trusts them too, those of private keys."""
    store = _parse_jks("ssl.truststore", content, location, password)
    own = [key.chain[0] for key in store.keys if key.chain]
    return _parse_jks_certificates("ssl.truststore", location, (*store.trusted, *own))


def _parse_jks(name: str, content: bytes, location: str, password: str | None) -> java_key_store.JavaKeyStore:
    try:
        return java_key_store.read_java_key_store(content, password)
    except java_key_store.WrongPassword:
        raise StoreError(f"{name}.location: {location} cannot be read: {name}.password may be wrong") from None
    except java_key_store.KeyStoreError as error:
        raise StoreError(f"{name}.location: {location} cannot be read: {error}") from None


def _parse_jks_certificates(name: str, location: str, certificates: tuple[bytes, ...]) -> tuple[x509.Certificate, ...]:
    try:
        return tuple(map(x509.load_der_x509_certificate, certificates))
    except ValueError:
        raise StoreError(f"{name}.location: {location}: a certificate cannot be read") from None


def _check_key_matches_certificate(identity: BrokerIdentity) -> BrokerIdentity:
    """Return `identity`. Raises StoreError if the key does not belong to the first certificate."""
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if identity.key.public_key().public_bytes(*form) != identity.chain[0].public_key().public_bytes(*form):
        raise StoreError("the private key is not that of the first certificate of the key store")
    return identity
