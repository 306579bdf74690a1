"""Cipher suites by their names in Java."""

from __future__ import annotations

import ssl

import pytest

from minibroker.broker.security.cipher_suites import NEWER, split_suites


def test_javas_cipher_suite_names_are_translated_to_openssls() -> None:
    names = {
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
        "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
        "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    }
    older, newer = split_suites(names)
    assert (older, newer) == (list(names.values()), [])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(":".join(older))
    assert set(older) <= {cipher["name"] for cipher in context.get_ciphers()}


def test_tls_1_3_suites_are_enabled_only_together() -> None:
    assert split_suites(NEWER) == ([], list(NEWER))
    with pytest.raises(ValueError, match="either all suites are offered or none"):
        split_suites(NEWER[:1])


@pytest.mark.parametrize("name", ["TLS_FOO", "ECDHE-RSA-AES256-GCM-SHA384", "TLS_RSA_WITH_RC4_128_MD5", ""])
def test_an_unknown_cipher_suite_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="is not known here"):
        split_suites([name])
