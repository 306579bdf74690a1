"""Credentials from settings: Java's JAAS configuration in one line, or librdkafka's separate settings.

`client_mechanisms` has what is sent over the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from minibroker import jaas
from minibroker.client.client_errors import SettingError
from minibroker.client.client_mechanisms import (
    SCRAM_HASHES,
    MechanismExchange,
    authenticate_by_oauthbearer,
    authenticate_by_plain,
    authenticate_by_scram,
)
from minibroker.client.tokens import HTTPS, UNSECURED, UNSECURED_CONFIG, make_token_source
from minibroker.jaas import JaasError, LoginModule

JAAS: Final = "sasl.jaas.config"
MODULES: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": tuple(SCRAM_HASHES),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}
MECHANISMS: Final = tuple(mechanism for mechanisms in MODULES.values() for mechanism in mechanisms)

# The settings of OAUTHBEARER, which `tokens` reads.
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
    *HTTPS,
)
HANDLER: Final = "sasl.login.callback.handler.class"
HANDLERS: Final = tuple(  # of Java's that do what `tokens` does
    f"org.apache.kafka.common.security.oauthbearer.{package}OAuthBearerLoginCallbackHandler"
    for package in ("", "secured.")
)


class Credentials(NamedTuple):
    """A mechanism, and a function that begins its exchange, and may fetch a token for it. No secret is in the repr."""

    mechanism: str
    exchange: Callable[[], MechanismExchange]


def pop_credentials(settings: dict[str, str], is_required: bool) -> Credentials | None:
    """Take out the settings of SASL. Return the credentials, None unless `is_required`. Raises `SettingError`."""
    mechanism = settings.pop("sasl.mechanism", None) or settings.pop("sasl.mechanisms", None)
    settings.pop("sasl.mechanisms", None)
    text = settings.pop(JAAS, None)
    given = {name: settings.pop(f"sasl.{name}", None) for name in ("username", "password")}
    oauth = {name: value for name in OAUTH if (value := settings.pop(name, None)) is not None}
    handler = settings.pop(HANDLER, None)
    if handler not in (None, *HANDLERS):
        raise SettingError(f"{HANDLER} can only be {HANDLERS[0]}, not {handler}")
    module = None if text is None else parse_login_module(text)
    if not is_required:
        return None
    mechanism = _parse_mechanism(mechanism, module)
    if mechanism == "OAUTHBEARER":
        tokens = make_token_source({} if module is None else module.options, oauth)
        return Credentials(mechanism, lambda: authenticate_by_oauthbearer(tokens.get_token(), tokens.get_extensions()))
    username, password, is_token = _get_user_and_password(mechanism, module, given)
    if mechanism == "PLAIN":
        return Credentials(mechanism, lambda: authenticate_by_plain(username, password))
    return Credentials(
        mechanism, lambda: authenticate_by_scram(SCRAM_HASHES[mechanism], username, password, is_token=is_token)
    )


def _parse_mechanism(mechanism: str | None, module: LoginModule | None) -> str:
    """Return the checked mechanism. There is no default: Java's is GSSAPI, which is not supported."""
    if mechanism is None:
        raise SettingError(f"sasl.mechanism must be one of {', '.join(MECHANISMS)}")
    mechanism = mechanism.strip().upper()
    if mechanism not in MECHANISMS:
        raise SettingError(f"sasl.mechanism must be one of {', '.join(MECHANISMS)}, not {mechanism!r}")
    if module is not None and mechanism not in MODULES[module.name]:
        raise SettingError(f"{JAAS}: {module.name} does not support {mechanism}")
    return mechanism


def _get_user_and_password(
    mechanism: str, module: LoginModule | None, given: Mapping[str, str | None]
) -> tuple[str, str, bool]:
    """Return name and password, and whether they are a delegation token's, which only SCRAM supports."""
    options = {} if module is None else dict(module.options)
    username = options.pop("username", given["username"])
    password = options.pop("password", given["password"])
    is_token = mechanism in SCRAM_HASHES and options.pop("tokenauth", "").lower() == "true"
    for name in sorted(options):
        raise SettingError(f"{JAAS}: unknown option {name}")
    if not username or password is None:
        raise SettingError(
            f"{JAAS} must give a username and a password for {mechanism} (or sasl.username and sasl.password)"
        )
    return username, password, is_token


def parse_login_module(text: str) -> LoginModule:
    """Parse `CLASS required NAME="VALUE" ...;`. The result's class has no package. Raises `SettingError`."""
    try:
        module = jaas.parse_login_module(text)
    except JaasError as error:
        raise SettingError(f"{JAAS}: {error}") from None
    name = module.name.rpartition(".")[2]
    if name not in MODULES:
        raise SettingError(f"{JAAS}: {module.name} is none of {', '.join(MODULES)}")
    return LoginModule(name, module.options)
