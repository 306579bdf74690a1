"""TLS settings by the names of Kafka's clients, made into an `ssl.SSLContext`.

PEM is read here. The caller passes a function that reads Java's trust stores. Key stores must be PEM.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from minibroker.client.client_errors import SettingError
from minibroker.operating_system import make_secret_file

ReadStore = Callable[[str, str], str]

PEM: Final = b"-----BEGIN"
VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
STORE_TYPES: Final = ("PEM", "JKS", "PKCS12")
# OpenSSL's reasons for bytes that are not TLS.
NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
# Settings that have no effect without another one. Java's client refuses them as well.
NEEDS: Final = {
    "ssl.truststore.password": "ssl.truststore.location",
    "ssl.keystore.password": "ssl.keystore.location",
    "ssl.key.location": "ssl.certificate.location",
    "ssl.keystore.key": "ssl.keystore.certificate.chain",
}

# Java's name first, then librdkafka's.
NAMES: Final = (
    ("ssl.truststore.location", "ssl.ca.location"),
    ("ssl.truststore.certificates", "ssl.ca.pem"),
    ("ssl.truststore.type",),
    ("ssl.truststore.password",),
    ("ssl.keystore.location",),
    ("ssl.keystore.type",),
    ("ssl.keystore.password",),
    ("ssl.certificate.location",),
    ("ssl.key.location",),
    ("ssl.keystore.certificate.chain", "ssl.certificate.pem"),
    ("ssl.keystore.key", "ssl.key.pem"),
    ("ssl.key.password",),
    ("ssl.crl.location",),
    ("ssl.endpoint.identification.algorithm",),
    ("enable.ssl.certificate.verification",),
    ("ssl.enabled.protocols",),
    ("ssl.protocol",),
)


def make_tls_context(
    settings: dict[str, str], is_required: bool, read_store: ReadStore | None = None
) -> ssl.SSLContext | None:
    """Take the settings of TLS out, and return a context, None if TLS is not `is_required`. Raises `SettingError`.

    `read_store(path, password)` returns the certificates of a Java trust store in PEM, or raises OSError.
    """
    stores = {names[0]: value for names in NAMES for name in names if (value := settings.pop(name, None)) is not None}
    if not is_required:
        return None
    for name, needed in NEEDS.items():
        if name in stores and needed not in stores:
            raise SettingError(f"{name} has an effect only with {needed}")
    trusts = "ssl.truststore.location" in stores or "ssl.truststore.certificates" in stores
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if trusts else ssl.create_default_context()
    _set_tls_versions(context, stores)
    _load_truststore(context, stores, read_store)
    _load_keystore(context, stores)
    _set_hostname_checks(context, stores)
    return context


def describe_tls_problem(error: Exception) -> str | None:
    """Return the message for an error of TLS, None for other errors."""
    if not isinstance(error, ssl.SSLError):
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: {error.reason} ({error.verify_message})"
    is_plain = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError) or error.reason in NOT_TLS
    return f"TLS: {error.reason or error}{': does the broker use TLS on this port?' if is_plain else ''}"


def _set_tls_versions(context: ssl.SSLContext, settings: dict[str, str]) -> None:
    """Set the versions of TLS. `ssl.protocol` names the newest one. Raises `SettingError`."""
    names = [name.strip() for name in settings.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3").split(",")]
    newest = settings.get("ssl.protocol", "TLSv1.3")
    for name in [*names, newest]:
        if name not in VERSIONS:
            raise SettingError(f"ssl.enabled.protocols: only {' and '.join(VERSIONS)} are known, not {name!r}")
    context.minimum_version = min(VERSIONS[name] for name in names)
    context.maximum_version = min(max(VERSIONS[name] for name in names), VERSIONS[newest])
    if context.minimum_version > context.maximum_version:
        raise SettingError(f"ssl.protocol: {newest} is not among ssl.enabled.protocols")


def _load_truststore(context: ssl.SSLContext, settings: dict[str, str], read_store: ReadStore | None) -> None:
    """Load the certificates that `ssl.truststore.*` trusts, and `ssl.crl.location`. Raises `SettingError`."""
    _check_store_type("ssl.truststore", settings, is_pem="ssl.truststore.certificates" in settings or None)
    if "ssl.truststore.certificates" in settings:
        _load_trusted_certificates(context, "ssl.truststore.certificates", settings["ssl.truststore.certificates"])
    if "ssl.truststore.location" in settings:
        path = settings["ssl.truststore.location"]
        if os.path.isdir(path):
            context.load_verify_locations(capath=path)
        else:
            _load_trusted_certificates(
                context, "ssl.truststore.location", _read_trusted_pem(path, settings, read_store)
            )
    if "ssl.crl.location" in settings:
        try:
            context.load_verify_locations(settings["ssl.crl.location"])
        except (OSError, ssl.SSLError) as error:
            raise SettingError(f"ssl.crl.location: {error}") from None
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


def _load_trusted_certificates(context: ssl.SSLContext, name: str, pem: str) -> None:
    """Trust the certificates in a PEM text, the value of the setting `name`. Raises `SettingError`."""
    try:
        context.load_verify_locations(cadata=pem)
    except ssl.SSLError as error:
        raise SettingError(f"{name} has no certificates in PEM: {error.reason or error}") from None


def _check_store_type(store: str, settings: dict[str, str], is_pem: bool | None) -> None:
    """Raise `SettingError` for an unknown type, one that contradicts `is_pem` (None: unknown), a password for PEM."""
    kind = settings.get(f"{store}.type")
    if kind is not None and kind.strip().upper() not in STORE_TYPES:
        raise SettingError(f"{store}.type must be one of {', '.join(STORE_TYPES)}, not {kind!r}")
    if is_pem is None:
        return
    if kind is not None and is_pem != (kind.strip().upper() == "PEM"):
        raise SettingError(f"{store}.type is {kind}, but the data is {'' if is_pem else 'not '}PEM")
    if is_pem and f"{store}.password" in settings:
        raise SettingError(f"{store}.password cannot be given for PEM; the password of a key is ssl.key.password")


def _read_trusted_pem(path: str, settings: dict[str, str], read_store: ReadStore | None) -> str:
    """Return the trusted certificates in a file as PEM, converted by `read_store` from another format."""
    data = _read_file("ssl.truststore.location", path)
    _check_store_type("ssl.truststore", settings, is_pem=PEM in data)
    if PEM in data:
        return data.decode(errors="replace")
    if read_store is None:
        raise SettingError(
            f"ssl.truststore.location: {path} is not PEM; convert it: keytool -list -rfc -keystore {path}"
        )
    try:
        return read_store(path, settings.get("ssl.truststore.password", ""))
    except OSError as error:
        raise SettingError(f"ssl.truststore.location: {error}") from None


def _load_keystore(context: ssl.SSLContext, settings: dict[str, str]) -> None:
    """Load the client's own certificate and key from one file with both, from two files, or from two settings."""
    password = settings.get("ssl.key.password") or None
    _check_store_type("ssl.keystore", settings, is_pem="ssl.keystore.certificate.chain" in settings or None)
    if "ssl.keystore.location" in settings:
        path = settings["ssl.keystore.location"]
        if PEM not in _read_file("ssl.keystore.location", path):
            raise SettingError(
                f"ssl.keystore.location: {path} is not PEM; convert it: openssl pkcs12 -in STORE.p12 -out STORE.pem "
                "(convert a JKS store to PKCS12 first, by keytool -importkeystore)"
            )
        _check_store_type("ssl.keystore", settings, is_pem=True)
        _load_certificate_chain(context, "ssl.keystore.location", path, None, password)
    if "ssl.certificate.location" in settings:
        key = settings.get("ssl.key.location")
        _load_certificate_chain(
            context, "ssl.certificate.location", settings["ssl.certificate.location"], key, password
        )
    if "ssl.keystore.certificate.chain" in settings:
        text = f"{settings.get('ssl.keystore.key', '')}\n{settings['ssl.keystore.certificate.chain']}\n"
        with make_secret_file(text.encode()) as path:
            _load_certificate_chain(context, "ssl.keystore.certificate.chain", path, None, password)


def _load_certificate_chain(
    context: ssl.SSLContext, setting: str, certificate: str, key: str | None, password: str | None
) -> None:
    try:
        # Without a password OpenSSL would ask for one at the terminal.
        context.load_cert_chain(certificate, key, password or "")
    except (OSError, ssl.SSLError) as error:
        raise SettingError(f"{setting}: the certificate or the key cannot be used: {error}") from None


def _read_file(setting: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SettingError(f"{setting}: {error}") from None


def _set_hostname_checks(context: ssl.SSLContext, settings: dict[str, str]) -> None:
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("https", "none", ""):
        raise SettingError(f"ssl.endpoint.identification.algorithm must be https or none, not {algorithm!r}")
    context.check_hostname = algorithm == "https"
    verify = settings.get("enable.ssl.certificate.verification", "true").strip().lower()
    if verify not in ("true", "false"):
        raise SettingError(f"enable.ssl.certificate.verification must be true or false, not {verify!r}")
    if verify == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
