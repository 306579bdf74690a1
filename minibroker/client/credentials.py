"""Credentials as Kafka's clients name them: a JAAS configuration in one line, or librdkafka's settings one by one.

What is sent over the wire is in `mechanisms`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from minibroker.client.client_errors import SettingError
from minibroker.client.mechanisms import SCRAM_HASHES, Exchange, oauthbearer, plain, scram
from minibroker.client.tokens import UNSECURED, UNSECURED_CONFIG, token_provider

JAAS: Final = "sasl.jaas.config"
MODULES: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": tuple(SCRAM_HASHES),
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
    UNSECURED,
    UNSECURED_CONFIG,
)


@dataclass(frozen=True)
class LoginModule:
    """A login module of a JAAS configuration, with its options, which are secret."""

    name: str
    options: dict[str, str] = field(repr=False)


class Credentials(NamedTuple):
    """A mechanism, and what begins its exchange; a token may have to be fetched for it. No secret is in its repr."""

    mechanism: str
    exchange: Callable[[], Exchange]


def credentials_of(settings: dict[str, str], wanted: bool) -> Credentials | None:
    """Take the settings of SASL out, and return what they say if it is `wanted`. Raises `SettingError`."""
    mechanism = settings.pop("sasl.mechanism", None) or settings.pop("sasl.mechanisms", None)
    settings.pop("sasl.mechanisms", None)
    jaas = settings.pop(JAAS, None)
    given = {name: settings.pop(f"sasl.{name}", None) for name in ("username", "password")}
    oauth = {name: value for name in OAUTH if (value := settings.pop(name, None)) is not None}
    module = None if jaas is None else login_module(jaas)
    if not wanted:
        return None
    mechanism = _mechanism(mechanism, module)
    if mechanism == "OAUTHBEARER":
        tokens = token_provider({} if module is None else module.options, oauth)
        return Credentials(mechanism, lambda: oauthbearer(tokens.token(), tokens.extensions()))
    username, password = _user(mechanism, module, given)
    if mechanism == "PLAIN":
        return Credentials(mechanism, lambda: plain(username, password))
    return Credentials(mechanism, lambda: scram(SCRAM_HASHES[mechanism], username, password))


def _mechanism(mechanism: str | None, module: LoginModule | None) -> str:
    """The mechanism that is named. Java's default is GSSAPI, which nobody can want here."""
    if mechanism is None:
        raise SettingError(f"sasl.mechanism must be one of {', '.join(MECHANISMS)}")
    mechanism = mechanism.strip().upper()
    if mechanism not in MECHANISMS:
        raise SettingError(f"sasl.mechanism must be one of {', '.join(MECHANISMS)}, not {mechanism!r}")
    if module is not None and mechanism not in MODULES[module.name]:
        raise SettingError(f"{JAAS}: {module.name} does not do {mechanism}")
    return mechanism


def _user(mechanism: str, module: LoginModule | None, given: Mapping[str, str | None]) -> tuple[str, str]:
    options = {} if module is None else dict(module.options)
    username = options.pop("username", given["username"])
    password = options.pop("password", given["password"])
    if options.pop("tokenauth", "false").strip().lower() != "false":
        raise SettingError(f"{JAAS}: delegation tokens (tokenauth) are not supported")
    for name in sorted(options):
        raise SettingError(f"{JAAS}: unknown option {name}")
    if not username or password is None:
        raise SettingError(
            f"{JAAS} must give a username and a password for {mechanism} (or sasl.username and sasl.password)"
        )
    return username, password


def login_module(text: str) -> LoginModule:
    """Read `CLASS required NAME="VALUE" ...;`. Raises `SettingError`."""
    words = _words(text)
    if len(words) < 3 or words[-1] != ";" or words.count(";") != 1:
        raise SettingError(f"{JAAS} must be one login module that ends with a semicolon")
    name = words[0].rpartition(".")[2]
    if name not in MODULES:
        raise SettingError(f"{JAAS}: {words[0]} is none of {', '.join(MODULES)}")
    if words[1].lower() not in FLAGS:
        raise SettingError(f"{JAAS}: {words[1]!r} is none of {', '.join(FLAGS)}")
    rest = words[2:-1]
    if len(rest) % 3 or any(word != "=" for word in rest[1::3]):
        raise SettingError(f'{JAAS}: options must be name="value"')
    return LoginModule(name, dict(zip(rest[::3], rest[2::3], strict=True)))


def _words(text: str) -> list[str]:
    words, position, end = [], 0, len(text.rstrip())
    while position < end:
        match = TOKEN.match(text, position)
        if match is None:
            raise SettingError(f"{JAAS}: a quotation mark is not closed")
        quoted = match[1] if match[1] is not None else match[2]
        words.append(re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else match[3] or match[4])
        position = match.end()
    return words
