"""The TLS of a listener: protocols, suites by Java's names, who is asked for a certificate, how keys are replaced."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from minibroker.broker.configs.settings import Settings, SettingsError
from minibroker.broker.security.tls import (
    NEWER_SUITES,
    ListenerTls,
    make_listener_tls,
    make_tls_settings,
    split_cipher_suites,
)
from tests.cases import for_each
from tests.certificates import Authority, Signed, inline

OLDER = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
NEWER = "TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256,TLS_CHACHA20_POLY1305_SHA256"

authority = Authority()
server = authority.sign()


def settings(**more: str) -> Settings:
    """Settings with stores as texts; names have _ for each dot."""
    return Settings({"log.dirs": "/nowhere", **inline(authority, server, **more)})


def context(protocol: str = "SSL", **more: str) -> ssl.SSLContext:
    return make_tls_settings("OUTSIDE", protocol, settings(**more)).context


def refusal(**more: str) -> str:
    with pytest.raises(SettingsError) as refused:
        context(**more)
    return str(refused.value)


@for_each(
    ("more", "versions"),
    [
        ({}, ("TLSv1_2", "TLSv1_3")),
        ({"ssl_enabled_protocols": "TLSv1.3"}, ("TLSv1_3", "TLSv1_3")),
        ({"ssl_enabled_protocols": "TLSv1.2"}, ("TLSv1_2", "TLSv1_2")),
        ({"ssl_enabled_protocols": "", "ssl_protocol": "TLSv1.2"}, ("TLSv1_2", "TLSv1_2")),
        ({"ssl_enabled_protocols": "", "ssl_protocol": "TLS"}, ("TLSv1_2", "TLSv1_3")),
        ({"ssl_cipher_suites": OLDER}, ("TLSv1_2", "TLSv1_2")),
        ({"ssl_cipher_suites": NEWER}, ("TLSv1_3", "TLSv1_3")),
        ({"ssl_cipher_suites": f"{OLDER},{NEWER}"}, ("TLSv1_2", "TLSv1_3")),
    ],
)
def test_enabled_protocols_and_cipher_suites_determine_the_tls_versions(
    more: dict[str, str], versions: tuple[str, str]
) -> None:
    made = context(**more)
    assert (made.minimum_version.name, made.maximum_version.name) == versions


@for_each(
    ("more", "complaint"),
    [
        ({"ssl_enabled_protocols": "TLSv1.1,TLSv1.2"}, "ssl.enabled.protocols: TLSv1.1 is not spoken"),
        ({"ssl_protocol": "SSLv3"}, "ssl.protocol: SSLv3 is none of"),
        ({"ssl_cipher_suites": "FOO"}, "ssl.cipher.suites: FOO is not known here"),
        ({"ssl_cipher_suites": f"{OLDER},TLS_DHE_DSS_WITH_AES_128_GCM_SHA256"}, "DSS_WITH_AES_128_GCM_SHA256 is not"),
        ({"ssl_cipher_suites": OLDER, "ssl_enabled_protocols": "TLSv1.3"}, "has no suite of the enabled protocols"),
        ({"ssl_principal_mapping_rules": "RULE:("}, "ssl.principal.mapping.rules: 'RULE:('"),
        ({"ssl_truststore_certificates": "x"}, "ssl.truststore holds no certificate in PEM"),
    ],
)
def test_invalid_tls_settings_are_reported_in_one_line_with_the_listener(more: dict[str, str], complaint: str) -> None:
    message = refusal(**more)
    assert message.startswith("listener OUTSIDE: ") and complaint in message


@for_each(
    ("protocol", "more", "mode"),
    [
        ("SSL", {}, ssl.CERT_NONE),
        ("SSL", {"ssl_client_auth": "requested"}, ssl.CERT_OPTIONAL),
        ("SSL", {"ssl_client_auth": "required"}, ssl.CERT_REQUIRED),
        ("SSL", {"ssl_client_auth": "required", "listener_name_outside_ssl_client_auth": "none"}, ssl.CERT_NONE),
        ("SASL_SSL", {"ssl_client_auth": "required"}, ssl.CERT_NONE),
        ("SASL_SSL", {"listener_name_outside_ssl_client_auth": "required"}, ssl.CERT_REQUIRED),
    ],
)
def test_client_auth_settings_set_the_verify_mode(protocol: str, more: dict[str, str], mode: ssl.VerifyMode) -> None:
    assert context(protocol, **more).verify_mode == mode


def test_clients_are_verified_with_the_systems_trust_store_by_default() -> None:
    given = {
        name: text
        for name, text in settings(ssl_client_auth="required").static_texts.items()
        if "truststore" not in name
    }
    made = make_tls_settings("OUTSIDE", "SSL", Settings(given))
    assert made.context.verify_mode == ssl.CERT_REQUIRED and not made.has_trust_store


# --- replacing --------------------------------------------------------------------------------------


def files(directory: Path, signed: Signed, **more: str) -> Settings:
    signed.write(directory, "server")
    location = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(directory / "server.pem")}
    return Settings({"log.dirs": "/nowhere", **location, **{name.replace("_", "."): more[name] for name in more}})


def test_a_rewritten_key_store_file_is_reloaded_and_an_unchanged_one_is_not(tmp_path: Path) -> None:
    tls = ListenerTls("OUTSIDE", "SSL", files(tmp_path, server))
    before = tls.current
    renewed = authority.sign()
    unchanged = files(tmp_path, renewed)
    os.utime(tmp_path / "server.pem", (1, 1))
    tls.renew_tls_settings(unchanged)
    assert tls.current is not before
    assert tls.current.identity.chain == (renewed.certificate,)
    again = tls.current
    tls.renew_tls_settings(unchanged)
    assert tls.current is again, "nothing has changed since"


def test_an_unusable_key_store_is_logged_and_the_current_one_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    present = files(tmp_path, server)
    tls = ListenerTls("OUTSIDE", "SSL", present)
    before = tls.current
    (tmp_path / "server.pem").write_text("nothing")
    os.utime(tmp_path / "server.pem", (1, 1))
    tls.renew_tls_settings(present)
    assert tls.current is before
    assert "the key store is not replaced: listener OUTSIDE: one private key is needed" in caplog.text


@for_each(
    ("after", "more", "complaint"),
    [
        (authority.sign("CN=other"), {}, "the certificate is for CN=other, and the one before is for CN=localhost"),
        (authority.sign("CN=other"), {"ssl.allow.dn.changes": "true"}, None),
        (authority.sign("CN=LOCALHOST"), {}, None),
        (authority.sign(hosts=("localhost",)), {}, "the certificate lacks 127.0.0.1"),
        (authority.sign(hosts=("localhost",)), {"ssl.allow.san.changes": "true"}, None),
        (authority.sign(hosts=("localhost", "127.0.0.1", "more.test")), {}, None),
    ],
)
def test_a_renewed_certificate_with_other_names_is_accepted_only_if_allowed(
    after: Signed, more: dict[str, str], complaint: str | None
) -> None:
    tls = ListenerTls("OUTSIDE", "SSL", Settings({**settings().static_texts, **more}))
    changed = Settings({**settings().static_texts, **more, **inline(authority, after)})
    if complaint is None:
        assert tls.make_tls_settings_if_changed(changed).identity.chain == (after.certificate,)
    else:
        with pytest.raises(SettingsError, match=complaint):
            tls.make_tls_settings_if_changed(changed)


def test_a_trust_store_cannot_be_added_to_an_open_listener(tmp_path: Path) -> None:
    tls = ListenerTls("OUTSIDE", "SSL", files(tmp_path, server))
    more = {"ssl_truststore_type": "PEM", "ssl_truststore_certificates": authority.pem}
    with pytest.raises(SettingsError, match="has no trust store, and one cannot be added"):
        tls.make_tls_settings_if_changed(files(tmp_path, server, **more))


def test_a_listener_opens_with_its_static_stores_if_the_dynamic_ones_are_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    later = settings().with_dynamic_configs(broker={"listener.name.outside.ssl.keystore.location": "/gone"})
    assert make_listener_tls("OUTSIDE", "SSL", settings(), later).current.identity.chain == (server.certificate,)
    assert "what was set while the broker ran is not used: listener OUTSIDE: " in caplog.text


def test_an_open_listener_takes_changed_stores_but_no_changed_client_auth() -> None:
    tls = make_listener_tls("OUTSIDE", "SSL", settings(), settings())
    renewed = authority.sign()
    texts = {**inline(authority, renewed), "ssl.client.auth": "required"}
    changed = settings().with_dynamic_configs(broker=texts)
    tls.renew_tls_settings(changed)
    assert tls.current.identity.chain == (renewed.certificate,)
    assert tls.current.context.verify_mode == ssl.CERT_NONE
    opened = make_listener_tls("OUTSIDE", "SSL", settings(), changed).current
    assert opened.context.verify_mode == ssl.CERT_REQUIRED


def test_replaced_tls_settings_load_their_stores_unless_these_are_unusable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    present = files(tmp_path, server)
    tls = ListenerTls("OUTSIDE", "SSL", present)
    later = Settings({"log.dirs": "/nowhere", **inline(authority, authority.sign("CN=other"))})
    tls.current = ListenerTls("OUTSIDE", "SSL", later).current
    tls.replace_tls_settings(present)
    assert tls.current.identity.chain == (server.certificate,)
    (tmp_path / "server.pem").write_text("nothing")
    os.utime(tmp_path / "server.pem", (1, 1))
    tls.replace_tls_settings(present)
    assert tls.current.identity.chain == (server.certificate,) and "the key store is not replaced" in caplog.text


def test_javas_cipher_suite_names_are_translated_to_openssls() -> None:
    names = {
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
        "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
        "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    }
    older, newer = split_cipher_suites(names)
    assert (older, newer) == (list(names.values()), [])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(":".join(older))
    assert set(older) <= {cipher["name"] for cipher in context.get_ciphers()}


def test_tls_1_3_cipher_suites_can_only_be_enabled_all_together() -> None:
    assert split_cipher_suites(NEWER_SUITES) == ([], list(NEWER_SUITES))
    with pytest.raises(ValueError, match="either all suites are offered or none"):
        split_cipher_suites(NEWER_SUITES[:1])


@pytest.mark.parametrize("name", ["TLS_FOO", "ECDHE-RSA-AES256-GCM-SHA384", "TLS_RSA_WITH_RC4_128_MD5", ""])
def test_an_unknown_cipher_suite_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="is not known here"):
        split_cipher_suites([name])
