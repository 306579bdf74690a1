"""Credentials: JAAS configurations as Spark's users write them, and the exchange with a broker that checks them."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.client.blocking import Client
from minibroker.client.client_errors import ClientError, SettingError
from minibroker.client.connection_settings import ClientSettings, RemainingSettings
from minibroker.client.credentials import LoginModule, parse_login_module, pop_credentials
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.messages.security import SaslAuthenticateResponse, SaslHandshakeResponse
from tests.cases import for_each
from tests.client.scripted import Script, scripted

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LIMITS = {"request.timeout.ms": "3000", "default.api.timeout.ms": "3000"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f'{PLAIN} required username="alice" password="secret";', {"username": "alice", "password": "secret"}),
        (f"{PLAIN} required\n  username='alice'\n  password='a b;=';\n", {"username": "alice", "password": "a b;="}),
        (f'{PLAIN} REQUIRED username=alice password="\\"\\\\";', {"username": "alice", "password": '"\\'}),
        (f"kafkashaded.{PLAIN} required username = alice;", {"username": "alice"}),
        (f"{PLAIN} required;", {}),
    ],
)
def test_a_login_module_is_parsed(text: str, expected: dict[str, str]) -> None:
    assert parse_login_module(text) == LoginModule("PlainLoginModule", expected)


@for_each(
    ("text", "message"),
    [
        ("", "contains 0 login modules"),
        (f'{PLAIN} required username="alice"', "not terminated by semi-colon"),
        (f"{PLAIN} required; {PLAIN} required;", "contains 2 login modules"),
        (f'{PLAIN} required username="alice;', "not terminated by semi-colon"),
        (f"{PLAIN} required username alice;", "Value not specified for a key"),
        (f"{PLAIN} perhaps username=alice;", "Invalid login module control flag"),
        ("com.example.Krb5LoginModule required;", "com.example.Krb5LoginModule is none of PlainLoginModule"),
    ],
)
def test_malformed_login_modules_are_rejected(text: str, message: str) -> None:
    with pytest.raises(SettingError, match=message) as refusal:
        parse_login_module(text)
    assert str(refusal.value).startswith("sasl.jaas.config")


@for_each(
    ("settings", "message"),
    [
        ({}, r"sasl\.mechanism must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
        ({"sasl.mechanism": "GSSAPI"}, "must be one of .*, not 'GSSAPI'"),
        ({"sasl.mechanism": "PLAIN"}, "must give a username and a password for PLAIN"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{SCRAM} required username=a password=b;"},
            "ScramLoginModule does not support PLAIN",
        ),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN} required username=a password=b user_a=b;"},
            "unknown option user_a",
        ),
        (
            {
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f"{PLAIN} required username=a password=b tokenauth=true;",
            },
            "unknown option tokenauth",
        ),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{BEARER} required;"}, "OAUTHBEARER needs"),
        ({"sasl.mechanism": "PLAIN", "sasl.login.callback.handler.class": "a.B"}, "can only be .*, not a.B"),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "ftp://tokens"},
            "must begin with https:, http: or file:",
        ),
    ],
)
def test_invalid_credentials_are_rejected(settings: dict[str, str], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        pop_credentials(dict(settings), is_required=True)


def test_credential_settings_are_removed_from_the_settings_even_if_unused() -> None:
    settings = {"sasl.mechanisms": "PLAIN", "sasl.username": "a", "sasl.password": "b", "linger.ms": "5"}
    assert pop_credentials(settings, is_required=False) is None
    assert settings == {"linger.ms": "5"}


def authenticating(mechanism: str, expected: str) -> Script:
    """A broker that lets in who sends `expected` as his first token."""

    def authenticate(request: Any) -> Message:
        if bytes(request.auth_bytes).decode().startswith(expected):
            return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"")
        return SaslAuthenticateResponse(error_code=58, error_message="Authentication failed", auth_bytes=b"")

    return Script(
        others={
            ApiKey.SASL_HANDSHAKE: lambda request: SaslHandshakeResponse(
                error_code=0 if request.mechanism == mechanism else 33, mechanisms=[mechanism]
            ),
            ApiKey.SASL_AUTHENTICATE: authenticate,
        }
    )


def connect(script: Script, settings: dict[str, str]) -> None:
    settings = {**LIMITS, "security.protocol": "SASL_PLAINTEXT", **settings}
    with scripted(script) as nodes:
        settings["bootstrap.servers"] = nodes.bootstrap_servers
        with Client(ClientSettings(settings)) as client:
            assert client.find_leader(("t", 0)).node_id == 1


def test_the_user_can_be_given_in_javas_or_librdkafkas_settings() -> None:
    script = authenticating("PLAIN", "\0alice\0secret")
    connect(
        script, {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN} required username=alice password=secret;"}
    )
    connect(script, {"sasl.mechanisms": "PLAIN", "sasl.username": "alice", "sasl.password": "secret"})


def test_a_wrong_password_fails_immediately_without_a_retry() -> None:
    settings = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "wr0ng"}
    with pytest.raises(ClientError, match="Metadata: authentication by PLAIN failed: Authentication failed") as failure:
        connect(authenticating("PLAIN", "\0alice\0secret"), settings)
    assert "wr0ng" not in str(failure.value) and "\n" not in str(failure.value)


def test_an_unsupported_mechanism_is_rejected() -> None:
    settings = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "secret"}
    with pytest.raises(ClientError, match="Metadata: PLAIN is not enabled at the broker, but SCRAM-SHA-256"):
        connect(authenticating("SCRAM-SHA-256", ""), settings)


def test_a_client_logs_in_with_an_unsecured_token_of_a_jaas_config() -> None:
    jaas = f'{BEARER} required unsecuredLoginStringClaim_sub="alice" unsecuredLoginExtension_traceId="7";'
    header = "eyJhbGciOiAibm9uZSJ9"  # {"alg": "none"}
    connect(
        authenticating("OAUTHBEARER", f"n,,\x01auth=Bearer {header}."),
        {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": jaas},
    )


def test_a_missing_token_is_reported_in_one_line() -> None:
    settings = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "file:///nowhere/token"}
    with pytest.raises(ClientError, match=r"Metadata: no token: .*No such file"):
        connect(authenticating("OAUTHBEARER", ""), settings)


def test_librdkafkas_unsecured_token_is_accepted() -> None:
    settings = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.config": "principal=alice extension_a=b"}
    header = "eyJhbGciOiAibm9uZSJ9"
    connect(
        authenticating("OAUTHBEARER", f"n,,\x01auth=Bearer {header}."),
        {**settings, "enable.sasl.oauthbearer.unsecure.jwt": "true"},
    )
    with pytest.raises(SettingError, match="which need enable.sasl.oauthbearer.unsecure.jwt=true"):
        connect(Script(), settings)


def test_no_secret_is_in_a_repr() -> None:
    settings = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "s3cret"}
    assert "s3cret" not in repr(RemainingSettings(settings)) and "sasl.password" in repr(RemainingSettings(settings))
    assert "s3cret" not in repr(pop_credentials(settings, is_required=True))
    assert "s3cret" not in repr(parse_login_module(f"{PLAIN} required username=alice password=s3cret;"))
