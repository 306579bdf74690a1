"""Archived rows go back to a running broker, without Spark: each once, in order, however often a task is begun."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2

from minibroker.client.client_errors import ClientError
from minibroker.client.partition_offsets import LATEST, list_offsets
from minibroker.pipeline.archiving.archive_tables import ArchivedPartition
from minibroker.pipeline.archiving.archived_topics import NeededTopic, prepare_topics
from minibroker.pipeline.archiving.replay_job import (
    ReplayedPartition,
    ReplayRange,
    ReplayTask,
    find_needed_topics,
    make_replay_id,
    replay_settings,
)
from minibroker.pipeline.brokers.broker_source import BrokerSource
from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.log_source import OffsetRange, OptionError, ReadRequest, TopicPartition, TopicSelection
from minibroker.pipeline.schemas import TIMESTAMP
from minibroker.pipeline.sink.sink_transaction import WriteFailed
from tests.pipeline.archiving.replaying import COUNT, T_MS, reading, rows
from tests.pipeline.sink.committed import create_topic, read, values
from tests.running import RunningBroker, running_broker

NUMBERS = count()
ROOT = Path(__file__).parents[3]
PATIENCE_S = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as client:
        yield client


def task_for(broker: RunningBroker, **changes: object) -> ReplayTask:
    """A task of a replay of its own, to a topic of two partitions of its own."""
    target = f"target-{next(NUMBERS)}"
    create_topic(broker.bootstrap_servers, target, 2, retention_ms="-1", message_timestamp_after_max_ms=str(2**63 - 1))
    task = ReplayTask(replay_settings(broker.bootstrap_servers), target, {"old": target}, commit_records=10)
    return replace(task, **changes)  # type: ignore[arg-type]


def target_of(task: ReplayTask) -> str:
    return task.get_target("old")


def replay(task: ReplayTask, *batches: pa.RecordBatch, partition: int = 0) -> ReplayedPartition:
    """Replay what the batches, which are in order, have of a partition."""
    whole = pa.Table.from_batches(batches)
    return pickle.loads(pickle.dumps(task)).replay_partition(
        TopicPartition("old", partition), reading(whole, task.commit_records)
    )


def offsets_in(broker: RunningBroker, task: ReplayTask, isolation: str = "read_committed") -> list[int]:
    return [int(value or b"") for value in values(broker.bootstrap_servers, target_of(task), isolation)]


def test_a_replayed_partition_has_no_offset_gaps_between_batches(broker: RunningBroker) -> None:
    task = task_for(broker)
    done = [replay(task, rows(5, 20), rows(20, 23), rows(0, 0), rows(23, 25)), replay(task, rows(0, 6, 1), partition=1)]
    assert done == [
        ReplayedPartition(TopicPartition("old", 0), target_of(task), 20, 5, 24),
        ReplayedPartition(TopicPartition("old", 1), target_of(task), 6, 0, 5),
    ]
    found = read(broker.bootstrap_servers, target_of(task))
    assert [(each.partition, each.value) for each in found] == [
        *[(0, b"%d" % offset) for offset in range(5, 25)],
        *[(1, b"%d" % offset) for offset in range(6)],
    ]
    assert {each.timestamp_ms for each in found} == {T_MS}
    assert all(each.headers == [("h", each.value)] for each in found)


def test_a_second_run_writes_only_new_records(broker: RunningBroker) -> None:
    task = task_for(broker)
    replay(task, rows(0, 25))
    assert replay(task, rows(0, 25)) == ReplayedPartition(TopicPartition("old", 0), target_of(task))
    done = replay(task, rows(0, 25), rows(25, 30))
    assert (done.records, done.first, done.last) == (5, 25, 29)
    assert offsets_in(broker, task) == list(range(30))
    replay(replace(task, replay_id=task.replay_id + "-again"), rows(0, 30))
    assert sorted(offsets_in(broker, task)) == sorted([*range(30), *range(30)])


def test_a_failed_run_is_continued(broker: RunningBroker) -> None:
    task = task_for(broker)

    def dying(offset: int) -> Iterator[pa.Table]:
        yield pa.Table.from_batches([rows(0, 10)])
        raise OSError("the archive cannot be read")

    with pytest.raises(OSError, match="the archive cannot be read"):
        task.replay_partition(TopicPartition("old", 0), dying)
    assert offsets_in(broker, task) == list(range(10))
    replay(task, rows(0, 25))
    assert offsets_in(broker, task) == list(range(25))


def test_a_killed_run_is_continued(broker: RunningBroker, client: Client) -> None:
    task = task_for(broker)
    arguments = [broker.bootstrap_servers, task.replay_id, target_of(task)]
    runner = subprocess.Popen([sys.executable, "-m", "tests.pipeline.archiving.replaying", *arguments], cwd=ROOT)
    try:
        deadline = time.monotonic() + PATIENCE_S
        written = TopicPartition(target_of(task), 0)
        while list_offsets(client, {written: LATEST})[written] < 1100:  # with a marker for each 20 records
            assert runner.poll() is None and time.monotonic() < deadline
    finally:
        runner.kill()
        runner.wait()
    done = replay(replace(task, commit_records=5000), rows(0, COUNT))
    assert 0 < done.records <= COUNT - 1000
    assert offsets_in(broker, task) == list(range(COUNT))


def test_a_replay_task_that_another_replaced_is_fenced(broker: RunningBroker) -> None:
    task = task_for(broker)

    def slow(offset: int) -> Iterator[pa.Table]:
        yield pa.Table.from_batches([rows(0, 10)])
        replay(task, rows(0, 20))
        yield pa.Table.from_batches([rows(10, 20)])

    with pytest.raises(WriteFailed, match="PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
        task.replay_partition(TopicPartition("old", 0), slow)
    assert offsets_in(broker, task) == list(range(20))


def test_archived_records_with_offset_gaps_are_replayed_completely(broker: RunningBroker) -> None:
    task = task_for(broker)
    replay(task, rows(0, 40, step=3))
    assert offsets_in(broker, task) == list(range(0, 40, 3))


def test_an_archive_with_a_duplicate_offset_is_rejected(broker: RunningBroker) -> None:
    task = task_for(broker)
    with pytest.raises(WriteFailed, match="old-0: the archive has offset 3 after 4"):
        replay(task, rows(0, 5), rows(3, 6))
    with pytest.raises(WriteFailed, match="old-0: the archive has offset 2 after 2"):
        replay(task, rows(0, 3), rows(2, 3))
    assert offsets_in(broker, task) == []


def test_a_transaction_that_fails_half_way_is_aborted_at_once(broker: RunningBroker) -> None:
    task = task_for(broker)
    eager = replace(task, settings=replace(task.settings, buffer_bytes=1))  # sends each batch of rows by itself
    old = pa.array([datetime(1969, 1, 1, tzinfo=UTC)], TIMESTAMP)
    refused = rows(5, 6).set_column(rows(5, 6).schema.get_field_index("timestamp"), "timestamp", old)
    with pytest.raises(WriteFailed, match="row 5: timestamp -31536000000 is below 0"):
        replay(eager, rows(0, 5), refused)
    assert offsets_in(broker, task, "read_uncommitted") == list(range(5))
    replay(replace(task, replay_id=f"{task.replay_id}-other"), rows(7, 9))
    assert offsets_in(broker, task) == [7, 8]  # the last stable offset does not wait


def test_partitions_can_be_assigned_by_key(broker: RunningBroker) -> None:
    task = task_for(broker, repartition=True)
    replay(task, rows(0, 30), partition=5)
    found = read(broker.bootstrap_servers, target_of(task))
    assert len(found) == 30
    assert all(each.partition == (murmur2(each.key or b"") & 0x7FFFFFFF) % 2 for each in found)


def test_timestamps_archived_only_in_ms_are_replayed(broker: RunningBroker) -> None:
    task = task_for(broker)
    names = rows(0, 2).schema.names
    timeless = rows(0, 2).set_column(names.index("timestamp"), pa.field("timestamp", TIMESTAMP), pa.nulls(2, TIMESTAMP))
    far = pa.array([1_700_000_000_000_000_000, None], pa.int64())
    replay(task, timeless.set_column(names.index("timestampMs"), pa.field("timestampMs", pa.int64()), far))
    found = [each.timestamp_ms for each in read(broker.bootstrap_servers, target_of(task))]
    assert found == [1_700_000_000_000_000_000, -1]


def test_a_record_without_a_timestamp_is_replayed_without_one(broker: RunningBroker) -> None:
    task = task_for(broker)
    timeless = rows(0, 1).set_column(5, pa.field("timestamp", TIMESTAMP), pa.nulls(1, TIMESTAMP))
    replay(task, timeless)
    assert [each.timestamp_ms for each in read(broker.bootstrap_servers, target_of(task))] == [-1]
    partition = TopicPartition(target_of(task), 0)
    with closing(BrokerSource(broker.bootstrap_servers, TopicSelection(assigned=(partition,)))) as source:
        (split,) = source.make_splits([OffsetRange(partition, 0, 1)])
        batches = list(source.read_split(split, ReadRequest("records", ("timestamp", "timestampType"))))
    assert pa.Table.from_batches(batches).to_pylist() == [{"timestamp": None, "timestampType": 0}]


def test_replays_have_equal_ids_only_with_equal_settings() -> None:
    names = {
        make_replay_id(path, targets, repartition)
        for path in ("/a", "/b")
        for targets in ({}, {"a": "b"})
        for repartition in (False, True)
    }
    assert len(names) == 8
    assert make_replay_id("/a", {}, part=ReplayRange()) == make_replay_id("/a", {})
    assert make_replay_id("/a", {}, part=ReplayRange(start=2)) != make_replay_id("/a", {})
    assert make_replay_id("/a", {"x": "1", "y": "2"}) == make_replay_id("/a", {"y": "2", "x": "1"})


def test_missing_topics_are_created_with_sufficient_retention(broker: RunningBroker, client: Client) -> None:
    needed = {"made-a": NeededTopic(3, 0), "made-b": NeededTopic(1, None)}
    assert prepare_topics(client, needed, {"segment.bytes": "1048576"}) == (["made-a", "made-b"], [])
    assert prepare_topics(client, needed) == ([], [])
    assert len(client.list_partitions(["made-a", "made-b"])) == 4


def test_a_topic_that_would_lose_partitions_or_timestamps_is_rejected(broker: RunningBroker, client: Client) -> None:
    create_topic(broker.bootstrap_servers, "small", 2)
    with pytest.raises(OptionError, match="topic small has 2 partitions, and the archive has 3"):
        prepare_topics(client, {"small": NeededTopic(3, None)})
    assert prepare_topics(client, {"small": NeededTopic(3, None)}, any_count=True) == ([], [])
    create_topic(broker.bootstrap_servers, "appended", 1, message_timestamp_type="LogAppendTime")
    with pytest.raises(OptionError, match=r"topic appended has message\.timestamp\.type=LogAppendTime"):
        prepare_topics(client, {"appended": NeededTopic(1, None)})
    with pytest.raises(ClientError, match="bad/name: INVALID_TOPIC_EXCEPTION"):
        prepare_topics(client, {"bad/name": NeededTopic(1, None)})


def test_a_topic_that_would_delete_the_records_causes_a_warning(broker: RunningBroker, client: Client) -> None:
    create_topic(broker.bootstrap_servers, "short", 1, retention_ms="1000")
    (remark,) = prepare_topics(client, {"short": NeededTopic(1, T_MS)}).remarks
    assert remark == "topic short has retention.ms=1000: the broker deletes archived records that are older"
    create_topic(broker.bootstrap_servers, "compacted", 1, retention_ms="1000", cleanup_policy="compact")
    assert prepare_topics(client, {"compacted": NeededTopic(1, T_MS)}).remarks == []


def test_a_target_topic_needs_the_partitions_and_retention_of_all_its_sources(tmp_path: Path) -> None:
    task = ReplayTask(replay_settings("nowhere:1"), "id", {"a": "c"})
    a = ArchivedPartition(TopicPartition("a", 1), 1, 0, 0, 50)
    b = ArchivedPartition(TopicPartition("a", 4), 1, 0, 0, None)
    c = ArchivedPartition(TopicPartition("c", 0), 1, 0, 0, 40)
    assert find_needed_topics([a, b, c], task) == {"c": NeededTopic(5, 40)}
    same = ArchivedPartition(TopicPartition("c", 1), 1, 0, 0, 40)
    with pytest.raises(OptionError, match="a and c would both be written to partition 1 of c"):
        find_needed_topics([a, same], task)
    assert find_needed_topics([a, same], replace(task, repartition=True)) == {"c": NeededTopic(2, 40)}
