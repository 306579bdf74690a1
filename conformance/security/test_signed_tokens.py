"""Signed tokens: Apache Kafka and minibroker take the same ones, and refuse the same ones."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from conformance.kafka_reference import KafkaProcess
from conformance.wire.connection import Connection
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.clients.ports import free_ports
from tests.running import running_broker

OAUTH = "org.apache.kafka.common.security.oauthbearer"
NAMES = ("STRICT", "PLAIN", "LENIENT")  # of listeners that expect something, nothing, and another claim
KEYS = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "PS384": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "strange": ec.generate_private_key(ec.SECP256R1()),
}
INVALID = b'{"status":"invalid_token"}'


def settings(keys: Path) -> dict[str, str]:
    given = {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri()}
    for name in NAMES:
        own = f"listener.name.{name.lower()}"
        given[f"{own}.oauthbearer.sasl.jaas.config"] = f"{OAUTH}.OAuthBearerLoginModule required;"
        given[f"{own}.oauthbearer.sasl.server.callback.handler.class"] = f"{OAUTH}.OAuthBearerValidatorCallbackHandler"
    given["listener.name.strict.sasl.oauthbearer.expected.audience"] = "kafka,other"
    given["listener.name.strict.sasl.oauthbearer.expected.issuer"] = "https://issuer.test"
    for name in ("plain", "lenient"):
        given[f"listener.name.{name}.sasl.oauthbearer.allow.unverified.audience"] = "true"
        given[f"listener.name.{name}.sasl.oauthbearer.allow.unverified.issuer"] = "true"
    given["listener.name.lenient.sasl.oauthbearer.sub.claim.name"] = "azp"
    given["listener.name.lenient.sasl.oauthbearer.scope.claim.name"] = "scp"
    given["listener.name.lenient.sasl.oauthbearer.clock.skew.seconds"] = "600"
    return given


class KafkaWithTokens(KafkaProcess):
    """A listener without security, and those for tokens."""

    def _write_properties(self, controller_port: int, properties: Mapping[str, str]) -> None:
        first = free_ports(len(NAMES))
        self.addresses = {name: f"127.0.0.1:{first + index}" for index, name in enumerate(NAMES)}
        listeners = f"CLEAR://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{controller_port}"
        given = {
            "listeners": ",".join([listeners, *(f"{name}://{address}" for name, address in self.addresses.items())]),
            "listener.security.protocol.map": "CLEAR:PLAINTEXT,CONTROLLER:PLAINTEXT," + protocols(),
            "inter.broker.listener.name": "CLEAR",
        }
        super()._write_properties(controller_port, {**given, **properties})

    @property
    def jvm_options(self) -> list[str]:
        return [*super().jvm_options, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.url}"]

    url = ""


def protocols() -> str:
    return ",".join(f"{name}:SASL_PLAINTEXT" for name in NAMES)


@pytest.fixture(scope="module")
def addresses(against: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    directory = tmp_path_factory.mktemp("tokens")
    keys = directory / "jwks.json"
    published = []
    for kind in ("RS256", "PS384", "ES256"):
        algorithm: Any = ECAlgorithm if kind.startswith("ES") else RSAAlgorithm
        published.append({**algorithm.to_jwk(KEYS[kind].public_key(), as_dict=True), "kid": kind, "use": "sig"})
    keys.write_text(json.dumps({"keys": published}))
    if against == "kafka":
        KafkaWithTokens.url = keys.as_uri()
        kafka = KafkaWithTokens(directory, settings(keys))
        kafka.start()
        try:
            yield kafka.addresses
        finally:
            kafka.kill()
    else:
        more = {
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in NAMES),
            "listener.security.protocol.map": protocols(),
        }
        given = [f"{name}={value}" for name, value in {**settings(keys), **more}.items()]
        with running_broker(directory, *given) as ours:
            yield dict(zip(NAMES, ours.bootstrap_servers.split(","), strict=True))


class Case(NamedTuple):
    """A token: to which listener, by which key, with which claims instead of the usual ones, and whether it is good."""

    listener: str
    claims: dict[str, Any]
    good: bool
    kind: str = "RS256"
    key_id: str | None = "RS256"
    key: str | None = None


STRICT = (
    Case("STRICT", {}, True),
    Case("STRICT", {}, True, "PS384", "PS384"),
    Case("STRICT", {}, True, "ES256", "ES256"),
    Case("STRICT", {}, False, "ES256", "ES256", "strange"),
    Case("STRICT", {}, False, "RS256", "unknown"),
    Case("STRICT", {}, False, "RS256", "PS384"),
    Case("STRICT", {}, True, "ES256", None),
    Case("STRICT", {"aud": ["x", "other"]}, True),
    Case("STRICT", {"aud": ["x"]}, False),
    Case("STRICT", {"aud": None}, False),
    Case("STRICT", {"aud": []}, False),
    Case("STRICT", {"iss": None}, False),
    Case("STRICT", {"iss": "https://issuer.test/"}, False),
    Case("STRICT", {"exp": None}, False),
    Case("STRICT", {"exp": "x"}, False),
    Case("STRICT", {"iat": None}, False),
    Case("STRICT", {"exp": -29, "iat": -60}, True),
    Case("STRICT", {"exp": -40, "iat": -60}, False),
    Case("STRICT", {"iat": 600, "exp": 700}, True),
    Case("STRICT", {"iat": 61, "exp": 60}, False),
    Case("STRICT", {"nbf": 20}, True),
    Case("STRICT", {"nbf": 50}, False),
    Case("STRICT", {"sub": None}, False),
    Case("STRICT", {"sub": ""}, False),
    Case("STRICT", {"sub": "  "}, False),
    Case("STRICT", {"sub": 7}, False),
    Case("STRICT", {"scope": None}, True),
    Case("STRICT", {"scope": "a b"}, True),
    Case("STRICT", {"scope": ["a", "b"]}, True),
    Case("STRICT", {"scope": ["a", "a"]}, False),
    Case("STRICT", {"scope": ["a", " "]}, False),
    Case("STRICT", {"scope": ""}, False),
    Case("STRICT", {"scope": {}}, True),
)
OTHERS = (
    Case("PLAIN", {}, True),
    Case("PLAIN", {"aud": 7, "iss": 7}, True),
    Case("PLAIN", {"aud": None}, True),
    Case("PLAIN", {"aud": None, "iss": None}, True),
    Case("LENIENT", {"aud": None}, False),  # without azp
    Case("LENIENT", {"aud": None, "azp": "carol", "sub": None}, True),
    Case("LENIENT", {"aud": None, "azp": "carol", "scp": ["a", "a"]}, False),
    Case("LENIENT", {"aud": None, "azp": "carol", "exp": -500, "iat": -900}, True),
)


def token(case: Case) -> str:
    now_s = int(time.time())
    claims = {"sub": "alice", "iat": -5, "exp": 60, "aud": "kafka", "iss": "https://issuer.test", **case.claims}
    said = {
        name: value + now_s if name in ("exp", "iat", "nbf") and isinstance(value, int) else value
        for name, value in claims.items()
        if value is not None
    }
    headers = {} if case.key_id is None else {"kid": case.key_id}
    signed_by = KEYS[case.key or case.kind]
    try:
        return jwt.encode(said, signed_by, algorithm=case.kind, headers=headers)
    except TypeError:  # PyJWT does not write claims that are wrong
        payload = json.dumps(said).encode()
        return jwt.api_jws.PyJWS().encode(payload, signed_by, algorithm=case.kind, headers=headers)


def answer(address: str, said: str) -> tuple[int, bytes]:
    """The error code and the bytes with which a broker answers a token."""
    with Connection(address) as client:
        assert client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1).error_code == 0
        first = f"n,,\x01auth=Bearer {said}\x01\x01".encode()
        told = client.ask(SaslAuthenticateRequest(auth_bytes=first), 2)
        return told.error_code, bytes(told.auth_bytes)


@pytest.mark.parametrize("case", [*STRICT, *OTHERS], ids=str)
def test_both_brokers_validate_signed_tokens_alike(addresses: dict[str, str], case: Case) -> None:
    assert answer(addresses[case.listener], token(case)) == (0, b"" if case.good else INVALID)


def test_both_brokers_reject_a_token_without_a_signature(addresses: dict[str, str]) -> None:
    claims = {"sub": "alice", "exp": time.time() + 60, "iat": time.time(), "aud": "kafka", "iss": "https://issuer.test"}
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).decode() for each in ({"alg": "none"}, claims)]
    for said in (".".join(part.rstrip("=") for part in parts) + ".", "x", "a.b.c"):
        assert answer(addresses["STRICT"], said) == (ErrorCode.NONE, INVALID)
