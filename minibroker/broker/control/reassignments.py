"""Reassignments of partitions to other replicas, and their cancellation (KIP-455, KIP-860).

A reassignment completes when all new replicas are in sync: at once for live nodes, since they share the log, and for
others when they start. `partition_changes` builds its records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from minibroker.broker.control.elections import make_partition_change
from minibroker.broker.control.placement import check_replicas_of_partition
from minibroker.broker.metadata.partition_changes import Election
from minibroker.broker.metadata.partitions import Partition
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata_records import PartitionChangeRecord

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster


def make_reassignment(
    cluster: Cluster, partition: Partition, replicas: Sequence[int], *, keep_factor: bool
) -> PartitionChangeRecord | None:
    """Return the change that begins to move the partition to `replicas`, or None if it is there already.

    It replaces a reassignment in progress. With `keep_factor` the number of replicas must not change.
    Raises KafkaError: INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR.
    """
    check_replicas_of_partition(cluster, replicas)
    factor = len(partition.replicas) - len(partition.removing_replicas)
    if keep_factor and factor != len(replicas):
        message = f"The replication factor is changed from {factor} to {len(replicas)}"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    removing = sorted(set(partition.replicas) - set(replicas))
    adding = sorted(set(replicas) - set(partition.replicas))
    change = make_partition_change(cluster, partition)
    change.replicas = [*replicas, *removing]
    change.removing = removing or change.removing
    change.adding = adding or change.adding
    return change.make_change_record()


def make_reassignment_cancellation(cluster: Cluster, partition: Partition) -> PartitionChangeRecord | None:
    """Return the change that cancels the partition's reassignment.

    Raises KafkaError: NO_REASSIGNMENT_IN_PROGRESS, and INVALID_REPLICA_ASSIGNMENT if only new replicas are in sync
    and no other may lead.
    """
    if not partition.is_reassigning:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    change = make_partition_change(cluster, partition)
    change.replicas = [node for node in partition.replicas if node not in partition.adding_replicas]
    change.isr = [node for node in partition.isr if node not in partition.adding_replicas]
    change.removing, change.adding = [], []
    unclean = cluster.settings.get_topic_value("unclean.leader.election.enable", partition.topic.overrides)
    if unclean:
        change.election = Election.UNCLEAN
    if not change.isr:
        if not unclean:
            message = f"Unable to revert partition assignment for {partition} because it would require an unclean "
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{message}leader election.")
        change.isr = change.replicas[:1]
    return change.make_change_record()
