"""The controller: changes topics, configs and features, and writes the changes to the metadata log.

A change is validated as a whole before its first record is written. `elections` chooses leaders, `reassignments` moves
partitions, and `placement` assigns replicas.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from minibroker.broker.configs.recorded_configs import warn_of_settings_without_effect
from minibroker.broker.configs.settings import validate_topic_overrides
from minibroker.broker.control.elections import elect_leaders_at_start_in_steps, remove_absent_nodes_from_isr
from minibroker.broker.control.placement import (
    DEFAULT,
    MAXIMUM_PARTITIONS_PER_REQUEST,
    Assignment,
    check_replica_assignment,
    choose_replica_assignment,
    place_replicas,
    validate_manual_assignment,
)
from minibroker.broker.control.registration import record_cordoned_directories
from minibroker.broker.metadata.cordoning import CORDONED
from minibroker.broker.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS,
    KRAFT_VERSION,
    SUPPORTED,
    FeatureUpdate,
    check_feature_updates,
)
from minibroker.broker.metadata.image import Image
from minibroker.broker.metadata.partition_changes import UNKNOWN_DIRECTORY
from minibroker.broker.metadata.partitions import (
    METADATA_TOPIC,
    NO_LEADER,
    Topic,
    check_topic_name,
    make_metric_collision_key,
)
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.messages.metadata_records import BROKER_RESOURCE, TOPIC_RESOURCE
from minibroker.protocol.primitives import ZERO_UUID, parse_uuid
from minibroker.protocol.steps import Steps, apply_to_items_in_steps, run_all_steps, split_into_portions

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.storage.log import Log

log = logging.getLogger("minibroker.controller")

PRODUCER_IDS_PER_BLOCK = 1000
UNCLEAN_ELECTION = "unclean.leader.election.enable"
MINIMUM_ISR = "min.insync.replicas"
DELETED_AT_ONCE = 4  # logs, a tenth of a millisecond each


ChargeMutations = Callable[[int], None]  # of partitions that are about to be created


def _charge_no_quota(count: int) -> None:
    """Charge nothing for `count` new partitions: the creation is the broker's own, and has no quota."""


class Controller:
    """Changes the cluster. All nodes share one controller."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._producer_ids = range(0)
        self._changing: set[str] = set()  # topics that are being created, extended or deleted in steps

    # --- topics ---------------------------------------------------------------------------------

    def create_topic(self, name: str, *arguments: Any, **options: Any) -> tuple[bytes, Assignment]:
        """Run `create_topic_in_steps` in one step."""
        return run_all_steps(self.create_topic_in_steps(name, *arguments, **options))

    def create_topic_in_steps(
        self,
        name: str,
        partition_count: int = DEFAULT,
        replication_factor: int = DEFAULT,
        *,
        assignment: Sequence[tuple[int, Sequence[int]]] = (),
        overrides: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
        charge: ChargeMutations = _charge_no_quota,
    ) -> Steps[tuple[bytes, Assignment]]:
        """Create a topic; return its id (16 raw bytes) and replicas. With `validate_only`, create nothing; the id is 0.

        `charge` is called with the number of partitions after validation, and may reject them.

        `assignment` has (partition, replicas) for every partition if the client assigns replicas.
        Raises KafkaError with CreateTopics' codes: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS,
        INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST, INVALID_CONFIG, POLICY_VIOLATION.
        """
        self._check_new_topic_name(name)
        configs = validate_topic_overrides(self._cluster.settings, overrides or {})
        if assignment:
            replicas = validate_manual_assignment(self._cluster, assignment, partition_count, replication_factor)
        else:
            replicas = choose_replica_assignment(self._cluster, partition_count, replication_factor)
        charge(len(replicas))
        if validate_only:
            return ZERO_UUID, replicas
        topic_id = self._cluster.make_uuid()
        decided: list[Message] = [records.TopicRecord(name=name, topic_id=topic_id)]
        decided += [
            records.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=key, value=value)
            for key, value in configs.items()
        ]
        with self._lock_topic_for_change(name):
            yield from self._create_and_commit_partitions(name, topic_id, 0, configs, decided, replicas)
        warn_of_settings_without_effect(TOPIC_RESOURCE, name, configs, self._cluster.controller_id)
        return topic_id, replicas

    def _check_new_topic_name(self, name: str) -> None:
        check_topic_name(name)
        if name == METADATA_TOPIC:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        image = self._cluster.image
        if name in image.topics or name in self._changing:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if "." in name or "_" in name:
            others = [
                *image.topics_by_colliding_name.get(make_metric_collision_key(name), ()),
                *self._list_colliding_topics(name),
            ]
            for other in others:
                message = f"Topic '{name}' collides with existing topic: {other}"
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)

    def is_topic_changing(self, name: str) -> bool:
        """Return whether this topic is being created, extended or deleted in steps."""
        return name in self._changing

    def _list_colliding_topics(self, name: str) -> list[str]:
        """Return the topics with a colliding name that are being created, extended or deleted in steps."""
        wanted = make_metric_collision_key(name)
        return [other for other in self._changing if make_metric_collision_key(other) == wanted]

    @contextlib.contextmanager
    def _lock_topic_for_change(self, name: str) -> Iterator[None]:
        """Lock the topic against other changes inside the block, which runs in steps.

        Raises KafkaError(REASSIGNMENT_IN_PROGRESS) if another request is changing it.
        """
        if name in self._changing:
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, f"Topic '{name}' is being changed.")
        self._changing.add(name)
        try:
            yield
        finally:
            self._changing.discard(name)

    def _create_and_commit_partitions(
        self,
        name: str,
        topic_id: bytes,
        first: int,
        configs: Mapping[str, str],
        records: list[Message],
        assignment: Assignment,
    ) -> Steps[None]:
        """Create the logs of partitions from number `first` on, then commit `records` and the partitions.

        Create all of them or none. Raises KafkaError.
        """
        cluster = self._cluster
        logs: list[Log] = []
        try:
            settings = cluster.settings.get_log_settings(configs)
            for index, replicas in enumerate(assignment, first):
                logs.append(cluster.create_partition_log(name, index, topic_id, settings, replicas))
                yield
            added = yield from apply_to_items_in_steps(
                self._make_partition_record, list(zip(logs, assignment, strict=True))
            )
            yield from cluster.commit_new_partitions(name, topic_id, [*records, *added], logs)
        except BaseException:
            cluster.delete_partition_logs(logs)
            raise
        yield from self._apply_changes_made_during_creation(topic_id, logs)

    def _make_partition_record(self, new_log_and_replicas: tuple[Log, Sequence[int]]) -> Message:
        """Return the record of a new partition whose log exists; its live replicas are in sync."""
        log, replicas = new_log_and_replicas
        isr = [node for node in replicas if node in self._cluster.nodes]
        directory_id = parse_uuid(self._cluster.logs.find_directory_of_log(log).directory_id)
        partition = records.PartitionRecord(partition_id=log.partition, topic_id=log.topic_id)
        partition.replicas = list(replicas)
        partition.isr = isr
        partition.leader = isr[0]
        partition.leader_epoch = partition.partition_epoch = 0
        owner = self._cluster.node_id_of_log_directories
        partition.directories = [directory_id if node == owner else UNKNOWN_DIRECTORY for node in replicas]
        return partition

    def add_partitions(self, name: str, count: int, assignment: Assignment | None = None) -> None:
        """Run `add_partitions_in_steps` in one step."""
        run_all_steps(self.add_partitions_in_steps(name, count, assignment))

    def add_partitions_in_steps(
        self,
        name: str,
        count: int,
        assignment: Assignment | None = None,
        *,
        validate_only: bool = False,
        charge: ChargeMutations = _charge_no_quota,
    ) -> Steps[None]:
        """Extend a topic to `count` partitions. Raises KafkaError with codes of CreatePartitions, or of `charge`."""
        topic = self._cluster.image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        new = self._check_and_count_added_partitions(topic, count)
        if new > MAXIMUM_PARTITIONS_PER_REQUEST:
            message = "Excessively large number of additional partitions per request."
            raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
        replication_factor = len(topic.partitions[0].replicas)
        if assignment is None:
            assignment = place_replicas(self._cluster, new, replication_factor)
        elif len(assignment) != new:
            given = f"only {len(assignment)} assignment(s) were specified."
            message = f"Attempted to add {new} additional partition(s), but {given}"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        else:
            check_replica_assignment(self._cluster, assignment, replication_factor, first=len(topic.partitions))
        charge(new)
        if not validate_only:
            with self._lock_topic_for_change(name):
                yield from self._create_and_commit_partitions(
                    name, topic.topic_id, len(topic.partitions), topic.overrides, [], assignment
                )

    def _check_and_count_added_partitions(self, topic: Topic, count: int) -> int:
        """Return how many partitions an extension to `count` adds. Raises KafkaError(INVALID_PARTITIONS) if none."""
        current = len(topic.partitions)
        if count == current:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
        if count < current:
            message = f"The topic {topic.name} currently has {current} partition(s); {count} would not be an increase."
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
        return count - current

    def delete_topic(self, topic: Topic) -> None:
        """Run `delete_topic_in_steps` in one step."""
        run_all_steps(self.delete_topic_in_steps(topic))

    def delete_topic_in_steps(self, topic: Topic) -> Steps[None]:
        """Delete a topic. After the first step no reader sees its records."""
        cluster = self._cluster
        with self._lock_topic_for_change(topic.name):
            cluster.commit_metadata_records([records.RemoveTopicRecord(topic_id=topic.topic_id)])
            for partition in topic.partitions:
                partition.leader_id = NO_LEADER
            for portion in split_into_portions(topic.partitions, DELETED_AT_ONCE):
                cluster.delete_partition_logs([partition.log for partition in portion if partition.has_local_log])
                for partition in portion:
                    partition.wake_all_waiters()
                yield
            for watcher in cluster.watchers:
                yield from watcher.on_topic_deleted(topic)
            # They refer to the topic, and would wait for a collection of cycles. Each takes a while to be freed.
            partitions, topic.partitions = list(topic.partitions), []
            while partitions:
                del partitions[-DELETED_AT_ONCE:]
                yield

    def _apply_changes_made_during_creation(self, topic_id: bytes, logs: list[Log]) -> Steps[None]:
        """Apply the changes of configs and nodes that happened while the logs of new partitions were created."""
        for log in logs:
            topic = self._cluster.image.topics_by_id.get(topic_id)
            if topic is None:
                return  # deleted meanwhile
            partition = topic.partitions[log.partition]
            if not self._cluster.nodes.keys() >= set(partition.isr):
                remove_absent_nodes_from_isr(self._cluster, [partition])
            log.update_settings(self._cluster.get_log_settings(partition))
            yield

    # --- configs --------------------------------------------------------------------------------

    def apply_changed_log_settings(self, topic: Topic | None) -> Steps[None]:
        """Apply the changed configs of `topic`, or of the brokers (None). New topics already have them."""
        if topic is None:
            self._cluster.apply_broker_configs()
        for portion in self._cluster.iterate_partition_portions(None if topic is None else [topic]):
            for changed in {partition.topic for partition in portion}:
                self._cluster.apply_configs_to_topic(changed)
            self._cluster.apply_log_settings(portion)
            yield

    def change_config(self, resource_type: int, name: str, changes: Mapping[str, str | None]) -> None:
        """Run `change_config_in_steps` in one step."""
        run_all_steps(self.change_config_in_steps(resource_type, name, changes))

    def change_config_in_steps(self, resource_type: int, name: str, changes: Mapping[str, str | None]) -> Steps[None]:
        """Set the values of `changes`, remove those that are None, and apply them. The caller has validated them.

        The first step records them; after the last one they apply to all partitions.
        """
        decided: list[Message] = [
            records.ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
            for key, value in changes.items()
        ]
        if MINIMUM_ISR in changes and self._cluster.image.features.get(ELIGIBLE_LEADER_REPLICAS):
            decided.append(records.ClearElrRecord(topic_name=name if resource_type == TOPIC_RESOURCE else ""))
        self._cluster.commit_metadata_records(decided)
        if resource_type in (TOPIC_RESOURCE, BROKER_RESOURCE):
            topic = self._cluster.image.topics.get(name) if resource_type == TOPIC_RESOURCE else None
            yield from self.apply_changed_log_settings(topic)
        if CORDONED in changes:
            record_cordoned_directories(self._cluster)
        if UNCLEAN_ELECTION in changes:
            yield from elect_leaders_at_start_in_steps(self._cluster)
        warn_of_settings_without_effect(resource_type, name, changes, self._cluster.controller_id)

    # --- features -------------------------------------------------------------------------------

    def make_bootstrap_records(self, formatted_records: Sequence[Message], levels: Mapping[str, int]) -> list[Message]:
        """Return the first records of a new cluster: those of Kafka's format command, or else these feature levels.

        With eligible leader replicas, min.insync.replicas is recorded for all brokers from the beginning.
        """
        made = [records.FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]
        first: list[Message] = list(formatted_records or made)
        begun = Image()
        for record in first:
            begun.apply_record(record)
        if begun.features.get(ELIGIBLE_LEADER_REPLICAS):
            first += self._make_min_isr_records_of_brokers(begun)
        return first

    def update_features_in_steps(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> Steps[None]:
        """Set the levels of features, all or none. Raises KafkaError(INVALID_UPDATE_VERSION)."""
        cluster = self._cluster
        image = cluster.image
        leader = min(cluster.nodes, default=cluster.static_settings["node.id"])
        supported = [(f"Local controller {leader}", SUPPORTED)]
        supported += [
            (f"Broker {broker.broker_id}", list_supported_feature_levels(broker))
            for broker in image.brokers.values()
            if broker.broker_id not in cluster.nodes
        ]
        check_feature_updates(updates, {**image.features, KRAFT_VERSION: cluster.metadata_log.kraft_version}, supported)
        if validate_only:
            return
        levels = {update.name: update.level for update in updates if update.name != KRAFT_VERSION}
        decided = self._make_min_isr_records_of_brokers(image) if levels.get(ELIGIBLE_LEADER_REPLICAS) else []
        decided += [records.FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]
        if decided:
            cluster.commit_metadata_records(decided)
            record_cordoned_directories(self._cluster)
            yield from self.apply_changed_log_settings(None)

    def _make_min_isr_records_of_brokers(self, image: Image) -> list[Message]:
        """Return records that make min.insync.replicas equal for all brokers, as eligible leaders need it (KIP-966)."""
        decided: list[Message] = []
        configs = image.configs
        if MINIMUM_ISR not in configs.get((BROKER_RESOURCE, ""), ()):
            value = str(self._cluster.static_settings[MINIMUM_ISR])
            decided.append(
                records.ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=MINIMUM_ISR, value=value)
            )
        decided += [
            records.ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=name, name=MINIMUM_ISR, value=None)
            for (resource_type, name), texts in configs.items()
            if resource_type == BROKER_RESOURCE and name and MINIMUM_ISR in texts
        ]
        return decided

    # --- producer ids ---------------------------------------------------------------------------

    def allocate_producer_id(self) -> int:
        """Return a new producer id; a block of them is recorded before its first is used (KIP-730)."""
        if not self._producer_ids:
            first = self._cluster.image.next_producer_id
            if not self._cluster.nodes:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "No broker is registered.")
            node = self._cluster.nodes[min(self._cluster.nodes)]
            following = first + PRODUCER_IDS_PER_BLOCK
            block = records.ProducerIdsRecord(
                broker_id=node.node_id, broker_epoch=node.broker_epoch, next_producer_id=following
            )
            self._cluster.commit_metadata_records([block])
            self._producer_ids = range(first, following)
        producer_id, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return producer_id


def list_supported_feature_levels(broker: records.RegisterBrokerRecord) -> dict[str, range]:
    """Return the levels of each feature that a broker supports according to its registration."""
    return {
        feature.name: range(feature.min_supported_version, feature.max_supported_version + 1)
        for feature in broker.features
    }
