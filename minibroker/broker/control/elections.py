"""Leader elections: at the start, when nodes join or leave, and on request.

All nodes share one log of each partition, so that a replica of a live node is in sync once there is a leader.
`partition_changes` builds the records of changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from minibroker.broker.metadata.features import ELIGIBLE_LEADER_REPLICAS
from minibroker.broker.metadata.image import LEADER_UNCHANGED
from minibroker.broker.metadata.partition_changes import Election, PartitionChange
from minibroker.broker.metadata.partitions import NO_LEADER, Partition
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata_records import PartitionChangeRecord
from minibroker.protocol.primitives import parse_uuid
from minibroker.protocol.steps import Steps, run_all_steps

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster

NOT_AVAILABLE = {
    Election.PREFERRED: (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."),
    Election.UNCLEAN: (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        "Eligible topic partition leaders are not available.",
    ),
}


def make_partition_change(
    cluster: Cluster, partition: Partition, absent_nodes: Collection[int] = ()
) -> PartitionChange:
    """Return an empty change of the partition, to fill in; only live nodes that are not `absent_nodes` may lead."""
    topic = partition.topic

    def may_node_lead(node: int) -> bool:
        return node in cluster.nodes and node not in absent_nodes and not partition.is_offline

    minimum = None
    if cluster.image.features.get(ELIGIBLE_LEADER_REPLICAS):
        minimum = min(topic.min_insync_replicas, len(topic.partitions[0].replicas))
    return PartitionChange(partition, may_node_lead, minimum)


def commit_partition_changes(
    cluster: Cluster, changes: Iterable[PartitionChangeRecord | None], more_records: Iterable[Message] = ()
) -> None:
    """Commit the changes and `more_records`, all or none, and wake requests that wait at these partitions.

    The leader or epoch that such a request relies on may have changed.
    """
    decided = [change for change in changes if change is not None]
    committed: list[Message] = [*decided, *more_records]
    if committed:
        cluster.commit_metadata_records(committed)
    for change in decided:
        partition = cluster.image.topics_by_id[change.topic_id].partitions[change.partition_id]
        cluster.open_log_if_hosted(partition)
        if change.leader != LEADER_UNCHANGED:
            cluster.on_leader_changed(partition)
        partition.hold_high_watermark_while_under_min_isr()
        partition.wake_all_waiters()


def elect_leaders_at_start(cluster: Cluster) -> None:
    """Run `elect_leaders_at_start_in_steps` in one step."""
    run_all_steps(elect_leaders_at_start_in_steps(cluster))


def elect_leaders_at_start_in_steps(cluster: Cluster) -> Steps[None]:
    """Elect a live leader for every partition, if possible, and add the live replicas to the ISR."""
    for portion in cluster.iterate_partition_portions():
        remove_absent_nodes_from_isr(cluster, portion)
        yield
    for portion in cluster.iterate_partition_portions():
        return_live_replicas_to_isr(cluster, portion)
        yield


def remove_absent_nodes_from_isr(
    cluster: Cluster,
    partitions: Iterable[Partition],
    absent_nodes: Collection[int] = (),
    more_records: Iterable[Message] = (),
) -> None:
    """Remove nodes that are absent now, or in `absent_nodes`, as leaders and from ISRs; commit `more_records`, too."""
    commit_partition_changes(
        cluster,
        [_make_change_removing_absent_nodes(cluster, partition, absent_nodes) for partition in partitions],
        more_records,
    )


def _make_change_removing_absent_nodes(
    cluster: Cluster, partition: Partition, absent_nodes: Collection[int]
) -> PartitionChangeRecord | None:
    """Return the change that takes leadership and ISR from absent nodes, or None if they have none of them."""
    change = make_partition_change(cluster, partition, absent_nodes)
    if cluster.settings.get_topic_value("unclean.leader.election.enable", partition.topic.overrides):
        change.election = Election.UNCLEAN
    change.isr = [node for node in partition.isr if node in cluster.nodes and node not in absent_nodes]
    return change.make_change_record()


def return_live_replicas_to_isr(cluster: Cluster, partitions: Iterable[Partition]) -> None:
    """Add all replicas of live nodes to the ISR where there is a leader; this may complete reassignments."""
    commit_partition_changes(
        cluster, [_make_change_adding_live_replicas_to_isr(cluster, partition) for partition in partitions]
    )


def _make_change_adding_live_replicas_to_isr(cluster: Cluster, partition: Partition) -> PartitionChangeRecord | None:
    """Return the change, or None if all replicas of live nodes are in the ISR already, or there is no leader here."""
    change = make_partition_change(cluster, partition)
    if partition.leader_id in cluster.nodes and not partition.is_offline:
        change.isr += [node for node in partition.replicas if node in cluster.nodes and node not in partition.isr]
    change.directories |= _find_directory_ids_by_replica(cluster, partition)
    return change.make_change_record()


def _find_directory_ids_by_replica(cluster: Cluster, partition: Partition) -> dict[int, bytes]:
    """Return the id of the log's directory, by the id of the broker that registered it; nothing without a log here."""
    if not partition.has_local_log or cluster.node_id_of_log_directories not in partition.replicas:
        return {}
    return {
        cluster.node_id_of_log_directories: parse_uuid(cluster.logs.find_directory_of_log(partition.log).directory_id)
    }


def elect_preferred_leaders(cluster: Cluster, partitions: Iterable[Partition]) -> None:
    """Elect preferred replicas that can lead but do not."""
    commit_partition_changes(cluster, [_make_preferred_election_change(cluster, partition) for partition in partitions])


def _make_preferred_election_change(cluster: Cluster, partition: Partition) -> PartitionChangeRecord | None:
    """Return the change that elects the preferred replica, or None if it leads already or cannot."""
    if partition.leader_id in (partition.replicas[0], NO_LEADER) or partition.is_offline:
        return None
    change = make_partition_change(cluster, partition)
    change.election = Election.PREFERRED
    return change.make_change_record()


def bump_all_leader_epochs(cluster: Cluster) -> None:
    """Begin a new epoch of each live leader.

    After a crash, records that a client has read may be lost, and new records get their offsets. Only the epoch tells
    them apart (KIP-320). Kafka elects a returning leader again for the same reason.
    """
    live = (partition for partition in cluster.iterate_partitions() if partition.leader_id in cluster.nodes)
    cluster.commit_metadata_records(
        PartitionChangeRecord(
            partition_id=partition.index, topic_id=partition.topic.topic_id, leader=partition.leader_id
        )
        for partition in live
    )


def check_election_needed(partition: Partition, election: Election) -> None:
    """Raise KafkaError(ELECTION_NOT_NEEDED) if an election of this kind would change nothing."""
    leader_id = NO_LEADER if partition.is_offline else partition.leader_id
    if leader_id == partition.replicas[0] or (election is Election.UNCLEAN and leader_id != NO_LEADER):
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")


def make_election_change(cluster: Cluster, partition: Partition, election: Election) -> PartitionChangeRecord:
    """Return the change of an election that a client requests, for `commit_partition_changes`.

    Raises KafkaError: ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE.
    """
    check_election_needed(partition, election)
    change = make_partition_change(cluster, partition)
    change.election = election
    record = change.make_change_record()
    if record is None or record.leader < 0:
        raise KafkaError(*NOT_AVAILABLE[election])
    return record
