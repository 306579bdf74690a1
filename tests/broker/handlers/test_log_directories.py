"""DescribeLogDirs and AlterReplicaLogDirs: what the answers say of directories and logs, and which moves are taken on.

How a log moves is tested in `tests/broker/control/test_log_moves.py`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.replicas import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from tests.broker.harness import Harness, batch, served_versions
from tests.cases import for_each

VERSIONS = served_versions(DescribeLogDirsRequest)
FIRST_WITH_SPACE = 4

Topic = DescribeLogDirsRequest.DescribableLogDirTopic


@pytest.fixture
def spread(tmp_path: Path) -> Iterator[Harness]:
    """Two directories, and the topics "t" of three partitions and "u" of one, in the directory with the fewest."""
    directories = f"{tmp_path}/one,{tmp_path}/two"
    with Harness(tmp_path, settings={"log.dirs": directories}) as harness:
        harness.create_topic("t", partitions=3)
        harness.create_topic("u")
        harness.produce("t", "some value", partition=1)
        yield harness


def asked(harness: Harness, topics: dict[str, list[int]] | None, version: int = VERSIONS[-1], node: int = 1) -> Any:
    request = DescribeLogDirsRequest(
        topics=None if topics is None else [Topic(topic=name, partitions=found) for name, found in topics.items()]
    )
    answer = harness.request(request, version, node=node)
    assert answer.error_code == ErrorCode.NONE
    return answer.results


def logs_in(results: Any) -> dict[str, set[tuple[str, int]]]:
    """The (topic, partition) of each log, by the name of its directory."""
    return {
        os.path.basename(result.log_dir): {
            (topic.name, partition.partition_index) for topic in result.topics for partition in topic.partitions
        }
        for result in results
    }


@for_each("version", VERSIONS)
def test_every_log_directory_is_listed_with_its_logs(spread: Harness, version: int) -> None:
    results = asked(spread, None, version)
    assert [result.log_dir for result in results] == [str(spread.directory / name) for name in ("one", "two")]
    found = logs_in(results)
    assert found["one"] | found["two"] == {("t", 0), ("t", 1), ("t", 2), ("u", 0)}
    assert not found["one"] & found["two"] and all(found.values())
    for result in results:
        assert result.error_code == ErrorCode.NONE
        if version >= FIRST_WITH_SPACE:
            assert 0 < result.usable_bytes <= result.total_bytes
        else:
            assert result.usable_bytes == result.total_bytes == -1
        assert len({topic.name for topic in result.topics}) == len(result.topics)


def test_described_log_sizes_are_those_of_the_batches(spread: Harness) -> None:
    sizes = {
        (topic.name, partition.partition_index): partition.partition_size
        for result in asked(spread, None)
        for topic in result.topics
        for partition in topic.partitions
    }
    assert sizes.pop(("t", 1)) == len(batch("some value"))
    assert set(sizes.values()) == {0}


@for_each(
    ("topics", "expected"),
    [
        ({}, set()),
        ({"t": [0, 1]}, {("t", 0), ("t", 1)}),
        ({"t": []}, set()),
        ({"t": [0, 9, -1]}, {("t", 0)}),
        ({"nope": [0]}, set()),
        ({"t": [2, 2], "u": [0]}, {("t", 2), ("u", 0)}),
        ({"__cluster_metadata": [0]}, set()),
    ],
)
def test_only_requested_partitions_are_listed_but_all_directories(
    spread: Harness, topics: dict[str, list[int]], expected: set[tuple[str, int]]
) -> None:
    found = logs_in(asked(spread, topics))
    assert set(found) == {"one", "two"}
    assert found["one"] | found["two"] == expected


def test_a_topic_requested_twice_lists_the_partitions_of_both_requests(spread: Harness) -> None:
    request = DescribeLogDirsRequest(topics=[Topic(topic="t", partitions=[0]), Topic(topic="t", partitions=[2])])
    found = logs_in(spread.request(request).results)
    assert found["one"] | found["two"] == {("t", 0), ("t", 2)}


def test_each_node_lists_the_partitions_of_its_replicas(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        harness.create_topic("t", partitions=6)
        told = [logs_in(asked(harness, None, node=node))["data"] for node in (1, 2, 3)]
        assert set.union(*told) == {("t", index) for index in range(6)}
        assert sum(map(len, told)) == 6


def test_a_relative_directory_is_listed_with_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Harness(tmp_path, settings={"log.dirs": "here"}) as harness:
        (result,) = asked(harness, None)
        assert result.log_dir == str(tmp_path / "here")


def test_a_log_directory_on_a_failing_disk_is_listed_with_an_error(
    spread: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(path: str) -> tuple[int, int]:
        if path.endswith("two"):
            raise OSError(errno.EIO, "Input/output error")
        return 100, 50

    monkeypatch.setattr(spread.logs.disk, "measure_space_bytes", failing, raising=False)
    one, two = asked(spread, None)
    assert (one.error_code, one.total_bytes, one.usable_bytes) == (ErrorCode.NONE, 100, 50)
    assert (two.error_code, two.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])


# --- AlterReplicaLogDirs ------------------------------------------------------------------------

ALTER_VERSIONS = served_versions(AlterReplicaLogDirsRequest)
Directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir


def alter(
    harness: Harness, *moves: tuple[str, str, list[int]], version: int = ALTER_VERSIONS[-1], node: int = 1
) -> dict[tuple[str, int], int]:
    """The error code of each partition that is to move: (path, topic, partitions)."""
    asked_for = [
        Directory(path=path, topics=[Directory.AlterReplicaLogDirTopic(name=name, partitions=partitions)])
        for path, name, partitions in moves
    ]
    answer = harness.request(AlterReplicaLogDirsRequest(dirs=asked_for), version, node=node)
    assert len({topic.topic_name for topic in answer.results}) == len(answer.results)
    return {
        (topic.topic_name, partition.partition_index): partition.error_code
        for topic in answer.results
        for partition in topic.partitions
    }


def lies_in(harness: Harness, name: str, index: int = 0) -> str:
    return os.path.basename(harness.logs.find_directory_of_log(harness.partition(name, index).log).path)


@pytest.mark.parametrize("version", ALTER_VERSIONS)
def test_logs_move_to_the_requested_directory(spread: Harness, version: int) -> None:
    one, two = (str(spread.directory / name) for name in ("one", "two"))
    done = alter(spread, (one, "t", [0, 1, 2]), (two, "u", [0]), version=version)
    assert done == {("t", 0): 0, ("t", 1): 0, ("t", 2): 0, ("u", 0): 0}
    assert logs_in(asked(spread, None)) == {"one": {("t", 0), ("t", 1), ("t", 2)}, "two": {("u", 0)}}
    assert spread.produce("t", "another", partition=1) == 1


def test_a_future_log_is_listed_beside_its_log(spread: Harness) -> None:
    target = "two" if lies_in(spread, "t", 1) == "one" else "one"
    spread.clock.holds_aside = True
    alter(spread, (str(spread.directory / target), "t", [1]))
    told = {
        (os.path.basename(result.log_dir), partition.is_future_key, partition.offset_lag)
        for result in asked(spread, {"t": [1]})
        for topic in result.topics
        for partition in topic.partitions
    }
    assert told == {(lies_in(spread, "t", 1), False, 0), (target, True, 1)}


def test_a_new_log_is_created_in_the_requested_directory(spread: Harness) -> None:
    for name in ("one", "two"):
        path = str(spread.directory / name)
        assert alter(spread, (path, f"in-{name}", [0])) == {(f"in-{name}", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    for name in ("one", "two"):
        spread.create_topic(f"in-{name}")
        assert lies_in(spread, f"in-{name}") == name


def test_alter_replica_log_dirs_rejects_only_replicas_that_cannot_move(spread: Harness) -> None:
    one = str(spread.directory / "one")
    assert alter(spread, (one, "t", [0, 9, -1]), ("/nowhere", "t", [1]), (f"{one}/", "t", [2])) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", 1): ErrorCode.LOG_DIR_NOT_FOUND,
        ("t", 2): ErrorCode.LOG_DIR_NOT_FOUND,
    }
    assert alter(spread, (one, "__cluster_metadata", [0]))["__cluster_metadata", 0] == 3
    assert alter(spread, (one, "x" * 240, [0]))["x" * 240, 0] == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert alter(spread) == {}


def test_offline_directories_and_logs_are_excluded_from_moves(spread: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    one = str(spread.directory / "one")
    with monkeypatch.context() as patched:
        patched.setattr(spread.logs.disk, "is_directory", lambda path: path != one, raising=False)
        assert alter(spread, (one, "t", [0])) == {("t", 0): ErrorCode.KAFKA_STORAGE_ERROR}
    spread.partition("t").log.offline = "t-0 is offline"
    assert alter(spread, (one, "t", [0])) == {("t", 0): ErrorCode.KAFKA_STORAGE_ERROR}


def test_a_node_without_a_replica_moves_no_log(tmp_path: Path) -> None:
    directories = f"{tmp_path}/one,{tmp_path}/two"
    with Harness(tmp_path, nodes=2, settings={"log.dirs": directories}) as harness:
        harness.cluster.controller.create_topic("t", assignment=[(0, [2])])
        target = str(tmp_path / ("two" if lies_in(harness, "t") == "one" else "one"))
        assert alter(harness, (target, "t", [0])) == {("t", 0): ErrorCode.REPLICA_NOT_AVAILABLE}
        assert alter(harness, (target, "t", [0]), node=2) == {("t", 0): ErrorCode.NONE}
        assert str(tmp_path / lies_in(harness, "t")) == target
