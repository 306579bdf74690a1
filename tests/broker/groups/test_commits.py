"""Changes of committed offsets: recorded and applied together, in one batch or several, and gone with their topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from minibroker.broker.groups.commits import CommittedPartition, commit_offsets
from minibroker.broker.groups.group_coordinator import (
    GroupCoordinator,
    delete_offsets_in_batches,
    delete_offsets_of_group,
)
from minibroker.broker.groups.offsets_of_group import CommittedOffset
from minibroker.broker.metadata.partitions import GROUPS_TOPIC
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.groups import DeleteGroupsRequest
from minibroker.protocol.messages.metadata_records import TOPIC_RESOURCE
from minibroker.protocol.messages.topics import DeleteTopicsRequest
from minibroker.protocol.records.batch import iterate_batches
from minibroker.protocol.steps import run_all_steps
from tests.broker.handlers.offset_requests import commit
from tests.broker.harness import Harness

OFFSET = CommittedOffset(5, -1, "", 1000)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    """The groups have one partition, and there are the topics "t" and "u"."""
    with Harness(tmp_path, settings={"offsets.topic.num.partitions": "1"}) as harness:
        harness.create_topic("t", 2)
        harness.create_topic("u")
        harness.coordinator("g")
        yield harness


def offsets(harness: Harness, group: str = "g") -> list[tuple[str, int]]:
    found = harness.cluster.groups.groups.get(group)
    return [] if found is None else sorted(found.offsets.by_partition)


def record_counts(harness: Harness) -> list[int]:
    """Of the batches in the log of the groups."""
    harness.end_turn()
    log = harness.partition(GROUPS_TOPIC).log
    region = log.read(0, 1 << 20)
    return [] if region is None else [header.record_count for _, header in iterate_batches(region.read())]


def commit_at_once(
    groups: GroupCoordinator,
    group_id: str,
    offsets: Sequence[CommittedPartition],
    check: Callable[[], None] = lambda: None,
) -> None:
    run_all_steps(commit_offsets(groups, group_id, offsets, check))


def limit_batches(harness: Harness, size_bytes: int) -> None:
    configs = IncrementalAlterConfigsRequest.AlterConfigsResource
    limit = configs.AlterableConfig(name="max.message.bytes", value=str(size_bytes))
    change = configs(resource_type=TOPIC_RESOURCE, resource_name=GROUPS_TOPIC, configs=[limit])
    assert harness.request(IncrementalAlterConfigsRequest(resources=[change])).responses[0].error_code == 0


def test_an_offset_commit_and_an_offset_deletion_write_one_batch_each(harness: Harness) -> None:
    groups = harness.cluster.groups
    commit_at_once(groups, "g", [("t", 0, OFFSET), ("t", 1, OFFSET), ("u", 0, OFFSET)])
    delete_offsets_of_group(groups, groups.groups["g"], [("t", 0), ("u", 0)])
    assert (offsets(harness), record_counts(harness)) == ([("t", 1)], [3, 2])


def test_an_empty_commit_or_deletion_creates_no_record_and_no_group(harness: Harness) -> None:
    groups = harness.cluster.groups
    commit_at_once(groups, "g", [])
    assert (groups.groups, record_counts(harness)) == ({}, [])
    commit_at_once(groups, "g", [("t", 0, OFFSET)])
    for forget in (delete_offsets_of_group, delete_offsets_in_batches):
        forget(groups, groups.groups["g"], [])
    assert record_counts(harness) == [1]


def test_offset_commits_and_deletions_that_cannot_be_written_are_not_applied(harness: Harness) -> None:
    groups = harness.cluster.groups
    commit_at_once(groups, "g", [("t", 0, OFFSET)])
    harness.partition(GROUPS_TOPIC).log.offline = "the disk is away"
    with pytest.raises(KafkaError):
        commit_at_once(groups, "h", [("t", 0, OFFSET)])
    for forget in (delete_offsets_of_group, delete_offsets_in_batches):
        with pytest.raises(KafkaError):
            forget(groups, groups.groups["g"], [("t", 0)])
    assert offsets(harness) == [("t", 0)] and "h" not in groups.groups


def test_a_commit_of_any_size_is_at_most_one_batch(harness: Harness) -> None:
    groups = harness.cluster.groups
    places = [("t", partition, OFFSET) for partition in range(1000)]
    commit_at_once(groups, "g", places)
    limit_batches(harness, 400)
    with pytest.raises(KafkaError, match="1000 partitions take more than the 400 bytes of a batch") as refused:
        commit_at_once(groups, "h", places)
    assert (refused.value.code, record_counts(harness)) == (ErrorCode.UNKNOWN_SERVER_ERROR, [1000])
    assert "h" not in groups.groups


def test_a_commit_is_validated_again_when_it_is_written(harness: Harness) -> None:
    groups, allowed = harness.cluster.groups, True

    def check() -> None:
        if not allowed:
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)

    steps = commit_offsets(groups, "g", [("t", partition, OFFSET) for partition in range(9)], check)
    next(steps)
    allowed = False
    with pytest.raises(KafkaError):
        run_all_steps(steps)
    assert (groups.groups, record_counts(harness)) == ({}, [])


def test_deletions_that_exceed_one_batch_are_written_in_several(harness: Harness) -> None:
    groups = harness.cluster.groups
    places = [("t", partition) for partition in range(40)]
    commit_at_once(groups, "g", [(*place, OFFSET) for place in places])
    limit_batches(harness, 400)
    delete_offsets_in_batches(groups, groups.groups["g"], places)
    assert offsets(harness) == []
    first, *others = record_counts(harness)
    assert (first, sum(others)) == (40, 40) and len(others) > 3
    harness.restart()
    assert offsets(harness) == []


def test_deleting_a_topic_deletes_its_offsets(harness: Harness) -> None:
    commit(harness, "g", ("t", 0, 5), ("t", 1, 5), ("u", 0, 5))
    commit(harness, "h", ("t", 0, 5))
    topic = DeleteTopicsRequest.DeleteTopicState(name="t")
    assert harness.request(DeleteTopicsRequest(topics=[topic])).responses[0].error_code == ErrorCode.NONE
    assert offsets(harness) == [("u", 0)]
    harness.restart(crash=True)
    assert offsets(harness) == [("u", 0)] and offsets(harness, "h") == []


def test_a_topic_recreated_after_a_crash_during_its_deletion_has_no_offsets(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(harness, "g", ("t", 0, 5), ("u", 0, 5))
    by_id = harness.cluster.image.topics["u"].topic_id
    commit(harness, "g", (by_id, 0, 6), version=10)
    for name in ("t", "u"):
        monkeypatch.setattr(harness.cluster.coordinators, "on_topic_deleted", lambda topic: iter(()))
        harness.request(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)]))
    harness.create_topic("u")
    assert offsets(harness) == [("t", 0), ("u", 0)]
    harness.restart(crash=True)
    harness.clock.advance(0)
    assert offsets(harness) == []
    harness.create_topic("t")
    harness.restart(crash=True)
    assert offsets(harness) == []


def test_offsets_of_deleted_topics_and_groups_are_removed_even_if_they_exceed_a_batch(harness: Harness) -> None:
    harness.create_topic("wide", 60)
    places = [("wide", partition) for partition in range(60)]
    for group in ("g", "h"):
        commit(harness, group, *((*place, 5) for place in places))
    limit_batches(harness, 400)
    refused = [ErrorCode.UNKNOWN_SERVER_ERROR] * len(places)
    assert commit(harness, "g", *((*place, 6) for place in places)) == refused
    assert offsets(harness) == places
    harness.request(DeleteGroupsRequest(groups_names=["h"]))
    topic = DeleteTopicsRequest.DeleteTopicState(name="wide")
    assert harness.request(DeleteTopicsRequest(topics=[topic])).responses[0].error_code == ErrorCode.NONE
    for _ in range(2):
        assert offsets(harness) == [] and "h" not in harness.cluster.groups.groups
        harness.restart(crash=True)
