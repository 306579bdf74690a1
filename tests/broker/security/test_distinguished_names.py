"""Names of certificates as Java writes them; conformance/security asks Java itself."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from minibroker.broker.security.distinguished_names import (
    MalformedName,
    format_distinguished_name,
    read_certificate_subject,
)
from tests.cases import for_each
from tests.certificates import Authority


def der(*attributes: tuple[x509.ObjectIdentifier, str]) -> bytes:
    return x509.Name([x509.NameAttribute(*attribute) for attribute in attributes]).public_bytes()


@for_each(
    ("attributes", "text"),
    [
        ((), ""),
        (((NameOID.COUNTRY_NAME, "DE"), (NameOID.COMMON_NAME, "alice")), "CN=alice,C=DE"),
        (((NameOID.DOMAIN_COMPONENT, "org"), (NameOID.USER_ID, "u")), "UID=u,DC=org"),
        (((NameOID.EMAIL_ADDRESS, "a@b"),), "1.2.840.113549.1.9.1=#1603614062"),
        (((NameOID.SERIAL_NUMBER, "7"),), "2.5.4.5=#130137"),
        (((NameOID.COMMON_NAME, ' a,b+c="<>;\\#d '),), 'CN=\\ a\\,b\\+c\\=\\"\\<\\>\\;\\\\\\#d\\ '),
        (((NameOID.COMMON_NAME, "Jürgen 漢"),), "CN=Jürgen 漢"),
    ],
)
def test_a_distinguished_name_is_formatted_as_by_java(
    attributes: tuple[tuple[x509.ObjectIdentifier, str], ...], text: str
) -> None:
    assert format_distinguished_name(der(*attributes)) == text


def test_multi_valued_attributes_are_joined_by_a_plus() -> None:
    together = x509.RelativeDistinguishedName(
        [x509.NameAttribute(NameOID.COMMON_NAME, "a"), x509.NameAttribute(NameOID.ORGANIZATION_NAME, "b")]
    )
    assert format_distinguished_name(x509.Name([together]).public_bytes()) in ("CN=a+O=b", "O=b+CN=a")


@pytest.mark.parametrize("attribute", ["", "0603550403"])
def test_an_incomplete_attribute_is_malformed(attribute: str) -> None:
    length = len(attribute) // 2
    name = bytes([0x30, length + 4, 0x31, length + 2, 0x30, length]) + bytes.fromhex(attribute)
    with pytest.raises(MalformedName):
        format_distinguished_name(name)


def test_the_certificates_subject_is_read_and_not_its_issuer() -> None:
    signed = Authority("CN=the authority").sign("CN=the client,OU=x")
    assert read_certificate_subject(signed.certificate.public_bytes(Encoding.DER)) == "CN=the client,OU=x"


def test_a_truncated_certificate_is_malformed() -> None:
    whole = Authority().sign("CN=the client,OU=x").certificate.public_bytes(Encoding.DER)
    for length in range(0, 200, 7):
        with pytest.raises(MalformedName):
            read_certificate_subject(whole[:length])
