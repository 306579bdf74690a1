"""What a client of each library has to be configured with to connect to a test broker."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from minibroker.named_tuples import NamedTuple

if TYPE_CHECKING:
    from minibroker.testing.embedded.certificates import CertificateWithKey

MODULES: Final = {"PLAIN": "plain.PlainLoginModule", "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule"}
SCRAM_MODULE: Final = "scram.ScramLoginModule"
SECURITY: Final = "org.apache.kafka.common.security."
JAAS_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}


class TokenAccess(NamedTuple):
    """How one client gets tokens: at an endpoint, or in this process from `token`."""

    endpoint: str
    scope: str
    token: Callable[[], str]


class ClientAccess(NamedTuple):
    """How one client reaches the broker: over TLS if there is an `authority` (PEM), by SASL if there is a mechanism."""

    servers: str
    protocol: str
    authority: str | None
    certified: CertificateWithKey | None
    mechanism: str | None
    user: str | None
    password: str | None
    tokens: TokenAccess | None = None  # with OAUTHBEARER, where user and password are the client's id and secret

    def __repr__(self) -> str:
        return f"Access(servers={self.servers!r}, protocol={self.protocol!r}, user={self.user!r})"  # no secrets

    def make_ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS context for clients in Python, None without TLS."""
        if self.authority is None:
            return None
        context = ssl.create_default_context(cadata=self.authority)
        if self.certified is not None:
            self.certified.load_into(context)
        return context


def _make_librdkafka_config(access: ClientAccess) -> dict[str, Any]:
    config: dict[str, Any] = {"bootstrap.servers": access.servers, "security.protocol": access.protocol}
    if access.authority is not None:
        config["ssl.ca.pem"] = access.authority
    if access.certified is not None:
        config |= {"ssl.key.pem": access.certified.key, "ssl.certificate.pem": access.certified.certificate}
    if access.tokens is not None:
        config |= {"sasl.mechanism": access.mechanism, "sasl.oauthbearer.method": "oidc"}
        config |= _make_credential_fields("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", access)
        config |= {
            "sasl.oauthbearer.token.endpoint.url": access.tokens.endpoint,
            "sasl.oauthbearer.scope": access.tokens.scope,
        }
        if access.authority is not None:
            config["https.ca.pem"] = access.authority
    elif access.mechanism is not None:
        config |= {
            "sasl.mechanism": access.mechanism,
            **_make_credential_fields("sasl.username", "sasl.password", access),
        }
    return config


def _format_properties(access: ClientAccess) -> str:
    lines = (f"{name}={value}" for name, value in _make_librdkafka_config(access).items())
    return "".join(line.replace("\n", "\\n") + "\n" for line in lines)


def _make_python_config(access: ClientAccess) -> dict[str, Any]:
    config: dict[str, Any] = {"bootstrap_servers": access.servers, "security_protocol": access.protocol}
    if access.authority is not None:
        config["ssl_context"] = access.make_ssl_context()
    if access.mechanism is not None:
        config["sasl_mechanism"] = access.mechanism
        if access.tokens is None:
            config |= _make_credential_fields("sasl_plain_username", "sasl_plain_password", access)
    return config


def _make_aiokafka_config(access: ClientAccess) -> dict[str, Any]:
    config, tokens = _make_python_config(access), access.tokens
    if tokens is not None:

        async def token(_: object) -> str:
            return tokens.token()

        config["sasl_oauth_token_provider"] = _make_token_provider("aiokafka.abc", token)
    return config


def _make_kafka_python_config(access: ClientAccess) -> dict[str, Any]:
    config, tokens = _make_python_config(access), access.tokens
    if tokens is not None:
        config["sasl_oauth_token_provider"] = _make_token_provider("kafka.net.sasl.oauth", lambda _: tokens.token())
    return config


def _make_token_provider(module: str, token: Callable[[object], Any]) -> Any:
    """Return an instance of a subclass of the library's AbstractTokenProvider, with the method `token`."""
    base = import_module(module).AbstractTokenProvider
    return type("TokenProvider", (base,), {"token": token})()


def _make_java_config(access: ClientAccess) -> dict[str, Any]:
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
        config["sasl.mechanism"] = access.mechanism
        options = _make_credential_fields("username", "password", access)
    if access.tokens is not None:
        config["sasl.login.callback.handler.class"] = f"{SECURITY}oauthbearer.OAuthBearerLoginCallbackHandler"
        config["sasl.oauthbearer.token.endpoint.url"] = access.tokens.endpoint
        options = {**_make_credential_fields("clientId", "clientSecret", access), "scope": access.tokens.scope}
        if access.authority is not None:
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": access.authority}
    if access.mechanism is not None:
        words = "".join(f" {name}={quote_for_jaas(value or '')}" for name, value in options.items())
        config["sasl.jaas.config"] = f"{SECURITY}{MODULES.get(access.mechanism, SCRAM_MODULE)} required{words};"
    return config


def _make_kafkajs_config(access: ClientAccess) -> dict[str, Any]:
    config: dict[str, Any] = {"brokers": access.servers.split(","), "ssl": False}
    if access.authority is not None:
        config["ssl"] = {"ca": [access.authority]}
        if access.certified is not None:
            config["ssl"] |= {"key": access.certified.key, "cert": access.certified.certificate}
    if access.mechanism is not None:
        named = (
            _make_credential_fields("username", "password", access)
            if access.tokens is None
            else _make_token_options(access)
        )
        config["sasl"] = {"mechanism": access.mechanism.lower(), **named}
    return config


def _make_franz_go_config(access: ClientAccess) -> dict[str, Any]:
    config: dict[str, Any] = {"seed_brokers": access.servers.split(",")}
    if access.authority is not None:
        config["tls"] = {"ca_pem": access.authority}
        if access.certified is not None:
            config["tls"] |= {"key_pem": access.certified.key, "certificate_pem": access.certified.certificate}
    if access.mechanism is not None:
        named = (
            _make_credential_fields("user", "pass", access) if access.tokens is None else _make_token_options(access)
        )
        config["sasl"] = {"mechanism": access.mechanism, **named}
    return config


def _make_token_options(access: ClientAccess) -> dict[str, str | None]:
    """Return a token, and where a library's token function gets others."""
    assert access.tokens is not None
    endpoint, scope, token = access.tokens
    own = _make_credential_fields("client_id", "client_secret", access)
    return {"token": token(), "token_endpoint": endpoint, "scope": scope, **own}


def _make_credential_fields(user: str, password: str, access: ClientAccess) -> dict[str, str | None]:
    """Return name and password under the keys `user` and `password`."""
    return {user: access.user, password: access.password}


def quote_for_jaas(text: str) -> str:
    """Return a text as a word of a JAAS configuration. A string there ends with its line, so line ends are escaped."""
    return '"' + "".join(JAAS_ESCAPES.get(one, one) for one in text) + '"'


LIBRARIES: Final[Mapping[str, Callable[[ClientAccess], Any]]] = {
    "confluent": _make_librdkafka_config,
    "librdkafka.properties": _format_properties,
    "aiokafka": _make_aiokafka_config,
    "kafka-python": _make_kafka_python_config,
    "java": _make_java_config,
    "kafkajs": _make_kafkajs_config,
    "franz-go": _make_franz_go_config,
}
