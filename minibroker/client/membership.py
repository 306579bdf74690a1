"""A member of a classic consumer group, on a blocking client: for commands that share partitions with other consumers.

The embedded protocol and the assignor `range` are those of all consumers since Kafka 0.9, whose members of any language
can be in the same group. The caller calls `is_generation_current` every few seconds, as there is no other thread for
heartbeats.

    join -> JoinGroup, SyncGroup -> the partitions
    is_generation_current -> Heartbeat; False: commit what was read, and join again
    leave -> LeaveGroup
"""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from minibroker.client.blocking import Client
from minibroker.client.client_connection import NEWEST
from minibroker.client.client_errors import check_error_code
from minibroker.client.cluster_client import Partition
from minibroker.client.coordinator_requests import send_request_to_coordinator
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from minibroker.protocol.messages.groups import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from minibroker.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest

SESSION_TIMEOUT_MS: Final = 30_000  # brokers of Kafka 0.9 take no more
REBALANCE_TIMEOUT_MS: Final = 60_000
HEARTBEAT_S: Final = 3.0
PROTOCOL_TYPE: Final = "consumer"
ASSIGNOR: Final = "range"
NO_MEMBER: Final = ""
NO_GENERATION: Final = -1
NAMED_TOPICS_COMMIT: Final = (2, 9)  # versions that name topics, and keep offsets as long as the broker says
NAMED_TOPICS_FETCH: Final = (1, 7)  # versions that take one group, from the group's own log
EMBEDDED_VERSION: Final = 0  # of subscription and assignment: all members read it
_VERSION: Final = struct.Struct(">h")
# A member with one of these joins again; with the last two, as a new member.
STALE: Final = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)


class MemberIdentity(NamedTuple):
    """The generation of a group, and the member's id in it."""

    generation: int
    member: str


NOBODY: Final = MemberIdentity(NO_GENERATION, NO_MEMBER)


class GroupMembership:
    """A member of one group, which subscribes to topics. Its methods raise `ClientError`."""

    def __init__(self, client: Client, group: str, topics: Iterable[str]) -> None:
        self._client = client
        self._group = group
        self._topics = sorted(topics)
        self._identity = NOBODY
        self._beat_s = time.monotonic()

    # --- partitions -------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        """Ask for the partitions of these topics, from the next `join_and_get_partitions` on."""
        self._topics = sorted(topics)

    def join_and_get_partitions(self) -> list[Partition]:
        """Join the group, or join it again. Return the partitions that this member is to read."""
        while True:
            joined = self._join_group()
            self._identity = MemberIdentity(joined.generation_id, joined.member_id)
            is_leader = joined.leader == joined.member_id
            synced = self._send_request_to_coordinator(
                SyncGroupRequest(
                    group_id=self._group,
                    generation_id=joined.generation_id,
                    member_id=joined.member_id,
                    protocol_type=PROTOCOL_TYPE,
                    protocol_name=joined.protocol_name,
                    assignments=self._make_assignments(joined.members) if is_leader else [],
                ),
                REBALANCE_TIMEOUT_MS,
            )
            self._beat_s = time.monotonic()
            if not self._must_rejoin_after_error(synced.error_code):
                self._raise_if_error(synced.error_code)
                return decode_assignment(synced.assignment)

    def is_generation_current(self) -> bool:
        """Return whether the member still has its partitions; send a heartbeat if it is time for one."""
        if time.monotonic() - self._beat_s < HEARTBEAT_S:
            return True
        generation, member = self._identity
        answer = self._send_request_to_coordinator(
            HeartbeatRequest(group_id=self._group, generation_id=generation, member_id=member)
        )
        self._beat_s = time.monotonic()
        if self._must_rejoin_after_error(answer.error_code):
            return False
        self._raise_if_error(answer.error_code)
        return True

    def leave_group(self) -> None:
        """Leave the group, so that the others get the partitions at once."""
        member = self._identity.member
        if member != NO_MEMBER:
            identity = LeaveGroupRequest.MemberIdentity(member_id=member)
            self._send_request_to_coordinator(
                LeaveGroupRequest(group_id=self._group, member_id=member, members=[identity])
            )
            self._identity = NOBODY

    def _join_group(self) -> Any:
        """Return the answer to JoinGroup, which comes when all members have joined."""
        subscription = ConsumerProtocolSubscription(topics=self._topics)
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(
            name=ASSIGNOR, metadata=encode_message_with_version(subscription)
        )
        while True:
            answer = self._send_request_to_coordinator(
                JoinGroupRequest(
                    group_id=self._group,
                    session_timeout_ms=SESSION_TIMEOUT_MS,
                    rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                    member_id=self._identity.member,
                    protocol_type=PROTOCOL_TYPE,
                    protocols=[protocol],
                ),
                REBALANCE_TIMEOUT_MS,
            )
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._identity = MemberIdentity(NO_GENERATION, answer.member_id)
            elif not self._must_rejoin_after_error(answer.error_code):
                self._raise_if_error(answer.error_code)
                return answer

    def _make_assignments(self, members: Sequence[Any]) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
        """Return what this member, the group's leader, assigns to each member."""
        topics = {each.member_id: decode_subscription(each.metadata) for each in members}
        found = self._client.fetch_metadata(sorted({topic for some in topics.values() for topic in some})).topics
        counts = {topic.name: len(topic.partitions) for topic in found}
        shares = assign_ranges(topics, counts)
        return [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(share))
            for member, share in shares.items()
        ]

    # --- offsets ----------------------------------------------------------------------------------

    def fetch_committed_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the committed offsets of these partitions, without those that have none."""
        of_topic = OffsetFetchRequest.OffsetFetchRequestTopic
        wanted_topics = [
            of_topic(name=topic, partition_indexes=some) for topic, some in _group_by_topic(partitions).items()
        ]
        answer = self._send_request_to_coordinator(
            OffsetFetchRequest(group_id=self._group, topics=wanted_topics), versions=NAMED_TOPICS_FETCH
        )
        self._raise_if_error(answer.error_code)
        offsets = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                self._raise_if_error(partition.error_code)
                if partition.committed_offset >= 0:
                    offsets[topic.name, partition.partition_index] = partition.committed_offset
        return offsets

    def commit_offsets(self, offsets: Mapping[Partition, int]) -> None:
        """Commit the offsets of the next records to read. A member that has lost its partitions commits nothing."""
        if self._identity.member == NO_MEMBER:  # the group would take it from anyone while it has no members
            return
        of_topic = OffsetCommitRequest.OffsetCommitRequestTopic
        of_partition = of_topic.OffsetCommitRequestPartition
        topics = [
            of_topic(
                name=topic,
                partitions=[
                    of_partition(partition_index=each, committed_offset=offsets[topic, each], committed_metadata="")
                    for each in some
                ],
            )
            for topic, some in _group_by_topic(offsets).items()
        ]
        generation, member = self._identity
        request = OffsetCommitRequest(
            group_id=self._group, generation_id_or_member_epoch=generation, member_id=member, topics=topics
        )
        for topic in self._send_request_to_coordinator(request, versions=NAMED_TOPICS_COMMIT).topics:
            for partition in topic.partitions:
                if partition.error_code not in STALE:
                    self._raise_if_error(partition.error_code)

    # --- requests ---------------------------------------------------------------------------------

    def _send_request_to_coordinator(
        self, request: Message, extra_timeout_ms: int = 0, versions: tuple[int, int] = (0, NEWEST)
    ) -> Any:
        return send_request_to_coordinator(
            self._client, "group", self._group, request, *versions, extra_timeout_ms=extra_timeout_ms
        )

    def _must_rejoin_after_error(self, code: int) -> bool:
        """Return whether to join again, because others came or went, or because we were silent for too long."""
        if code in STALE[1:]:
            self._identity = NOBODY
        return code in STALE

    def _raise_if_error(self, code: int) -> None:
        check_error_code(code, f"group {self._group}")


def assign_ranges(
    topics_by_member: Mapping[str, Sequence[str]], partition_counts: Mapping[str, int]
) -> dict[str, list[Partition]]:
    """Return the partitions of each member, as the assignor `range` does: a range of each topic's, in order of ids."""
    shares: dict[str, list[Partition]] = {member: [] for member in topics_by_member}
    for topic in sorted({topic for some in topics_by_member.values() for topic in some}):
        members = sorted(member for member, some in topics_by_member.items() if topic in some)
        each, more = divmod(partition_counts.get(topic, 0), len(members))
        first = 0
        for position, member in enumerate(members):
            end = first + each + (position < more)
            shares[member] += [(topic, index) for index in range(first, end)]
            first = end
    return shares


def _group_by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        found[topic].append(index)
    return found


def encode_message_with_version(message: Message) -> bytes:
    """Return a message of the embedded protocol, with its version before it."""
    return _VERSION.pack(EMBEDDED_VERSION) + message.encode(EMBEDDED_VERSION)


def decode_subscription(data: bytes) -> list[str]:
    """Return the topics to which a member subscribes."""
    found, _ = ConsumerProtocolSubscription.decode_from(data, EMBEDDED_VERSION, _VERSION.size)
    return list(found.topics)


def encode_assignment(partitions: Iterable[Partition]) -> bytes:
    """Return the assignment of a member."""
    of_topic = ConsumerProtocolAssignment.TopicPartition
    topics = [of_topic(topic=topic, partitions=some) for topic, some in _group_by_topic(partitions).items()]
    return encode_message_with_version(ConsumerProtocolAssignment(assigned_partitions=topics))


def decode_assignment(data: bytes) -> list[Partition]:
    """Return the partitions of an assignment, which is empty for a member that gets none."""
    if not data:
        return []
    found, _ = ConsumerProtocolAssignment.decode_from(data, EMBEDDED_VERSION, _VERSION.size)
    return [(each.topic, index) for each in found.assigned_partitions for index in each.partitions]
