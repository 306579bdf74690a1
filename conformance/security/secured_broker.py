"""A broker with a listener for each way to come in, its users, its issuer of tokens, and its ACLs."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from tests.certificates import Authority
from tests.running import RunningBroker, running_broker

MODULES = "org.apache.kafka.common.security"
OAUTH = f"{MODULES}.oauthbearer"
LISTENERS = {"TLS": "SSL", "MUTUAL": "SSL", "CLEAR": "SASL_PLAINTEXT", "SECURE": "SASL_SSL", "BRIEF": "SASL_SSL"}
USERS = ("SCRAM-SHA-256=[name=alice,password=a-secret]", "SCRAM-SHA-512=[name=alice,password=a-secret]")
BRIEF_MS = 1500
EVERYONES, ALICES = "everyones-", "alices-"  # topics and groups by the beginnings of their names
AUDIENCE, ISSUER = "kafka", "https://issuer.test"


class SecuredBroker:
    """The broker, and what its clients and its administrator need."""

    def __init__(self, directory: Path, authority: Authority, key: ec.EllipticCurvePrivateKey) -> None:
        self._directory = directory
        self._key = key
        (directory / "ca.pem").write_text(authority.pem)
        self.authority = str(directory / "ca.pem")
        self.certificate = str(authority.sign("CN=alice,OU=people").write(directory, "alice"))
        self.running: RunningBroker

    @property
    def addresses(self) -> dict[str, str]:
        return dict(zip(LISTENERS, self.running.bootstrap_servers.split(","), strict=True))

    @functools.cached_property
    def admin(self) -> AdminClient:
        """Return a client of the super user."""
        return AdminClient(self._super_user)

    @property
    def _super_user(self) -> dict[str, str]:
        login = {"sasl.mechanism": "PLAIN", "sasl.username": "admin", "sasl.password": "the-secret"}
        return {"bootstrap.servers": self.addresses["CLEAR"], "security.protocol": "SASL_PLAINTEXT", **login}

    def token(self, **claims: Any) -> str:
        """Return a token for alice; `exp` and `iat` are seconds from now."""
        said = {"sub": "alice", "iat": -90, "exp": 600, "aud": AUDIENCE, "iss": ISSUER, **claims}
        times = {name: int(time.time()) + said[name] for name in ("iat", "exp")}
        return jwt.encode({**said, **times}, self._key, algorithm="ES256", headers={"kid": "own"})

    def case(self, listener: str, topic: str, **more: Any) -> dict[str, Any]:
        """Return a case for the programs; `more` overrides the good credentials."""
        made: dict[str, Any] = {
            "action": "round-trip",
            "bootstrap": self.addresses[listener],
            "protocol": LISTENERS[listener],
            "topic": topic,
            "records": 20,
            "seconds": 0,
            "user": "alice",
            "password": "a-secret",
            **more,
        }
        if "SSL" in LISTENERS[listener]:
            made["authority"] = self.authority
        if made.get("mechanism") == "OAUTHBEARER":
            made.setdefault("token", self.token())
            file = self._directory / f"{topic}.token"
            file.write_text(made["token"])
            made.setdefault("token_url", file.as_uri())
        return made

    def create_topics(self, *names: str) -> None:
        for made in self.admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            made.result(30)

    def allow(self, *rules: AclBinding) -> None:
        for made in self.admin.create_acls(list(rules)).values():
            made.result(30)

    def revoke(self, *rules: AclBinding) -> None:
        """Remove ACLs that are there."""
        removed = [
            found for made in self.admin.delete_acls(list(map(_filter, rules))).values() for found in made.result(30)
        ]
        assert len(removed) == len(rules)

    def produce(self, *topics: str) -> None:
        """Write a record to each topic, as the super user."""
        producer = Producer(self._super_user)
        for topic in topics:
            producer.produce(topic, b"0")
        assert producer.flush(30) == 0


def _filter(rule: AclBinding) -> AclBindingFilter:
    parts = (rule.restype, rule.name, rule.resource_pattern_type, rule.principal, rule.host)
    return AclBindingFilter(*parts, rule.operation, rule.permission_type)


def rule(kind: ResourceType, name: str, principal: str, operation: AclOperation, *, prefix: bool = False) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL
    return AclBinding(kind, name, pattern, principal, "*", operation, AclPermissionType.ALLOW)


def settings(keys: Path, authority: Authority) -> dict[str, str]:
    server = authority.sign()
    made = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": server.key_pem(),
        "ssl.keystore.certificate.chain": server.certificate_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.pem,
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),OU=people$/$1/,DEFAULT",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.brief.connections.max.reauth.ms": str(BRIEF_MS),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    plain = f'{MODULES}.plain.PlainLoginModule required user_alice="a-secret" user_admin="the-secret";'
    for name in ("clear", "secure", "brief"):
        own = f"listener.name.{name}"
        made[f"{own}.plain.sasl.jaas.config"] = plain
        made[f"{own}.oauthbearer.sasl.jaas.config"] = f"{OAUTH}.OAuthBearerLoginModule required;"
        made[f"{own}.oauthbearer.sasl.server.callback.handler.class"] = f"{OAUTH}.OAuthBearerValidatorCallbackHandler"
    return made


@contextmanager
def secured_broker(directory: Path, **more: str) -> Iterator[SecuredBroker]:
    """A broker for the length of a block. Topics and groups of `ALICES` are alice's, those of `EVERYONES` anyone's.

    `more` are settings that override its own, with _ for each dot.
    """
    authority, key = Authority(), ec.generate_private_key(ec.SECP256R1())
    keys = directory / "jwks.json"
    keys.write_text(json.dumps({"keys": [{**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": "own"}]}))
    secured = SecuredBroker(directory, authority, key)
    overriding = {name.replace("_", "."): text for name, text in more.items()}
    assignments = [f"{name}={text}" for name, text in {**settings(keys, authority), **overriding}.items()]
    options = tuple(word for user in USERS for word in ("--add-scram", user))
    with running_broker(directory, *assignments, options=options) as secured.running:
        secured.allow(
            *(
                rule(kind, beginning, principal, AclOperation.ALL, prefix=True)
                for kind in (ResourceType.TOPIC, ResourceType.GROUP)
                for beginning, principal in ((EVERYONES, "User:*"), (ALICES, "User:alice"))
            )
        )
        yield secured
        del secured.admin  # or it would complain that the broker has gone
    log = secured.running.log
    assert "Traceback" not in log and "secret" not in log
