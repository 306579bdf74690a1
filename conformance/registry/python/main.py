"""Lets Confluent's client for Python execute the rules of schemas, and other clients of PyPI ask a registry.

Prints a line of JSON for each step: its name and what came of it. The argument is the registry's URL.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import confluent_kafka.schema_registry.rules.cel.cel_executor as cel
import confluent_kafka.schema_registry.rules.cel.cel_field_executor as cel_field
import confluent_kafka.schema_registry.rules.jsonata.jsonata_executor as jsonata
from confluent_kafka.schema_registry import (
    Metadata,
    MetadataProperties,
    Rule,
    RuleKind,
    RuleMode,
    RuleParams,
    RuleSet,
    Schema,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from schema_registry.client import SchemaRegistryClient as OtherClient
from schema_registry.client import schema as others
from schema_registry.serializers import AvroMessageSerializer

USE_LATEST = {"auto.register.schemas": False, "use.latest.version": True}
KINDS = {"AVRO": (AvroSerializer, AvroDeserializer), "JSON": (JSONSerializer, JSONDeserializer)}


def user(kind: str, *names: str) -> str:
    """Return the schema of a user with texts of these names; the first one is tagged as personal."""
    if kind == "JSON":
        properties = {name: {"type": "string"} for name in names}
        properties[names[0]]["confluent:tags"] = ["PII"]
        return json.dumps({"title": "User", "type": "object", "properties": properties})
    fields: list[dict[str, Any]] = [{"name": name, "type": "string", "default": ""} for name in names]
    fields[0]["confluent:tags"] = ["PII"]
    return json.dumps({"type": "record", "name": "User", "fields": fields})


def rule(name: str, kind: RuleKind, mode: RuleMode, executor: str, expr: str, tags: list[str] | None = None) -> Rule:
    """Return a rule."""
    return Rule(name, None, kind, mode, executor, tags, RuleParams({}), expr, None, None, False)


def serializer(client: SchemaRegistryClient, kind: str) -> Callable[..., Any]:
    """Return a serializer that takes the latest version of its subject."""
    if kind == "JSON":
        return JSONSerializer(None, client, conf=USE_LATEST)
    return AvroSerializer(client, None, conf=USE_LATEST)


def deserializer(client: SchemaRegistryClient, kind: str, conf: dict[str, Any]) -> Callable[..., Any]:
    """Return a deserializer."""
    if kind == "JSON":
        return JSONDeserializer(None, None, client, conf)
    return AvroDeserializer(client, None, conf=conf)


def tell(step: str, result: Any) -> None:
    """Print what came of a step."""
    print(json.dumps([step, result]), flush=True)


def conditions_and_transforms(client: SchemaRegistryClient, kind: str) -> None:
    """A condition refuses a value; a transform of fields with a tag changes them when they are written."""
    topic = f"rules-{kind}"
    context = SerializationContext(topic, MessageField.VALUE)
    rules = RuleSet(None, [
        rule("named", RuleKind.CONDITION, RuleMode.WRITE, "CEL", "message.name != 'nobody'"),
        rule("masked", RuleKind.TRANSFORM, RuleMode.WRITE, "CEL_FIELD", "typeName == 'STRING' ; value + '-x'", ["PII"]),
    ])  # fmt: skip
    client.register_schema(f"{topic}-value", Schema(user(kind, "name", "city"), kind, [], None, rules))
    kept = client.get_latest_version(f"{topic}-value").schema.rule_set
    tell(f"{kind} rules kept", [each.name for each in kept.domain_rules])
    data = serializer(client, kind)({"name": "ann", "city": "ulm"}, context)
    tell(f"{kind} transformed", deserializer(client, kind, {})(data, context))
    try:
        serializer(client, kind)({"name": "nobody", "city": ""}, context)
    except Exception as error:  # noqa: BLE001
        tell(f"{kind} refused", type(error.__cause__ or error).__name__)


def migrations(client: SchemaRegistryClient, kind: str) -> None:
    """Readers of another major version get values migrated by JSONata, which a compatibility group allows."""
    topic = f"moved-{kind}"
    context = SerializationContext(topic, MessageField.VALUE)
    client.set_config(f"{topic}-value", ServerConfig(compatibility_group="major"))
    rules = RuleSet([
        rule("up", RuleKind.TRANSFORM, RuleMode.UPGRADE, "JSONATA", "{'title': $.'name'}"),
    ], None)  # fmt: skip
    for major, name, of_version in (("1", "name", None), ("2", "title", rules)):
        metadata = Metadata(None, MetadataProperties({"major": major}), None)
        client.register_schema(f"{topic}-value", Schema(user(kind, name), kind, [], metadata, of_version))
        if major == "1":
            data = serializer(client, kind)({"name": "ann"}, context)
    for major in ("1", "2"):
        latest = {"use.latest.with.metadata": {"major": major}}
        tell(f"{kind} read as {major}", deserializer(client, kind, latest)(data, context))


def another_client(url: str) -> None:
    """What python-schema-registry-client registers, finds, checks and deletes, and its messages."""
    client = OtherClient(url)
    schema = others.AvroSchema(user("AVRO", "name"))
    id = client.register("other-value", schema)
    tell("registered", id)
    tell("found", client.get_by_id(id).name)
    version = client.check_version("other-value", schema)
    tell("version", [version.version, version.schema_id])
    tell("versions", client.get_versions("other-value"))
    tell("compatible", client.test_compatibility("other-value", others.AvroSchema('"int"')))
    tell("level", client.update_compatibility("FULL", "other-value") and client.get_compatibility("other-value"))
    serializer = AvroMessageSerializer(client)
    data = serializer.encode_record_with_schema("other", schema, {"name": "ann"})
    tell("decoded", serializer.decode_message(data))
    tell("subjects", "other-value" in client.get_subjects())
    tell("deleted", client.delete_subject("other-value"))


def main() -> None:
    """Run all steps."""
    cel.CelExecutor.register()
    cel_field.CelFieldExecutor.register()
    jsonata.JsonataExecutor.register()
    with SchemaRegistryClient({"url": sys.argv[1]}) as client:
        for kind in KINDS:
            conditions_and_transforms(client, kind)
            migrations(client, kind)
    another_client(sys.argv[1])


main()
