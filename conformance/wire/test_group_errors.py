"""What the APIs of groups say of errors: which have words, and which have none.

Every literal is what Apache Kafka 4.4 answers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from conformance.conftest import Broker
from conformance.wire.connection import Connection
from conformance.wire.groups import NOTHING, fetch_group
from conformance.wire.share_fixtures import member, new_share_member, topic_id
from conformance.wire.share_members import Member, configure
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from minibroker.protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest
from minibroker.protocol.messages.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest
from minibroker.protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from minibroker.protocol.messages.streams_groups import StreamsGroupDescribeRequest, StreamsGroupHeartbeatRequest

__all__ = ["member", "new_share_member", "topic_id"]

WRONG_NODE = "This is not the correct coordinator."
OffsetsOf = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup


def told(answer: Any) -> tuple[int, str | None]:
    """Return code and message of the answer, or of the one group in it."""
    for name in ("groups", "results"):
        if hasattr(answer, name):
            (answer,) = getattr(answer, name)
    return answer.error_code, answer.error_message


def asked(group: str) -> dict[str, tuple[Message, int]]:
    """Return requests by members and administrators, each with a version."""
    who = {"group_id": group, "member_id": "m"}
    join = {**who, "member_epoch": 0}
    return {
        "consumer heartbeat": (ConsumerGroupHeartbeatRequest(**who, member_epoch=3), 1),
        "consumer leaves": (ConsumerGroupHeartbeatRequest(**who, member_epoch=-1), 1),
        "consumer describe": (ConsumerGroupDescribeRequest(group_ids=[group]), 1),
        "share heartbeat": (ShareGroupHeartbeatRequest(**who, member_epoch=3), 1),
        "share leaves": (ShareGroupHeartbeatRequest(**who, member_epoch=-1), 1),
        "share without an id": (ShareGroupHeartbeatRequest(**{**join, "member_id": ""}), 1),
        "share with a long id": (ShareGroupHeartbeatRequest(**{**join, "member_id": "m" * 37}), 1),
        "share describe": (ShareGroupDescribeRequest(group_ids=[group]), 1),
        "share offsets": (DescribeShareGroupOffsetsRequest(groups=[OffsetsOf(group_id=group, topics=None)]), 1),
        "share alter": (AlterShareGroupOffsetsRequest(group_id=group, topics=[]), 0),
        "share delete": (DeleteShareGroupOffsetsRequest(group_id=group, topics=[]), 0),
        "share fetch": (ShareFetchRequest(**who, share_session_epoch=3, max_wait_ms=0, max_bytes=1), 2),
        "share acknowledge": (ShareAcknowledgeRequest(**who, share_session_epoch=3), 2),
        "streams heartbeat": (StreamsGroupHeartbeatRequest(**who, member_epoch=3), 0),
        "streams leaves": (StreamsGroupHeartbeatRequest(**who, member_epoch=-1), 0),
        "streams describe": (StreamsGroupDescribeRequest(group_ids=[group]), 0),
        "describe": (DescribeGroupsRequest(groups=[group]), 6),
        "delete": (DeleteGroupsRequest(groups_names=[group]), 2),
    }


def answers(connection: Connection, group: str, *names: str) -> dict[str, tuple[int, str | None]]:
    requests = asked(group)
    return {name: told(connection.ask(*requests[name])) for name in names or requests}


def test_group_requests_are_rejected_before_the_offsets_topic_exists(
    start_broker: Callable[[Path], AbstractContextManager[Broker]], tmp_path: Path
) -> None:
    names = [name for name in asked("") if name not in ("share fetch", "share acknowledge", "delete")]
    with start_broker(tmp_path) as broker, Connection(broker.bootstrap_servers) as connection:
        found = answers(connection, "g", *names)
    wrong = (ErrorCode.NOT_COORDINATOR, None)
    refused = (ErrorCode.INVALID_REQUEST, None)
    in_words = (ErrorCode.NOT_COORDINATOR, WRONG_NODE)
    expected = {
        **dict.fromkeys(names, wrong),
        **dict.fromkeys(("share without an id", "share with a long id"), refused),
        **dict.fromkeys(("share describe", "share offsets", "share alter", "share delete"), in_words),
    }
    assert found == expected


def test_an_unknown_group_is_rejected_by_each_api(connection: Connection, group: str) -> None:
    missing, session = (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group} not found."), ErrorCode.SHARE_SESSION_NOT_FOUND
    assert answers(connection, group) == {
        **dict.fromkeys(asked(group), missing),
        "consumer heartbeat": (ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group} not found."),
        "share heartbeat": (ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group} not found."),
        "streams heartbeat": (ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {group} not found."),
        "share without an id": (ErrorCode.INVALID_REQUEST, None),
        "share with a long id": (ErrorCode.INVALID_REQUEST, None),
        "share offsets": (ErrorCode.NONE, None),
        "share alter": (ErrorCode.NONE, None),
        "share fetch": (session, None),
        "share acknowledge": (session, None),
        "delete": (ErrorCode.GROUP_ID_NOT_FOUND, None),
    }


def test_an_empty_group_id_is_rejected(connection: Connection, group: str) -> None:
    empty, session = (ErrorCode.INVALID_REQUEST, "GroupId can't be empty."), ErrorCode.SHARE_SESSION_NOT_FOUND
    names = [name for name in asked("") if name not in ("describe", "delete")]  # offsets may be committed without one
    assert answers(connection, "", *names) == {
        **dict.fromkeys(names, empty),
        **dict.fromkeys(
            (f"{kind} describe" for kind in ("consumer", "share", "streams")), (ErrorCode.INVALID_GROUP_ID, None)
        ),
        "share without an id": (ErrorCode.INVALID_REQUEST, None),
        "share with a long id": (ErrorCode.INVALID_REQUEST, None),
        "share offsets": (ErrorCode.NONE, None),
        "share alter": (ErrorCode.INVALID_GROUP_ID, "The group id is invalid."),
        "share delete": (ErrorCode.INVALID_GROUP_ID, "The group id is invalid."),
        "share fetch": (session, None),
        "share acknowledge": (session, None),
    }


def test_a_share_group_member_with_a_wrong_epoch_is_fenced(connection: Connection, group: str, member: Member) -> None:
    before = member.epoch
    configure(connection, group, assignment_interval_ms="0")
    member.beat(subscribed_topic_names=[member.topic, "another"])
    last = member.epoch
    end = "The member must abandon all its partitions and rejoin."
    known = f"than the one known by the group coordinator ({last})"
    assert told(member.beat(member_epoch=77)) == (
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a greater member epoch (77) {known}. {end}",
    )
    assert told(member.beat(member_epoch=1)) == (
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a smaller member epoch (1) {known}, and it does not match the previous member "
        f"epoch ({before}). {end}",
    )


def test_offset_fetch_of_a_share_group_returns_no_offsets(connection: Connection, group: str, member: Member) -> None:
    assert fetch_group(connection, group, everything=True) == (ErrorCode.NONE, {})
    found = fetch_group(connection, group, (member.topic, [0]))
    assert found == (ErrorCode.NONE, {(member.topic, 0): NOTHING})
