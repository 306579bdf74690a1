"""DescribeConfigs, IncrementalAlterConfigs and AlterConfigs of groups, subscriptions to metrics, and loggers.

Every literal is what Apache Kafka 4.4 answers. Those of topics and brokers are in `test_configs.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.wire.conftest import Differing
from conformance.wire.connection import Connection
from conformance.wire.requests import broker_id, repeated
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)

LOGGER, METRICS, GROUP = 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
DEFAULT, OF_LOGGER, OF_METRICS, OF_GROUP = 5, 6, 7, 8
INVALID_REQUEST, INVALID_CONFIG = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG
DONE = (0, None)
SESSION = "consumer.session.timeout.ms"
TAGS = "streams.rack.aware.assignment.tags"

Line = tuple[str, int, str | None]


def described(connection: Connection, kind: int, name: str, *keys: str) -> Any:
    shape = DescribeConfigsRequest.DescribeConfigsResource
    resource = shape(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    (result,) = connection.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4).results
    return result


def value(connection: Connection, kind: int, name: str, key: str) -> tuple[str | None, int]:
    """The value of a setting, and the source of it."""
    (found,) = described(connection, kind, name, key).configs
    return found.value, found.config_source


def changed(connection: Connection, kind: int, name: str, *lines: Line, **fields: Any) -> tuple[int, str | None]:
    shape = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [shape.AlterableConfig(name=key, config_operation=how, value=text) for key, how, text in lines]
    resource = shape(resource_type=kind, resource_name=name, configs=configs)
    (answer,) = connection.ask(IncrementalAlterConfigsRequest(resources=[resource], **fields), 1).responses
    return answer.error_code, answer.error_message


def test_a_group_has_its_own_settings_or_the_brokers(connection: Connection, new_name: Callable[[], str]) -> None:
    name = new_name()
    assert value(connection, GROUP, name, SESSION) == ("45000", DEFAULT)
    assert changed(connection, GROUP, name, (SESSION, SET, "50000")) == DONE
    own = ("50000", OF_GROUP)
    assert repeated(lambda: value(connection, GROUP, name, SESSION), lambda seen: seen == own) == own
    (found,) = described(connection, GROUP, name, SESSION).configs
    assert [(one.name, one.value, one.source) for one in found.synonyms] == [
        (SESSION, "50000", OF_GROUP),
        (f"group.{SESSION}", "45000", DEFAULT),
    ]
    assert changed(connection, GROUP, name, (SESSION, DELETE, None)) == DONE
    default = ("45000", DEFAULT)
    assert repeated(lambda: value(connection, GROUP, name, SESSION), lambda seen: seen == default) == default


@pytest.mark.parametrize(
    ("name", "line", "expected"),
    [
        ("", (SESSION, SET, "50000"), (INVALID_REQUEST, "Default group resources are not allowed.")),
        ("g", ("nope", SET, "1"), (INVALID_CONFIG, "Unknown group config name: nope")),
        (
            "g",
            (SESSION, SET, "x"),
            (INVALID_CONFIG, f"Invalid value x for configuration {SESSION}: Not a number of type INT"),
        ),
        (
            "g",
            (SESSION, SET, "1"),
            (INVALID_CONFIG, f"{SESSION} must be in the range 45000 to 60000 inclusive."),
        ),
        ("g", (SESSION, APPEND, "1"), (INVALID_CONFIG, f"Can't APPEND to key {SESSION} because its type is not LIST.")),
        ("g", (TAGS, APPEND, "a"), (INVALID_CONFIG, f"Can't APPEND to key {TAGS} because its type is not LIST.")),
        ("", (TAGS, SUBTRACT, "a"), (INVALID_CONFIG, f"Can't SUBTRACT to key {TAGS} because its type is not LIST.")),
    ],
)
def test_invalid_group_settings_are_rejected(
    connection: Connection, name: str, line: Line, expected: tuple[int, str]
) -> None:
    assert changed(connection, GROUP, name, line) == expected


def test_a_metrics_subscription_is_stored_and_described(connection: Connection, new_name: Callable[[], str]) -> None:
    name = new_name()
    assert {one.name: one.value for one in described(connection, METRICS, name).configs} == {
        "interval.ms": "300000",
        "match": "",
        "metrics": "",
    }
    lines: list[Line] = [("interval.ms", SET, "1000"), ("match", SET, "client_id=a"), ("metrics", SET, "org.apache.")]
    assert changed(connection, METRICS, name, *lines) == DONE
    for key, _, text in lines:
        own = (text, OF_METRICS)
        assert repeated(lambda key=key: value(connection, METRICS, name, key), lambda seen, own=own: seen == own) == own
    listed = connection.ask(ListConfigResourcesRequest(), 0).config_resources
    assert name in {one.resource_name for one in listed}


def test_repetitions_in_a_metrics_subscription_are_removed(connection: Connection, new_name: Callable[[], str]) -> None:
    name = new_name()
    for key, text, kept in (
        ("metrics", "a, b ,a", "a,b"),
        ("match", "client_id=a,client_id=a", "client_id=a"),
    ):
        assert changed(connection, METRICS, name, (key, SET, text)) == DONE
        own = (kept, OF_METRICS)
        assert repeated(lambda key=key: value(connection, METRICS, name, key), lambda seen, own=own: seen == own) == own


@pytest.mark.parametrize(
    ("name", "line", "expected"),
    [
        ("", ("interval.ms", SET, "1000"), (INVALID_REQUEST, "Subscription name can't be empty")),
        (
            "m",
            ("interval.ms", SET, "1"),
            (INVALID_REQUEST, "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)"),
        ),
        ("m", ("nope", SET, "1"), (INVALID_REQUEST, "Unknown client metrics configuration: nope")),
        ("m", ("metrics", APPEND, "a"), (INVALID_CONFIG, "Can't APPEND to key metrics because its type is not LIST.")),
        ("", ("match", SUBTRACT, "a"), (INVALID_CONFIG, "Can't SUBTRACT to key match because its type is not LIST.")),
        ("m", ("metrics", SET, "a,,b"), (INVALID_CONFIG, "Configuration 'metrics' values must not be empty.")),
        ("m", ("match", SET, "nope=a"), (INVALID_CONFIG, "Illegal client matching pattern: nope=a")),
    ],
)
def test_invalid_metrics_subscriptions_are_rejected(
    connection: Connection, name: str, line: Line, expected: tuple[int, str]
) -> None:
    assert changed(connection, METRICS, name, line) == expected


def test_the_level_of_the_root_logger_is_altered(connection: Connection) -> None:
    here = str(broker_id(connection))
    before, source = value(connection, LOGGER, here, "root")
    assert source == OF_LOGGER
    assert changed(connection, LOGGER, here, ("root", SET, "WARN"), validate_only=True) == DONE
    assert value(connection, LOGGER, here, "root") == (before, OF_LOGGER)
    assert changed(connection, LOGGER, here, ("root", SET, str(before))) == DONE
    (found,) = described(connection, LOGGER, here, "root").configs
    assert (found.read_only, found.is_sensitive, found.config_type, found.synonyms) == (False, False, 0, [])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (("nope", SET, "INFO"), (INVALID_CONFIG, "Logger nope does not exist!")),
        (("nope", DELETE, None), (INVALID_CONFIG, "Logger nope does not exist!")),
        (
            ("root", SET, "LOUD"),
            (
                INVALID_CONFIG,
                "Cannot set the log level of root to LOUD as it is not a supported log level. Valid log levels are "
                "DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
            ),
        ),
        (
            ("root", DELETE, None),
            (INVALID_REQUEST, "Removing the log level of the root logger is not allowed"),
        ),
        (
            ("root", APPEND, "INFO"),
            (INVALID_REQUEST, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        ),
        (
            ("root", SUBTRACT, "INFO"),
            (INVALID_REQUEST, "SUBTRACT operation is not allowed for the BROKER_LOGGER resource"),
        ),
        (("root", SET, None), (INVALID_REQUEST, "Null value not supported for : root")),
    ],
)
def test_invalid_logger_levels_are_rejected(connection: Connection, line: Line, expected: tuple[int, str]) -> None:
    assert changed(connection, LOGGER, str(broker_id(connection)), line) == expected


@pytest.mark.parametrize("name", ["", "x", "99"])
def test_loggers_of_another_broker_are_rejected(connection: Connection, name: str) -> None:
    here = broker_id(connection)
    messages = {
        "": ("Node id must be an integer, but it is: ", "Broker id must not be empty"),
        "x": ("Node id must be an integer, but it is: x", "Broker id must be an integer, but it is: x"),
        "99": (
            f"Unexpected node id. Expected {here}, but received 99",
            f"Unexpected broker id, expected {here} but received 99",
        ),
    }
    assert changed(connection, LOGGER, name, ("root", SET, "INFO")) == (INVALID_REQUEST, messages[name][0])
    result = described(connection, LOGGER, name)
    assert (result.error_code, result.error_message) == (INVALID_REQUEST, messages[name][1])


def test_loggers_are_altered_only_incrementally(connection: Connection) -> None:
    shape = AlterConfigsRequest.AlterConfigsResource
    line = shape.AlterableConfig(name="root", value="INFO")
    resource = shape(resource_type=LOGGER, resource_name=str(broker_id(connection)), configs=[line])
    (answer,) = connection.ask(AlterConfigsRequest(resources=[resource]), 1).responses
    assert (answer.error_code, answer.error_message) == (INVALID_REQUEST, "Unknown resource type 8")


@pytest.mark.parametrize(
    ("kind", "message"),
    [(METRICS, "Client metrics subscription name must not be empty"), (GROUP, "Group name must not be empty")],
)
def test_resources_without_a_name_are_rejected(connection: Connection, kind: int, message: str) -> None:
    result = described(connection, kind, "")
    assert (result.error_code, result.error_message, result.configs) == (INVALID_REQUEST, message, [])


def test_each_broker_is_listed_as_a_broker_and_as_a_logger_resource(connection: Connection) -> None:
    here = str(broker_id(connection))
    listed = connection.ask(ListConfigResourcesRequest(resource_types=[LOGGER, 4]), 1).config_resources
    assert [(one.resource_name, one.resource_type) for one in listed] == [(here, LOGGER), (here, 4)]


OF_A_GROUP = {
    "errors.deadletterqueue.copy.record.enable": ("false", "errors.deadletterqueue.copy.record.enable"),
    "errors.deadletterqueue.topic.name": ("", "errors.deadletterqueue.topic.name"),
    "streams.assignor.name": ("sticky", "group.streams.assignors"),
    "streams.rack.aware.assignment.tags": ("", "group.streams.rack.aware.assignment.tags"),
    "share.auto.offset.reset": ("latest", "share.auto.offset.reset"),
    "share.isolation.level": ("read_uncommitted", "share.isolation.level"),
    "share.renew.acknowledge.enable": ("true", "share.renew.acknowledge.enable"),
    **{
        name: (text, f"group.{name}")
        for name, text in {
            "consumer.heartbeat.interval.ms": "5000",
            "consumer.session.timeout.ms": "45000",
            "share.assignment.interval.ms": "1000",
            "share.delivery.count.limit": "5",
            "share.heartbeat.interval.ms": "5000",
            "share.partition.max.record.locks": "2000",
            "share.record.lock.duration.ms": "30000",
            "share.session.timeout.ms": "45000",
            "streams.assignment.interval.ms": "1000",
            "streams.heartbeat.interval.ms": "5000",
            "streams.initial.rebalance.delay.ms": "3000",
            "streams.num.standby.replicas": "0",
            "streams.session.timeout.ms": "45000",
        }.items()
    },
}


def test_all_group_settings_are_listed(
    connection: Connection, new_name: Callable[[], str], differing: Differing
) -> None:
    delay = differing(kafka="1000", minibroker="0", because="tests should not wait for an assignment")
    intervals = (f"{kind}.assignment.interval.ms" for kind in ("consumer", "share", "streams"))
    first = differing(kafka="3000", minibroker="0", because="tests should not wait for the first members")
    expected = {
        **OF_A_GROUP,
        **{name: (delay, f"group.{name}") for name in intervals},
        "streams.initial.rebalance.delay.ms": (first, "group.streams.initial.rebalance.delay.ms"),
    }
    found = described(connection, GROUP, new_name()).configs
    assert {one.name: (one.value, one.synonyms[0].name) for one in found} == expected
    assert all(one.config_source == DEFAULT and not one.read_only and len(one.synonyms) == 1 for one in found)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("share.auto.offset.reset", "by_duration:PT1H", None),
        ("share.isolation.level", "read_committed", None),
        ("streams.session.timeout.ms", "45001", None),
        ("streams.initial.rebalance.delay.ms", "99999999", None),
        (
            "share.auto.offset.reset",
            "by_duration:PT-1S",
            "Invalid value by_duration:PT-1S for configuration",
        ),
        (
            "share.isolation.level",
            "x",
            "Invalid value x for configuration share.isolation.level: String must",
        ),
        (
            "share.session.timeout.ms",
            "1",
            "share.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
        ),
        (
            "streams.num.standby.replicas",
            "3",
            "streams.num.standby.replicas must be less than or equal to 2",
        ),
        (
            "streams.task.offset.interval.ms",
            "100",
            "streams.task.offset.interval.ms must be greater than or equal to 15000",
        ),
        ("streams.num.warmup.replicas", "21", "streams.num.warmup.replicas must be less than or equal to 20"),
        ("streams.assignor.name", "sticky", None),
        (
            "streams.assignor.name",
            "x",
            "streams.assignor.name 'x' is not a registered task assignor. Registered assignors are: [sticky].",
        ),
        ("streams.rack.aware.assignment.tags", "a,b", None),
        (
            "share.delivery.count.limit",
            "1",
            "Invalid value 1 for configuration share.delivery.count.limit: Value must be at least 2",
        ),
    ],
)
def test_settings_of_share_and_streams_groups_are_validated(
    connection: Connection, key: str, text: str, message: str | None
) -> None:
    code, words = changed(connection, GROUP, "g", (key, SET, text), validate_only=True)
    assert code == (ErrorCode.NONE if message is None else INVALID_CONFIG)
    assert (words or "")[: len(message or "")] == (message or "")
