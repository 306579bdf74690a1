"""TLS of one listener: its `ssl.*` settings, and their replacement while clients are connected.

`TlsSettings` never changes. `ListenerTls` has the current one, which new connections use; open connections keep theirs.
Cipher suites have Java's names in settings, which are IANA's, and others for OpenSSL.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import Iterable
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from minibroker.broker.configs.listeners import get_listener_setting
from minibroker.broker.configs.settings import Settings, SettingsError
from minibroker.broker.security.distinguished_names import read_certificate_subject
from minibroker.broker.security.key_stores import (
    BrokerIdentity,
    StoreError,
    load_key_and_certificates,
    load_trusted_certificates,
)
from minibroker.broker.security.principal_mapping import InvalidRules, PrincipalMapping
from minibroker.operating_system import make_secret_file

log = logging.getLogger("minibroker.security")

# The settings that can be changed for an open listener; Kafka calls them reconfigurable.
STORES: Final = (
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
)
FILES: Final = ("ssl.keystore.location", "ssl.truststore.location")
VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
HIGHEST: Final = {"TLS": ssl.TLSVersion.TLSv1_3, "SSL": ssl.TLSVersion.TLSv1_3, **VERSIONS}
CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}

NEWER_SUITES: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")  # of TLS 1.3
SIGNALLING_SUITE = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"  # Java lists it among the suites; OpenSSL sends it by itself
OLDER_SUITE: Final = re.compile(
    r"TLS_(?P<exchange>RSA|DHE_RSA|ECDHE_(?:RSA|ECDSA))_WITH_"
    r"(?:AES_(?P<bits>128|256)_(?P<mode>GCM|CBC)_(?P<hash>SHA(?:256|384)?)|(?P<chacha>CHACHA20_POLY1305_SHA256))"
)


class TlsSettings(NamedTuple):
    """The SSL context of new connections, and what later settings are compared with."""

    context: ssl.SSLContext
    mapping: PrincipalMapping | None  # None if clients authenticate by SASL
    identity: BrokerIdentity
    has_trust_store: bool
    source: tuple[object, ...]  # the settings of the stores, and the times at which their files were written


class ListenerTls:
    """The TLS of a listener."""

    def __init__(self, name: str, protocol: str, settings: Settings) -> None:
        """Read the settings and the stores. Raises SettingsError."""
        self._name = name
        self._protocol = protocol
        self._opened_with = settings
        self.current = make_tls_settings(name, protocol, settings)

    def make_tls_settings_if_changed(self, settings: Settings) -> TlsSettings:
        """Return new TLS settings if settings or store files have changed, else the current ones.

        Raises SettingsError if they are invalid, or if Kafka does not allow the change on an open listener.
        """
        before = self.current
        if _get_settings_and_file_times(self._name, settings) == before.source:
            return before
        after = make_tls_settings(self._name, self._protocol, self._opened_with, store_settings=settings)
        if after.has_trust_store and not before.has_trust_store:
            raise SettingsError(f"listener {self._name} has no trust store, and one cannot be added while it is open")
        objection = None
        if not get_listener_setting(settings, "ssl.allow.dn.changes", self._name):
            objection = _find_changed_subject_objection(before.identity, after.identity)
        if objection is None and not get_listener_setting(settings, "ssl.allow.san.changes", self._name):
            objection = _find_alternative_names_objection(before.identity, after.identity)
        if objection is not None:
            raise SettingsError(f"listener {self._name}: {objection}")
        return after

    def replace_tls_settings(self, settings: Settings) -> None:
        """Use these settings as at a start, even if the certificate is for another subject than before."""
        self._opened_with = settings
        if _get_settings_and_file_times(self._name, settings) != self.current.source:
            try:
                self.current = make_tls_settings(self._name, self._protocol, settings)
            except SettingsError as error:
                log.error("the key store is not replaced: %s", error)

    def renew_tls_settings(self, settings: Settings) -> None:
        """Use changed settings for new connections. If they are invalid, log that and keep the current ones."""
        try:
            after = self.make_tls_settings_if_changed(settings)
        except SettingsError as error:
            log.error("the key store is not replaced: %s", error)
            return
        if after is not self.current:
            self.current = after
            log.info("listener %s has new keys and certificates", self._name)


def make_listener_tls(name: str, protocol: str, static_settings: Settings, settings: Settings) -> ListenerTls:
    """Return the TLS of a listener that is opened, by the current settings.

    If these are invalid, log that and use the static ones. Raises SettingsError if they are invalid too.
    """
    try:
        return ListenerTls(name, protocol, settings)
    except SettingsError as error:
        log.error("what was set while the broker ran is not used: %s", error)
        return ListenerTls(name, protocol, static_settings)


def make_tls_settings(
    listener_name: str, security_protocol: str, settings: Settings, store_settings: Settings | None = None
) -> TlsSettings:
    """Return the TLS settings of a listener, with the stores of `store_settings` if given. Raises SettingsError."""
    of_stores = store_settings or settings
    source = _get_settings_and_file_times(listener_name, of_stores)
    try:
        own = load_key_and_certificates(lambda setting: get_listener_setting(of_stores, setting, listener_name))
        anchors = load_trusted_certificates(lambda setting: get_listener_setting(of_stores, setting, listener_name))
        rules = PrincipalMapping(get_listener_setting(settings, "ssl.principal.mapping.rules", listener_name))
        context = _make_ssl_context(listener_name, security_protocol, settings, own, anchors)
    except StoreError as error:
        raise SettingsError(f"listener {listener_name}: {error}") from None
    except InvalidRules as error:
        raise SettingsError(f"listener {listener_name}: ssl.principal.mapping.rules: {error}") from None
    mapping = None if security_protocol == "SASL_SSL" else rules
    return TlsSettings(context, mapping, own, anchors is not None, source)


def _get_settings_and_file_times(name: str, settings: Settings) -> tuple[object, ...]:
    """Return the store settings and the times of their files, which differ if the stores must be read again."""
    values = [get_listener_setting(settings, setting, name) for setting in STORES]
    return (*values, *(_get_last_written_ns(get_listener_setting(settings, setting, name)) for setting in FILES))


def _get_last_written_ns(location: str | None) -> int | None:
    """Return when a file was last written (ns since 1970), or None if it does not exist."""
    try:
        return None if location is None else os.stat(location).st_mtime_ns
    except (OSError, ValueError):
        return None


def _make_ssl_context(
    name: str,
    protocol: str,
    settings: Settings,
    identity: BrokerIdentity,
    trusted_certificates: tuple[x509.Certificate, ...] | None,
) -> ssl.SSLContext:
    """Return the SSL context of new connections. Raises StoreError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    _set_tls_versions(context, name, settings)
    with make_secret_file(identity.encode_pem()) as path:
        try:
            context.load_cert_chain(path)
        except (ssl.SSLError, OSError) as error:
            raise StoreError(f"the key store cannot be used: {getattr(error, 'reason', None) or error}") from None
    context.verify_mode = CLIENT_AUTH[_get_client_auth(name, protocol, settings)]
    if trusted_certificates is None:
        if context.verify_mode != ssl.CERT_NONE:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    else:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Java, each certificate is a trust anchor
        context.load_verify_locations(
            cadata=b"".join(anchor.public_bytes(Encoding.DER) for anchor in trusted_certificates)
        )
    return context


def _get_client_auth(name: str, protocol: str, settings: Settings) -> str:
    """Return the listener's `ssl.client.auth`. With SASL, only the listener's own setting counts (KIP-684)."""
    if protocol == "SASL_SSL" and settings.get_value(f"listener.name.{name.lower()}.ssl.client.auth") is None:
        return "none"
    wanted: str = get_listener_setting(settings, "ssl.client.auth", name)
    return wanted


def _set_tls_versions(context: ssl.SSLContext, name: str, settings: Settings) -> None:
    """Set the TLS versions and cipher suites of the context. Raises StoreError."""
    enabled = get_listener_setting(settings, "ssl.enabled.protocols", name)
    highest = get_listener_setting(settings, "ssl.protocol", name)
    unknown = [version for version in enabled if version not in VERSIONS]
    if unknown:
        raise StoreError(f"ssl.enabled.protocols: {unknown[0]} is not spoken, only {' and '.join(VERSIONS)} are")
    if highest not in HIGHEST:
        raise StoreError(f"ssl.protocol: {highest} is none of {', '.join(HIGHEST)}")
    versions = {VERSIONS[version] for version in enabled} or {ssl.TLSVersion.TLSv1_2, HIGHEST[highest]}
    suites = get_listener_setting(settings, "ssl.cipher.suites", name)
    if suites:
        older, newer = _split_cipher_suites(suites)
        versions &= {version for version, some in ((VERSIONS["TLSv1.2"], older), (VERSIONS["TLSv1.3"], newer)) if some}
        if not versions:
            raise StoreError("ssl.cipher.suites has no suite of the enabled protocols")
        if older:
            context.set_ciphers(":".join(older))
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _split_cipher_suites(names: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the result of `split_cipher_suites`. Raises StoreError for an unknown name."""
    try:
        return split_cipher_suites(names)
    except ValueError as error:
        raise StoreError(f"ssl.cipher.suites: {error}") from None


def _find_changed_subject_objection(before: BrokerIdentity, after: BrokerIdentity) -> str | None:
    """Return an objection if the certificate is for another subject."""
    old, new = (read_certificate_subject(one.chain[0].public_bytes(Encoding.DER)) for one in (before, after))
    if " ".join(old.casefold().split()) == " ".join(new.casefold().split()):
        return None
    return f"the certificate is for {new}, and the one before is for {old} (ssl.allow.dn.changes)"


def _find_alternative_names_objection(before: BrokerIdentity, after: BrokerIdentity) -> str | None:
    """Return an objection if the new certificate lacks alternative names of the one before."""
    missing = _get_alternative_names(before) - _get_alternative_names(after)
    return f"the certificate lacks {', '.join(sorted(missing))} (ssl.allow.san.changes)" if missing else None


def _get_alternative_names(identity: BrokerIdentity) -> set[str]:
    try:
        names = identity.chain[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return set()
    return {str(name.value) for name in names}


def split_cipher_suites(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the suites of TLS 1.2 by OpenSSL's names, and those of TLS 1.3.

    Raises ValueError for unknown suites. Also raise it if only some suites of TLS 1.3 are listed, as the `ssl` module
    cannot choose among them.
    """
    older, newer = [], []
    for name in names:
        if name in NEWER_SUITES:
            newer.append(name)
        elif name != SIGNALLING_SUITE:
            older.append(_get_openssl_cipher_name(name))
    if newer and len(newer) < len(NEWER_SUITES):
        raise ValueError(f"of TLSv1.3, either all suites are offered or none: {', '.join(NEWER_SUITES)}")
    return older, newer


def _get_openssl_cipher_name(name: str) -> str:
    match = OLDER_SUITE.fullmatch(name)
    if match is None:
        raise ValueError(f"{name} is not known here")
    exchange = "" if match["exchange"] == "RSA" else match["exchange"].replace("_", "-") + "-"
    if match["chacha"]:
        return f"{exchange}CHACHA20-POLY1305"
    mode = "GCM-" if match["mode"] == "GCM" else ""
    return f"{exchange}AES{match['bits']}-{mode}{match['hash']}"
