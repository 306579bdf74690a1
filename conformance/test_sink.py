"""The pipeline's writer with each row once: the scenarios of its tests, asked of minibroker or of Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from conformance.conftest import Broker
from conformance.kafka_reference import running_kafka
from tests.pipeline.sink import scenarios
from tests.running import running_broker


@pytest.fixture(scope="module", params=[2, 1], ids=["KIP-890", "classic"])
def broker(request: pytest.FixtureRequest, against: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with each of the two generations of transactions."""
    running: AbstractContextManager[Broker]
    directory = tmp_path_factory.mktemp("broker")
    if against == "kafka":
        name, value = scenarios.PROMPT.split("=")
        running = running_kafka(directory, {name: value})
    else:
        running = running_broker(directory, scenarios.PROMPT)
    with running as broker:
        scenarios.set_generation(broker, request.param)
        yield broker


@pytest.mark.parametrize("scenario", scenarios.SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_each_row_is_written_once_in_each_scenario_of_failures(
    broker: Broker, scenario: Callable[[scenarios.Broker, str], None]
) -> None:
    scenario(broker, scenarios.new_topic(broker))
