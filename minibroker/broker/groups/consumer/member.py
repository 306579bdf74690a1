"""A member of a consumer group: what it says of itself, its epochs, and its partitions.

A member never changes: a change makes another one. How it gets from its partitions to its target is in
`reconciliation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from minibroker.broker.groups.consumer.assignors.specification import Partitions
from minibroker.broker.groups.heartbeats import JOINING_EPOCH, UNKNOWN_TIMEOUT_MS
from minibroker.protocol.messages.group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
)

# Partitions by topic id and number, each with the epoch in which it was assigned (KIP-1251).
PartitionEpochs = Mapping[bytes, Mapping[int, int]]

_Assigned = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
_ClassicMetadata = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata


class MemberState(IntEnum):
    """How far a member is on the way to its target, with the numbers of the record."""

    STABLE = 0  # it has all partitions of its target in its epoch
    UNREVOKED_PARTITIONS = 1  # it must revoke partitions, and has not reported yet that it did
    UNRELEASED_PARTITIONS = 2  # it waits for partitions that others have not revoked
    UNKNOWN = 127  # a state of a Kafka that knows more


class ClassicProtocol(NamedTuple):
    """An assignment strategy that a member with the classic protocol supports, and its subscription in it."""

    name: str
    metadata: bytes


class ClassicMember(NamedTuple):
    """The session timeout and protocols of a member that speaks the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


class ConsumerMember(NamedTuple):
    """One member, as recorded. `topic_regex` is empty without a pattern; `classic` is None for KIP-848's protocol."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    rebalance_timeout_ms: int = UNKNOWN_TIMEOUT_MS
    server_assignor: str | None = None
    classic: ClassicMember | None = None
    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: PartitionEpochs = {}
    pending_revocation: PartitionEpochs = {}

    def with_epoch_and_assignment(
        self, epoch: int, state: MemberState, assigned_partitions: PartitionEpochs, pending_revocation: PartitionEpochs
    ) -> ConsumerMember:
        """Return this member with another epoch and assignment; the present epoch becomes the previous one."""
        return self._replace(
            epoch=epoch,
            previous_epoch=self.epoch,
            state=state,
            assigned=assigned_partitions,
            pending_revocation=pending_revocation,
        )

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether it has all partitions of its target in this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def get_owned_since_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """Return the epoch in which a partition was assigned that the member owns or must revoke; None for others."""
        for partitions in (self.assigned, self.pending_revocation):
            epoch = partitions.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    # --- records --------------------------------------------------------------------------------

    def make_metadata_value(self) -> ConsumerGroupMemberMetadataValue:
        """Return the value of the record of the member's metadata."""
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topic_names),
            subscribed_topic_regex=self.topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic_member_metadata=None if self.classic is None else _encode_classic_member(self.classic),
        )

    def with_recorded_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        """Return this member with the metadata of a record."""
        return self._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=_parse_classic_member(value.classic_member_metadata),
        )

    def make_current_assignment_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """Return the value of the record of the member's epochs, state and partitions."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_encode_partition_epochs(self.assigned),
            partitions_pending_revocation=_encode_partition_epochs(self.pending_revocation),
        )

    def with_recorded_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        """Return this member with the epochs, state and partitions of a record."""
        known = value.state in MemberState.__members__.values()
        return self._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=_parse_partition_epochs(value.assigned_partitions, value.member_epoch),
            pending_revocation=_parse_partition_epochs(value.partitions_pending_revocation, value.member_epoch),
        )


def remove_epochs_from_partitions(partitions: PartitionEpochs) -> Partitions:
    """Return the partitions without their assignment epochs."""
    return {topic_id: frozenset(epochs) for topic_id, epochs in partitions.items()}


def add_epoch_to_partitions(epoch: int, partitions: Partitions) -> PartitionEpochs:
    """Return the partitions, all assigned in this epoch."""
    return {topic_id: dict.fromkeys(indexes, epoch) for topic_id, indexes in partitions.items() if indexes}


def _encode_partition_epochs(partitions: PartitionEpochs) -> list[_Assigned]:
    """Return the partitions and their epochs by topic, as a record of the current assignment has them."""
    return [
        _Assigned(topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values()))
        for topic_id, epochs in partitions.items()
    ]


def _parse_partition_epochs(recorded: Iterable[_Assigned], member_epoch: int) -> PartitionEpochs:
    """Return recorded partitions with their epochs; records from before Kafka 4.3 have only the member's."""
    return {
        each.topic_id: dict(zip(each.partitions, each.assignment_epochs, strict=True))
        if each.assignment_epochs is not None and len(each.assignment_epochs) == len(each.partitions)
        else dict.fromkeys(each.partitions, member_epoch)
        for each in recorded
    }


def _encode_classic_member(classic: ClassicMember) -> _ClassicMetadata:
    """Return the session timeout and protocols of a member with the classic protocol, as a metadata record has them."""
    protocols = [_ClassicMetadata.ClassicProtocol(name=name, metadata=data) for name, data in classic.protocols]
    return _ClassicMetadata(session_timeout_ms=classic.session_timeout_ms, supported_protocols=protocols)


def _parse_classic_member(value: _ClassicMetadata | None) -> ClassicMember | None:
    """Return what `_encode_classic_member` has encoded; None for a member with the consumer protocol."""
    if value is None:
        return None
    protocols = (ClassicProtocol(each.name, bytes(each.metadata)) for each in value.supported_protocols)
    return ClassicMember(value.session_timeout_ms, tuple(protocols))
