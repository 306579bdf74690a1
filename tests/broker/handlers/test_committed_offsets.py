"""OffsetFetch: what was committed, in every version's way of saying so, and only the coordinator says it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.coordination.runtime import RELOAD_MS
from minibroker.broker.delayed_operations import Slicer
from minibroker.broker.groups.offsets_of_group import CommittedOffset
from minibroker.broker.handlers.committed_offsets import FIRST_WITH_SEVERAL_GROUPS, offset_fetch
from minibroker.broker.requests.context import RequestContext
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.offsets import OffsetFetchRequest
from tests.broker.delaying import steps_of
from tests.broker.handlers.offset_requests import codes_of, commit, commit_request, committed_in
from tests.broker.harness import Harness, served_versions
from tests.broker.requests.turned_loop import Loop, LoopClient
from tests.cases import for_each

VERSIONS = served_versions(OffsetFetchRequest)
ONE_GROUP = [version for version in VERSIONS if version < 8]
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


@for_each("version", ONE_GROUP)
@for_each("topic", ["t", "nope"])
def test_a_group_without_commits_returns_offset_minus_1(
    harness: Harness, topic_id: bytes, version: int, topic: str
) -> None:
    asked = [Topic(name=topic, partition_indexes=[0, 9])]
    answer = harness.request(OffsetFetchRequest(group_id="g", topics=asked), version)
    assert answer.error_code == ErrorCode.NONE
    ((name, partitions),) = ((topic.name, in_topic(topic)) for topic in answer.topics)
    assert name == topic
    code = ErrorCode.NONE if version > 0 else NOT_KNOWN
    assert partitions == [(0, -1, -1, "", code), (9, -1, -1, "", code)]


@pytest.mark.parametrize("version", SEVERAL_GROUPS)
def test_several_groups_without_commits_return_offset_minus_1(harness: Harness, topic_id: bytes, version: int) -> None:
    topics = [GroupTopic(name="t", topic_id=topic_id, partition_indexes=[0])]
    answer = harness.request(of_groups("g", "h", topics=topics), version)
    assert [(group.group_id, group.error_code) for group in answer.groups] == [("g", 0), ("h", 0)]
    for group in answer.groups:
        (topic,) = group.topics
        assert topic_id == topic.topic_id if version >= BY_ID else topic.name == "t"
        assert in_topic(topic) == [(0, -1, -1, "", 0)]


@pytest.mark.parametrize("version", VERSIONS)
def test_committed_offsets_are_returned(harness: Harness, topic_id: bytes, version: int) -> None:
    assert commit(harness, "g", ("t", 0, 7), ("t", 1, 8), leader_epoch=4, metadata="note") == [0, 0]
    asked = of_groups("g", topics=[GroupTopic(name="t", topic_id=topic_id, partition_indexes=[1, 0, 2])])
    if version < 8:
        asked = OffsetFetchRequest(group_id="g", topics=[Topic(name="t", partition_indexes=[1, 0, 2])])
    answer = harness.request(asked, version)
    (topic,) = answer.topics if version < 8 else answer.groups[0].topics
    epoch, note = 4 if version >= 5 else -1, "note" if version > 0 else ""
    missing = NOT_KNOWN if version == 0 else ErrorCode.NONE
    assert in_topic(topic) == [(1, 8, epoch, note, 0), (0, 7, epoch, note, 0), (2, -1, -1, "", missing)]


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= WITH_ERROR])
def test_all_committed_offsets_of_a_group_can_be_fetched(harness: Harness, topic_id: bytes, version: int) -> None:
    harness.create_topic("u")
    commit(harness, "g", ("t", 2, 7), ("u", 0, 8), ("t", 0, 9))

    def of(group: str) -> Any:
        if version in SEVERAL_GROUPS:
            return harness.request(of_groups(group, topics=None), version).groups[0]
        return harness.request(OffsetFetchRequest(group_id=group, topics=None), version)

    answer = of("g")
    assert answer.error_code == ErrorCode.NONE
    names = {topic.topic_id: name for name, topic in harness.cluster.image.topics.items()}
    told = {
        names[topic.topic_id] if version >= BY_ID else topic.name: [each[:2] for each in in_topic(topic)]
        for topic in answer.topics
    }
    assert told == {"t": [(2, 7), (0, 9)], "u": [(0, 8)]}
    assert (of("nobody").error_code, of("nobody").topics) == (ErrorCode.NONE, [])


def test_an_unknown_topic_id_is_an_error_of_its_partitions(harness: Harness, topic_id: bytes) -> None:
    commit(harness, "g", ("t", 0, 7))
    topics = [
        GroupTopic(topic_id=UNKNOWN_ID, partition_indexes=[0, 1]),
        GroupTopic(topic_id=topic_id, partition_indexes=[0]),
    ]
    (group,) = harness.request(of_groups("g", topics=topics), BY_ID).groups
    known, unknown = group.topics  # in Kafka's order
    assert in_topic(unknown) == [(index, -1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID) for index in (0, 1)]
    assert in_topic(known)[0][:2] == (0, 7)


def test_an_offset_of_a_deleted_topic_is_not_returned_for_its_namesake(harness: Harness, topic_id: bytes) -> None:
    commit(harness, "g", ("t", 0, 7))
    offsets = committed_in(harness, "g")
    offsets.apply("t", 0, CommittedOffset(7, -1, "", 0, topic_id=UNKNOWN_ID))
    topics = [GroupTopic(topic_id=topic_id, partition_indexes=[0])]
    (group,) = harness.request(of_groups("g", topics=topics), BY_ID).groups
    assert in_topic(group.topics[0]) == [(0, -1, -1, "", 0)]


@pytest.mark.parametrize("topics", [None, [GroupTopic(name="t", partition_indexes=[0, 1])]], ids=["all", "some"])
@pytest.mark.parametrize("stable", [True, False])
def test_a_pending_transactional_offset_is_unstable_if_the_client_requires_stability(
    harness: Harness, topic_id: bytes, topics: list[GroupTopic] | None, stable: bool
) -> None:
    commit(harness, "g", ("t", 0, 7), ("t", 1, 8))
    committed_in(harness, "g").pending[9] = {("t", 1): CommittedOffset(9, -1, "", 0)}
    (group,) = harness.request(of_groups("g", topics=topics, require_stable=stable), 9).groups
    second = (1, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT) if stable else (1, 8, -1, "", 0)
    assert in_topic(group.topics[0]) == [(0, 7, -1, "", 0), second]


def test_an_error_of_one_group_does_not_affect_the_others(
    harness: Harness, topic_id: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(harness, "g", ("t", 0, 7))
    commit(harness, "h", ("t", 0, 8))
    asked: list[tuple[str | None, int]] = []

    def refuse(member_id: str | None, epoch: int) -> None:
        asked.append((member_id, epoch))
        raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

    monkeypatch.setattr(harness.cluster.groups.groups["g"], "check_fetch", refuse)
    request = of_groups("g", "h", topics=None)
    request.groups[0].member_id, request.groups[0].member_epoch = "m", 3
    first, second = harness.request(request, 9).groups
    assert asked == [("m", 3)]
    assert (first.error_code, first.topics) == (ErrorCode.STALE_MEMBER_EPOCH, [])
    assert (second.error_code, in_topic(second.topics[0])) == (ErrorCode.NONE, [(0, 8, -1, "", 0)])


@pytest.mark.parametrize("before", [True, False], ids=["before the first group", "later"])
def test_version_0_is_answered_by_every_node(tmp_path: Path, before: bool) -> None:
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
def test_a_long_list_of_partitions_is_processed_in_steps(
    harness: Harness, topic_id: bytes, version: int, passes: int
) -> None:
    indexes = list(range(900))
    request = of_groups("g", topics=[GroupTopic(topic_id=b"\x11" * 16, partition_indexes=indexes)])
    if version < FIRST_WITH_SEVERAL_GROUPS:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=indexes)
        request = OffsetFetchRequest(group_id="g", topics=[topic])
    context = RequestContext(harness.cluster, harness.client().connection, version, None, Slicer())
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
def test_an_offset_is_returned_once_it_is_written(loop: Loop, version: int) -> None:
    committer, reader = LoopClient(loop.harness), LoopClient(loop.harness)
    committer.read((1, commit_request("g", ("t", 0, 6)), 9))
    reader.read((1, of_group_g(loop.harness, version), version))
    assert (committer.sent_bytes(), reader.sent_bytes()) == (b"", b"")
    loop.end_turn(committer, reader)
    assert told_to(reader) == (ErrorCode.NONE, [6])
    reader.read((2, of_group_g(loop.harness, version), version))
    assert told_to(reader) == (ErrorCode.NONE, [6])


@pytest.mark.parametrize("version", [1, 2, 7, 8, 9, 10])
def test_an_offset_whose_write_fails_is_never_returned(loop: Loop, version: int) -> None:
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
    context = RequestContext(harness.cluster, harness.client().connection, 9, None, Slicer())
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
