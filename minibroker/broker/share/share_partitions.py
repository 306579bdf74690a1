"""All share partitions and share sessions of the process (KIP-932).

A session is a member's list of partitions on one node, so that its requests need not repeat it. It ends with an epoch
of -1 or with the connection; then the records that the member has acquired there are released.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from minibroker.broker.clock import run_steps_in_slices
from minibroker.broker.configs.group_settings import OFFSET_RESET, get_group_config, parse_duration_ms
from minibroker.broker.metadata.partitions import Partition, Topic
from minibroker.broker.share.dead_letters import DeadLetters
from minibroker.broker.share.share_partition import SharePartition
from minibroker.broker.share.states import UNSET, ShareKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.steps import Steps

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.control.controller import Controller
    from minibroker.broker.network.connection import Connection
    from minibroker.broker.share.share_coordinator import ShareCoordinator

log = logging.getLogger("minibroker.share")

FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
LARGEST_EPOCH: Final = (1 << 31) - 1
MEMBER_ID_CHARACTERS: Final = 36  # of a UUID as text
SESSION_PARTITIONS_MAX: Final = 500_000  # of all sessions: about 100 MB
BY_DURATION: Final = "by_duration:"

SharedPartition = tuple[bytes, int]  # the id of a topic, and the index of a partition


class SessionKey(NamedTuple):
    """A member of a share group, at a node."""

    node_id: int
    group_id: str
    member_id: str


def check_member_id(member_id: str | None) -> str:
    """Return the member id of a share request. Raises KafkaError(INVALID_REQUEST) without one."""
    if not member_id or len(member_id) > MEMBER_ID_CHARACTERS:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return member_id


class ShareSession:
    """A member's partitions, in the order of serving, and the epoch that its next request must have.

    `wanted` has the name of each one's topic, as it was when it was added; None if there was none.
    """

    def __init__(self, connection: Connection) -> None:
        self.epoch = FIRST_EPOCH + 1
        self.wanted: dict[SharedPartition, str | None] = {}
        self.connection = connection

    def move_partitions_to_end(self, partitions: Iterable[SharedPartition]) -> None:
        """Move partitions that returned records to the end, so that others are read first the next time."""
        for one in partitions:
            if one in self.wanted:
                self.wanted[one] = self.wanted.pop(one)


class SharePartitions:
    """The share partitions whose leaders are in this process, and the sessions."""

    def __init__(self, cluster: Cluster, controller: Controller, coordinator: ShareCoordinator) -> None:
        self.cluster = cluster
        self.coordinator = coordinator
        self._open: dict[SharedPartition, dict[str, SharePartition]] = {}  # by partition, and then by group
        self.sessions: dict[SessionKey, ShareSession] = {}
        self.dead_letters = DeadLetters(cluster, controller)

    # --- share partitions -------------------------------------------------------------------------

    def find_share_partition(self, key: ShareKey) -> SharePartition | None:
        """Return the share partition if it is open, else None."""
        return self._open.get((key.topic_id, key.partition), {}).get(key.group_id)

    def find_or_open_share_partition(self, group_id: str, partition: Partition) -> Steps[SharePartition]:
        """Return the share partition; read its state from the coordinator if it is not open under this leader epoch.

        As in Kafka, the coordinator learns where a new group begins with the first change. Raises KafkaError of the
        coordinator.
        """
        key = ShareKey(group_id, partition.topic.topic_id, partition.index)
        found = self.find_share_partition(key)
        if found is not None and found.leader_epoch == partition.leader_epoch:
            return found
        state = self.coordinator.read_share_state(key, partition.leader_epoch)
        start = state.start_offset
        if start == UNSET:
            start = yield from self._find_initial_start_offset(group_id, partition)
        start = max(start, partition.log.log_start_offset)
        made = SharePartition(self, key, partition, state._replace(start_offset=start))
        other = self.find_share_partition(key)
        if other is not None and other.leader_epoch == partition.leader_epoch:
            return other  # another request came first
        self._open.setdefault((key.topic_id, key.partition), {})[group_id] = made
        return made

    def _find_initial_start_offset(self, group_id: str, partition: Partition) -> Steps[int]:
        """Return the offset at which a new group begins to read, by `share.auto.offset.reset`."""
        reset, kept = str(get_group_config(self.cluster, group_id, OFFSET_RESET)), partition.log
        if reset == "earliest":
            return kept.log_start_offset
        if reset.startswith(BY_DURATION):
            since_ms = self.cluster.clock.wall_ms() - parse_duration_ms(reset)
            found = yield from kept.find_offset_for_timestamp_in_steps(since_ms)
            if found is not None:
                return found.offset
        return kept.high_watermark

    def close_share_partition(self, share_partition: SharePartition) -> None:
        """Forget a share partition whose state could not be kept; the next request reads it again."""
        where, group_id = (share_partition.key.topic_id, share_partition.key.partition), share_partition.key.group_id
        groups = self._open.get(where, {})
        if groups.get(group_id) is share_partition:
            del groups[group_id]
            if not groups:
                del self._open[where]
            share_partition.close_and_wake_waiters()

    def forget_changed_state(self, key: ShareKey) -> None:
        """Forget a share partition, as its state was changed or deleted."""
        found = self.find_share_partition(key)
        if found is not None:
            self.close_share_partition(found)

    def delete_group_states(self, group_id: str, topic_ids: Mapping[bytes, Iterable[int]]) -> None:
        """Delete the states of a group's partitions. Raises KafkaError."""
        for topic_id, indexes in topic_ids.items():
            for index in indexes:
                key = ShareKey(group_id, topic_id, index)
                self.coordinator.delete_share_state(key)
                self.forget_changed_state(key)

    # --- sessions -----------------------------------------------------------------------------------

    def begin_share_session(self, key: SessionKey, connection: Connection) -> ShareSession:
        """Begin a session, in place of an earlier one, whose records the member keeps.

        Raises KafkaError(SHARE_SESSION_LIMIT_REACHED).
        """
        earlier = self.sessions.pop(key, None)
        if earlier is not None:
            earlier.connection.call_when_lost(key, None)
        limit = self.cluster.settings["group.share.max.share.sessions"]
        if sum(other.node_id == key.node_id for other in self.sessions) >= limit:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self.sessions[key] = ShareSession(connection)
        connection.call_when_lost(key, lambda: self._end_session_of_lost_client(key, session))
        return session

    def check_room_for_session_partitions(self, count: int) -> None:
        """Check that a session may get so many more partitions. Raises KafkaError(SHARE_SESSION_LIMIT_REACHED)."""
        if count and count + sum(len(session.wanted) for session in self.sessions.values()) > SESSION_PARTITIONS_MAX:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)

    def get_share_session(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return the session of a request with this epoch, and advance its epoch.

        Raises KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self.sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch != session.epoch and epoch != FINAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = 1 if session.epoch == LARGEST_EPOCH else session.epoch + 1
        return session

    def end_share_session(self, key: SessionKey) -> Steps[None]:
        """End a session, if there is one, and release what its member has acquired."""
        session = self.sessions.pop(key, None)
        if session is None:
            return
        session.connection.call_when_lost(key, None)
        for topic_id, index in list(session.wanted):
            share = self.find_share_partition(ShareKey(key.group_id, topic_id, index))
            if share is not None and share.partition.leader_id == key.node_id:
                share.release_records_of_member(key.member_id)
            yield

    def _end_session_of_lost_client(self, key: SessionKey, session: ShareSession) -> None:
        if self.sessions.get(key) is session:
            run_steps_in_slices(self.cluster.clock, self.end_share_session(key))

    # --- changes of partitions ----------------------------------------------------------------------

    def on_leader_changed(self, partition: Partition) -> None:
        """Forget the share partitions of a partition with another leader."""
        for share in list(self._open.get((partition.topic.topic_id, partition.index), {}).values()):
            self.close_share_partition(share)

    def on_topic_deleted(self, topic: Topic) -> Steps[None]:
        """Forget the share partitions of a deleted topic."""
        for partition in topic.partitions:
            self.on_leader_changed(partition)
            yield

    def on_transaction_ended(self, topic: str, index: int, producer_id: int, *, committed: bool) -> None:
        """Do nothing: waiting fetches see the records that become stable as appends."""
