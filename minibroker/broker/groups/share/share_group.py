"""A share group: members, target assignment, and the partitions whose delivery state is kept (KIP-932).

A heartbeat joins, stays in or leaves the group. Nothing has to be revoked, as members share partitions: a member is at
its target with the next heartbeat. Every change is appended as records, which `apply` folds in, also at a start.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from minibroker.broker.configs.group_settings import get_group_config
from minibroker.broker.coordination.coordinator_logs import Entry
from minibroker.broker.groups.consumer.assignors.specification import Partitions
from minibroker.broker.groups.consumer.subscriptions import hash_topic_metadata
from minibroker.broker.groups.group import CheckPartition, GroupContext, GroupType
from minibroker.broker.groups.group_entries import GroupChange, encode_group_changes
from minibroker.broker.groups.heartbeats import make_fenced_epoch_error
from minibroker.broker.groups.offsets_of_group import CommittedOffset, CommittedOffsets
from minibroker.broker.groups.reconciling_group import FIRST_EPOCH, HeartbeatGroup
from minibroker.broker.groups.share.share_assignor import assign_partitions
from minibroker.broker.metadata.image import Image
from minibroker.broker.metadata.partitions import Topic
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages import share_group_records as messages
from minibroker.protocol.steps import Steps, run_all_steps

log = logging.getLogger("minibroker.groups")

SHARE_PROTOCOL = "share"
ASSIGNOR = "simple"
STABLE = 0  # the only state of a member
TopicsWithState = Mapping[
    bytes, tuple[str, frozenset[int]]
]  # by topic id: the name, and the partitions whose state is kept
SMALL = 500  # members and partitions: their assignment takes some 2 ms


class ShareMember(NamedTuple):
    """A member. `assigned` is what it has been told to read."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = {}

    def with_epoch_and_assignment(self, epoch: int, assigned_partitions: Partitions) -> ShareMember:
        """Return this member with another assignment; if `epoch` is new, the present one becomes the previous one."""
        previous = self.previous_epoch if epoch == self.epoch else self.epoch
        return self._replace(epoch=epoch, previous_epoch=previous, assigned=assigned_partitions)


class ShareGroup(HeartbeatGroup[ShareMember]):
    """One share group.

    `initialized` has the name and the partitions of each topic whose delivery state the share coordinator keeps.
    `metadata_hash` stands for the topics at the last look at them. `is_assigning` says that a target is being made in
    steps.
    """

    type = GroupType.SHARE

    def __init__(self, context: GroupContext, group_id: str) -> None:
        super().__init__(context, group_id, CommittedOffsets())
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.target: dict[str, Partitions] = {}
        self.initialized: TopicsWithState = {}
        self.is_assigning = False

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def protocol_type(self) -> str:
        return SHARE_PROTOCOL

    @property
    def may_expire(self) -> bool:
        return False

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in member.topic_names for member in self.members.values())

    # --- members ------------------------------------------------------------------------------------

    def get_member_of_epoch(self, member_id: str, epoch: int) -> ShareMember:
        """Return the member, unless its epochs differ. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH."""
        member = self.members.get(member_id)
        if member is None:
            message = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        if epoch not in (0, member.epoch, member.previous_epoch):
            older = f", and it does not match the previous member epoch ({member.previous_epoch})"
            raise make_fenced_epoch_error("share", epoch, member.epoch, older if epoch < member.epoch else "")
        return member

    def record_member_and_target(
        self, member: ShareMember, states_being_initialized: TopicsWithState
    ) -> Steps[ShareMember]:
        """Record a member's subscription, make a target if due, and return the member with its assignment from it.

        `states_being_initialized` has the partitions that the group reads from now on. While `is_assigning`, no other
        heartbeat may come.
        Raises KafkaError.
        """
        changes: list[GroupChange] = []
        before = self.members.get(member.member_id)
        members = {**self.members, member.member_id: member}
        if before is None or before[:5] != member[:5]:
            changes.append(_make_member_metadata_record(self.group_id, member))
        changed = before is None or before.topic_names != member.topic_names
        initialized = {**self.initialized, **self._record_new_partitions(changes, states_being_initialized)}
        epoch = self._begin_group_epoch_if_changed(changes, members, changed=changed or initialized != self.initialized)
        has_begun_epoch = epoch > self.epoch
        target, target_epoch = self.target, self.assignment_epoch
        if epoch > target_epoch and not self._is_before_assignment_interval():
            indexes = {topic_id: partitions for topic_id, (_, partitions) in initialized.items()}
            if len(members) + sum(map(len, indexes.values())) < SMALL:
                target = run_all_steps(self._make_target_assignment(members, indexes))
                changes += [change for each in self._iterate_target_records(target, epoch) for change in each]
            else:
                self.append_changes(changes)
                self.restart_session_timeout(member.member_id)
                target, changes = (yield from self._make_and_record_target_in_steps(members, indexes, epoch)), []
                if self.members.get(member.member_id) is None:
                    raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} was removed meanwhile.")
            target_epoch = epoch
        if member.epoch != target_epoch or has_begun_epoch:
            reconciled = member.with_epoch_and_assignment(target_epoch, self._get_subscribed_target(member, target))
            if reconciled != member:
                changes.append(_make_current_assignment_record(self.group_id, reconciled))
        self.append_changes(changes)
        self.restart_session_timeout(member.member_id)
        return self.members[member.member_id]

    def remove_members(self, members: Sequence[ShareMember]) -> None:
        """Remove members; the next heartbeat of another one makes a new target. Raises KafkaError."""
        removed = [member.member_id for member in members]
        remaining = {key: member for key, member in self.members.items() if key not in removed}
        changes = [
            GroupChange(kind(group_id=self.group_id, member_id=member_id), None)
            for member_id in removed
            for kind in (
                messages.ShareGroupCurrentMemberAssignmentKey,
                messages.ShareGroupTargetAssignmentMemberKey,
                messages.ShareGroupMemberMetadataKey,
            )
        ]
        epoch = self._begin_group_epoch_if_changed(changes, remaining, changed=True)
        if not remaining:  # nobody waits for a target, and no interval begins
            changes.append(_make_target_epoch_record(self.group_id, epoch, 0))
        self.append_changes(changes)
        for member_id in removed:
            self.timers.cancel_timers(member_id)

    def begin_group_epoch(self) -> None:
        """Begin another epoch; the next heartbeat makes a new target. Raises KafkaError."""
        changes: list[GroupChange] = []
        self._begin_group_epoch_if_changed(changes, self.members, changed=True)
        self.append_changes(changes)

    # --- epochs and targets -------------------------------------------------------------------------

    def _record_new_partitions(
        self, changes: list[GroupChange], initialized_topics: TopicsWithState
    ) -> TopicsWithState:
        """Add the record of partitions that are new to the group; return their topics with all known partitions."""
        ready = self._list_topics_with_new_states(initialized_topics)
        if ready:
            changes.append(_make_state_partitions_record(self.group_id, {**self.initialized, **ready}))
        return ready

    def _begin_group_epoch_if_changed(
        self, changes: list[GroupChange], members: Mapping[str, ShareMember], *, changed: bool
    ) -> int:
        """Begin another epoch if members or topics have changed; return the epoch."""
        found = hash_topic_metadata({name for member in members.values() for name in member.topic_names}, self._image)
        if not changed and found == self.metadata_hash:
            return self.epoch
        changes.append(_make_group_epoch_record(self.group_id, self.epoch + 1, found))
        return self.epoch + 1

    @property
    def _image(self) -> Image:
        return self.context.cluster.image

    def _is_before_assignment_interval(self) -> bool:
        """Return whether less than `share.assignment.interval.ms` has passed since the last target."""
        interval_ms = get_group_config(self.context.cluster, self.group_id, "share.assignment.interval.ms")
        made_ms = self.assignment_timestamp_ms
        return bool(made_ms and self.clock.wall_ms() < made_ms + interval_ms)

    def _make_target_assignment(
        self, members: Mapping[str, ShareMember], indexes: Mapping[bytes, frozenset[int]]
    ) -> Steps[dict[str, Partitions]]:
        """Return the new target of each member by id, for the partition `indexes` by topic id."""
        topics = self._image.topics
        subscriptions = {
            member_id: frozenset(topics[name].topic_id for name in member.topic_names if name in topics)
            for member_id, member in members.items()
        }
        return assign_partitions(subscriptions, self.target, indexes)

    def _get_subscribed_target(self, member: ShareMember, target: Mapping[str, Partitions]) -> Partitions:
        """Return a member's target, without topics that it no longer subscribes to, or that are deleted."""
        topics = self._image.topics
        wanted = {topics[name].topic_id for name in member.topic_names if name in topics}
        partitions = target.get(member.member_id, {})
        return {topic_id: indexes for topic_id, indexes in partitions.items() if topic_id in wanted}

    def _iterate_target_records(self, target: Mapping[str, Partitions], epoch: int) -> Iterator[list[GroupChange]]:
        """Yield the records of a target; the last one makes it valid."""
        for member_id, partitions in target.items():
            if self.target.get(member_id) != partitions:
                yield [_make_target_assignment_record(self.group_id, member_id, partitions)]
        yield [_make_target_epoch_record(self.group_id, epoch, self.clock.wall_ms())]

    def _make_and_record_target_in_steps(
        self, members: Mapping[str, ShareMember], indexes: Mapping[bytes, frozenset[int]], epoch: int
    ) -> Steps[dict[str, Partitions]]:
        """Make and record a target while other requests are served; return it.

        If members are removed meanwhile, what is recorded of it is the start of the next one, which is then as due.
        Raises KafkaError.
        """
        self.is_assigning = True
        try:
            yield  # the records so far may be long
            target = yield from self._make_target_assignment(members, indexes)
            for changes in self._iterate_target_records(target, epoch):
                yield
                if self.context.groups.get(self.group_id) is not self:
                    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group has been unloaded or deleted.")
                self.append_changes([each for each in changes if self._concerns_present_member(each)])
            yield
            return target
        finally:
            self.is_assigning = False

    def _concerns_present_member(self, change: GroupChange) -> bool:
        """Return whether a record of the target concerns the group as a whole, or a member that is still in it."""
        return getattr(change.key, "member_id", None) in (None, *self.members)

    def _list_topics_with_new_states(self, initialized_topics: TopicsWithState) -> TopicsWithState:
        """Return the topics with partitions that are new to the group, each with all its initialized partitions."""
        ready = {}
        for topic_id, (name, indexes) in initialized_topics.items():
            known = self.initialized.get(topic_id, (name, frozenset()))[1]
            if topic_id in self.context.cluster.image.topics_by_id and not indexes <= known:
                ready[topic_id] = name, known | indexes
        return ready

    def iterate_partitions_without_state(self, names: Iterable[str]) -> Iterator[tuple[Topic, list[int]]]:
        """Yield (topic, indexes) of partitions without a state, of topics of these names and of the members."""
        wanted = {*names, *(name for member in self.members.values() for name in member.topic_names)}
        for name in sorted(wanted):
            topic = self.context.cluster.image.topics.get(name)
            known = frozenset() if topic is None else self.initialized.get(topic.topic_id, (name, frozenset()))[1]
            if topic is not None and len(known) < len(topic.partitions):
                yield topic, [index for index in range(len(topic.partitions)) if index not in known]

    # --- changes --------------------------------------------------------------------------------------

    def _apply_group_epoch_record(
        self, key: messages.ShareGroupMetadataKey, value: messages.ShareGroupMetadataValue
    ) -> None:
        self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def _apply_member_metadata_record(
        self, key: messages.ShareGroupMemberMetadataKey, value: messages.ShareGroupMemberMetadataValue | None
    ) -> None:
        if value is None:
            self.members.pop(key.member_id, None)
            return
        member = self.members.get(key.member_id, ShareMember(key.member_id))
        self.members[key.member_id] = member._replace(
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
        )

    def _apply_target_epoch_record(
        self,
        key: messages.ShareGroupTargetAssignmentMetadataKey,
        value: messages.ShareGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        if value is not None:
            self.assignment_epoch, self.assignment_timestamp_ms = value.assignment_epoch, value.assignment_timestamp

    def _apply_target_assignment_record(
        self,
        key: messages.ShareGroupTargetAssignmentMemberKey,
        value: messages.ShareGroupTargetAssignmentMemberValue | None,
    ) -> None:
        if value is None:
            self.target.pop(key.member_id, None)
        else:
            self.target[key.member_id] = {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}

    def _apply_current_assignment_record(
        self,
        key: messages.ShareGroupCurrentMemberAssignmentKey,
        value: messages.ShareGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        if value is not None:
            member = self.members.get(key.member_id, ShareMember(key.member_id))
            self.members[key.member_id] = member._replace(
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                assigned={each.topic_id: frozenset(each.partitions) for each in value.assigned_partitions},
            )

    def _apply_state_partitions_record(
        self,
        key: messages.ShareGroupStatePartitionMetadataKey,
        value: messages.ShareGroupStatePartitionMetadataValue | None,
    ) -> None:
        topics = () if value is None else value.initialized_topics
        self.initialized = {each.topic_id: (each.topic_name, frozenset(each.partitions)) for each in topics}

    # --- partitions whose state is kept ---------------------------------------------------------------

    def remove_topic(self, topic_id: bytes) -> None:
        """Record that the states of a topic's partitions are deleted. Raises KafkaError."""
        left = {key: value for key, value in self.initialized.items() if key != topic_id}
        if len(left) < len(self.initialized):
            self.append_changes([_make_state_partitions_record(self.group_id, left)])

    def record_topic_state(self, topic_id: bytes, name: str, indexes: frozenset[int]) -> None:
        """Record that the states of these partitions are initialized, besides others. Raises KafkaError.

        The group exists then, even without a partition.
        """
        known = self.initialized.get(topic_id, (name, frozenset()))[1]
        if not indexes <= known or self.group_id not in self.context.groups:
            added = {topic_id: (name, known | indexes)} if indexes else {}
            self.append_changes([_make_state_partitions_record(self.group_id, {**self.initialized, **added})])

    # --- offsets, which it has none of ----------------------------------------------------------------

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> CheckPartition | None:
        """Raise KafkaError(GROUP_ID_NOT_FOUND), as members of a share group commit no offsets."""
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    def check_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Let every client fetch offsets, as in Kafka: the group has none."""

    def check_offsets_may_be_deleted(self) -> None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    def get_offset_retention_start_ms(self, committed_offset: CommittedOffset) -> int | None:
        """Return None, as a share group has no committed offsets."""
        return None

    # --- its end --------------------------------------------------------------------------------------

    def check_may_be_deleted(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")

    def make_tombstones(self) -> list[Entry]:
        kinds = (
            messages.ShareGroupTargetAssignmentMetadataKey,
            messages.ShareGroupStatePartitionMetadataKey,
            messages.ShareGroupMetadataKey,
        )
        return encode_group_changes(GroupChange(kind(group_id=self.group_id), None) for kind in kinds)

    def restart_timers_after_load(self) -> None:
        for member_id in list(self.members):
            self.restart_session_timeout(member_id)

    applied = {
        messages.ShareGroupMetadataKey: _apply_group_epoch_record,
        messages.ShareGroupMemberMetadataKey: _apply_member_metadata_record,
        messages.ShareGroupTargetAssignmentMetadataKey: _apply_target_epoch_record,
        messages.ShareGroupTargetAssignmentMemberKey: _apply_target_assignment_record,
        messages.ShareGroupCurrentMemberAssignmentKey: _apply_current_assignment_record,
        messages.ShareGroupStatePartitionMetadataKey: _apply_state_partitions_record,
    }


# --- records ----------------------------------------------------------------------------------------


def _make_group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> GroupChange:
    value = messages.ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return GroupChange(messages.ShareGroupMetadataKey(group_id=group_id), value)


def _make_member_metadata_record(group_id: str, member: ShareMember) -> GroupChange:
    value = messages.ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
    )
    return GroupChange(messages.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def _make_target_assignment_record(group_id: str, member_id: str, partitions: Partitions) -> GroupChange:
    kind = messages.ShareGroupTargetAssignmentMemberValue
    value = kind(
        topic_partitions=[
            kind.TopicPartition(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in sorted(partitions.items())
        ]
    )
    return GroupChange(messages.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def _make_target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> GroupChange:
    value = messages.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return GroupChange(messages.ShareGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def _make_current_assignment_record(group_id: str, member: ShareMember) -> GroupChange:
    kind = messages.ShareGroupCurrentMemberAssignmentValue
    value = kind(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=STABLE,
        assigned_partitions=[
            kind.TopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in sorted(member.assigned.items())
        ],
    )
    return GroupChange(
        messages.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value
    )


def _make_state_partitions_record(group_id: str, topics: TopicsWithState) -> GroupChange:
    """Return the record that lists the partitions with a delivery state, by topic."""
    kind = messages.ShareGroupStatePartitionMetadataValue
    value = kind(
        initialized_topics=[
            kind.TopicPartitionsInfo(topic_id=topic_id, topic_name=name, partitions=sorted(indexes))
            for topic_id, (name, indexes) in sorted(topics.items())
        ]
    )
    return GroupChange(messages.ShareGroupStatePartitionMetadataKey(group_id=group_id), value)
