"""The schema registry over the HTTP control."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.registry.asking import Asking, record
from tests.running import running_broker
from tests.testing.control.test_control import Control

R1, R2 = record("R", ("a", "int")), record("R", ("a", "int"), ("b", "int"))


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Control]:
    directory = tmp_path_factory.mktemp("registry")
    with running_broker(directory, options=("--control", "0", "--registry", "0")) as broker:
        assert broker.process.stdout is not None
        assert broker.process.stdout.readline().startswith(b"minibroker has a schema registry")
        yield Control(broker)


@pytest.fixture
def control(process: Control) -> Control:
    process.post("/v1/reset", status=204)
    return process


@pytest.fixture
def client(control: Control) -> Asking:
    """Return a client of the registry."""
    return Asking(control.get("/v1/registry")["url"])


def test_schemas_are_registered_and_read(control: Control, client: Asking) -> None:
    assert control.post("/v1/registry/schemas", {"subject": "a/b", "schema": R1}) == {"id": 1}
    reference = {"name": "R", "subject": "a/b"}
    referring = {"subject": "of", "schema": record("S", ("r", "R")), "references": [reference]}
    assert control.post("/v1/registry/schemas", referring) == {"id": 2}
    assert control.get("/v1/registry/subjects")["subjects"] == client.get("/subjects").body == ["a/b", "of"]
    text = control.get("/v1/registry/schemas?subject=a/b&version=1")["schema"]
    assert text == client.get("/subjects/a%2Fb/versions/1").body["schema"]
    assert control.ask("GET", "/v1/registry/schemas?subject=no")[0] == 404


def test_compatibility_levels_are_set_over_http(control: Control) -> None:
    control.post("/v1/registry/schemas", {"subject": "x", "schema": R1})
    refused = control.post("/v1/registry/schemas", {"subject": "x", "schema": R2}, 400)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in refused["message"]
    control.post("/v1/registry/compatibility", {"level": "NONE", "subject": "x"}, 204)
    assert control.post("/v1/registry/schemas", {"subject": "x", "schema": R2}) == {"id": 2}


def test_registry_requests_are_listed(control: Control, client: Asking) -> None:
    client.register("x", R1)
    client.get("/subjects")
    (seen,) = control.get("/v1/registry/requests?method=POST&path=/subjects/*")
    assert (seen["path"], seen["status"], seen["user"]) == ("/subjects/x/versions", 200, None)
    assert len(control.get("/v1/registry/requests")) == 2


EFFECTS: dict[str, tuple[dict[str, Any], int]] = {
    "error": ({"code": 42205, "message": "no", "method": "GET", "path": "/schemas/*"}, 42205),
    "unknown id": ({"unknown_id": 1}, 40403),
}


@pytest.mark.parametrize("effect", EFFECTS)
def test_registry_faults_are_added_and_removed(control: Control, client: Asking, effect: str) -> None:
    words, code = EFFECTS[effect]
    client.register("x", R1)
    fault = control.post("/v1/registry/faults", words, 201)
    path = f"/v1/registry/faults/{fault['number']}"
    assert client.get("/schemas/ids/1").code == code
    assert control.get(path) == {**fault, "hits": 1} == control.get("/v1/registry/faults")[0]
    assert control.ask("DELETE", path)[0] == 204
    assert client.get("/schemas/ids/1").status == 200
    assert control.ask("GET", path)[0] == 404


def test_a_registry_fault_delays_responses(control: Control, client: Asking) -> None:
    control.post("/v1/registry/faults", {"delay": 50, "times": 1}, 201)
    client.get("/subjects")
    client.get("/subjects")
    assert control.get("/v1/registry/requests")[0]["duration_ms"] > 40  # timers may be early
    assert control.get("/v1/registry/faults")[0]["hits"] == 1
    assert control.ask("DELETE", "/v1/registry/faults")[0] == 204
    assert control.get("/v1/registry/faults") == []


INVALID: dict[str, tuple[object, int]] = {
    "no effect": ({"times": 1}, 422),
    "two effects": ({"code": 500, "delay": "1 s"}, 422),
    "a condition without effect": ({"unknown_id": 1, "path": "/subjects"}, 422),
    "a code that is none": ({"code": 200}, 400),
}


@pytest.mark.parametrize("invalid", INVALID)
def test_invalid_registry_faults_are_rejected(control: Control, invalid: str) -> None:
    body, status = INVALID[invalid]
    control.post("/v1/registry/faults", body, status)


def test_registry_routes_of_a_broker_without_a_registry_return_an_error(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with running_broker(tmp_path_factory.mktemp("none"), options=("--control", "0")) as broker:
        answer = Control(broker).ask("GET", "/v1/registry/subjects")
    assert answer[0] == 409 and "schema registry" in answer[1]["message"]
