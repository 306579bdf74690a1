"""Who may use a registry: the users of the broker, by password or token, with the broker's TLS."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from typing import Any

import pytest

from minibroker.testing import Broker


def asked(broker: Broker, authorization: str | None = None) -> int:
    """Return the status of a request."""
    context = None
    if broker.security.authority is not None:
        context = ssl.create_default_context(cadata=broker.security.authority.certificate)
    headers = {} if authorization is None else {"Authorization": authorization}
    request = urllib.request.Request(f"{broker.registry_url}/subjects", headers=headers)
    try:
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            body: Any = json.loads(error.read())
            assert body == {"error_code": 401, "message": "Unauthorized"}
            return error.code


def basic(name: str, password: str) -> str:
    """Return a header with a name and a password."""
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@pytest.mark.parametrize("mechanisms", ["PLAIN,OAUTHBEARER", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_only_users_of_the_broker_are_authenticated(mechanisms: str) -> None:
    settings = {"sasl.enabled.mechanisms": mechanisms}
    with Broker(settings, security="SASL_PLAINTEXT", users={"alice": "secret:1"}, registry=True) as broker:
        assert asked(broker) == 401
        assert asked(broker, basic("alice", "secret:1")) == 200
        assert asked(broker, basic("alice", "secret:1")) == 200
        assert asked(broker, basic("alice", "secret")) == asked(broker, basic("bob", "secret:1")) == 401
        assert asked(broker, "Basic \xe9") == asked(broker, basic("alice", "\x07")) == 401
        assert asked(broker, "Basic ?") == asked(broker, "Digest x") == 401
        broker.users.add("alice", "another")
        assert asked(broker, basic("alice", "secret:1")) == 401
        assert asked(broker, basic("alice", "another")) == 200


def test_a_token_of_the_issuer_is_accepted_over_tls() -> None:
    with Broker(security="SASL_SSL", users={"alice": "secret"}, registry=True) as broker:
        assert broker.registry_url.startswith("https://")
        assert asked(broker, f"Bearer {broker.issuer.token('alice')}") == 200
        assert asked(broker, f"Bearer {broker.issuer.token('alice', trusted=False)}") == 401
        assert asked(broker, "Bearer x") == asked(broker) == 401


def test_tls_alone_requires_no_login() -> None:
    with Broker(security="SSL", registry=True) as broker:
        assert asked(broker) == 200


def test_acls_do_not_apply_to_the_registry() -> None:
    with Broker(security="SASL_PLAINTEXT", users={"alice": "secret"}, registry=True) as broker:
        broker.acls.deny("alice", "all", topic="*")
        headers = {"Authorization": basic("alice", "secret"), "Content-Type": "application/json"}
        body = json.dumps({"schema": '"int"'}).encode()
        request = urllib.request.Request(f"{broker.registry_url}/subjects/x/versions", body, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.load(answer)["id"] == 1
        assert broker.registry.requests("POST")[0].user == "alice"
