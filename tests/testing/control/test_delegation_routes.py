"""Delegation tokens over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.running import running_broker
from tests.testing.control.test_control import Control

OPTIONS = ("--control", "0", "--security", "SASL_PLAINTEXT", "--log-level", "debug")
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Control]:
    with running_broker(tmp_path_factory.mktemp("tokens"), options=OPTIONS) as broker:
        control = Control(broker)
        yield control
        token = control.post("/v1/delegation-tokens", {"user": "alice"})
        assert token["secret"] not in broker.log


def test_tokens_are_created_renewed_and_expired(control: Control) -> None:
    wanted = {"user": "alice", "renewers": ["bob"], "max_lifetime": "12 h"}
    token = control.post("/v1/delegation-tokens", wanted)
    assert (token["user"], token["renewers"], token["max_ms"] - token["issued_ms"]) == ("alice", ["bob"], 12 * HOUR_MS)
    assert control.get("/v1/delegation-tokens") == [token]
    path = f"/v1/delegation-tokens/{token['id']}"
    config = control.post(f"{path}/client-config", {"library": "java"})
    assert token["secret"] in config["sasl.jaas.config"] and 'tokenauth="true"' in config["sasl.jaas.config"]
    assert control.post(f"{path}/renew", {"period": "1 h"})["expires_ms"] < token["expires_ms"]
    assert control.post(f"{path}/renew")["expires_ms"] == token["max_ms"]
    assert control.ask("DELETE", path)[0] == 204
    assert [control.ask("DELETE", path)[0], control.ask("POST", f"{path}/renew")[0]] == [404, 404]
    control.post("/v1/delegation-tokens", {"user": "bob"})
    assert control.ask("DELETE", "/v1/delegation-tokens")[0] == 204
    assert control.get("/v1/delegation-tokens") == []


@pytest.mark.parametrize(
    ("asked", "status"), [({"user": "alice", "max_lifetime": "soon"}, 400), ({}, 422), ({"user": "a", "x": 1}, 422)]
)
def test_invalid_token_requests_are_rejected(control: Control, asked: dict[str, object], status: int) -> None:
    assert control.ask("POST", "/v1/delegation-tokens", asked)[0] == status
