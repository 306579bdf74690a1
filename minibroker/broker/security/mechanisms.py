"""The SASL mechanisms that a listener has enabled, from the settings; each begins the exchange with a client.

    listeners=SASL_PLAINTEXT://127.0.0.1:9092
    sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
    listener.name.sasl_plaintext.plain.sasl.jaas.config=...PlainLoginModule required user_alice="secret";

The users of SCRAM are in the metadata log, and it needs no login module, but may have one, which Kafka wants.
GSSAPI, Kafka's default, is not there: it may stand among others, and is not enabled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from minibroker.broker.configs.listener_settings import listener_setting
from minibroker.broker.configs.settings import Settings, SettingsError
from minibroker.broker.security.exchanges import Exchange, begun
from minibroker.broker.security.jaas import JaasError, login_module
from minibroker.broker.security.plain import plain, plain_users
from minibroker.broker.security.scram import BY_NAME, scram

if TYPE_CHECKING:
    from minibroker.protocol.messages.metadata_records import UserScramCredentialRecord

JAAS: Final = "sasl.jaas.config"
SECURITY: Final = "org.apache.kafka.common.security."
MODULES: Final = {
    "PLAIN": f"{SECURITY}plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{SECURITY}scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{SECURITY}scram.ScramLoginModule",
}


class Surroundings(Protocol):
    """What an exchange needs of the broker."""

    def credential(self, name: str, mechanism: int) -> UserScramCredentialRecord | None:
        """Return the SCRAM credential of a user, or None."""

    def nonce(self) -> str:
        """Return a text that nobody can foresee."""


class Mechanism(NamedTuple):
    """What a listener does by one mechanism. `max_reauth_ms` limits a session; 0 does not."""

    begin: Callable[[Surroundings], Exchange]
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
    return Mechanism(_exchange(name, options), max_reauth_ms)


def _exchange(name: str, options: Mapping[str, str]) -> Callable[[Surroundings], Exchange]:
    """Return what begins the exchange of a mechanism."""
    if name == "PLAIN":
        users = plain_users(options)
        return lambda surroundings: begun(plain(users))
    mechanism = BY_NAME[name]
    return lambda surroundings: begun(scram(mechanism, surroundings.credential, surroundings.nonce()))


def _options(settings: Settings, listener: str, mechanism: str) -> Mapping[str, str]:
    """Return the options of the login module of a mechanism. Raise SettingsError."""
    name = f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS}"
    text = settings.kept(name)
    if text is None:
        if mechanism in BY_NAME:
            return {}
        raise SettingsError(f"{name} is missing, which {mechanism} needs")
    try:
        module = login_module(text)
    except JaasError as error:
        raise SettingsError(f"{name}: {error}") from None
    if module.name != MODULES[mechanism]:
        raise SettingsError(f"{name}: the login module of {mechanism} is {MODULES[mechanism]}")
    return module.options
