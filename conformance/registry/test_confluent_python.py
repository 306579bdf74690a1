"""Confluent's client for Python: what it writes by schema through a broker, it reads, and the test kit decodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import DeserializingConsumer, SerializingProducer

from minibroker.testing import Broker

schema_registry = pytest.importorskip("confluent_kafka.schema_registry", exc_type=ImportError)
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer  # noqa: E402
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer  # noqa: E402
from confluent_kafka.serialization import SerializationError  # noqa: E402

from tests.registry.test_confluent_serdes import order_class  # noqa: E402

PATIENCE_S = 60
NAME = {"type": "string"}
USER: dict[str, Any] = {"title": "User", "type": "object", "properties": {"name": NAME}}
IN_HEADER = {"schema.id.serializer": schema_registry.header_schema_id_serializer}
FROM_BOTH = {"schema.id.deserializer": schema_registry.dual_schema_id_deserializer}


@pytest.fixture(scope="module")
def served() -> Iterator[Broker]:
    """Return a broker for all tests."""
    with Broker(registry=True) as broker:
        yield broker


@pytest.fixture
def broker(served: Broker) -> Broker:
    """Return an empty broker."""
    served.reset()
    return served


@pytest.fixture
def client(broker: Broker) -> Iterator[Any]:
    """Return a client of an empty registry."""
    with schema_registry.SchemaRegistryClient({"url": broker.registry_url}) as client:
        yield client


def produce(broker: Broker, serializer: Any, value: Any) -> None:
    """Write a record. Raises SerializationError."""
    producer = SerializingProducer(
        {"bootstrap.servers": broker.bootstrap_servers, "value.serializer": serializer, "linger.ms": 0}
    )
    producer.produce("t", value=value, headers=[])  # a list, which serializers may extend
    assert producer.flush(PATIENCE_S) == 0


def consumed(broker: Broker, deserializer: Any) -> Any:
    """Return the value of the first record."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "value.deserializer": deserializer, "group.id": "g"}
    consumer = DeserializingConsumer({**settings, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["t"])
        record = consumer.poll(PATIENCE_S)
        assert record is not None and record.error() is None
        return record.value()
    finally:
        consumer.close()


def in_dict(user: Any, _: Any) -> Any:
    """Return a value that is one of JSON already."""
    return user


@pytest.mark.parametrize("place", [{}, IN_HEADER], ids=["id in the value", "GUID in a header"])
def test_json_records_of_confluents_client_are_decoded_by_it_and_the_test_kit(
    broker: Broker, client: Any, place: dict[str, Any]
) -> None:
    produce(broker, JSONSerializer(json.dumps(USER), client, in_dict, conf=place), {"name": "ann"})
    reader = JSONDeserializer(json.dumps(USER), in_dict, schema_registry_client=client, conf=FROM_BOTH)
    assert consumed(broker, reader) == {"name": "ann"}
    (record,) = broker.records("t", decoded=True)
    assert record.decoded == {"name": "ann"}


@pytest.mark.parametrize("place", [{}, IN_HEADER], ids=["id in the value", "GUID in a header"])
def test_protobuf_records_of_confluents_client_are_decoded_by_it_and_the_test_kit(
    broker: Broker, client: Any, place: dict[str, Any]
) -> None:
    order = order_class()(price={"cents": 5}, tags={"a": 3})
    produce(broker, ProtobufSerializer(type(order), client, {"use.deprecated.format": False, **place}), order)
    reader = ProtobufDeserializer(type(order), {"use.deprecated.format": False, **FROM_BOTH}, client)
    assert consumed(broker, reader) == order
    (record,) = broker.records("t", decoded=True)
    assert record.decoded == {"price": {"cents": 5}, "tags": {"a": 3}}


def test_json_with_a_reference_is_validated_by_the_referenced_schema(broker: Broker, client: Any) -> None:
    broker.registry.register("name", {**NAME, "maxLength": 3}, "JSON")
    text = json.dumps({**USER, "properties": {"name": {"$ref": "name.json"}}})
    reference = schema_registry.SchemaReference("name.json", "name", 1)
    serializer = JSONSerializer(schema_registry.Schema(text, "JSON", [reference]), client, in_dict)
    produce(broker, serializer, {"name": "ann"})
    with pytest.raises(SerializationError, match="too long"):
        produce(broker, serializer, {"name": "anna"})
    assert [each.decoded for each in broker.records("t", decoded=True)] == [{"name": "ann"}]


def test_a_json_record_of_an_older_schema_is_read_with_the_newest_one(broker: Broker, client: Any) -> None:
    produce(broker, JSONSerializer(json.dumps(USER), client, in_dict), {"name": "ann"})
    newer = {**USER, "properties": {"name": NAME, "age": {"type": "integer"}}, "additionalProperties": False}
    broker.registry.set_compatibility("NONE", "t-value")
    broker.registry.register("t-value", newer, "JSON")
    latest = {"auto.register.schemas": False, "use.latest.version": True}
    with pytest.raises(SerializationError):
        produce(broker, JSONSerializer(json.dumps(USER), client, in_dict, conf=latest), {"name": "ann", "age": "old"})
    reader = JSONDeserializer(None, in_dict, schema_registry_client=client, conf={"use.latest.version": True})
    assert consumed(broker, reader) == {"name": "ann"}
