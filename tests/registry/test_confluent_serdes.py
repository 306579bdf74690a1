"""What the serializers of Confluent's client write is read by its deserializers, and decoded here."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from minibroker.registry.formats import json_schema, protobuf
from minibroker.registry.formats.format_decoding import decode_framed_data, read_schema_id
from minibroker.testing import Broker

schema_registry = pytest.importorskip("confluent_kafka.schema_registry", exc_type=ImportError)
from confluent_kafka.schema_registry.confluent import meta_pb2  # noqa: E402
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer  # noqa: E402
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer  # noqa: E402
from confluent_kafka.serialization import MessageField, SerializationContext  # noqa: E402

USER = json.dumps({"title": "User", "type": "object", "properties": {"name": {"type": "string"}}})


@pytest.fixture
def client(broker: Broker) -> Iterator[Any]:
    """Return a client of an empty registry, with a cache."""
    with schema_registry.SchemaRegistryClient({"url": broker.registry_url}) as client:
        yield client


def order_class() -> Any:
    """Return the class of a message that refers to those of other files, has a map, and a message in it."""
    money = FileDescriptorProto(name="money.proto", package="m", syntax="proto3")
    money.message_type.add(name="Money").field.add(name="cents", number=1, type=Field.TYPE_INT64, label=1)
    file = FileDescriptorProto(name="order.proto", package="o", syntax="proto3")
    file.dependency.extend(["money.proto", "google/protobuf/timestamp.proto"])
    file.message_type.add(name="First")
    order = file.message_type.add(name="Order")
    order.field.add(name="price", number=1, type=Field.TYPE_MESSAGE, type_name=".m.Money", label=1)
    at = ".google.protobuf.Timestamp"
    order.field.add(name="at", number=2, type=Field.TYPE_MESSAGE, type_name=at, label=1)
    order.field.add(name="tags", number=3, type=Field.TYPE_MESSAGE, type_name=".o.Order.TagsEntry", label=3)
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=Field.TYPE_INT32, label=1)
    order.nested_type.add(name="Inner").field.add(name="s", number=1, type=Field.TYPE_STRING, label=1)
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for each in (money, file):
        pool.AddSerializedFile(each.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("o.Order"))


def test_protobuf_records_are_serialized_and_deserialized_with_references(client: Any) -> None:
    order = order_class()(at={"seconds": 1}, tags={"a": 3}, price={"cents": 5})
    inner = GetMessageClass(order.DESCRIPTOR.nested_types_by_name["Inner"])(s="x")
    expected = {"price": {"cents": 5}, "at": "1970-01-01T00:00:01Z", "tags": {"a": 3}}
    settings = {"use.deprecated.format": False}
    for message, value in ((order, expected), (inner, {"s": "x"})):
        context = SerializationContext("orders", MessageField.VALUE)
        data = ProtobufSerializer(type(message), client, settings)(message, context)
        assert ProtobufDeserializer(type(message), settings, client)(data, context) == message
        registered = client.get_latest_version("orders-value").schema
        (reference,) = registered.references
        texts = {reference.name: client.get_version(reference.subject, reference.version).schema.schema_str}
        record = read_schema_id(data)
        assert record is not None
        assert decode_framed_data("PROTOBUF", protobuf.parse(registered.schema_str, texts), record) == value


def test_a_client_finds_the_tags_of_a_field_in_its_descriptor(client: Any, broker: Broker) -> None:
    text = """syntax = "proto3";
import "confluent/meta.proto";
message User { string name = 1 [(confluent.field_meta).tags = "PII", (confluent.field_meta).doc = "d"]; }
"""
    id = client.register_schema("tagged-value", schema_registry.Schema(text, "PROTOBUF"))
    with urlopen(f"{broker.registry_url}/schemas/ids/{id}?format=serialized") as answer:
        file = FileDescriptorProto.FromString(base64.b64decode(json.load(answer)["schema"]))
    meta = file.message_type[0].field[0].options.Extensions[meta_pb2.field_meta]
    assert (list(meta.tags), meta.doc) == (["PII"], "d")


def test_json_records_are_serialized_and_deserialized_with_a_guid_header(client: Any) -> None:
    headers: list[tuple[str, bytes]] = []
    context = SerializationContext("users", MessageField.VALUE, headers=headers)
    in_header = {"schema.id.serializer": schema_registry.header_schema_id_serializer}
    data = JSONSerializer(USER, client, lambda user, _: user, conf=in_header)({"name": "ann"}, context)
    from_header = {"schema.id.deserializer": schema_registry.dual_schema_id_deserializer}
    read = JSONDeserializer(USER, lambda user, _: user, schema_registry_client=client, conf=from_header)
    assert read(data, context) == {"name": "ann"}
    record = read_schema_id(data, context.headers)
    assert record is not None and record.data == data
    guid = client.get_schema_by_guid(str(record.schema))
    assert decode_framed_data("JSON", json_schema.parse(guid.schema_str, {}), record) == {"name": "ann"}
