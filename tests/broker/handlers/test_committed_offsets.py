"""OffsetFetch on several nodes, in steps, and of offsets that are not written yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.coordination.runtime import RELOAD_MS
from minibroker.broker.groups.offsets_of_group import CommittedOffset
from minibroker.broker.handlers.committed_offsets import FIRST_WITH_SEVERAL_GROUPS, offset_fetch
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.offsets import OffsetFetchRequest
from tests.broker.delaying import steps_of
from tests.broker.handlers.offset_requests import codes_of, commit, commit_request, committed_in
from tests.broker.harness import Harness, served_versions
from tests.broker.requests.turned_loop import Loop, LoopClient

VERSIONS = served_versions(OffsetFetchRequest)
SEVERAL_GROUPS = [version for version in VERSIONS if version >= 8]
WITH_ERROR, BY_ID = 2, 10
UNKNOWN_ID = bytes(range(16))
NOT_KNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

Topic = OffsetFetchRequest.OffsetFetchRequestTopic
Group = OffsetFetchRequest.OffsetFetchRequestGroup
GroupTopic = Group.OffsetFetchRequestTopics


@pytest.fixture
def topic_id(harness: Harness) -> bytes:
    """That of the topic "t" with 3 partitions; and the topic of the groups is there."""
    harness.create_topic("t", 3)
    harness.coordinator("g")
    return harness.cluster.image.topics["t"].topic_id


def of_groups(*groups: str, topics: list[GroupTopic] | None, **fields: Any) -> OffsetFetchRequest:
    listed = [Group(group_id=group, topics=topics) for group in groups]
    request: OffsetFetchRequest = OffsetFetchRequest(groups=listed, **fields)
    return request


def in_topic(topic: Any) -> list[tuple[int, int, int, str, int]]:
    """(partition, offset, leader epoch, metadata, error) of each partition of an answered topic."""
    return [
        (one.partition_index, one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code)
        for one in topic.partitions
    ]


def test_an_offset_of_a_deleted_topic_is_not_returned_for_its_namesake(harness: Harness, topic_id: bytes) -> None:
    commit(harness, "g", ("t", 0, 7))
    offsets = committed_in(harness, "g")
    offsets.apply_offset("t", 0, CommittedOffset(7, -1, "", 0, topic_id=UNKNOWN_ID))
    topics = [GroupTopic(topic_id=topic_id, partition_indexes=[0])]
    (group,) = harness.request(of_groups("g", topics=topics), BY_ID).groups
    assert in_topic(group.topics[0]) == [(0, -1, -1, "", 0)]


def test_an_error_of_one_group_does_not_affect_the_others(
    harness: Harness, topic_id: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(harness, "g", ("t", 0, 7))
    commit(harness, "h", ("t", 0, 8))
    asked: list[tuple[str | None, int]] = []

    def refuse(member_id: str | None, epoch: int) -> None:
        asked.append((member_id, epoch))
        raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

    monkeypatch.setattr(harness.cluster.groups.groups["g"], "check_offset_fetch", refuse)
    request = of_groups("g", "h", topics=None)
    request.groups[0].member_id, request.groups[0].member_epoch = "m", 3
    first, second = harness.request(request, 9).groups
    assert asked == [("m", 3)]
    assert (first.error_code, first.topics) == (ErrorCode.STALE_MEMBER_EPOCH, [])
    assert (second.error_code, in_topic(second.topics[0])) == (ErrorCode.NONE, [(0, 8, -1, "", 0)])


@pytest.mark.parametrize("before", [True, False], ids=["before the first group", "later"])
def test_every_node_answers_offset_commit_and_fetch_in_version_0(tmp_path: Path, before: bool) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.create_topic("t")
        if not before:
            harness.coordinator("g")
        fetch = OffsetFetchRequest(group_id="g", topics=[Topic(name="t", partition_indexes=[0])])
        expected = [(0, -1, -1, "", NOT_KNOWN)]
        for node, offset in ((1, 7), (2, 8)):
            assert in_topic(harness.request(fetch, 0, node=3 - node).topics[0]) == expected
            answer = harness.request(commit_request("g", ("t", 0, offset)), 0, node=node)
            assert codes_of(answer) == [0]
            expected = [(0, offset, -1, "", 0)]
        harness.restart()
        assert in_topic(harness.request(fetch, 0, node=1).topics[0]) == expected


@pytest.mark.parametrize("version", [version for version in VERSIONS if version > 0])
def test_only_the_coordinator_answers_offset_fetch(tmp_path: Path, version: int) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        other = 3 - harness.coordinator("g")
        code = ErrorCode.NOT_COORDINATOR
        if version in SEVERAL_GROUPS:
            topics = [GroupTopic(name="t", partition_indexes=[0])]
            (group,) = harness.request(of_groups("g", topics=topics), version, node=other).groups
            assert (group.error_code, group.topics) == (code, [])
            return
        asked = OffsetFetchRequest(group_id="g", topics=[Topic(name="t", partition_indexes=[0])])
        answer = harness.request(asked, version, node=other)
        if version >= WITH_ERROR:
            assert (answer.error_code, answer.topics) == (code, [])
        else:
            assert [in_topic(topic) for topic in answer.topics] == [[(0, -1, -1, "", code)]]


@pytest.mark.parametrize(("version", "passes"), [(0, 2), (7, 2), (10, 1)])
def test_an_offset_fetch_of_many_partitions_is_processed_in_steps(
    harness: Harness, topic_id: bytes, version: int, passes: int
) -> None:
    indexes = list(range(900))
    request = of_groups("g", topics=[GroupTopic(topic_id=b"\x11" * 16, partition_indexes=indexes)])
    if version < FIRST_WITH_SEVERAL_GROUPS:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=indexes)
        request = OffsetFetchRequest(group_id="g", topics=[topic])
    context = harness.make_context(ApiKey.OFFSET_FETCH, version)
    assert sum(1 for _ in steps_of(offset_fetch(context, request))) >= passes * 900


# --- what is not written yet ------------------------------------------------------------------------------------------


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    """A loop on whose disk group g has committed offset 5 of partition 0 of topic t."""
    made = Loop(tmp_path)
    with made.harness:
        assert commit(made.harness, "g", ("t", 0, 5)) == [0]
        yield made


def of_group_g(harness: Harness, version: int) -> OffsetFetchRequest:
    """Return the question for partition 0 of topic t."""
    if version < FIRST_WITH_SEVERAL_GROUPS:
        asked: OffsetFetchRequest = OffsetFetchRequest(group_id="g", topics=[Topic(name="t", partition_indexes=[0])])
        return asked
    topic_id = harness.cluster.image.topics["t"].topic_id
    return of_groups("g", topics=[GroupTopic(name="t", topic_id=topic_id, partition_indexes=[0])])


def told_to(client: LoopClient) -> tuple[int, list[int]]:
    """(error, offsets) of the one answer that the client has had since the last time."""
    ((_, answer),) = client.responses()
    if answer.groups:
        (group,) = answer.groups
        return group.error_code, [one[1] for topic in group.topics for one in in_topic(topic)]
    of_partitions = {one[4] for topic in answer.topics for one in in_topic(topic)}
    assert len(of_partitions | {answer.error_code} - {0}) <= 1
    return max(of_partitions), [one[1] for topic in answer.topics for one in in_topic(topic)]


@pytest.mark.parametrize("version", [1, 2, 7, 8, 9, 10])
def test_an_offset_fetch_waits_until_a_pending_commit_is_written(loop: Loop, version: int) -> None:
    committer, reader = LoopClient(loop.harness), LoopClient(loop.harness)
    committer.read((1, commit_request("g", ("t", 0, 6)), 9))
    reader.read((1, of_group_g(loop.harness, version), version))
    assert (committer.sent_bytes(), reader.sent_bytes()) == (b"", b"")
    loop.end_turn(committer, reader)
    assert told_to(reader) == (ErrorCode.NONE, [6])
    reader.read((2, of_group_g(loop.harness, version), version))
    assert told_to(reader) == (ErrorCode.NONE, [6])


@pytest.mark.parametrize("version", [1, 2, 7, 8, 9, 10])
def test_an_offset_whose_commit_cannot_be_written_is_never_returned(loop: Loop, version: int) -> None:
    committer, reader = LoopClient(loop.harness), LoopClient(loop.harness)
    committer.read((1, commit_request("g", ("t", 0, 6)), 9))
    reader.read((1, of_group_g(loop.harness, version), version))
    loop.fail_writes()
    loop.end_turn(committer, reader)
    offsets = [-1] if version < FIRST_WITH_SEVERAL_GROUPS else []
    assert told_to(reader) == (ErrorCode.NOT_COORDINATOR, offsets)
    loop.heal()
    loop.harness.clock.advance(RELOAD_MS)
    reader.read((2, of_group_g(loop.harness, version), version))
    loop.end_turn(reader)
    assert told_to(reader) == (ErrorCode.NONE, [5])


def test_offset_fetch_during_a_reload_answers_an_error_to_retry(loop: Loop) -> None:
    harness = loop.harness
    context = harness.make_context(ApiKey.OFFSET_FETCH, 9)
    steps = steps_of(offset_fetch(context, of_group_g(harness, 9)))
    committer = LoopClient(harness)
    committer.read((1, commit_request("g", ("t", 0, 6)), 9))
    next(steps)
    loop.fail_writes()
    loop.end_turn(committer)
    loop.heal()
    harness.clock.advance(RELOAD_MS)
    with pytest.raises(StopIteration) as end:
        while True:
            next(steps)
    (group,) = end.value.value.groups
    assert (group.error_code, group.topics) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
