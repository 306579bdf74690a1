"""The record that changes the replicas, the ISR or the leader of a partition.

Callers set the fields of a `PartitionChange`, which builds one record from them if anything changes. It is pure, and
follows the rules of Kafka's controller (KIP-455, KIP-966).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from minibroker.broker.metadata.image import LEADER_UNCHANGED
from minibroker.broker.metadata.partitions import NO_LEADER, Partition
from minibroker.protocol.messages.metadata_records import PartitionChangeRecord


class Election(Enum):
    """Which replica to elect."""

    ONLINE = "the current leader if it may lead, else the first one in sync"
    PREFERRED = "the first replica of all, if it is in sync"
    UNCLEAN = "as ONLINE, but if none is in sync, one that is not"


class PartitionChange:
    """A change of `partition`; fields that are not set stay unchanged.

    `may_lead(node)` returns whether a node is live. If the ISR shrinks below `minimum_isr`, the others are remembered
    as eligible leaders; None turns this off (eligible.leader.replicas.version 0).
    """

    def __init__(self, partition: Partition, may_lead: Callable[[int], bool], minimum_isr: int | None) -> None:
        self.election = Election.ONLINE
        self.isr = list(partition.isr)
        self.replicas = list(partition.replicas)
        self.adding = list(partition.adding_replicas)
        self.removing = list(partition.removing_replicas)
        self.directories = partition.get_directory_ids()
        self._partition = partition
        self._may_lead = may_lead
        self._minimum_isr = minimum_isr
        self._eligible = list(partition.eligible_leader_replicas)

    def make_change_record(self) -> PartitionChangeRecord | None:
        """Return the record that makes the change, or None if nothing changes."""
        partition = self._partition
        self._complete_reassignment_if_in_sync()
        self._remember_eligible_replicas()
        change = PartitionChangeRecord(partition_id=partition.index, topic_id=partition.topic.topic_id)
        clean = self._elect_and_set_leader(change)
        if change.leader == LEADER_UNCHANGED and set(partition.replicas) - set(self.replicas):
            change.leader = partition.leader_id  # a new epoch, for clients of a replica that has left
        if not clean or self._minimum_isr is None:
            self._eligible = []
        if self._eligible != partition.eligible_leader_replicas:
            change.eligible_leader_replicas = self._eligible
        if self.isr != partition.isr and (self.isr or self._minimum_isr is not None):
            change.isr = self.isr  # without eligible replicas, the last ones in sync stay, as no other may lead
        self._remember_last_leader(change)
        self._set_replicas_and_directories(change)
        return None if change == _make_empty_change(partition) else change

    def _complete_reassignment_if_in_sync(self) -> None:
        """Remove the replicas in `removing` once all others are in sync."""
        if not (self.adding or self.removing):
            return
        isr = [node for node in self.isr if node not in self.removing]
        replicas = [node for node in self.replicas if node not in self.removing]
        if isr and replicas and set(replicas) <= set(isr):
            self.isr, self.replicas, self.adding, self.removing = isr, replicas, [], []

    def _remember_eligible_replicas(self) -> None:
        """Make replicas eligible that leave an ISR below its minimum: they have all committed records (KIP-966)."""
        if self._minimum_isr is None:
            return
        known = [] if len(self.isr) >= self._minimum_isr else [*self._partition.isr, *self._eligible]
        self._eligible = [node for node in dict.fromkeys(known) if node not in self.isr]

    def _elect_and_set_leader(self, change: PartitionChangeRecord) -> bool:
        """Set the leader if it changes; return whether it has all records."""
        leader, clean = self._choose_leader()
        if leader != self._partition.leader_id:
            change.leader = leader
            if leader in self._eligible:
                self.isr = [leader]
                self._eligible.remove(leader)
            if not clean:
                self.isr = [leader]
        return clean

    def _choose_leader(self) -> tuple[int, bool]:
        """Return the elected leader, and whether it has all records."""
        present = self._partition.leader_id
        preferred = self.replicas[:1] if self.election is Election.PREFERRED else []
        for node in [*preferred, present, *self.replicas]:
            if self._may_be_elected_cleanly(node):
                return node, True
        last_known = [] if self._minimum_isr is None else self._partition.last_known_elr
        if not self._eligible and not self.isr and len(last_known) == 1 and self._may_lead(last_known[0]):
            return last_known[0], False
        if self.election is Election.UNCLEAN:
            return next(((node, False) for node in self.replicas if self._may_lead(node)), (NO_LEADER, True))
        return NO_LEADER, True

    def _may_be_elected_cleanly(self, node: int) -> bool:
        """Return whether the node may lead and has all committed records: it is in the ISR, or else in the ELR."""
        has_all = node in self.isr or (not self.isr and node in self._eligible)
        return has_all and self._may_lead(node)

    def _remember_last_leader(self, change: PartitionChangeRecord) -> None:
        """Set the last known leader in `change` when the ISR becomes empty; clear it when there is a leader."""
        partition = self._partition
        leader = partition.leader_id if change.leader == LEADER_UNCHANGED else change.leader
        if self._minimum_isr is not None and change.isr == [] and partition.leader_id != NO_LEADER:
            last_known = [partition.leader_id]
        else:
            last_known = partition.last_known_elr if leader == NO_LEADER else []
        if last_known != partition.last_known_elr:
            change.last_known_elr = last_known

    def _set_replicas_and_directories(self, change: PartitionChangeRecord) -> None:
        """Set in `change` those of replicas, reassignment and directories that differ from the partition's."""
        partition = self._partition
        directories = [self.directories.get(node, UNKNOWN_DIRECTORY) for node in self.replicas]
        if directories != (partition.directories or [UNKNOWN_DIRECTORY] * len(partition.replicas)):
            change.directories = directories
        if self.replicas != partition.replicas:
            change.replicas = self.replicas
        if self.removing != partition.removing_replicas:
            change.removing_replicas = self.removing
        if self.adding != partition.adding_replicas:
            change.adding_replicas = self.adding


UNKNOWN_DIRECTORY = bytes(16)


def _make_empty_change(partition: Partition) -> PartitionChangeRecord:
    """Return a record for this partition that changes nothing yet."""
    return PartitionChangeRecord(partition_id=partition.index, topic_id=partition.topic.topic_id)
