"""Groups of the next generation (KIP-848): what administrators see of them, and the settings of a group.

Every literal is what Apache Kafka 4.4 answers. What members are told is in `test_consumer_groups.py`.
"""

from __future__ import annotations

import pytest

from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.consumer_members import ErrorAnswer, Member, describe, told
from conformance.wire.requests import repeated
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import (
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from minibroker.protocol.messages.groups import DescribeGroupsRequest, ListGroupsRequest

GROUP_RESOURCE = 32
SET, DELETE = 0, 1


# --- what administrators ask ------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_an_unknown_consumer_group_is_reported(connection: Connection, group: str, version: int) -> None:
    answer = describe(connection, group, version)
    assert told(answer) == (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group} not found.")
    assert (answer.group_id, answer.group_state, answer.members) == (group, "", [])
    assert describe(connection, "", version).error_code == ErrorCode.INVALID_GROUP_ID


def test_classic_group_apis_partially_support_a_consumer_group(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    Member(connection, group, "m-1", new_topic()).join()
    listed = connection.ask(ListGroupsRequest(), 5).groups
    assert [(each.protocol_type, each.group_state, each.group_type) for each in listed if each.group_id == group] == [
        ("consumer", "Stable", "consumer")
    ]
    for types, is_there in (["consumer"], True), (["Consumer"], True), (["classic"], False):
        found = connection.ask(ListGroupsRequest(types_filter=types), 5).groups
        assert (group in [each.group_id for each in found]) is is_there
    (old,) = connection.ask(DescribeGroupsRequest(groups=[group]), 5).groups
    assert (old.error_code, old.group_state, old.members) == (0, "Dead", [])
    (new,) = connection.ask(DescribeGroupsRequest(groups=[group]), 6).groups
    assert (new.error_code, new.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {group} is not a classic group.",
    )


# --- settings of a group --------------------------------------------------------------------------


def alter(connection: Connection, group: str, operation: int = SET, **configs: str | None) -> ErrorAnswer:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    lines = [
        resource.AlterableConfig(name=name.replace("_", "."), config_operation=operation, value=value)
        for name, value in configs.items()
    ]
    asked = resource(resource_type=GROUP_RESOURCE, resource_name=group, configs=lines)
    (answer,) = connection.ask(IncrementalAlterConfigsRequest(resources=[asked]), 1).responses
    return told(answer)


def configs(connection: Connection, group: str) -> dict[str, tuple[str, int]]:
    """By name (value, source) of what a group has for consumers."""
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configuration_keys=None
    )
    (answer,) = connection.ask(DescribeConfigsRequest(resources=[asked]), 4).results
    assert told(answer) == (0, "")
    return {
        each.name: (each.value, each.config_source)
        for each in answer.configs
        if each.name.startswith("consumer.") and "assignment" not in each.name
    }


def test_a_group_can_have_its_own_settings(connection: Connection, new_topic: NewTopic, group: str) -> None:
    default = {"consumer.heartbeat.interval.ms": ("5000", 5), "consumer.session.timeout.ms": ("45000", 5)}
    assert configs(connection, group) == default
    assert alter(connection, group, consumer_heartbeat_interval_ms="6000") == (0, None)
    expected = {**default, "consumer.heartbeat.interval.ms": ("6000", 8)}
    assert repeated(lambda: configs(connection, group), lambda seen: seen == expected) == expected
    joined = Member(connection, group, "m-1", new_topic()).join()
    assert joined.heartbeat_interval_ms == 6000
    listed = connection.ask(ListConfigResourcesRequest(resource_types=[GROUP_RESOURCE]), 1).config_resources
    assert (group, GROUP_RESOURCE) in [(each.resource_name, each.resource_type) for each in listed]
    assert alter(connection, group, DELETE, consumer_heartbeat_interval_ms=None) == (0, None)
    assert repeated(lambda: configs(connection, group), lambda seen: seen == default) == default


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"consumer_heartbeat_interval_ms": "4999"}, ErrorCode.INVALID_CONFIG),
        ({"consumer_heartbeat_interval_ms": "15001"}, ErrorCode.INVALID_CONFIG),
        ({"consumer_session_timeout_ms": "44999"}, ErrorCode.INVALID_CONFIG),
        ({"consumer_session_timeout_ms": "60001"}, ErrorCode.INVALID_CONFIG),
        ({"consumer_session_timeout_ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ({"consumer_session_timeout_ms": "0"}, ErrorCode.INVALID_CONFIG),
        ({"session_timeout_ms": "45000"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_group_setting_beyond_the_brokers_bounds_is_rejected(
    connection: Connection, group: str, config: dict[str, str], code: ErrorCode
) -> None:
    assert alter(connection, group, **config)[0] == code


def test_settings_of_an_empty_group_id_are_rejected(connection: Connection) -> None:
    assert alter(connection, "", consumer_session_timeout_ms="50000")[0] == ErrorCode.INVALID_REQUEST
