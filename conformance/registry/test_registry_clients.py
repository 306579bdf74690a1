"""Clients of registries in other languages find in minibroker's what they expect of Confluent's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from conformance import builds
from conformance.clients import PATIENCE_S
from minibroker.testing import Broker


@pytest.fixture
def registry() -> Iterator[str]:
    """Return the URL of an empty registry."""
    with Broker(registry=True) as broker:
        yield broker.registry_url


def said_by(program: str, registry: str) -> list[str]:
    """Return the lines that a program prints."""
    run = subprocess.run(
        [*builds.registry_client(program), registry], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_kafkajs_registers_encodes_and_decodes(registry: str) -> None:
    assert [json.loads(line) for line in said_by("node", registry)] == [
        [1, 1, {"name": "ann"}],
        [2, 2, {"a": 1}],
        [3, 3, {"cents": 5}],
        ["ResponseError", 409],
        ["ResponseError", 404],
    ]


def test_confluents_javascript_client_produces_consumes_and_executes_rules(registry: str) -> None:
    assert [json.loads(line) for line in said_by("confluent_node", registry)] == [
        ["avro", True, [], {"name": "ann"}],
        ["avro", False, ["__value_schema_id"], {"name": "ann"}],
        ["json", True, [], {"name": "ann"}],
        ["json", "SerializationError", None],
        ["rules", True, [], {"name": "ann-x"}],
        ["rules", "SerializationError", None],
        ["incompatible", 409, 40901],
        ["unknown", 404, 40403],
        ["subjects", ["avro-value", "json-value", "rules-value"]],
    ]


def test_python_clients_execute_rules_and_find_schemas(registry: str) -> None:
    said = dict(json.loads(line) for line in said_by("python", registry))
    for kind in ("AVRO", "JSON"):
        assert said[f"{kind} rules kept"] == ["named", "masked"]
        assert said[f"{kind} transformed"] == {"name": "ann-x", "city": "ulm"}
        assert said[f"{kind} refused"] == "RuleConditionError"
        assert [said[f"{kind} read as {major}"] for major in (1, 2)] == [{"name": "ann"}, {"title": "ann"}]
    found = {name: said[name] for name in ("registered", "found", "version", "versions", "compatible", "level")}
    assert found == {
        **{"registered": 7, "found": "User", "version": [1, 7], "versions": [1]},
        **{"compatible": False, "level": "FULL"},
    }
    assert (said["decoded"], said["subjects"], said["deleted"]) == ({"name": "ann"}, True, [1])


def test_springs_client_registers_schemas_that_avro_for_java_reads(registry: str) -> None:
    assert said_by("java", registry) == [
        "1 SchemaReference{subject='java-value', version=1, format='avro'}",
        "2 SchemaReference{subject='java-value', version=2, format='avro'}",
        '{"name": "ann", "city": "?"}',
        "Failed to register subject java-value, server replied with status 409",
        "Could not find schema with id: 99",
    ]


def test_franz_go_uses_all_registry_requests(registry: str) -> None:
    assert said_by("go", registry) == [
        "created go-value 1 1",
        "found 1",
        'text {"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}',
        "compatible false 4",
        "refused true",
        "level go-value FULL_TRANSITIVE <nil>",
        "mode other READONLY <nil>",
        "subjects [go-value] 1",
        "deleted [1]",
        "deleted [1]",
    ]
