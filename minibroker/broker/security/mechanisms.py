"""The SASL mechanisms that a listener has enabled, made from the settings.

    listeners=SASL_PLAINTEXT://127.0.0.1:9092
    sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
    listener.name.sasl_plaintext.plain.sasl.jaas.config=...PlainLoginModule required user_alice="secret";

SCRAM's users are in the metadata log. It needs no login module, but may have one, as Kafka requires it.
GSSAPI, Kafka's default, is not implemented: it is ignored beside other mechanisms.
PLAIN (RFC 4616) compares passwords as UTF-8, without SASLprep, as Kafka does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from minibroker.broker.configs.listeners import get_listener_setting
from minibroker.broker.configs.settings import Settings, SettingsError
from minibroker.broker.security.exchanges import (
    AuthenticatedClient,
    AuthenticationFailed,
    Exchange,
    are_secrets_equal,
    start_sasl_exchange,
)
from minibroker.broker.security.jwks import KeySet, find_url_objection
from minibroker.broker.security.oauthbearer import TokenValidator, exchange_oauthbearer_token
from minibroker.broker.security.scram import BY_NAME, KnownCredentials, exchange_scram_proof
from minibroker.broker.security.signed_tokens import (
    ClockAndThreads,
    ExpectedClaims,
    SignedTokens,
    UnsecuredOptions,
    UnsecuredTokens,
)
from minibroker.jaas import JaasError, parse_login_module

TOKENS: Final = 3  # authorization id, name and password
USER_PREFIX: Final = "user_"
INVENTED: Final = "the password of no user"
JAAS: Final = "sasl.jaas.config"
SECURITY: Final = "org.apache.kafka.common.security."
MODULES: Final = {
    "PLAIN": f"{SECURITY}plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{SECURITY}scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{SECURITY}scram.ScramLoginModule",
    "OAUTHBEARER": f"{SECURITY}oauthbearer.OAuthBearerLoginModule",
}
HANDLER: Final = "sasl.server.callback.handler.class"
NEEDED: Final = (
    ("sasl.oauthbearer.expected.audience", "sasl.oauthbearer.allow.unverified.audience"),
    ("sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.allow.unverified.issuer"),
)
URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
UNSECURED: Final = f"{SECURITY}oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
SIGNED: Final = (
    f"{SECURITY}oauthbearer.OAuthBearerValidatorCallbackHandler",
    f"{SECURITY}oauthbearer.secured.OAuthBearerValidatorCallbackHandler",  # its name until Kafka 3.3
)


def parse_plain_users(options: Mapping[str, str]) -> dict[str, str]:
    """Return the passwords by user name from the options of a PlainLoginModule."""
    return {key.removeprefix(USER_PREFIX): value for key, value in options.items() if key.startswith(USER_PREFIX)}


def exchange_plain_password(users: Mapping[str, str]) -> Exchange:
    """Run a SASL/PLAIN exchange: receive name and password, and check them with these users."""
    tokens = (yield b"").decode("utf-8", "replace").split("\0", TOKENS)
    if len(tokens) != TOKENS:
        raise AuthenticationFailed(f"Invalid SASL/PLAIN response: expected {TOKENS} tokens, got {len(tokens)}")
    identity, name, password = tokens
    if not name:
        raise AuthenticationFailed("Authentication failed: username not specified")
    if not password:
        raise AuthenticationFailed("Authentication failed: password not specified")
    known = are_secrets_equal(password.encode(), users.get(name, INVENTED).encode("utf-8", "surrogatepass"))
    if not known or name not in users:
        raise AuthenticationFailed("Authentication failed: Invalid username or password")
    if identity not in ("", name):
        raise AuthenticationFailed(
            "Authentication failed: Client requested an authorization id that is different from username"
        )
    return AuthenticatedClient(b"", name)


class ExchangeEnvironment(ClockAndThreads, KnownCredentials, Protocol):
    """What an exchange needs from the broker."""

    def make_nonce(self) -> str:
        """Return a random text that nobody can predict."""


class Mechanism(NamedTuple):
    """One mechanism of a listener. `max_reauth_ms` limits the lifetime of sessions; 0 means no limit."""

    begin: Callable[[ExchangeEnvironment], Exchange]
    max_reauth_ms: int


def get_enabled_mechanisms(settings: Settings, listener: str) -> dict[str, Mechanism]:
    """Return the enabled mechanisms of a listener by name. Raises SettingsError if one of them cannot work."""
    enabled = get_listener_setting(settings, "sasl.enabled.mechanisms", listener)
    found = {name: _make_sasl_mechanism(settings, listener, name) for name in enabled if name != "GSSAPI"}
    if not found:
        raise SettingsError(
            f"listener {listener}: sasl.enabled.mechanisms must name one of {', '.join(MODULES)}; GSSAPI is not there"
        )
    return found


def _make_sasl_mechanism(settings: Settings, listener: str, name: str) -> Mechanism:
    if name not in MODULES:
        raise SettingsError(f"listener {listener}: sasl.enabled.mechanisms: {name} is none of {', '.join(MODULES)}")
    max_reauth_ms = get_listener_setting(settings, "connections.max.reauth.ms", listener, name)
    options = _parse_jaas_options(settings, listener, name)
    handler = get_listener_setting(settings, HANDLER, listener, name)
    if name == "OAUTHBEARER":
        tokens = _make_unsecured_or_signed_tokens_factory(settings, listener, handler, options)
        return Mechanism(
            lambda surroundings: start_sasl_exchange(exchange_oauthbearer_token(tokens(surroundings))), max_reauth_ms
        )
    if handler is not None:
        raise SettingsError(f"listener {listener}: {HANDLER}={handler} is not there for {name}")
    return Mechanism(_make_exchange_factory(name, options), max_reauth_ms)


def _make_exchange_factory(name: str, options: Mapping[str, str]) -> Callable[[ExchangeEnvironment], Exchange]:
    """Return a function that begins the exchange of PLAIN or SCRAM."""
    if name == "PLAIN":
        users = parse_plain_users(options)
        return lambda surroundings: start_sasl_exchange(exchange_plain_password(users))
    mechanism = BY_NAME[name]
    return lambda surroundings: start_sasl_exchange(
        exchange_scram_proof(mechanism, surroundings, surroundings.make_nonce())
    )


def _parse_jaas_options(settings: Settings, listener: str, mechanism: str) -> Mapping[str, str]:
    """Return the options of the login module of a mechanism. Raises SettingsError."""
    name = f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS}"
    text = settings.get_value(name)
    if text is None:
        if mechanism in BY_NAME:
            return {}
        raise SettingsError(f"{name} is missing, which {mechanism} needs")
    try:
        module = parse_login_module(text)
    except JaasError as error:
        raise SettingsError(f"{name}: {error}") from None
    if module.name != MODULES[mechanism]:
        raise SettingsError(f"{name}: the login module of {mechanism} is {MODULES[mechanism]}")
    return module.options


def _make_unsecured_or_signed_tokens_factory(
    settings: Settings, listener: str, handler: str | None, options: Mapping[str, str]
) -> Callable[[ExchangeEnvironment], TokenValidator]:
    """Return a function that makes the validator of tokens. Raises SettingsError."""
    url = get_listener_setting(settings, URL, listener, "OAUTHBEARER")
    if handler in SIGNED:
        return _make_signed_tokens_factory(settings, listener, url)
    if handler not in (None, UNSECURED):
        raise SettingsError(f"listener {listener}: {HANDLER}={handler} is not there: it may be {SIGNED[0]}")
    if url is not None:
        raise SettingsError(f"listener {listener}: {URL} needs {HANDLER}={SIGNED[0]}, or nobody checks signatures")
    try:
        unsecured = UnsecuredOptions(options)
    except JaasError as error:
        raise SettingsError(f"listener {listener}: {error}") from None
    return lambda surroundings: UnsecuredTokens(unsecured, surroundings.now_ms)


def _make_signed_tokens_factory(
    settings: Settings, listener: str, url: str | None
) -> Callable[[ExchangeEnvironment], TokenValidator]:
    objection = find_url_objection(url)
    if objection is not None:
        raise SettingsError(f"listener {listener}: {URL} {objection}")

    def get_oauthbearer_setting(name: str) -> Any:
        return get_listener_setting(settings, name, listener, "OAUTHBEARER")

    for needed, waiver in NEEDED:
        if not get_oauthbearer_setting(needed) and not get_oauthbearer_setting(waiver):
            raise SettingsError(f"listener {listener}: set {needed}, or {waiver}=true to accept tokens with any")
    expected = ExpectedClaims(
        get_oauthbearer_setting("sasl.oauthbearer.expected.audience"),
        get_oauthbearer_setting("sasl.oauthbearer.expected.issuer"),
        get_oauthbearer_setting("sasl.oauthbearer.clock.skew.seconds") * 1000,
        get_oauthbearer_setting("sasl.oauthbearer.sub.claim.name"),
        get_oauthbearer_setting("sasl.oauthbearer.scope.claim.name"),
    )
    keys = KeySet(
        url or "",
        get_oauthbearer_setting("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        get_oauthbearer_setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        get_oauthbearer_setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
    )
    return lambda surroundings: SignedTokens(expected, keys, surroundings)
