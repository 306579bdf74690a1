"""ListConfigResources: which resources are listed, by type and version."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import ListConfigResourcesRequest
from minibroker.protocol.messages.metadata_records import ConfigRecord
from tests.broker.harness import Harness
from tests.cases import for_each

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def listed(harness: Harness, *types: int, version: int = 1) -> tuple[int, list[tuple[str, int]]]:
    answer = harness.request(ListConfigResourcesRequest(resource_types=list(types)), version)
    return answer.error_code, [(found.resource_name, found.resource_type) for found in answer.config_resources]


@pytest.fixture
def stocked(tmp_path: Path) -> Harness:
    """Two nodes, two topics, and the settings of a group and of client metrics, as a Kafka's log may bring them."""
    harness = Harness(tmp_path, nodes=2)
    for name in ("a", "b"):
        harness.create_topic(name)
    for kind, name in ((GROUP, "g"), (CLIENT_METRICS, "m")):
        record = ConfigRecord(resource_type=kind, resource_name=name, name="interval.ms", value="1000")
        harness.cluster.image.apply_record(record)
    harness.cluster.image.get_configs(GROUP, "without")
    return harness


@for_each(
    ("types", "expected"),
    [
        (
            (),
            [
                ("g", GROUP),
                ("m", CLIENT_METRICS),
                ("1", BROKER_LOGGER),
                ("2", BROKER_LOGGER),
                ("1", BROKER),
                ("2", BROKER),
                ("a", TOPIC),
                ("b", TOPIC),
            ],
        ),
        ((TOPIC,), [("a", TOPIC), ("b", TOPIC)]),
        ((TOPIC, BROKER, TOPIC), [("1", BROKER), ("2", BROKER), ("a", TOPIC), ("b", TOPIC)]),
        ((GROUP,), [("g", GROUP)]),
        ((CLIENT_METRICS,), [("m", CLIENT_METRICS)]),
        ((BROKER_LOGGER,), [("1", BROKER_LOGGER), ("2", BROKER_LOGGER)]),
    ],
)
def test_resources_are_listed_by_type(
    stocked: Harness, types: tuple[int, ...], expected: list[tuple[str, int]]
) -> None:
    with stocked:
        assert listed(stocked, *types) == (ErrorCode.NONE, expected)


def test_version_0_lists_client_metrics_only(stocked: Harness) -> None:
    with stocked:
        assert listed(stocked, version=0) == (ErrorCode.NONE, [("m", CLIENT_METRICS)])


@pytest.mark.parametrize("types", [(0,), (3,), (99,), (TOPIC, 99), (-1,)])
def test_an_unknown_resource_type_is_rejected(harness: Harness, types: tuple[int, ...]) -> None:
    assert listed(harness, *types) == (ErrorCode.UNSUPPORTED_VERSION, [])
