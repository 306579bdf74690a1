"""Schemas come from a registry or from `_schemas`; what is not there is looked for once in each task."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.schema_decoding import RegistrySchemas, RegistryUnavailable, TopicSchemas, make_topic_options
from minibroker.protocol.records.record import Record
from minibroker.registry.decoding import WireSchema
from minibroker.registry.registry_client import RegistryClient, RequestFailed
from minibroker.testing import Broker
from tests.pipeline.logs import NOW_MS, write_log
from tests.pipeline.schemas_topic import MONEY, OWNED, USER, write_schemas


class StandIn:
    """A registry with one schema, or with a failure."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.asked: list[int | str] = []
        self._failure = failure

    def find_schema(self, named: int | str) -> WireSchema:
        self.asked.append(named)
        if self._failure is not None:
            raise self._failure
        if named != 1:
            raise LookupError(named)
        return WireSchema("AVRO", USER.text, {})


def test_a_task_requests_a_missing_schema_from_the_registry_once() -> None:
    registry = StandIn()
    source = RegistrySchemas(registry)
    source.begin_task()
    assert source.find_schema(1).text == USER.text
    for _ in range(3):
        with pytest.raises(LookupError):
            source.find_schema(9)
    assert registry.asked == [1, 9]
    source.begin_task()
    with pytest.raises(LookupError):
        source.find_schema(9)
    assert registry.asked == [1, 9, 9]


def test_an_unresponsive_registry_is_an_error_of_one_line() -> None:
    with pytest.raises(RegistryUnavailable, match=r"^http://127.0.0.1:1: refused$"):
        RegistrySchemas(StandIn(RequestFailed("http://127.0.0.1:1:\n refused"))).find_schema(1)


def test_the_schemas_topic_has_schemas_by_id_and_guid_with_references(tmp_path: Path) -> None:
    write_schemas(tmp_path, USER, OWNED)
    source = TopicSchemas(make_topic_options({"path": str(tmp_path)}))
    assert source.find_schema(1) == WireSchema("AVRO", USER.text, {})
    assert source.find_schema(OWNED.guid) == WireSchema("AVRO", OWNED.text, {"User": USER.text})


def test_a_task_reads_the_schemas_topic_again_once_for_a_missing_schema(tmp_path: Path) -> None:
    write_schemas(tmp_path, USER)
    source = TopicSchemas(make_topic_options({"path": str(tmp_path)}))
    source.begin_task()
    assert source.find_schema(1).kind == "AVRO"
    write_schemas(tmp_path, MONEY, start=1)
    with pytest.raises(LookupError):
        source.find_schema(3)
    source.begin_task()
    assert source.find_schema(3).kind == "PROTOBUF"


def test_a_registry_and_its_topic_have_the_same_schemas() -> None:
    with Broker(registry=True) as broker:
        broker.registry.register("users-value", USER.text)
        broker.registry.register("owned-value", OWNED.text, references=[("User", "users-value", 1)])
        of_topic = TopicSchemas(make_topic_options({"kafka.bootstrap.servers": broker.bootstrap_servers}))
        of_registry = RegistrySchemas(RegistryClient(broker.registry_url))
        for named in (1, 2, USER.guid):
            assert of_topic.find_schema(named) == of_registry.find_schema(named)
        for source in (of_topic, of_registry):
            for unknown in (9, MONEY.guid):
                with pytest.raises(LookupError):
                    source.find_schema(unknown)


def test_foreign_records_in_the_schemas_topic_are_skipped(tmp_path: Path) -> None:
    write_log(tmp_path, "_schemas", 0, [Record(0, NOW_MS, b"?", b"?"), Record(1, NOW_MS, None, b"{}")])
    write_schemas(tmp_path, USER, start=2)
    assert TopicSchemas(make_topic_options({"path": str(tmp_path)})).find_schema(1).text == USER.text


def test_a_log_without_the_schemas_topic_is_an_error(tmp_path: Path) -> None:
    write_log(tmp_path, "orders", 0, [Record(0, NOW_MS, None, b"x")])
    with pytest.raises(OptionError, match="there is no _schemas"):
        TopicSchemas(make_topic_options({"path": str(tmp_path)})).find_schema(1)
