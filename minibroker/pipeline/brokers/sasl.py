"""Credentials as Kafka's clients name them: a JAAS configuration in one line, or librdkafka's settings one by one.

What is sent over the wire is kafka-python's business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from minibroker.pipeline.brokers.tokens import token_provider
from minibroker.pipeline.log_source import OptionError

JAAS: Final = "sasl.jaas.config"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MODULES: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": SCRAM,
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}
MECHANISMS: Final = tuple(mechanism for mechanisms in MODULES.values() for mechanism in mechanisms)
FLAGS: Final = ("required", "requisite", "sufficient", "optional")
TOKEN: Final = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s="';]+)|([=;]))""", re.DOTALL)

# Names of settings of OAUTHBEARER; what they say is `tokens`' business.
OAUTH: Final = (
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.method",
)


class LoginModule(NamedTuple):
    """A login module of a JAAS configuration, with its options."""

    name: str
    options: dict[str, str]


def sasl_configuration(settings: dict[str, str], wanted: bool) -> dict[str, Any]:
    """Take the settings of SASL out, and give kafka-python's configuration if it is `wanted`. Raises `OptionError`."""
    mechanism = settings.pop("sasl.mechanism", None) or settings.pop("sasl.mechanisms", None)
    settings.pop("sasl.mechanisms", None)
    jaas = settings.pop(JAAS, None)
    credentials = {name: settings.pop(f"sasl.{name}", None) for name in ("username", "password")}
    oauth = {name: value for name in OAUTH if (value := settings.pop(name, None)) is not None}
    module = None if jaas is None else login_module(jaas)
    if not wanted:
        return {}
    mechanism = _mechanism(mechanism, module)
    if mechanism == "OAUTHBEARER":
        provider = token_provider({} if module is None else module.options, oauth)
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": provider}
    return {"sasl_mechanism": mechanism, **_credentials(mechanism, module, credentials)}


def _mechanism(mechanism: str | None, module: LoginModule | None) -> str:
    """The mechanism that is named. Java's default is GSSAPI, which nobody can want here."""
    if mechanism is None:
        raise OptionError(f"kafka.sasl.mechanism must be one of {', '.join(MECHANISMS)}")
    mechanism = mechanism.strip().upper()
    if mechanism not in MECHANISMS:
        raise OptionError(f"kafka.sasl.mechanism must be one of {', '.join(MECHANISMS)}, not {mechanism!r}")
    if module is not None and mechanism not in MODULES[module.name]:
        raise OptionError(f"kafka.{JAAS}: {module.name} does not do {mechanism}")
    return mechanism


def _credentials(mechanism: str, module: LoginModule | None, given: Mapping[str, str | None]) -> dict[str, Any]:
    options = {} if module is None else dict(module.options)
    username = options.pop("username", given["username"])
    password = options.pop("password", given["password"])
    if options.pop("tokenauth", "false").strip().lower() != "false":
        raise OptionError(f"kafka.{JAAS}: delegation tokens (tokenauth) are not supported")
    for name in sorted(options):
        raise OptionError(f"kafka.{JAAS}: unknown option {name}")
    if not username or password is None:
        raise OptionError(
            f"kafka.{JAAS} must give a username and a password for {mechanism} (or kafka.sasl.username, .password)"
        )
    return {"sasl_plain_username": username, "sasl_plain_password": password}


def login_module(text: str) -> LoginModule:
    """Read `CLASS required NAME="VALUE" ...;`. Raises `OptionError`."""
    words = _words(text)
    if len(words) < 3 or words[-1] != ";" or words.count(";") != 1:
        raise OptionError(f"kafka.{JAAS} must be one login module that ends with a semicolon")
    name = words[0].rpartition(".")[2]
    if name not in MODULES:
        raise OptionError(f"kafka.{JAAS}: {words[0]} is none of {', '.join(MODULES)}")
    if words[1].lower() not in FLAGS:
        raise OptionError(f"kafka.{JAAS}: {words[1]!r} is none of {', '.join(FLAGS)}")
    rest = words[2:-1]
    if len(rest) % 3 or any(word != "=" for word in rest[1::3]):
        raise OptionError(f'kafka.{JAAS}: options must be name="value"')
    return LoginModule(name, dict(zip(rest[::3], rest[2::3], strict=True)))


def _words(text: str) -> list[str]:
    words, position, end = [], 0, len(text.rstrip())
    while position < end:
        match = TOKEN.match(text, position)
        if match is None:
            raise OptionError(f"kafka.{JAAS}: a quotation mark is not closed")
        quoted = match[1] if match[1] is not None else match[2]
        words.append(re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else match[3] or match[4])
        position = match.end()
    return words
