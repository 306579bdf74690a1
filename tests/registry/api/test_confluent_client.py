"""Confluent's Python client: its registry client, and its serializers with ids in the value and in headers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from minibroker.testing import Broker
from tests.registry.asking import record

schema_registry = pytest.importorskip("confluent_kafka.schema_registry", exc_type=ImportError)
avro = pytest.importorskip("confluent_kafka.schema_registry.avro", exc_type=ImportError)
serialization = pytest.importorskip("confluent_kafka.serialization")

USER = json.dumps(record("User", ("name", "string"), ("age?", "int")))


@pytest.fixture
def client(broker: Broker) -> Iterator[Any]:
    """Return a client of an empty registry."""
    with schema_registry.SchemaRegistryClient({"url": broker.registry_url}) as client:
        yield client


def avro_schema(*fields: tuple[str, Any]) -> Any:
    """Return a schema for the client."""
    return schema_registry.Schema(json.dumps(record("R", *fields)), "AVRO")


def test_confluents_client_registers_finds_checks_and_deletes_schemas(client: Any) -> None:
    one, two = avro_schema(("a", "int")), avro_schema(("a", "int"), ("b?", "int"))
    assert client.register_schema("s", one) == client.register_schema("s", one) == 1
    assert client.test_compatibility("s", two)
    assert not client.test_compatibility("s", avro_schema(("a", "int"), ("b", "int")))
    assert client.register_schema("s", two) == 2
    latest = client.get_latest_version("s")
    assert (latest.version, latest.schema_id) == (2, 2)
    assert client.lookup_schema("s", one).version == 1
    assert client.get_schema_by_guid(latest.guid).schema_str == latest.schema.schema_str
    assert client.get_versions("s") == client.delete_subject("s") == [1, 2]
    assert client.get_subjects() == []
    assert client.delete_subject("s", permanent=True) == [1, 2]


def test_confluents_client_sets_levels_and_modes(client: Any) -> None:
    assert client.get_compatibility() == "BACKWARD"
    client.set_compatibility("s", "FULL_TRANSITIVE")
    assert client.get_compatibility("s") == "FULL_TRANSITIVE"


@pytest.mark.parametrize("with_header", [False, True], ids=["id in the value", "GUID in a header"])
def test_avro_serializers_of_confluent_interoperate(client: Any, with_header: bool) -> None:
    config: dict[str, Any] = {}
    if with_header:
        config["schema.id.serializer"] = schema_registry.header_schema_id_serializer
    writer = avro.AvroSerializer(client, USER, conf=config)
    dual = schema_registry.dual_schema_id_deserializer
    reader = avro.AvroDeserializer(client, conf={"schema.id.deserializer": dual})
    headers: list[tuple[str, bytes]] = []
    context = serialization.SerializationContext("users", serialization.MessageField.VALUE, headers)
    data = writer({"name": "somebody", "age": 3}, context)
    assert [name for name, _ in headers] == (["__value_schema_id"] if with_header else [])
    assert reader(data, context) == {"name": "somebody", "age": 3}
    assert client.get_subjects() == ["users-value"]
