"""The issuer of OAuth tokens: what its endpoint gives to whom, and which of its tokens the broker takes."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import aiokafka
import confluent_kafka
import jwt
import kafka
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from minibroker.broker.lifecycle import StartError
from minibroker.client.blocking import Client
from minibroker.client.client_errors import ClientError
from minibroker.client.connection_settings import ClientSettings
from minibroker.protocol.messages.groups import ListGroupsRequest
from minibroker.testing import Broker
from minibroker.testing.embedded.issuer import ASSERTION_TYPE, JWT_BEARER, Issuer, TokenDenied
from minibroker.testing.loops import NotRunning

PATIENCE_S = 20
USERS = {"alice": "a+b c", "b%62:": "simple"}
OWN = ("bootstrap.servers", "security.protocol", "ssl.ca.pem", "sasl.mechanism")
ANSWER = {"token_type": "Bearer", "expires_in": 3600, "scope": "kafka"}


@pytest.fixture(scope="module", params=["SASL_PLAINTEXT", "SASL_SSL"])
def any_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(security=request.param, users=USERS) as broker:
        yield broker


@pytest.fixture
def broker(any_broker: Broker) -> Broker:
    any_broker.reset()
    return any_broker


def asked(broker: Broker, path: str, fields: dict[str, str] | None = None, **headers: str) -> tuple[int, Any]:
    """The status and the JSON of an answer."""
    security = broker.security
    context = None if security.authority is None else ssl.create_default_context(cadata=security.authority.certificate)
    body = None if fields is None else urllib.parse.urlencode(fields).encode()
    request = urllib.request.Request(broker.issuer.url + path, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S, context=context) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def claims_of(token: str) -> dict[str, Any]:
    found: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return found


def refused(broker: Broker, token: str) -> bool:
    """Whether the broker refuses a client that logs in with a token."""
    config = broker.client_config("confluent", user="alice", mechanism="OAUTHBEARER")
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(token)
        file.flush()
        own = {name: value for name, value in config.items() if name in OWN}
        settings = ClientSettings({**own, "sasl.oauthbearer.token.endpoint.url": f"file:{file.name}"})
        try:
            with Client(settings) as client:
                client.request(ListGroupsRequest())
        except ClientError as error:
            assert "authenti" in str(error).lower(), error
            return True
        return False


def test_clients_of_each_library_log_in_with_tokens(broker: Broker) -> None:
    def config(library: str) -> Any:
        return broker.client_config(library, user="alice", mechanism="OAUTHBEARER")

    producer = confluent_kafka.Producer(config("confluent"))
    producer.produce("t", b"x")
    assert producer.flush(PATIENCE_S) == 0
    consumer = kafka.KafkaConsumer("t", **config("kafka-python"), auto_offset_reset="earliest")
    try:
        found = consumer.poll(1000 * PATIENCE_S)
    finally:
        consumer.close()
    assert [record.value for records in found.values() for record in records] == [b"x"]
    assert not refused(broker, str(config("franz-go")["sasl"]["token"]))
    assert not refused(broker, str(config("kafkajs")["sasl"]["token"]))


def test_the_issuer_publishes_its_metadata(broker: Broker) -> None:
    status, told = asked(broker, "/.well-known/openid-configuration")
    assert (status, told["issuer"], told["token_endpoint"]) == (200, broker.issuer.url, broker.issuer.token_endpoint)
    status, keys = asked(broker, told["jwks_uri"].removeprefix(broker.issuer.url))
    public = {jwt.PyJWK(key).key_id: jwt.PyJWK(key) for key in keys["keys"]}
    token = broker.issuer.token("alice")
    key = public[jwt.get_unverified_header(token)["kid"]]
    assert jwt.decode(token, key, ["ES256"], audience="kafka", issuer=told["issuer"])["sub"] == "alice"
    assert asked(broker, "/other")[0] == 404
    assert asked(broker, "/token")[0] == asked(broker, "/jwks", {"a": "b"})[0] == 405


@pytest.mark.parametrize("user", USERS)
def test_client_credentials_get_a_token(broker: Broker, user: str) -> None:
    quote = urllib.parse.quote_plus
    grant = {"grant_type": "client_credentials"}
    answers = [
        asked(broker, "/token", grant, Authorization=basic(user, USERS[user])),
        asked(broker, "/token", grant, Authorization=basic(quote(user), quote(USERS[user]))),
        asked(broker, "/token", {**grant, "client_id": user, "client_secret": USERS[user]}),
    ]
    for status, told in answers[1:] if ":" in user else answers:  # which ends a name that is not encoded
        claims = claims_of(told.pop("access_token"))
        assert (status, told) == (200, ANSWER)
        assert (claims["sub"], claims["aud"], claims["iss"]) == (user, "kafka", broker.issuer.url)
        assert claims["exp"] - claims["iat"] == 3600
    _, told = asked(broker, "/token", {**grant, "client_id": user, "client_secret": USERS[user], "scope": "a b"})
    assert told["scope"] == claims_of(told["access_token"])["scope"] == "a b"


@pytest.mark.parametrize(
    ("fields", "headers", "error"),
    [
        ({}, {}, "unsupported_grant_type"),
        ({"grant_type": "password"}, {}, "unsupported_grant_type"),
        ({"grant_type": "client_credentials"}, {}, "invalid_client"),
        ({"grant_type": "client_credentials", "client_id": "alice", "client_secret": "x"}, {}, "invalid_client"),
        ({"grant_type": "client_credentials"}, {"Authorization": basic("nobody", "")}, "invalid_client"),
        ({"grant_type": "client_credentials"}, {"Authorization": "Basic %"}, "invalid_client"),
        ({"grant_type": "client_credentials"}, {"Authorization": "Bearer x"}, "invalid_client"),
        (
            {"grant_type": "client_credentials", "client_secret": "a+b c"},
            {"Authorization": basic("alice", "a+b c")},
            "invalid_request",
        ),
        ({"grant_type": "client_credentials", "client_assertion": "x"}, {}, "invalid_request"),
        ({"grant_type": JWT_BEARER, "assertion": "x"}, {}, "invalid_grant"),
        ({f"field{number}": "" for number in range(50)}, {}, "invalid_request"),
    ],
)
def test_invalid_client_credentials_get_no_token(
    broker: Broker, fields: dict[str, str], headers: dict[str, str], error: str
) -> None:
    status, told = asked(broker, "/token", fields, **headers)
    assert (status, told["error"]) == (401 if error == "invalid_client" else 400, error)
    assert "access_token" not in told and "a+b c" not in json.dumps(told)


def test_a_client_assertion_gets_a_token(broker: Broker) -> None:
    def grants(assertion: str, **more: str) -> list[int]:
        by_client = {"grant_type": "client_credentials", "client_assertion_type": ASSERTION_TYPE}
        return [
            asked(broker, "/token", {**by_client, "client_assertion": assertion, **more})[0],
            asked(broker, "/token", {"grant_type": JWT_BEARER, "assertion": assertion})[0],
        ]

    issuer = broker.issuer
    good = issuer.assertion("alice")
    assert grants(good) == grants(good, client_id="alice") == [200, 200]
    assert grants(good, client_id="bob") == [401, 200]
    assert grants(issuer.assertion("nobody")) == [401, 400]
    claims = claims_of(good)
    wrong: list[dict[str, Any]] = [
        {"aud": "elsewhere"},
        {"iss": "bob"},
        {"exp": claims["iat"] - 1},
        {"exp": "x"},
        {"sub": ["alice"]},
    ]
    for change in wrong:
        assert grants(jwt.encode({**claims, **change}, issuer.client_key("alice"), "RS256")) == [401, 400]
    assert grants(jwt.encode(claims, rsa.generate_private_key(65537, 2048), "RS256")) == [401, 400]
    assert grants(jwt.encode(claims, None, "none")) == [401, 400]
    assert grants(jwt.encode(claims, issuer.client_key("alice"), "RS256")) == [200, 200]
    broker.clock.advance("1 hour")
    assert grants(good) == [401, 400]


def test_a_real_client_logs_in_with_an_assertion(broker: Broker) -> None:
    config = broker.client_config("confluent", user="alice", mechanism="OAUTHBEARER")
    del config["sasl.oauthbearer.client.secret"]
    config |= {
        "sasl.oauthbearer.grant.type": JWT_BEARER,
        "sasl.oauthbearer.assertion.algorithm": "RS256",
        "sasl.oauthbearer.assertion.private.key.pem": broker.issuer.client_key("alice"),
        "sasl.oauthbearer.assertion.claim.iss": "alice",
        "sasl.oauthbearer.assertion.claim.sub": "alice",
        "sasl.oauthbearer.assertion.claim.aud": broker.issuer.token_endpoint,
    }
    producer = confluent_kafka.Producer(config)
    producer.produce("t", b"x")
    assert producer.flush(PATIENCE_S) == 0


@pytest.mark.parametrize(
    "options",
    [
        {"expires_in": 0},
        {"audience": "other"},
        {"issuer": "https://elsewhere.test"},
        {"trusted": False},
        {"claims": {"exp": None}},
    ],
)
def test_the_broker_rejects_invalid_tokens_until_valid_ones_are_issued(broker: Broker, options: Any) -> None:
    issuer: Issuer = broker.issuer
    assert refused(broker, issuer.token("alice", **options))
    issuer.use_tokens(**options)
    assert refused(broker, issuer.make_token_for_client("alice", USERS["alice"]))
    assert not refused(broker, issuer.token("alice"))
    broker.reset()
    assert not refused(broker, issuer.make_token_for_client("alice", USERS["alice"]))


def test_tokens_expire_on_the_brokers_clock(broker: Broker) -> None:
    token = broker.issuer.token("alice", expires_in="2 hours")
    broker.clock.advance("119 min")
    assert not refused(broker, token)
    broker.clock.advance("1 min")
    assert refused(broker, token)
    assert not refused(broker, broker.issuer.token("alice"))


def test_issuer_keys_are_rotated(broker: Broker) -> None:
    issuer = broker.issuer
    old = issuer.token("alice")
    issuer.rotate_keys(keep_old=True)
    new = issuer.token("alice")
    assert [refused(broker, token) for token in (new, old)] == [False, False]
    issuer.rotate_keys()
    assert not refused(broker, issuer.token("alice"))
    assert refused(broker, old)


def test_the_issuer_stops_with_its_broker() -> None:
    broker = Broker(security="SASL_PLAINTEXT", users=USERS)
    with pytest.raises(NotRunning):
        _ = broker.issuer.url
    with broker:
        url, token = broker.issuer.url, broker.issuer.token("alice")
        broker.kill()
        assert asked(broker, "/jwks")[0] == 200
        broker.restart()
        assert (broker.issuer.url, refused(broker, token)) == (url, False)
        with pytest.raises(TokenDenied):
            broker.issuer.make_token_for_client("alice", "wrong")
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{url}/jwks", timeout=PATIENCE_S)
    with broker:
        assert asked(broker, "/jwks")[0] == 200


def test_a_broker_in_the_callers_event_loop_has_an_issuer() -> None:
    async def talk() -> int:
        async with Broker(security="SASL_SSL", users=USERS) as broker:
            config = broker.client_config("aiokafka", user="alice", mechanism="OAUTHBEARER")
            async with aiokafka.AIOKafkaProducer(**config) as producer:
                await producer.send_and_wait("t", b"x")
            status, _ = await asyncio.to_thread(asked, broker, "/jwks")
            return status

    assert asyncio.run(talk()) == 200


def test_a_broker_without_sasl_has_no_issuer() -> None:
    with Broker(security="SSL") as broker, pytest.raises(RuntimeError, match="with SSL there is no issuer"):
        _ = broker.issuer


@pytest.mark.parametrize(
    ("address", "advertised", "name"),
    [
        ("127.0.0.2:0", "localhost", "127.0.0.2"),
        ("0.0.0.0:0", "localhost", "localhost"),
        ("0", "localhost", "127.0.0.1"),
    ],
)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_the_issuer_listens_on_an_address_reachable_from_elsewhere(
    protocol: str, address: str, advertised: str, name: str
) -> None:
    settings = {"test.issuer": address, "advertised.listeners": f"PLAINTEXT://{advertised}:0"}
    with Broker(settings, security=protocol, users=USERS) as broker:
        assert broker.issuer.url.split("://")[1].rsplit(":", 1)[0] == name
        fields = {"grant_type": "client_credentials"}
        status, given = asked(broker, "/token", fields, Authorization=basic("alice", USERS["alice"]))
        assert status == 200 and not refused(broker, given["access_token"])


def test_an_issuer_address_in_use_is_reported_in_one_line() -> None:
    with Broker(security="SASL_PLAINTEXT") as first:
        port = first.issuer.url.rsplit(":", 1)[1]
        with (
            pytest.raises(StartError, match=f"^test.issuer: cannot listen on 127.0.0.1:{port}: "),
            Broker({"test.issuer": port}, security="SASL_PLAINTEXT"),
        ):
            pass
