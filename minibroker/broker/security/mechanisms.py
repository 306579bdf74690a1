"""The SASL mechanisms that a listener has enabled, from the settings; each begins the exchange with a client.

    listeners=SASL_PLAINTEXT://127.0.0.1:9092
    sasl.enabled.mechanisms=PLAIN
    listener.name.sasl_plaintext.plain.sasl.jaas.config=...PlainLoginModule required user_alice="secret";

GSSAPI, Kafka's default, is not there: it may stand among others, and is not enabled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from minibroker.broker.configs.listener_settings import listener_setting
from minibroker.broker.configs.settings import Settings, SettingsError
from minibroker.broker.security.exchanges import Exchange, begun
from minibroker.broker.security.jaas import JaasError, login_module
from minibroker.broker.security.plain import plain, plain_users

JAAS: Final = "sasl.jaas.config"
SECURITY: Final = "org.apache.kafka.common.security."
MODULES: Final = {"PLAIN": f"{SECURITY}plain.PlainLoginModule"}


class Mechanism(NamedTuple):
    """What a listener does by one mechanism. `max_reauth_ms` limits a session; 0 does not."""

    begin: Callable[[], Exchange]
    max_reauth_ms: int


def enabled_mechanisms(settings: Settings, listener: str) -> dict[str, Mechanism]:
    """Return what a listener has enabled, by mechanism. Raise SettingsError for what no client could use."""
    enabled = listener_setting(settings, "sasl.enabled.mechanisms", listener)
    found = {name: _mechanism(settings, listener, name) for name in enabled if name != "GSSAPI"}
    if not found:
        raise SettingsError(
            f"listener {listener}: sasl.enabled.mechanisms must name one of {', '.join(MODULES)}; GSSAPI is not there"
        )
    return found


def _mechanism(settings: Settings, listener: str, name: str) -> Mechanism:
    if name not in MODULES:
        raise SettingsError(f"listener {listener}: sasl.enabled.mechanisms: {name} is none of {', '.join(MODULES)}")
    max_reauth_ms = listener_setting(settings, "connections.max.reauth.ms", listener, name)
    options = _options(settings, listener, name)
    users = plain_users(options)
    return Mechanism(lambda: begun(plain(users)), max_reauth_ms)


def _options(settings: Settings, listener: str, mechanism: str) -> Mapping[str, str]:
    """Return the options of the login module of a mechanism. Raise SettingsError."""
    name = f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS}"
    text = settings.kept(name)
    if text is None:
        raise SettingsError(f"{name} is missing, which {mechanism} needs")
    try:
        module = login_module(text)
    except JaasError as error:
        raise SettingsError(f"{name}: {error}") from None
    if module.name != MODULES[mechanism]:
        raise SettingsError(f"{name}: the login module of {mechanism} is {MODULES[mechanism]}")
    return module.options
