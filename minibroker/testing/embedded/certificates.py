"""A certificate authority in memory, for the listeners and clients of one test broker."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from minibroker.operating_system import make_secret_file

LIFE: Final = timedelta(days=365)


class CertificateWithKey(NamedTuple):
    """A private key and its certificate, in PEM."""

    key: str
    certificate: str

    def load_into(self, context: ssl.SSLContext) -> None:
        """Let a TLS context present the certificate."""
        with make_secret_file((self.key + self.certificate).encode()) as path:  # the library reads files only
            context.load_cert_chain(path)

    def make_server_context(self) -> ssl.SSLContext:
        """Return the TLS context of a server that presents the certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.load_into(context)
        return context


class CertificateAuthority:
    """An authority that issues certificates; clients trust `certificate` (PEM)."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _make_x509_name("minibroker test authority")
        built = _make_certificate_builder(self._name, self._name, self._key, *_choose_validity(expired=False))
        built = built.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        built = built.add_extension(_make_usage(signs_certificates=True), critical=True)
        self.certificate = _encode_pem(built.sign(self._key, hashes.SHA256()))

    def issue_certificate(self, name: str, hosts: tuple[str, ...] = (), *, expired: bool = False) -> CertificateWithKey:
        """Return a key and a certificate for a client, or for a server at these names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        built = _make_certificate_builder(_make_x509_name(name), self._name, key, *_choose_validity(expired=expired))
        built = built.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        built = built.add_extension(_make_usage(signs_certificates=False), critical=True)
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        built = built.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        built = built.add_extension(issuer, critical=False)
        if hosts:
            built = built.add_extension(
                x509.SubjectAlternativeName([_make_host_name(each) for each in hosts]), critical=False
            )
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return CertificateWithKey(private, _encode_pem(built.sign(self._key, hashes.SHA256())))


def _make_x509_name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _choose_validity(*, expired: bool) -> tuple[datetime, datetime]:
    begin = datetime.now(UTC) - timedelta(days=1)
    return (begin - LIFE, begin) if expired else (begin, begin + LIFE)


def _make_certificate_builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _make_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return the key usage of a certificate: to sign certificates, or else for TLS."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _make_host_name(name: str) -> x509.GeneralName:
    """Return an IP address or a DNS name as an alternative name of a certificate."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _encode_pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
