"""AlterConfigs: what it replaces, and that it refuses what IncrementalAlterConfigs refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import AlterConfigsRequest
from minibroker.protocol.messages.metadata_records import BROKER_RESOURCE, TOPIC_RESOURCE
from tests.broker.harness import Harness, served_versions
from tests.cases import for_each

ALTERED = served_versions(AlterConfigsRequest)
TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8

Asked = AlterConfigsRequest.AlterConfigsResource


def resource(kind: int, name: str, *configs: tuple[str, str | None]) -> Asked:
    entries = [Asked.AlterableConfig(name=key, value=value) for key, value in configs]
    return Asked(resource_type=kind, resource_name=name, configs=entries)


def alter_all(harness: Harness, *resources: Asked, **more: Any) -> list[tuple[int, str | None]]:
    """(error, message) for each resource."""
    version, node = more.pop("version", ALTERED[-1]), more.pop("node", 1)
    response = harness.request(AlterConfigsRequest(resources=list(resources), **more), version, node=node)
    assert [(answer.resource_type, answer.resource_name) for answer in response.responses] == [
        (asked.resource_type, asked.resource_name) for asked in resources
    ]
    return [(answer.error_code, answer.error_message) for answer in response.responses]


def alter(harness: Harness, kind: int, name: str, *configs: tuple[str, str | None], **more: Any) -> Any:
    (answer,) = alter_all(harness, resource(kind, name, *configs), **more)
    return answer


def set_on(harness: Harness, kind: int, name: str) -> dict[str, str]:
    return dict(harness.cluster.image.get_configs(kind, name))


@pytest.fixture
def topic(harness: Harness) -> Harness:
    """A topic "t" with one config of its own."""
    harness.create_topic("t", retention_ms="1000")
    return harness


@pytest.mark.parametrize("version", ALTERED)
def test_alter_configs_sets_given_configs_and_removes_all_others(topic: Harness, version: int) -> None:
    configs = (("cleanup.policy", " compact , delete "), ("segment.bytes", "2000000"))
    assert alter(topic, TOPIC, "t", *configs, version=version) == (ErrorCode.NONE, None)
    assert set_on(topic, TOPIC_RESOURCE, "t") == {"cleanup.policy": "compact,delete", "segment.bytes": "2000000"}
    assert topic.partition("t").log.settings.segment_bytes == 2_000_000
    assert alter(topic, TOPIC, "t", version=version) == (ErrorCode.NONE, None)
    assert set_on(topic, TOPIC_RESOURCE, "t") == {}
    assert topic.partition("t").log.settings.segment_bytes == 1 << 30


def test_validate_only_changes_no_config(topic: Harness) -> None:
    assert alter(topic, TOPIC, "t", ("segment.bytes", "2000000"), validate_only=True) == (ErrorCode.NONE, None)
    code, _ = alter(topic, TOPIC, "t", ("segment.bytes", "x"), validate_only=True)
    assert code == ErrorCode.INVALID_CONFIG
    assert set_on(topic, TOPIC_RESOURCE, "t") == {"retention.ms": "1000"}


def test_an_alter_configs_request_with_many_configs_is_read_in_steps(topic: Harness) -> None:
    slicer = topic.dispatcher.slicer
    before = slicer.steps
    alter(topic, TOPIC, "t", ("x", "1"))
    of_one = slicer.steps - before
    alter(topic, TOPIC, "t", *((f"{number:x}", "") for number in range(600)))  # decoded in one step
    assert slicer.steps - before - of_one >= of_one + 5


def test_altered_configs_survive_a_restart(topic: Harness) -> None:
    alter(topic, TOPIC, "t", ("segment.bytes", "2000000"))
    topic.restart()
    assert set_on(topic, TOPIC_RESOURCE, "t") == {"segment.bytes": "2000000"}


# The messages are those of Apache Kafka 4.3.
@for_each(
    ("kind", "name", "configs", "code", "message"),
    [
        (TOPIC, "t", [("a", "1"), ("a", "2")], ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys"),
        (
            TOPIC,
            "t",
            [("segment.bytes", None), ("retention.ms", None)],
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : segment.bytes, retention.ms",
        ),
        (TOPIC, "t", [("nonsense", "1")], ErrorCode.INVALID_CONFIG, "Unknown topic config name: nonsense"),
        (
            TOPIC,
            "t",
            [("segment.bytes", "5")],
            ErrorCode.INVALID_CONFIG,
            "Invalid value 5 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            TOPIC,
            "t",
            [("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")],
            ErrorCode.INVALID_CONFIG,
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            TOPIC,
            "nope",
            [("segment.bytes", "2000000")],
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'nope' does not exist.",
        ),
        (TOPIC, "nope", [("nonsense", "1")], ErrorCode.INVALID_CONFIG, "Unknown topic config name: nonsense"),
        (TOPIC, "", [], ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        (
            TOPIC,
            "a b",
            [],
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'",
        ),
        (BROKER, "x", [], ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: x"),
        (BROKER, "2", [], ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 2"),
        (
            BROKER,
            "",
            [("log.dirs", "/x")],
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [log.dirs]",
        ),
        (
            BROKER,
            "",
            [("message.max.bytes", "x")],
            ErrorCode.INVALID_REQUEST,
            "Invalid value x for configuration message.max.bytes: Not a number of type INT",
        ),
        (BROKER_LOGGER, "1", [("root", "INFO")], ErrorCode.INVALID_REQUEST, "Unknown resource type 8"),
        (0, "t", [], ErrorCode.INVALID_REQUEST, "Unknown resource type 0"),
        (99, "t", [], ErrorCode.INVALID_REQUEST, "Unknown resource type 99"),
    ],
)
def test_an_invalid_change_is_rejected_with_kafkas_message(
    topic: Harness, kind: int, name: str, configs: list[tuple[str, str | None]], code: ErrorCode, message: str
) -> None:
    assert alter(topic, kind, name, *configs) == (code, message)
    assert set_on(topic, TOPIC_RESOURCE, "t") == {"retention.ms": "1000"}


def test_each_resource_is_altered_separately_and_duplicates_are_rejected(topic: Harness) -> None:
    topic.create_topic("u")
    configs = ("segment.bytes", "2000000")
    answers = alter_all(
        topic,
        resource(TOPIC, "t", configs),
        resource(TOPIC, "t", configs),
        resource(TOPIC, "u", configs),
        resource(TOPIC, "nope"),
    )
    assert [code for code, _ in answers] == [42, 42, 0, 3]
    assert answers[0][1] == answers[1][1] == "Each resource must appear at most once."
    assert set_on(topic, TOPIC_RESOURCE, "t") == {"retention.ms": "1000"}
    assert set_on(topic, TOPIC_RESOURCE, "u") == {"segment.bytes": "2000000"}


def test_alter_configs_replaces_broker_settings(harness: Harness) -> None:
    minimum = ("min.insync.replicas", "1")  # which cannot be removed from all brokers
    for name, kept in (("", [minimum]), ("1", [])):
        lines = [("message.max.bytes", "2000000"), ("log.segment.bytes", "3000000"), *kept]
        assert alter(harness, BROKER, name, *lines)[0] == 0
        assert alter(harness, BROKER, name, ("message.max.bytes", "2100000"), *kept)[0] == 0
        assert set_on(harness, BROKER_RESOURCE, name) == {"message.max.bytes": "2100000", **dict(kept)}
    assert harness.cluster.settings["message.max.bytes"] == 2_100_000
    assert alter(harness, BROKER, "", minimum)[0] == alter(harness, BROKER, "1")[0] == 0
    assert harness.cluster.settings["message.max.bytes"] == 1_048_588
    assert alter(harness, BROKER, "") == (
        ErrorCode.INVALID_CONFIG,
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
    )


def test_rejected_config_names_are_not_stored(harness: Harness) -> None:
    before = set(harness.cluster.image.configs)
    for kind, name in ((TOPIC, "nope"), (BROKER, "77"), (99, "x")):
        assert alter(harness, kind, name)[0] != 0
    assert set(harness.cluster.image.configs) == before


def test_a_request_without_resources_has_an_empty_response(harness: Harness) -> None:
    assert alter_all(harness) == []


def test_each_node_alters_its_own_settings_only(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        assert alter(harness, BROKER, "2", node=1)[1] == "Unexpected broker id, expected 1, but received 2"
        lines = ("message.max.bytes", "2000000"), ("min.insync.replicas", "1")
        assert alter(harness, BROKER, "", *lines, node=2)[0] == 0
