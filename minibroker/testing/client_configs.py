"""What a client of each library has to be configured with to connect to a test broker."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from minibroker.testing.certificates import Certified

LOGIN_MODULES: Final = {"PLAIN": "plain.PlainLoginModule"}
SCRAM_MODULE: Final = "scram.ScramLoginModule"
JAAS_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}


class Access(NamedTuple):
    """How one client reaches the broker: over TLS if there is an `authority` (PEM), by SASL if there is a mechanism."""

    servers: str
    protocol: str
    authority: str | None
    certified: Certified | None
    mechanism: str | None
    user: str | None
    password: str | None

    def __repr__(self) -> str:
        return f"Access(servers={self.servers!r}, protocol={self.protocol!r}, user={self.user!r})"  # no secrets

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return what Python's clients take, None without TLS."""
        if self.authority is None:
            return None
        context = ssl.create_default_context(cadata=self.authority)
        if self.certified is not None:
            with tempfile.TemporaryDirectory() as directory:  # the library reads files only
                file = Path(directory) / "client.pem"
                file.touch(mode=0o600)
                file.write_text(self.certified.key + self.certified.certificate)
                context.load_cert_chain(file)
        return context


def _librdkafka(access: Access) -> dict[str, Any]:
    config: dict[str, Any] = {"bootstrap.servers": access.servers, "security.protocol": access.protocol}
    if access.authority is not None:
        config["ssl.ca.pem"] = access.authority
    if access.certified is not None:
        config |= {"ssl.key.pem": access.certified.key, "ssl.certificate.pem": access.certified.certificate}
    if access.mechanism is not None:
        config |= {"sasl.mechanism": access.mechanism, **_named("sasl.username", "sasl.password", access)}
    return config


def _properties(access: Access) -> str:
    lines = (f"{name}={value}" for name, value in _librdkafka(access).items())
    return "".join(line.replace("\n", "\\n") + "\n" for line in lines)


def _python(access: Access) -> dict[str, Any]:
    config: dict[str, Any] = {"bootstrap_servers": access.servers, "security_protocol": access.protocol}
    if access.authority is not None:
        config["ssl_context"] = access.ssl_context()
    if access.mechanism is not None:
        config["sasl_mechanism"] = access.mechanism
        config |= _named("sasl_plain_username", "sasl_plain_password", access)
    return config


def _java(access: Access) -> dict[str, Any]:
    config = {"bootstrap.servers": access.servers, "security.protocol": access.protocol}
    if access.authority is not None:
        config |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": access.authority}
    if access.certified is not None:
        config |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": access.certified.key,
            "ssl.keystore.certificate.chain": access.certified.certificate,
        }
    if access.mechanism is not None:
        module = LOGIN_MODULES.get(access.mechanism, SCRAM_MODULE)
        user, password = quoted(access.user or ""), quoted(access.password or "")
        config["sasl.mechanism"] = access.mechanism
        config["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module} required username={user} password={password};"
        )
    return config


def _kafkajs(access: Access) -> dict[str, Any]:
    config: dict[str, Any] = {"brokers": access.servers.split(","), "ssl": False}
    if access.authority is not None:
        config["ssl"] = {"ca": [access.authority]}
        if access.certified is not None:
            config["ssl"] |= {"key": access.certified.key, "cert": access.certified.certificate}
    if access.mechanism is not None:
        config["sasl"] = {"mechanism": access.mechanism.lower(), **_named("username", "password", access)}
    return config


def _franz_go(access: Access) -> dict[str, Any]:
    config: dict[str, Any] = {"seed_brokers": access.servers.split(",")}
    if access.authority is not None:
        config["tls"] = {"ca_pem": access.authority}
        if access.certified is not None:
            config["tls"] |= {"key_pem": access.certified.key, "certificate_pem": access.certified.certificate}
    if access.mechanism is not None:
        config["sasl"] = {"mechanism": access.mechanism, **_named("user", "pass", access)}
    return config


def _named(user: str, password: str, access: Access) -> dict[str, str | None]:
    return {user: access.user, password: access.password}


def quoted(text: str) -> str:
    """Return a text as a word of a JAAS configuration. A string there ends with its line, so line ends are escaped."""
    return '"' + "".join(JAAS_ESCAPES.get(one, one) for one in text) + '"'


LIBRARIES: Final[Mapping[str, Callable[[Access], Any]]] = {
    "confluent": _librdkafka,
    "librdkafka.properties": _properties,
    "aiokafka": _python,
    "kafka-python": _python,
    "java": _java,
    "kafkajs": _kafkajs,
    "franz-go": _franz_go,
}
