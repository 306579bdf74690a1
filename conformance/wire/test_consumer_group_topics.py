"""Groups of the next generation (KIP-848): the topics that members get by name and by pattern, as these grow and go.

Every literal is what Apache Kafka 4.4 answers. It makes another target at most once a second and looks for topics of
patterns in the background, so that the tests beat until they see what they wait for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.consumer_members import Member, describe, settle
from conformance.wire.requests import create_request, metadata_of, repeated, topic
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest


def test_assignments_follow_topics_that_grow_and_are_deleted(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    name, kept = new_topic(1), new_topic(1)
    member = Member(connection, group, "m-1", name, kept)
    member.join()
    settle(member, total=2)
    grown = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=3, assignments=None)
    connection.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=10_000), 3)
    settle(member, total=4)
    assert describe(connection, group).group_epoch == 3
    topic_id = metadata_of(connection, name).topic_id
    state = DeleteTopicsRequest.DeleteTopicState(name=name)
    connection.ask(DeleteTopicsRequest(topics=[state], timeout_ms=10_000), 6)

    def beat() -> Any:
        member.owned.pop(topic_id, None)  # what is gone nobody has
        return member.beat()

    repeated(beat, lambda seen: seen.member_epoch == 4)
    settle(member, total=1)
    assert describe(connection, group).group_epoch == 4


def test_a_regex_must_match_complete_topic_names(
    connection: Connection, new_name: Callable[[], str], new_topic: NewTopic, group: str
) -> None:
    prefix = new_name()
    for ending, partitions in (("-1", 2), ("-2", 1), ("-2x", 1)):
        assert connection.ask(create_request(topic(prefix + ending, partitions)), 7).topics[0].error_code == 0
    member = Member(
        connection, group, "m-1", subscribed_topic_names=None, subscribed_topic_regex=f"{prefix}-[12]|nothing"
    )
    joined = member.join()
    assert joined.error_code == 0
    settle(member, total=3)
    (seen,) = describe(connection, group).members
    assert (seen.subscribed_topic_names, seen.subscribed_topic_regex) == ([], f"{prefix}-[12]|nothing")
    member.said = {"subscribed_topic_names": [f"{prefix}-2x"], "subscribed_topic_regex": ""}
    assert member.beat(**member.said).error_code == 0
    settle(member, total=1)


def test_topics_of_a_new_regex_are_assigned_with_a_later_heartbeat(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    """The one that brings it is answered before they are looked for."""
    name, other = new_topic(2), new_topic(1)
    member = Member(connection, group, "m-1", subscribed_topic_names=None, subscribed_topic_regex=name)
    assert (member.join().error_code, member.epoch, member.count) == (0, 1, 0)
    settle(member, total=2)
    assert (member.epoch, describe(connection, group).group_epoch) == (2, 2)
    answer = member.beat(subscribed_topic_regex=other)
    assert (answer.error_code, member.epoch, member.count) == (0, 2, 0)
    settle(member, total=1)
    assert (member.epoch, describe(connection, group).group_epoch) == (3, 3)


def test_named_topics_beside_a_new_regex_are_assigned_immediately(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    name, other = new_topic(2), new_topic(1)
    member = Member(connection, group, "m-1", name, subscribed_topic_regex=other)
    assert (member.join().error_code, member.epoch, member.count) == (0, 2, 2)
    settle(member, total=3)
    assert (member.epoch, describe(connection, group).group_epoch) == (3, 3)


def test_a_regex_without_matches_changes_nothing(connection: Connection, name: str, group: str) -> None:
    member = Member(connection, group, "m-1", subscribed_topic_names=None, subscribed_topic_regex="no-such-topic.*")
    assert (member.join().error_code, member.epoch, member.count) == (0, 1, 0)
    time.sleep(1.5)  # in which it is looked for, and another target would be made
    assert (member.beat().error_code, member.epoch, member.count) == (0, 1, 0)
    described = describe(connection, group)
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 1, 1)


def test_a_regex_matches_internal_topics(connection: Connection, group: str) -> None:
    member = Member(connection, group, "m-1", subscribed_topic_names=None, subscribed_topic_regex="__consumer_off.*")
    member.join()
    (internal,) = [metadata_of(connection, "__consumer_offsets")]
    settle(member, total=len(internal.partitions))


@pytest.mark.parametrize(
    ("regex", "reason"),
    [
        ("(", "missing closing )"),
        ("[", "missing closing ]"),
        ("[z-a]", "invalid character class range"),
        ("a**", "invalid nested repetition operator"),
        (r"(a)\1", "invalid escape sequence"),
        (r"\8", "invalid escape sequence"),
        ("\\", "trailing backslash at end of expression"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("(?P<a", "invalid named capture"),
        ("(?P<a>b)(?P<a>c)", "duplicate capture group name"),
        ("a{1001}", "invalid repeat count"),
        ("a{2,1}", "invalid repeat count"),
        ("*", "missing argument to repetition operator"),
    ],
)
def test_an_invalid_regex_is_rejected(connection: Connection, group: str, regex: str, reason: str) -> None:
    member = Member(connection, group, "m-1", subscribed_topic_names=None, subscribed_topic_regex=regex)
    answer = member.join()
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.error_message == f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}."
    assert describe(connection, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
