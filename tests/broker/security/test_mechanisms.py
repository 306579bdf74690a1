"""What a listener has enabled, and what a start refuses."""

from __future__ import annotations

import pytest

from minibroker.broker.configs.settings import Settings, SettingsError
from minibroker.broker.configuration import load_settings
from minibroker.broker.security.mechanisms import get_enabled_mechanisms
from tests.broker.security.sasl import LISTENER, PLAIN, USERS
from tests.cases import for_each

JAAS = f"{LISTENER}plain.sasl.jaas.config"
OAUTH = f"{LISTENER}oauthbearer."
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
TOKENS = {"sasl.enabled.mechanisms": "OAUTHBEARER", f"{OAUTH}sasl.jaas.config": MODULE}
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
SIGNED = {**TOKENS, f"{OAUTH}sasl.server.callback.handler.class": HANDLER}
KEYS = {f"{OAUTH}sasl.oauthbearer.jwks.endpoint.url": "file:///x"}
AUDIENCE = {f"{OAUTH}sasl.oauthbearer.expected.audience": "kafka"}
ISSUER = {f"{OAUTH}sasl.oauthbearer.expected.issuer": "https://issuer.test"}


def test_a_listener_enables_the_mechanisms_of_its_settings() -> None:
    assert list(get_enabled_mechanisms(Settings(PLAIN), "SASL_PLAINTEXT")) == ["PLAIN"]


def test_gssapi_may_be_listed_but_is_not_enabled() -> None:
    settings = Settings({**PLAIN, "sasl.enabled.mechanisms": "GSSAPI,PLAIN"})
    assert list(get_enabled_mechanisms(settings, "SASL_PLAINTEXT")) == ["PLAIN"]


def test_a_listener_may_enable_other_mechanisms_than_the_others() -> None:
    settings = Settings({JAAS: USERS, f"{LISTENER}sasl.enabled.mechanisms": "PLAIN"})
    assert list(get_enabled_mechanisms(settings, "SASL_PLAINTEXT")) == ["PLAIN"]


@for_each(
    ("changed", "complaint"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "sasl.enabled.mechanisms must name one of PLAIN"),
        ({"sasl.enabled.mechanisms": "PLAIN,DIGEST-MD5"}, "DIGEST-MD5 is none of PLAIN"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, f"{OAUTH}sasl.jaas.config is missing, which OAUTHBEARER needs"),
        ({**TOKENS, f"{OAUTH}sasl.server.callback.handler.class": "x.Y"}, "handler.class=x.Y is not there"),
        ({**TOKENS, f"{OAUTH}sasl.oauthbearer.jwks.endpoint.url": "http://x/"}, "or nobody checks signatures"),
        ({**SIGNED, f"{OAUTH}sasl.oauthbearer.jwks.endpoint.url": "x"}, "jwks.endpoint.url must be a URL"),
        (SIGNED, "jwks.endpoint.url must be a URL"),
        (
            {
                **SIGNED,
                **KEYS,
                **AUDIENCE,
                **ISSUER,
                f"{OAUTH}sasl.oauthbearer.clock.skew.seconds": "x",
            },
            "Not a number of type INT",
        ),
        ({**SIGNED, **KEYS, **AUDIENCE}, "set sasl.oauthbearer.expected.issuer, or"),
        ({**SIGNED, **KEYS, **ISSUER}, "set sasl.oauthbearer.expected.audience, or"),
        ({f"{LISTENER}plain.sasl.server.callback.handler.class": "x.Y"}, "is not there for PLAIN"),
        ({JAAS: "x"}, f"{JAAS}: Login module control flag not specified"),
        ({JAAS: "x required;"}, f"{JAAS}: the login module of PLAIN is org.apache.kafka"),
        ({JAAS: "x required user_alice;"}, f"{JAAS}: Value not specified for a key"),
    ],
)
def test_unusable_sasl_settings_are_rejected_at_startup(changed: dict[str, str], complaint: str) -> None:
    given = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **PLAIN, **changed}
    with pytest.raises(SettingsError, match=complaint) as refused:
        load_settings(None, {}, [f"{name}={value}" for name, value in given.items()])
    assert "secret" not in str(refused.value)


def test_a_mechanism_without_users_is_rejected_at_startup() -> None:
    with pytest.raises(SettingsError, match=f"{JAAS} is missing, which PLAIN needs"):
        load_settings(None, {}, ["listeners=SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms=PLAIN"])


def test_a_start_with_users_logs_no_warning() -> None:
    given = ["listeners=SASL_PLAINTEXT://127.0.0.1:0", *(f"{name}={value}" for name, value in PLAIN.items())]
    assert load_settings(None, {}, given).warnings == ()


def test_a_misspelt_setting_does_not_reveal_its_value() -> None:
    with pytest.raises(SettingsError, match="unknown setting listner.name.x.sasl.jaas.config") as refused:
        load_settings(None, {}, [f"listner.name.x.sasl.jaas.config={USERS}"])
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("prefix", [OAUTH, LISTENER, ""])
def test_token_settings_may_be_per_mechanism_listener_or_global(prefix: str) -> None:
    more = {
        f"{prefix}sasl.oauthbearer.jwks.endpoint.url": "file:///keys.json",
        f"{prefix}sasl.oauthbearer.clock.skew.seconds": "7",
        f"{prefix}sasl.oauthbearer.allow.unverified.audience": "true",
        f"{prefix}sasl.oauthbearer.allow.unverified.issuer": "true",
    }
    given = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **SIGNED, **more}
    settings, warnings = load_settings(None, {}, [f"{name}={value}" for name, value in given.items()])
    assert (list(get_enabled_mechanisms(settings, "SASL_PLAINTEXT")), warnings) == (["OAUTHBEARER"], ())


def test_described_configs_contain_no_users_and_passwords() -> None:
    settings = Settings({"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **PLAIN})
    (entry,) = [entry for entry in settings.describe_broker_configs() if entry.name == JAAS]
    assert (entry.value, entry.setting.is_sensitive, entry.synonyms[0].value) == (None, True, None)
    assert "alice-secret" not in repr(settings.describe_broker_configs())
