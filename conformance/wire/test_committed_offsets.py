"""OffsetCommit and OffsetFetch: what is kept, what is refused, and by whom.

Every literal is what Apache Kafka 4.4 answers. It no longer serves version 0 of either, nor version 1 of OffsetCommit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.groups import (
    NOTHING,
    Fetched,
    commit,
    commit_request,
    committed,
    delete,
    fetch_group,
    find_coordinator,
    join,
    sync,
)
from conformance.wire.requests import metadata_of, repeated
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from minibroker.protocol.messages.topics import DeleteTopicsRequest

COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)
BY_ID = 10
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
UNKNOWN_ID = bytes(range(1, 17))
LONGEST_NOTE = 4096


@pytest.fixture
def group(connection: Connection, new_name: Callable[[], str]) -> str:
    """The name of a group that there is not yet, and that somebody coordinates."""
    name = f"group-{new_name()}"
    find_coordinator(connection, name)
    return name


def id_of(connection: Connection, name: str) -> bytes:
    topic_id: bytes = metadata_of(connection, name).topic_id
    return topic_id


def test_nonexistent_partitions_come_first_in_an_offset_commit_response(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    name = new_topic(2)
    asked = [(name, index) for index in (9, 0, 8, 1)]
    answered = commit(connection, group, *((*partition, 5) for partition in asked))
    expected = [((name, 9), UNKNOWN), ((name, 8), UNKNOWN), ((name, 0), 0), ((name, 1), 0)]
    assert list(answered.items()) == expected
    assert list(delete(connection, group, *asked)[1].items()) == expected


def test_rejected_topics_come_last_in_an_offset_fetch_response(connection: Connection, name: str, group: str) -> None:
    topic_id = id_of(connection, name)
    asked = (UNKNOWN_ID, [0]), (topic_id, [1, 0])
    answered = fetch_group(connection, group, *asked, version=10)[1]
    assert list(answered) == [(topic_id, 1), (topic_id, 0), (UNKNOWN_ID, 0)]


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_every_version_commits_an_offset(connection: Connection, new_topic: NewTopic, group: str, version: int) -> None:
    name = new_topic(2)
    topic: str | bytes = id_of(connection, name) if version >= BY_ID else name
    answered = commit(
        connection, group, (topic, 1, 7), version=version, committed_leader_epoch=0, committed_metadata="note"
    )
    assert answered == {(topic, 1): 0}
    epoch = 0 if version >= 6 else -1
    assert fetch_group(connection, group, (name, [0, 1])) == (
        0,
        {(name, 0): NOTHING, (name, 1): Fetched(7, epoch, "note")},
    )


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_every_version_fetches_an_offset(connection: Connection, new_topic: NewTopic, group: str, version: int) -> None:
    name = new_topic(3)
    commit(connection, group, (name, 0, 7), (name, 2, 9), committed_leader_epoch=0, committed_metadata="note")
    topic: str | bytes = id_of(connection, name) if version >= BY_ID else name
    epoch = 0 if version >= 5 else -1
    first, second = Fetched(7, epoch, "note"), Fetched(9, epoch, "note")
    assert fetch_group(connection, group, (topic, [2, 1, 0]), version=version) == (
        0,
        {(topic, 2): second, (topic, 1): NOTHING, (topic, 0): first},
    )
    if version >= 2:
        everything = {(topic, 0): first, (topic, 2): second}
        assert fetch_group(connection, group, version=version, everything=True) == (0, everything)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_an_unknown_group_has_no_committed_offsets(
    connection: Connection, new_topic: NewTopic, group: str, version: int
) -> None:
    name = new_topic()
    topic: str | bytes = id_of(connection, name) if version >= BY_ID else name
    assert fetch_group(connection, group, (topic, [0, 9]), version=version) == (
        0,
        {(topic, 0): NOTHING, (topic, 9): NOTHING},
    )
    if version >= 2:
        assert fetch_group(connection, group, version=version, everything=True) == (0, {})


def test_offset_fetch_by_name_accepts_topics_that_do_not_exist(connection: Connection, group: str) -> None:
    assert fetch_group(connection, group, ("no-such-topic", [0])) == (0, {("no-such-topic", 0): NOTHING})


def test_offset_fetch_by_id_requires_a_known_topic_id(connection: Connection, new_topic: NewTopic, group: str) -> None:
    topic_id = id_of(connection, new_topic())
    answered = fetch_group(connection, group, (UNKNOWN_ID, [0]), (topic_id, [0]), version=BY_ID)
    unknown = Fetched(-1, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    assert answered == (0, {(UNKNOWN_ID, 0): unknown, (topic_id, 0): NOTHING})


@pytest.mark.parametrize("version", [8, 9])
def test_several_groups_are_answered_in_one_response(
    connection: Connection, new_topic: NewTopic, new_name: Callable[[], str], version: int
) -> None:
    name, groups = new_topic(2), [f"group-{new_name()}" for _ in range(3)]
    find_coordinator(connection, groups[0])
    for number, group in enumerate(groups[:2]):
        commit(connection, group, (name, number, 7 + number))
    of_group = OffsetFetchRequest.OffsetFetchRequestGroup
    topic = of_group.OffsetFetchRequestTopics
    asked = [
        of_group(group_id=groups[0], topics=None),
        of_group(group_id=groups[1], topics=[topic(name=name, partition_indexes=[0, 1]), topic(name="other")]),
        of_group(group_id=groups[2], topics=None),
        of_group(group_id=groups[0], topics=[]),
    ]
    answer = connection.ask(OffsetFetchRequest(groups=asked), version)
    told = [
        (
            group.group_id,
            group.error_code,
            {topic.name: [each.committed_offset for each in topic.partitions] for topic in group.topics},
        )
        for group in answer.groups
    ]
    assert told == [
        (groups[0], 0, {name: [7]}),
        (groups[1], 0, {name: [-1, 8], "other": []}),
        (groups[2], 0, {}),
        (groups[0], 0, {}),
    ]


def test_an_empty_commit_succeeds_and_creates_no_group(connection: Connection, new_topic: NewTopic, group: str) -> None:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    known, unknown = topic(name=new_topic()), topic(name="no-such-topic")
    for topics, answered in (([], []), ([known], []), ([known, unknown], [("no-such-topic", [])])):
        response = connection.ask(OffsetCommitRequest(group_id=group, topics=topics), 9)
        assert [(topic.name, topic.partitions) for topic in response.topics] == answered
    assert delete(connection, group) == (ErrorCode.GROUP_ID_NOT_FOUND, {})


@pytest.mark.parametrize("stable", [True, False])
def test_offsets_committed_without_a_transaction_are_returned_whether_or_not_stability_is_required(
    connection: Connection, new_topic: NewTopic, group: str, stable: bool
) -> None:
    name = new_topic()
    commit(connection, group, (name, 0, 7))
    assert fetch_group(connection, group, (name, [0]), require_stable=stable) == (0, {(name, 0): Fetched(7)})


def test_a_commit_rejects_unknown_partitions_individually(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    name = new_topic(2)
    asked = [(name, 0, 7), (name, 9, 7), ("no-such-topic", 0, 7), (name, -1, 7), (name, 1, 8)]
    assert commit(connection, group, *asked) == {
        (name, 0): 0,
        (name, 9): UNKNOWN,
        ("no-such-topic", 0): UNKNOWN,
        (name, -1): UNKNOWN,
        (name, 1): 0,
    }
    assert committed(connection, group) == {(name, 0): 7, (name, 1): 8}


def test_topic_ids_distinguish_unknown_topics_from_unknown_partitions(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    topic_id = id_of(connection, new_topic())
    asked = [(UNKNOWN_ID, 0, 7), (topic_id, 9, 7), (topic_id, 0, 7)]
    assert commit(connection, group, *asked, version=BY_ID) == {
        (UNKNOWN_ID, 0): ErrorCode.UNKNOWN_TOPIC_ID,
        (topic_id, 9): UNKNOWN,
        (topic_id, 0): 0,
    }


def test_a_commit_to_unknown_partitions_does_not_check_the_group(connection: Connection, group: str) -> None:
    answered = commit(connection, group, ("no-such-topic", 0, 7), generation_id_or_member_epoch=5, member_id="nobody")
    assert answered == {("no-such-topic", 0): UNKNOWN}


@pytest.mark.parametrize(
    ("note", "code"),
    [
        ("x" * LONGEST_NOTE, 0),
        ("x" * (LONGEST_NOTE + 1), ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("é" * LONGEST_NOTE, 0),
        ("\U0001f600" * (LONGEST_NOTE // 2 + 1), ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
    ids=["longest", "too long", "two bytes a character", "two units a character"],
)
def test_commit_metadata_has_a_maximum_size(
    connection: Connection, new_topic: NewTopic, group: str, note: str, code: int
) -> None:
    name = new_topic()
    assert commit(connection, group, (name, 0, 7), committed_metadata=note) == {(name, 0): code}
    expected = Fetched(7, metadata=note) if code == 0 else NOTHING
    assert fetch_group(connection, group, (name, [0])) == (0, {(name, 0): expected})


def test_too_large_metadata_rejects_only_its_own_partition(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    name = new_topic(2)
    request = commit_request(group, (name, 0, 7), (name, 1, 8))
    request.topics[0].partitions[0].committed_metadata = "x" * (LONGEST_NOTE + 1)
    (topic,) = connection.ask(request, 9).topics
    assert [each.error_code for each in topic.partitions] == [ErrorCode.OFFSET_METADATA_TOO_LARGE, 0]
    assert committed(connection, group) == {(name, 1): 8}


def test_null_metadata_is_stored_as_empty(connection: Connection, new_topic: NewTopic, group: str) -> None:
    name = new_topic()
    assert commit(connection, group, (name, 0, 7), committed_metadata=None) == {(name, 0): 0}
    assert fetch_group(connection, group, (name, [0])) == (0, {(name, 0): Fetched(7)})


@pytest.mark.parametrize("offset", [0, -1, -2, (1 << 63) - 1])
def test_any_number_can_be_committed_as_an_offset(
    connection: Connection, new_topic: NewTopic, group: str, offset: int
) -> None:
    name = new_topic()
    assert commit(connection, group, (name, 0, offset)) == {(name, 0): 0}
    assert fetch_group(connection, group, (name, [0])) == (0, {(name, 0): Fetched(offset)})


def test_the_last_of_duplicate_partitions_is_committed(connection: Connection, new_topic: NewTopic, group: str) -> None:
    name = new_topic()
    request = commit_request(group, (name, 0, 7), (name, 0, 5))
    (topic,) = connection.ask(request, 9).topics
    assert [each.error_code for each in topic.partitions] == [0, 0]
    assert committed(connection, group) == {(name, 0): 5}


def test_offsets_are_committed_and_fetched_with_an_empty_group_id(connection: Connection, new_topic: NewTopic) -> None:
    find_coordinator(connection, "")
    name = new_topic()
    assert commit(connection, "", (name, 0, 7)) == {(name, 0): 0}
    assert fetch_group(connection, "", (name, [0])) == (0, {(name, 0): Fetched(7)})


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_a_commit_with_a_generation_to_an_unknown_group_is_rejected(
    connection: Connection, new_topic: NewTopic, group: str, version: int
) -> None:
    name = new_topic()
    topic: str | bytes = id_of(connection, name) if version >= BY_ID else name
    code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    answered = commit(
        connection, group, (topic, 0, 7), version=version, generation_id_or_member_epoch=0, member_id="nobody"
    )
    assert answered == {(topic, 0): code}


def test_any_member_id_can_commit_while_the_group_is_empty(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    name = new_topic()
    commit(connection, group, (name, 0, 7))
    nobody = {"member_id": "nobody", "group_instance_id": "nowhere"}
    assert commit(connection, group, (name, 0, 8), **nobody) == {(name, 0): 0}
    refused = commit(connection, group, (name, 0, 9), **nobody, generation_id_or_member_epoch=0)
    assert refused == {(name, 0): ErrorCode.UNKNOWN_MEMBER_ID}


@pytest.mark.parametrize("instance_id", [None, "static"])
def test_a_member_commits_in_its_generation(
    connection: Connection, new_topic: NewTopic, group: str, instance_id: str | None
) -> None:
    name = new_topic()
    member = join(connection, group, name, instance_id=instance_id)
    sync(connection, group, member)
    right, wrong = member.generation, member.generation + 1
    for code, who in (
        (ErrorCode.UNKNOWN_MEMBER_ID, {}),
        (ErrorCode.UNKNOWN_MEMBER_ID, {"member_id": "nobody", "generation_id_or_member_epoch": right}),
        (ErrorCode.ILLEGAL_GENERATION, member.fields(generation_id_or_member_epoch=wrong)),
        (ErrorCode.ILLEGAL_GENERATION, member.fields(generation_id_or_member_epoch=-1)),
        (ErrorCode.UNKNOWN_MEMBER_ID, member.fields(group_instance_id="another")),
        (ErrorCode.NONE, member.fields()),
    ):
        assert commit(connection, group, (name, 0, 7), **who) == {(name, 0): code}, who
    assert committed(connection, group) == {(name, 0): 7}


def test_a_replaced_static_member_is_fenced(connection: Connection, new_topic: NewTopic, group: str) -> None:
    name = new_topic()
    before = join(connection, group, name, instance_id="static")
    sync(connection, group, before)
    now = join(connection, group, name, instance_id="static")
    for member, code in ((before, ErrorCode.FENCED_INSTANCE_ID), (now, ErrorCode.NONE)):
        assert commit(connection, group, (name, 0, 7), **member.fields()) == {(name, 0): code}


def test_a_commit_before_the_first_assignment_gets_rebalance_in_progress(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    name = new_topic()
    member = join(connection, group, name)
    for code, who in (
        (ErrorCode.REBALANCE_IN_PROGRESS, member.fields()),
        (ErrorCode.ILLEGAL_GENERATION, member.fields(generation_id_or_member_epoch=member.generation + 1)),
        (ErrorCode.UNKNOWN_MEMBER_ID, {}),
    ):
        assert commit(connection, group, (name, 0, 7), **who) == {(name, 0): code}, who
    assert fetch_group(connection, group, (name, [0])) == (0, {(name, 0): NOTHING})


@pytest.mark.parametrize("fields", [{}, {"member_id": "nobody", "member_epoch": 3}], ids=["no member", "nobody"])
def test_any_client_can_fetch_offsets_of_a_classic_group(
    connection: Connection, new_topic: NewTopic, group: str, fields: dict[str, object]
) -> None:
    name = new_topic()
    commit(connection, group, (name, 0, 7))
    sync(connection, group, join(connection, group, name))
    assert fetch_group(connection, group, (name, [0]), **fields) == (0, {(name, 0): Fetched(7)})


@pytest.mark.parametrize("version", [9, BY_ID])
def test_offsets_are_deleted_with_their_topic(
    connection: Connection, new_topic: NewTopic, group: str, version: int
) -> None:
    gone, kept = new_topic(), new_topic()
    kept_topic: str | bytes = id_of(connection, kept) if version >= BY_ID else kept
    commit(connection, group, (gone, 0, 7), (kept, 0, 8))
    deletion = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=gone)], timeout_ms=5000)
    assert connection.ask(deletion, 6).responses[0].error_code == 0
    left = {(kept_topic, 0): Fetched(8)}
    everything = partial(fetch_group, connection, group, version=version, everything=True)
    assert repeated(everything, lambda seen: seen[1] == left) == (0, left)


def test_a_commit_too_large_for_a_record_batch_changes_nothing(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    name = new_topic()
    offsets = [(name, 0, offset) for offset in range(500)]
    assert commit(connection, group, *offsets, committed_metadata="x" * LONGEST_NOTE) == {
        (name, 0): ErrorCode.UNKNOWN_SERVER_ERROR
    }
    assert committed(connection, group) == {}
