"""Certificates for tests, made in memory: an authority, and the certificates that it signs."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

DAY = datetime.timedelta(days=1)
LOCALHOST = ("localhost", "127.0.0.1")
SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Signed(NamedTuple):
    """A private key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def pkcs12(self, password: str, *others: x509.Certificate) -> bytes:
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"it", self.key, self.certificate, others, encryption)

    def write(self, directory: Path, name: str) -> Path:
        """Write key and certificate into one file in PEM; return its path."""
        path = directory / f"{name}.pem"
        path.write_text(self.key_pem() + self.certificate_pem)
        return path


def subject(text: str) -> x509.Name:
    """Return a name from a text as in RFC 4514, the last attribute first."""
    return x509.Name.from_rfc4514_string(text)


class Authority:
    """A certificate authority."""

    def __init__(self, name: str = "CN=Test authority", issuer: Authority | None = None) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        self.own = self._sign(key, subject(name), issuer, [], is_authority=True)

    @property
    def pem(self) -> str:
        """Return its own certificate in PEM."""
        return self.own.certificate_pem

    def sign(self, name: str = "CN=localhost", hosts: tuple[str, ...] = LOCALHOST, *, expired: bool = False) -> Signed:
        """Return a key and a certificate, for a server or a client."""
        return self._sign(ec.generate_private_key(ec.SECP256R1()), subject(name), self, hosts, expired=expired)

    @staticmethod
    def _sign(
        key: ec.EllipticCurvePrivateKey,
        name: x509.Name,
        issuer: Authority | None,
        hosts: tuple[str, ...] | list[str],
        *,
        is_authority: bool = False,
        expired: bool = False,
    ) -> Signed:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name if issuer is None else issuer.own.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 3 * DAY)
            .not_valid_after(now - DAY if expired else now + 3 * DAY)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        if is_authority:  # of one that does not say so, Python 3.13 accepts no certificate
            builder = builder.add_extension(SIGNS_CERTIFICATES, critical=True)
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        by = key if issuer is None else issuer.own.key
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key())
        builder = builder.add_extension(identifier, critical=False)
        return Signed(key, builder.sign(by, hashes.SHA256()))


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def inline(authority: Authority, server: Signed | None = None, **more: str) -> dict[str, str]:
    """Return the settings of a broker with TLS and with its stores as texts. In `more`, each _ stands for a dot."""
    own = server or authority.sign()
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": own.key_pem(),
        "ssl.keystore.certificate.chain": own.certificate_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.pem,
        **{name.replace("_", "."): value for name, value in more.items()},
    }
