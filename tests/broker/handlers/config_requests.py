"""What the tests of configs share: describing a resource, and changing some settings of it, in one line."""

from __future__ import annotations

from typing import Any

from minibroker.protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from tests.broker.harness import Harness, served_versions

DESCRIBED = served_versions(DescribeConfigsRequest)
ALTERED = served_versions(IncrementalAlterConfigsRequest)
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT = 1, 2, 3, 4, 5
INT, LONG = 3, 5
WITH_SOURCES, WITH_TYPES = 1, 3

Line = tuple[str, int, str | None]
AlterResource = IncrementalAlterConfigsRequest.AlterConfigsResource


def describe(
    harness: Harness, kind: int, name: str, *keys: str, version: int = DESCRIBED[-1], node: int = 1, **flags: bool
) -> Any:
    """Return the answer for one resource; without `keys` all of its settings."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    (result,) = harness.request(DescribeConfigsRequest(resources=[resource], **flags), version, node=node).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def entry(harness: Harness, kind: int, name: str, key: str, **more: Any) -> Any:
    (found,) = describe(harness, kind, name, key, **more).configs
    return found


def value(harness: Harness, kind: int, name: str, key: str, **more: Any) -> tuple[str | None, int]:
    """Return a setting's value and the source of it."""
    found = entry(harness, kind, name, key, **more)
    return found.value, found.config_source


def values(harness: Harness, kind: int, name: str, key: str, **more: Any) -> list[tuple[str, str | None, int]]:
    """Return (name, value, source) for each place that has the setting, the strongest first."""
    found = entry(harness, kind, name, key, include_synonyms=True, **more)
    synonyms = [(one.name, one.value, one.source) for one in found.synonyms]
    assert (found.value, found.config_source) == synonyms[0][1:]
    return synonyms


def resource(kind: int, name: str, *lines: Line) -> AlterResource:
    configs = [AlterResource.AlterableConfig(name=key, config_operation=op, value=text) for key, op, text in lines]
    return AlterResource(resource_type=kind, resource_name=name, configs=configs)


def alter_all(harness: Harness, *resources: AlterResource, **more: Any) -> list[tuple[int, str | None]]:
    """Change settings; return (error, message) for each resource."""
    version, node = more.pop("version", ALTERED[-1]), more.pop("node", 1)
    response = harness.request(IncrementalAlterConfigsRequest(resources=list(resources), **more), version, node=node)
    assert [(answer.resource_type, answer.resource_name) for answer in response.responses] == [
        (asked.resource_type, asked.resource_name) for asked in resources
    ]
    return [(answer.error_code, answer.error_message) for answer in response.responses]


def alter(harness: Harness, kind: int, name: str, *lines: Line, **more: Any) -> tuple[int, str | None]:
    (answer,) = alter_all(harness, resource(kind, name, *lines), **more)
    return answer
