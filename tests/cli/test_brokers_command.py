"""`minibroker brokers`: the brokers, and what differs from the defaults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.running import RunningBroker, running_broker


def test_brokers_and_features_are_listed(run_client: Run, broker: RunningBroker) -> None:
    document = json.loads(run_client("brokers", "list", "--json").stdout)
    (found,) = document["brokers"]
    assert found["address"] == broker.bootstrap_servers and found["is_controller"] and found["release"] == "4.4"
    assert {each["feature"]: each["level"] for each in document["features"]}["group.version"] == 1
    text = run_client("brokers", "list").stdout
    assert document["cluster_id"] in text and "metadata.version" in text and broker.bootstrap_servers in text


@pytest.mark.parametrize("release", ["0.10.0", "1.1", "2.4", "4.3"])
def test_brokers_of_any_release_are_listed(run: Run, tmp_path: Path, release: str) -> None:
    with running_broker(tmp_path, options=("--emulate", release)) as broker:
        result = run("brokers", "list", "--json", "--bootstrap-server", broker.bootstrap_servers)
    document = json.loads(result.stdout)
    assert [each["release"] for each in document["brokers"]] == [release]
    assert bool(document["features"]) == (release == "4.3")


def test_configs_that_differ_from_the_defaults_are_described(run_client: Run) -> None:
    found = {each["config"]: each for each in json.loads(run_client("brokers", "describe", "--json").stdout)}
    assert found["num.partitions"]["value"] == "2" and found["num.partitions"]["default"] == "1"
    assert "num.io.threads" not in found
    everything = {each["config"] for each in json.loads(run_client("brokers", "describe", "--all", "--json").stdout)}
    assert everything > {"num.io.threads", *found}


def test_an_unknown_broker_is_reported_in_one_line(run_client: Run) -> None:
    result = run_client("brokers", "describe", "77")
    assert result.exit_code == 1 and "there is no broker 77, only " in result.stderr
