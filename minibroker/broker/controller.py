"""The controller: decides on topics, partitions, leaders and configs, and writes what it decided to the metadata log.

Every decision is checked whole before the first record is written. How a request is read and answered is the handlers'.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from minibroker.broker.image import TOPIC_RESOURCE
from minibroker.broker.settings import topic_names_without_effect, validate_topic_overrides
from minibroker.broker.settings_table import BROKER_SETTINGS
from minibroker.broker.topics import METADATA_TOPIC, NO_LEADER, Partition, Topic, check_name, colliding_name
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster

log = logging.getLogger("minibroker.controller")

PRODUCER_IDS_PER_BLOCK = 1000
MAXIMUM_PARTITIONS_PER_REQUEST = 10_000
DEFAULT = -1  # in CreateTopics: as many as the broker's settings say
UNKNOWN_DIRECTORY = bytes(16)

Assignment = Sequence[Sequence[int]]  # the node ids of each partition's replicas, the preferred leader first


class Controller:
    """Changes the cluster. One object, on whichever node is the active controller."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._producer_ids = range(0)

    # --- topics ---------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partition_count: int = DEFAULT,
        replication_factor: int = DEFAULT,
        *,
        assignment: Sequence[tuple[int, Sequence[int]]] = (),
        overrides: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
    ) -> tuple[bytes, Assignment]:
        """The new topic's id (16 raw bytes) and replicas. With `validate_only` nothing is created, and the id is zero.

        `assignment` has (partition, replicas) for every partition, if the replicas are to lie where the client says.
        Raises KafkaError with CreateTopics' codes: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS,
        INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST, INVALID_CONFIG, POLICY_VIOLATION.
        """
        self._check_new_name(name)
        configs = validate_topic_overrides(self._cluster.settings, overrides or {})
        if assignment:
            replicas = self._manual_assignment(assignment, partition_count, replication_factor)
        else:
            replicas = self._automatic_assignment(partition_count, replication_factor)
        if validate_only:
            return ZERO_UUID, replicas
        topic_id = self._cluster.new_uuid()
        decided: list[Message] = [records.TopicRecord(name=name, topic_id=topic_id)]
        decided += [
            records.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=key, value=value)
            for key, value in configs.items()
        ]
        decided += self._partition_records(topic_id, 0, replicas)
        with self._cluster.new_logs(name, topic_id, range(len(replicas)), configs) as logs:
            self._cluster.commit(decided)
        self._cluster.adopt_logs(self._cluster.image.topics[name], logs)
        _warn_without_effect(TOPIC_RESOURCE, name, configs)
        return topic_id, replicas

    def _check_new_name(self, name: str) -> None:
        check_name(name)
        if name == METADATA_TOPIC:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        topics = self._cluster.image.topics
        if name in topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if "." in name or "_" in name:
            wanted = colliding_name(name)
            for other in topics:
                if colliding_name(other) == wanted:
                    message = f"Topic '{name}' collides with existing topic: {other}"
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)

    def _automatic_assignment(self, partition_count: int, replication_factor: int) -> Assignment:
        settings = self._cluster.settings
        if replication_factor == 0 or replication_factor < DEFAULT:
            message = "Replication factor must be larger than 0, or -1 to use the default value."
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
        if partition_count == 0 or partition_count < DEFAULT:
            message = "Number of partitions was set to an invalid non-positive value."
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
        if partition_count == DEFAULT:
            partition_count = settings["num.partitions"]
        if replication_factor == DEFAULT:
            replication_factor = settings["default.replication.factor"]
        return self.place(partition_count, replication_factor)

    def place(self, partition_count: int, replication_factor: int) -> Assignment:
        """Replicas for new partitions, leaders in turn over all live nodes from a random one on."""
        if partition_count > MAXIMUM_PARTITIONS_PER_REQUEST:
            message = f"{partition_count} partitions exceed the {MAXIMUM_PARTITIONS_PER_REQUEST} of one request."
            raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
        nodes = sorted(self._cluster.nodes)
        if replication_factor > len(nodes):
            message = (
                f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
                f"{replication_factor} cannot be reached because only {len(nodes)} broker(s) are registered."
            )
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
        first = self._cluster.random.randrange(len(nodes))
        return [
            [nodes[(first + index + replica) % len(nodes)] for replica in range(replication_factor)]
            for index in range(partition_count)
        ]

    def _manual_assignment(
        self, assignment: Sequence[tuple[int, Sequence[int]]], partition_count: int, replication_factor: int
    ) -> Assignment:
        if replication_factor != DEFAULT:
            message = "A manual partition assignment was specified, but replication factor was not set to -1."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if partition_count != DEFAULT:
            message = "A manual partition assignment was specified, but numPartitions was not set to -1."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        indexes = sorted(index for index, _ in assignment)
        for index, following in itertools.pairwise(indexes):
            if index == following:
                message = f"Found multiple manual partition assignments for partition {index}"
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        if indexes != list(range(len(indexes))):
            message = "partitions should be a consecutive 0-based integer sequence"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        replicas = [nodes for _, nodes in sorted(assignment, key=lambda given: given[0])]
        self._check_assignment(replicas, len(replicas[0]))
        return replicas

    def _check_assignment(self, assignment: Assignment, replication_factor: int) -> None:
        """Raises KafkaError(INVALID_REPLICA_ASSIGNMENT) unless each partition has that many different live nodes."""
        for replicas in assignment:
            reason = None
            unknown = [node for node in replicas if node not in self._cluster.nodes]
            if not replicas:
                reason = "The manual partition assignment includes an empty replica list."
            elif unknown:
                reason = (
                    f"The manual partition assignment includes broker {unknown[0]}, but no such broker is registered."
                )
            elif len(set(replicas)) < len(replicas):
                twice = next(node for node in replicas if replicas.count(node) > 1)
                reason = f"The manual partition assignment includes the broker {twice} more than once."
            elif len(replicas) != replication_factor:
                reason = (
                    f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this "
                    f"is not consistent with previous partitions, which have {replication_factor} replica(s)."
                )
            if reason is not None:
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)

    def _partition_records(self, topic_id: bytes, first: int, assignment: Assignment) -> list[Message]:
        return [
            records.PartitionRecord(
                partition_id=first + offset,
                topic_id=topic_id,
                replicas=list(replicas),
                isr=list(replicas),
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[UNKNOWN_DIRECTORY] * len(replicas),
            )
            for offset, replicas in enumerate(assignment)
        ]

    def add_partitions(
        self, name: str, count: int, assignment: Assignment | None = None, *, validate_only: bool = False
    ) -> None:
        """Bring a topic to `count` partitions. Raises KafkaError with CreatePartitions' codes."""
        topic = self._cluster.image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        new = self._check_count(topic, count)
        replication_factor = len(topic.partitions[0].replicas)
        if assignment is None:
            assignment = self.place(new, replication_factor)
        elif len(assignment) != new:
            given = f"only {len(assignment)} assignment(s) were specified."
            message = f"Attempted to add {new} additional partition(s), but {given}"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        else:
            self._check_assignment(assignment, replication_factor)
        if not validate_only:
            decided = self._partition_records(topic.topic_id, len(topic.partitions), assignment)
            with self._cluster.new_logs(
                name, topic.topic_id, range(len(topic.partitions), count), topic.overrides
            ) as logs:
                self._cluster.commit(decided)
            self._cluster.adopt_logs(topic, logs)

    def _check_count(self, topic: Topic, count: int) -> int:
        current = len(topic.partitions)
        if count == current:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
        if count < current:
            message = f"The topic {topic.name} currently has {current} partition(s); {count} would not be an increase."
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
        return count - current

    def delete_topic(self, topic: Topic) -> None:
        """Remove a topic: its records are gone for every reader once this returns."""
        self._cluster.commit([records.RemoveTopicRecord(topic_id=topic.topic_id)])
        self._cluster.delete_logs(partition.log for partition in topic.partitions if partition.is_here)
        for partition in topic.partitions:
            partition.leader_id = NO_LEADER
            partition.wake()
        self._cluster.topic_deleted(topic)

    # --- configs --------------------------------------------------------------------------------

    def change_config(self, resource_type: int, name: str, changes: Mapping[str, str | None]) -> None:
        """Set what `changes` says, remove what is None there, and have it act at once. Validated by the caller."""
        self._cluster.commit(
            records.ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
            for key, value in changes.items()
        )
        self._cluster.settings_changed(
            self._cluster.image.topics.get(name) if resource_type == TOPIC_RESOURCE else None
        )
        _warn_without_effect(resource_type, name, changes)

    # --- leaders --------------------------------------------------------------------------------

    def elect(self) -> None:
        """Give each partition whose leader is away the first live replica that may lead, or no leader."""
        decided: list[Message] = []
        for partition in self._partitions():
            leader = self._eligible(partition)
            if leader != partition.leader_id:
                decided.append(_election(partition, leader))
        if decided:
            self._cluster.commit(decided)

    def renew_leader_epochs(self) -> None:
        """Have each leader that lives begin another epoch.

        After a crash records may be gone that somebody has read. Other ones get their offsets, and the epoch is what
        tells them apart (KIP-320); so Kafka elects anew whoever comes back.
        """
        live = (partition for partition in self._partitions() if partition.leader_id in self._cluster.nodes)
        self._cluster.commit([_election(partition, partition.leader_id) for partition in live])

    def _partitions(self) -> Iterator[Partition]:
        for topic in self._cluster.image.topics.values():
            yield from topic.partitions

    def _eligible(self, partition: Partition) -> int:
        """Who is to lead: the leader while it lives, a replica in sync, or the first known to have every record."""
        nodes = self._cluster.nodes
        if partition.leader_id in nodes:
            return partition.leader_id
        candidates = [node for node in partition.replicas if node in partition.isr]
        candidates += partition.eligible_leader_replicas
        candidates = candidates or partition.last_known_elr
        return next((node for node in candidates if node in nodes), NO_LEADER)

    # --- producer ids ---------------------------------------------------------------------------

    def next_producer_id(self) -> int:
        """A producer id that was never given out; blocks of them are recorded before the first is used (KIP-730)."""
        if not self._producer_ids:
            first = self._cluster.image.next_producer_id
            node = self._cluster.nodes[min(self._cluster.nodes)]
            following = first + PRODUCER_IDS_PER_BLOCK
            block = records.ProducerIdsRecord(
                broker_id=node.node_id, broker_epoch=node.broker_epoch, next_producer_id=following
            )
            self._cluster.commit([block])
            self._producer_ids = range(first, following)
        producer_id, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return producer_id


def _election(partition: Partition, leader: int) -> Message:
    """The record that makes `leader` lead. One that was not in sync is from now on, and is so alone (KIP-966)."""
    change = records.PartitionChangeRecord(
        partition_id=partition.index, topic_id=partition.topic.topic_id, leader=leader
    )
    if leader != NO_LEADER and leader not in partition.isr:
        change.isr = [leader]
        change.eligible_leader_replicas = [node for node in partition.eligible_leader_replicas if node != leader]
        change.last_known_elr = []
    return change


def _warn_without_effect(resource_type: int, resource: str, configs: Mapping[str, str | None]) -> None:
    """Nothing is ignored in silence: who sets what changes nothing here yet finds its name in the log."""
    given = [name for name, value in configs.items() if value is not None]
    if resource_type == TOPIC_RESOURCE:
        inert, where = topic_names_without_effect(given), f"topic {resource}"
    else:
        inert, where = tuple(name for name in given if not BROKER_SETTINGS[name].acts), f"broker {resource or '(all)'}"
    for name in inert:
        log.warning("%s: %s is kept, but has no effect here yet", where, name)
