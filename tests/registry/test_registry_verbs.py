"""The registry in the test kit: schemas, requests, faults, decoded records, seeds, the fixture and the marker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from minibroker.testing import Broker, RegistryVerbs
from minibroker.testing.reports.failure_report import format_report
from tests.registry.asking import Asking, record

USER = record("User", ("name", "string"))
# an id of 1, and "ann" in Avro, in JSON, and in Protobuf as the field 1 of the first message
AVRO, JSON, PROTOBUF = b"\0\0\0\0\1\x06ann", b'\0\0\0\0\1{"name":"ann"}', b"\0\0\0\0\1\0\x0a\3ann"
PROTO = 'syntax = "proto3"; message User { string name = 1; message Inner { string name = 1; } }'
KINDS = {"AVRO": (USER, AVRO), "JSON": ({"type": "object"}, JSON), "PROTOBUF": (PROTO, PROTOBUF)}


def test_schemas_are_registered_and_read(broker: Broker) -> None:
    assert broker.registry.register("users-value", USER) == 1
    assert broker.registry.subjects() == ["users-value"]
    assert json.loads(broker.registry.schema("users-value")) == USER
    with pytest.raises(ValueError, match=r"READER_FIELD_MISSING_DEFAULT_VALUE.*\(40901\)"):
        broker.registry.register("users-value", record("User", ("name", "string"), ("age", "int")))
    broker.registry.set_compatibility("NONE", "users-value")
    assert broker.registry.register("users-value", record("User", ("name", "string"), ("age", "int"))) == 2
    with pytest.raises(LookupError, match="no version 7"):
        broker.registry.schema("users-value", 7)


@pytest.mark.parametrize("kind", KINDS)
def test_records_are_decoded_by_their_schemas(broker: Broker, kind: str) -> None:
    schema, data = KINDS[kind]
    broker.registry.register("users-value", schema, kind)
    broker.produce("users", data, key="k")
    (found,) = broker.expect("users", decoded=True)
    assert (found.decoded, found.decoded_key, found.value) == ({"name": "ann"}, "k", data)


def test_a_record_is_decoded_by_the_schema_that_a_header_names(broker: Broker) -> None:
    broker.registry.register("users-value", USER)
    guid = Asking(broker.registry_url).get("/subjects/users-value/versions/1").body["guid"].replace("-", "")
    broker.produce("users", AVRO[5:], headers={"__value_schema_id": b"\1" + bytes.fromhex(guid)})
    assert [each.decoded for each in broker.records("users", decoded=True)] == [{"name": "ann"}]


def test_references_are_resolved_when_records_are_decoded(broker: Broker) -> None:
    broker.registry.register("name", {"type": "fixed", "name": "Name", "size": 3})
    broker.registry.register("users-value", record("User", ("name", "Name")), references=[("Name", "name", 1)])
    broker.produce("users", b"\0\0\0\0\2ann")
    assert broker.records("users", decoded=True)[0].decoded == {"name": b"ann"}


BAD = {
    "it names no schema": b"ann",
    "the registry has no schema with the id 9": b"\0\0\0\0\x09x",
    "it is not what its AVRO schema says": AVRO[:-1],
}


@pytest.mark.parametrize("reason", BAD)
def test_a_decoding_failure_is_an_error_with_the_reason(broker: Broker, reason: str) -> None:
    broker.registry.register("users-value", USER)
    broker.produce("users", BAD[reason])
    with pytest.raises(ValueError, match=f"users-0 offset 0: .*{reason}"):
        broker.records("users", decoded=True)


def test_registry_requests_are_recorded(broker: Broker, registry: Asking) -> None:
    registry.register("users-value", USER)
    registry.get("/schemas/ids/7")
    (post,) = broker.registry.requests("POST", "/subjects/*")
    assert (post.status, post.json["id"]) == (200, 1) and json.loads(json.loads(post.body)["schema"]) == USER
    assert [each.status for each in broker.registry.requests()] == [200, 404]
    assert post.after == 0  # the journal is off
    broker.reset()
    assert broker.registry.requests() == []


def test_registry_faults_affect_matching_requests(broker: Broker, registry: Asking) -> None:
    registry.register("users-value", USER)
    fault = broker.registry.fail(40901, "no", method="POST", path="/subjects/*/versions", times=1)
    assert registry.register("users-value", USER)[:2] == (409, {"error_code": 40901, "message": "no"})
    assert registry.register("users-value", USER).status == 200
    assert fault.hits == 1
    broker.registry.fail(503)
    assert registry.get("/subjects").code == 503
    broker.registry.clear_faults()
    broker.registry.forget(1, times=1)
    assert [registry.get("/schemas/ids/1").status for _ in range(2)] == [404, 200]
    slow = broker.registry.slow("30 ms", path="/subjects", times=1)
    assert registry.get("/subjects").status == 200
    assert slow.hits == 1 and broker.registry.requests(path="/subjects")[-1].duration_ms > 20  # timers may be early


def test_nothing_registered_fails_if_a_client_registers_a_schema(broker: Broker, registry: Asking) -> None:
    with broker.registry.nothing_registered():
        assert registry.get("/subjects").status == 200
    with pytest.raises(AssertionError, match="users-value"), broker.registry.nothing_registered():
        refused = registry.register("users-value", USER)
        assert (refused.status, refused.body["message"]) == (422, "this test registers no schemas")
    assert registry.register("users-value", USER).status == 200


def test_subjects_are_seeded_from_a_file(broker: Broker, tmp_path: Path) -> None:
    seeds = tmp_path / "seeds.yaml"
    seeds.write_text(
        "_schemas:\n"
        "  name: {type: fixed, name: Name, size: 3}\n"
        "  users-value:\n"
        "    schema: {type: record, name: User, fields: [{name: name, type: Name}]}\n"
        "    references: [[Name, name, 1]]\n"
        "  orders-value: {kind: JSON, schema: {type: object}}\n"
        "users: [first]\n"
    )
    broker.fill(seeds)
    assert broker.registry.subjects() == ["name", "orders-value", "users-value"]
    assert len(broker.records("users")) == 1


async def test_the_registry_runs_in_the_callers_event_loop() -> None:
    async with Broker(registry=True) as broker:
        assert await broker.registry.aregister("users-value", USER) == 1
        await broker.aproduce("users", AVRO)
        (found,) = await broker.aexpect("users", decoded=True)
        assert found.decoded == {"name": "ann"}


def test_the_fixture_is_the_registry_of_the_broker(kafka_registry: RegistryVerbs, kafka: Broker) -> None:
    kafka_registry.register("users-value", USER)
    assert Asking(kafka.registry_url).get("/subjects").body == ["users-value"]


@pytest.mark.kafka(registry=True, fill={"_schemas": {"users-value": USER}})
def test_the_pytest_marker_creates_a_broker_with_a_registry(kafka: Broker) -> None:
    assert kafka.registry.subjects() == ["users-value"]


def test_registry_verbs_of_a_broker_without_a_registry_raise_an_error(kafka: Any) -> None:
    with pytest.raises(RuntimeError, match="registry=True"):
        kafka.registry.subjects()


def test_a_failure_report_lists_registry_requests(broker: Broker, registry: Asking) -> None:
    registry.get("/subjects/x/versions")
    assert "registry: GET /subjects/x/versions: 404 after " in format_report(broker)


def test_registry_requests_are_listed_among_those_of_kafka_clients(
    kafka_registry: RegistryVerbs, kafka: Broker
) -> None:
    registry, admin = Asking(kafka_registry.url), AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    registry.get("/subjects/x")
    admin.create_topics([NewTopic("t", 1)])["t"].result()
    registry.get("/subjects/y")
    first, second = kafka_registry.requests()
    (create,) = kafka.journal.requests("CreateTopics")
    assert first.after < create.number <= second.after
    text = format_report(kafka)
    places = [text.index(part) for part in ("GET /subjects/x", "CreateTopics", "GET /subjects/y")]
    assert places == sorted(places)
    assert "GET /subjects/x" not in format_report(kafka, before=second.after)
    marks = [(mark.kind, mark.after) for mark in kafka.journal.marks if mark.kind == "registry"]
    assert marks == [("registry", first.after), ("registry", second.after)]
