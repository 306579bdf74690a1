"""Cordoned log directories: where new logs lie, which brokers take replicas, and what the metadata records of it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.broker.configs.settings import Settings, SettingsError
from minibroker.broker.control.placement import check_replicas_of_partition, place_replicas
from minibroker.broker.metadata.features import METADATA_VERSION
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.messages.replicas import DescribeLogDirsRequest
from minibroker.protocol.primitives import parse_uuid
from tests.broker.handlers.config_requests import BROKER, DELETE, SET, alter
from tests.broker.harness import Harness

KEY = "cordoned.log.dirs"
DONE = (ErrorCode.NONE, None)


@pytest.fixture
def spread(tmp_path: Path) -> Iterator[Harness]:
    with Harness(tmp_path, nodes=2, settings={"log.dirs": f"{tmp_path}/one,{tmp_path}/two"}) as harness:
        yield harness


def cordon(harness: Harness, *names: str, node: int = 1) -> None:
    paths = ",".join(name if name == "*" else f"{harness.directory}/{name}" for name in names)
    assert alter(harness, BROKER, str(node), (KEY, SET, paths), node=node) == DONE


def directories_of(harness: Harness, topic: str) -> set[str]:
    logs = (partition.log for partition in harness.cluster.image.topics[topic].partitions)
    return {os.path.basename(harness.logs.find_directory_of_log(log).path) for log in logs}


def told(harness: Harness, node: int = 1) -> list[str]:
    """The directories that a broker lists as cordoned."""
    results = harness.request(DescribeLogDirsRequest(topics=[]), 5, node=node).results
    return [os.path.basename(result.log_dir) for result in results if result.is_cordoned]


def registered(harness: Harness) -> list[bytes] | None:
    found: list[bytes] | None = harness.cluster.image.brokers[1].cordoned_log_dirs
    return found


def ids(harness: Harness, *names: str) -> list[bytes]:
    directories = (one for one in harness.logs.directories if os.path.basename(one.path) in names)
    return sorted(parse_uuid(one.directory_id) for one in directories)


def at_level(harness: Harness, level: int) -> None:
    harness.cluster.commit_metadata_records([records.FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)])


def test_new_logs_avoid_a_cordoned_directory(spread: Harness) -> None:
    cordon(spread, "one")
    cordon(spread, "one", node=2)
    spread.create_topic("t", partitions=4)
    assert directories_of(spread, "t") == {"two"}
    assert alter(spread, BROKER, "1", (KEY, DELETE, None)) == DONE
    cordon(spread, "two")
    cordon(spread, "two", node=2)
    spread.create_topic("u", partitions=4)
    assert directories_of(spread, "u") == {"one"}


def test_each_node_has_its_own_cordoned_directories(spread: Harness) -> None:
    cordon(spread, "one")
    assert (told(spread), told(spread, node=2)) == (["one"], [])
    spread.create_topic("t", partitions=8)
    for partition in spread.cluster.image.topics["t"].partitions:
        lies_in = os.path.basename(spread.logs.find_directory_of_log(partition.log).path)
        assert partition.replicas == [2] or lies_in == "two"


def test_if_the_replicas_together_cordon_all_directories_only_the_cordons_of_the_first_apply(spread: Harness) -> None:
    cordon(spread, "one")
    cordon(spread, "two", node=2)
    spread.create_topic("t", partitions=4, replicas=2)
    for partition in spread.cluster.image.topics["t"].partitions:
        lies_in = os.path.basename(spread.logs.find_directory_of_log(partition.log).path)
        assert lies_in == {1: "two", 2: "one"}[partition.replicas[0]]


@pytest.mark.parametrize("names", [["*"], ["one", "two"]])
def test_a_broker_whose_directories_are_all_cordoned_gets_no_replicas(spread: Harness, names: list[str]) -> None:
    cordon(spread, *names, node=2)
    assert place_replicas(spread.cluster, 4, 1) == [[1]] * 4
    with pytest.raises(KafkaError, match="only 1 broker.s. are registered or some brokers have all their log"):
        place_replicas(spread.cluster, 1, 2)
    with pytest.raises(KafkaError, match="includes broker 2, but all its log directories are cordoned"):
        check_replicas_of_partition(spread.cluster, [1, 2])


def test_a_cordoned_broker_that_is_offline_gets_no_replicas(spread: Harness) -> None:
    cordon(spread, "*", node=2)
    spread.restart(nodes=[1])
    with pytest.raises(KafkaError, match="only 1 broker"):
        place_replicas(spread.cluster, 1, 2)


def test_existing_logs_stay_in_a_cordoned_directory(spread: Harness) -> None:
    spread.create_topic("t", partitions=4)
    before = directories_of(spread, "t")
    cordon(spread, "*")
    spread.produce("t", "a value")
    spread.restart()
    assert directories_of(spread, "t") == before == {"one", "two"}


def test_cordoned_directories_are_recorded_in_the_broker_registration(spread: Harness) -> None:
    assert registered(spread) == []
    cordon(spread, "two")
    assert registered(spread) == ids(spread, "two")
    commits = spread.cluster.commits
    cordon(spread, "two")
    assert spread.cluster.commits == commits + 1  # the config alone
    spread.restart()
    assert registered(spread) == ids(spread, "two")
    cordon(spread)
    assert registered(spread) == []


def test_statically_cordoned_directories_are_recorded_in_the_broker_registration(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={"log.dirs": f"{tmp_path}/one,{tmp_path}/two", KEY: "*"}) as harness:
        assert (registered(harness), told(harness)) == (ids(harness, "one", "two"), ["one", "two"])
        cordon(harness)
        assert (registered(harness), told(harness)) == ([], [])


def test_nothing_is_cordoned_below_the_metadata_version_of_cordoning(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={KEY: "*"}) as harness:
        at_level(harness, 29)
        code, message = alter(harness, BROKER, "1", (KEY, SET, ""))
        reason = "configuration value cannot be set because it requires metadata.version >= 4.3-IV0"
        assert (code, message) == (ErrorCode.INVALID_CONFIG, f"The {KEY} {reason}")
        assert told(harness) == []
        harness.create_topic("t")
        harness.restart()
        assert registered(harness) is None
        at_level(harness, 30)
        assert told(harness) == ["data"]
        with pytest.raises(KafkaError, match="All brokers are currently fenced, or have all their log directories"):
            place_replicas(harness.cluster, 1, 1)


def test_a_cordoned_directory_may_be_removed_from_log_dirs(spread: Harness) -> None:
    cordon(spread, "two")
    spread.restart(settings={"log.dirs": f"{spread.directory}/one"})
    assert told(spread) == []
    spread.create_topic("t")


def test_cordoning_directories_of_one_of_several_nodes_logs_no_warning(
    spread: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        cordon(spread, "one", node=2)
    assert not caplog.records


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("/nope,/a", "must be present in log.dirs or log.dir. Missing entries : /nope$"),
        ("*,/a", "When cordoned.log.dirs is set to .*, it must not contain other values"),
    ],
)
def test_a_start_with_an_invalid_list_of_cordoned_directories_is_rejected(value: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        Settings({"log.dirs": "/a,/b", KEY: value})
