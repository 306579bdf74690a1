"""Members of share groups (KIP-932) that speak by hand: heartbeats, fetches, acknowledgements.

What must come back lives in the tests.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from conformance.wire.connection import Connection
from conformance.wire.requests import configure_group, repeated
from minibroker.protocol.messages.share_groups import (
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from minibroker.protocol.primitives import format_uuid
from tests.clients.share_requests import Range, Said, acknowledge_request, acquired, fetch_request

HEARTBEAT, DESCRIBE, FETCH, OFFSETS = 1, 1, 2, 1  # the newest versions


def configure(connection: Connection, group: str, **configs: str) -> None:
    """Set configs of a group, by Kafka's names without `share.`, with underscores for dots."""
    configure_group(connection, group, **{f"share_{name}": value for name, value in configs.items()})


class Member:
    """One member, that reads one topic, partition 0."""

    def __init__(self, connection: Connection, group: str, topic: str, topic_id: bytes) -> None:
        self.connection = connection
        self.group = group
        self.topic = topic
        self.topic_id = topic_id
        self.member_id = format_uuid(uuid.uuid4().bytes)
        self.epoch = 0
        self.session_epoch = 0
        self.assigned: dict[bytes, set[int]] = {}

    def beat(self, **fields: Any) -> Any:
        """The answer to a heartbeat; what it assigns is taken."""
        said = {"group_id": self.group, "member_id": self.member_id, "member_epoch": self.epoch, **fields}
        if said["member_epoch"] == 0:
            said.setdefault("subscribed_topic_names", [self.topic])
        answer = self.connection.ask(ShareGroupHeartbeatRequest(**said), HEARTBEAT)
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = {each.topic_id: set(each.partitions) for each in answer.assignment.topic_partitions}
        return answer

    def join(self) -> None:
        """Send heartbeats until partitions are assigned."""
        repeated(self.beat, lambda _: bool(self.assigned))

    def _said(self) -> dict[str, Any]:
        return {"group_id": self.group, "member_id": self.member_id, "share_session_epoch": self.session_epoch}

    def ask_fetch(self, *said: Said, more: Sequence[int] = (), version: int = FETCH, **fields: Any) -> Any:
        """The answer to a fetch that may acknowledge, of partition 0 and `more`."""
        request = fetch_request(self.topic_id, said, more, **{**self._said(), "max_wait_ms": 500, **fields})
        answer = self.connection.ask(request, version)
        if answer.error_code == 0 and request.share_session_epoch >= 0:
            self.session_epoch = request.share_session_epoch + 1
        return answer

    def fetch(self, *said: Said, **fields: Any) -> list[Range]:
        """The ranges that a fetch acquires."""
        return acquired(self.ask_fetch(*said, **fields))

    def fetch_some(self, **fields: Any) -> list[Range]:
        """The ranges that a fetch acquires, as soon as it acquires any: the state may be in the making."""
        return repeated(lambda: self.fetch(**fields), bool)

    def acknowledge(self, *said: Said, **fields: Any) -> Any:
        """The answer to ShareAcknowledge."""
        request = acknowledge_request(self.topic_id, said, **{**self._said(), **fields})
        answer = self.connection.ask(request, FETCH)
        if answer.error_code == 0 and request.share_session_epoch >= 0:
            self.session_epoch = request.share_session_epoch + 1
        return answer

    def outcome(self, *said: Said, **fields: Any) -> int:
        """The error code of the partition in the answer to ShareAcknowledge, or that of the request."""
        answer = self.acknowledge(*said, **fields)
        if answer.error_code:
            return int(answer.error_code)
        (topic,) = answer.responses
        return int(topic.partitions[0].error_code)

    def message(self, *said: Said) -> str | None:
        """The error message of the partition in the answer to ShareAcknowledge."""
        (topic,) = self.acknowledge(*said).responses
        message: str | None = topic.partitions[0].error_message
        return message


def describe(connection: Connection, group: str) -> Any:
    (described,) = connection.ask(ShareGroupDescribeRequest(group_ids=[group]), DESCRIBE).groups
    return described


def start_offset(connection: Connection, group: str, topic: str, partition: int = 0) -> tuple[int, int]:
    """Where the group reads a partition of the topic, and how far it is behind."""
    Group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    asked = Group(
        group_id=group,
        topics=[Group.DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[partition])],
    )
    (answer,) = connection.ask(DescribeShareGroupOffsetsRequest(groups=[asked]), OFFSETS).groups
    assert answer.error_code == 0, answer
    found = answer.topics[0].partitions[0]
    return found.start_offset, found.lag
