"""Placement of the replicas of new partitions: spread over brokers and racks (KIP-36), or as a client assigns them.

A registered broker that is not running may have a replica too, but is not in sync and leads nothing. `elections` and
`reassignments` change replicas later.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from minibroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster

MAXIMUM_PARTITIONS_PER_REQUEST = 10_000
TOO_MANY_PARTITIONS = "Excessively large number of partitions per request."
DEFAULT = -1  # in CreateTopics: use the broker's setting

Item = TypeVar("Item")
Assignment = Sequence[Sequence[int]]  # the node ids of each partition's replicas, the preferred leader first


def choose_replica_assignment(cluster: Cluster, partition_count: int, replication_factor: int) -> Assignment:
    """Validate the counts, where -1 means the broker's defaults, and return replicas for a new topic.

    Raises KafkaError: INVALID_REPLICATION_FACTOR, INVALID_PARTITIONS, POLICY_VIOLATION.
    """
    if replication_factor == 0 or replication_factor < DEFAULT:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if partition_count == 0 or partition_count < DEFAULT:
        message = "Number of partitions was set to an invalid non-positive value."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
    if partition_count == DEFAULT:
        partition_count = cluster.settings["num.partitions"]
    if replication_factor == DEFAULT:
        replication_factor = cluster.settings["default.replication.factor"]
    try:
        return place_replicas(cluster, partition_count, replication_factor)
    except KafkaError as error:
        if error.code is not ErrorCode.INVALID_REPLICATION_FACTOR:
            raise
        message = f"Unable to replicate the partition {replication_factor} time(s): {error.message}"
        raise KafkaError(error.code, message) from None


def place_replicas(cluster: Cluster, partition_count: int, replication_factor: int) -> Assignment:
    """Return replicas for new partitions, with leaders round-robin over the live nodes from a random one on.

    The replicas of a partition are in as many racks as there are. Brokers that are not running come last, and those
    whose log directories are all cordoned are left out.
    Raises KafkaError: POLICY_VIOLATION, INVALID_REPLICATION_FACTOR.
    """
    if partition_count > MAXIMUM_PARTITIONS_PER_REQUEST:
        message = f"{partition_count} partitions exceed the {MAXIMUM_PARTITIONS_PER_REQUEST} of one request."
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
    usable = [node_id for node_id in sorted(cluster.image.brokers) if not cluster.is_cordoned(node_id)]
    live = [node_id for node_id in usable if node_id in cluster.nodes]
    away = [node_id for node_id in usable if node_id not in cluster.nodes]
    if not live:
        message = "All brokers are currently fenced, or have all their log directories cordoned."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if replication_factor > len(usable):
        message = (
            f"The target replication factor of {replication_factor} cannot be reached because only {len(usable)} "
            "broker(s) are registered or some brokers have all their log directories cordoned."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    racks: dict[str, list[int]] = {}
    for node_id in live:
        racks.setdefault(cluster.nodes[node_id].rack or "", []).append(node_id)
    of_racks = [racks[rack] for rack in sorted(racks)]
    first = cluster.random.randrange(len(live))
    return [
        (_list_nodes_alternating_racks(of_racks, first + index) + away)[:replication_factor]
        for index in range(partition_count)
    ]


def _list_nodes_alternating_racks(racks: Sequence[Sequence[int]], partition_number: int) -> list[int]:
    """Return all nodes in the order in which the partition with this number takes replicas: racks alternate."""
    turn, first_rack = divmod(partition_number, len(racks))
    in_turn = [_rotate_list_to_index(nodes, turn) for nodes in _rotate_list_to_index(racks, first_rack)]
    return [node for row in itertools.zip_longest(*in_turn) for node in row if node is not None]


def _rotate_list_to_index(items: Sequence[Item], first: int) -> Sequence[Item]:
    start = first % len(items)
    return [*items[start:], *items[:start]]


def validate_manual_assignment(
    cluster: Cluster, assignment: Sequence[tuple[int, Sequence[int]]], partition_count: int, replication_factor: int
) -> Assignment:
    """Validate and return the replicas that a client assigns to a new topic: (partition, replicas) in any order.

    Raises KafkaError: INVALID_REQUEST, INVALID_REPLICA_ASSIGNMENT.
    """
    if replication_factor != DEFAULT:
        message = "A manual partition assignment was specified, but replication factor was not set to -1."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if partition_count != DEFAULT:
        message = "A manual partition assignment was specified, but numPartitions was not set to -1."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    indexes = sorted(index for index, _ in assignment)
    for index, following in itertools.pairwise(indexes):
        if index == following:
            raise _make_invalid_assignment_error(f"Found multiple manual partition assignments for partition {index}")
    if indexes != list(range(len(indexes))):
        raise _make_invalid_assignment_error("partitions should be a consecutive 0-based integer sequence")
    replicas = [nodes for _, nodes in sorted(assignment, key=lambda given: given[0])]
    check_replica_assignment(cluster, replicas, len(replicas[0]))
    return replicas


def check_replica_assignment(
    cluster: Cluster, assignment: Assignment, replication_factor: int, *, first: int = 0
) -> None:
    """Validate the assignment of the partitions from number `first` on.

    Raises KafkaError(INVALID_REPLICA_ASSIGNMENT) unless each has that many different brokers, one of them live.
    """
    for index, replicas in enumerate(assignment, first):
        check_replicas_of_partition(cluster, replicas)
        if len(replicas) != replication_factor:
            raise _make_invalid_assignment_error(
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this "
                f"is not consistent with previous partitions, which have {replication_factor} replica(s)."
            )
        if not any(node in cluster.nodes for node in replicas):
            raise _make_invalid_assignment_error(
                f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
                "controlled shutdown."
            )


def check_replicas_of_partition(cluster: Cluster, replicas: Sequence[int]) -> None:
    """Raise KafkaError(INVALID_REPLICA_ASSIGNMENT) unless these are different registered brokers, none cordoned."""
    if not replicas:
        raise _make_invalid_assignment_error("The manual partition assignment includes an empty replica list.")
    last = None
    for node in sorted(replicas):
        if node not in cluster.image.brokers:
            raise _make_invalid_assignment_error(
                f"The manual partition assignment includes broker {node}, but no such broker is registered."
            )
        if cluster.is_cordoned(node):
            reason = "but all its log directories are cordoned."
            raise _make_invalid_assignment_error(f"The manual partition assignment includes broker {node}, {reason}")
        if node == last:
            raise _make_invalid_assignment_error(
                f"The manual partition assignment includes the broker {node} more than once."
            )
        last = node


def _make_invalid_assignment_error(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
