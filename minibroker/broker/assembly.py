"""A cluster with all that acts on it: the controller, moves of logs, and the coordinators; and its start.

The state that they act on is `Cluster`'s, which knows none of them.
"""

from __future__ import annotations

import logging
import random
from functools import cached_property
from typing import TYPE_CHECKING

from minibroker.broker.clock import Clock
from minibroker.broker.cluster import Cluster
from minibroker.broker.configs.recorded_configs import drop_unusable_configs
from minibroker.broker.configs.settings import Settings
from minibroker.broker.control import elections, registration
from minibroker.broker.control.controller import Controller
from minibroker.broker.control.log_moves import LogMoves
from minibroker.broker.coordination.coordinators import Coordinators
from minibroker.broker.metadata import features
from minibroker.broker.metadata.metadata_log import MetadataError
from minibroker.broker.metadata.partitions import (
    GROUPS_TOPIC,
    METADATA_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
)
from minibroker.broker.quotas.quota_manager import QuotaManager
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.messages.metadata_records import RemoveTopicRecord

if TYPE_CHECKING:
    from minibroker.broker.client_telemetry import ClientTelemetry
    from minibroker.broker.groups.group_coordinator import GroupCoordinator
    from minibroker.broker.share.share_coordinator import ShareCoordinator
    from minibroker.broker.share.share_partitions import SharePartitions
    from minibroker.broker.transactions.transaction_coordinator import TransactionCoordinator
    from minibroker.storage.directories.log_dirs import LogDirectories

log = logging.getLogger("minibroker.cluster")


class Broker(Cluster):
    """A cluster that decides and coordinates."""

    def __init__(self, settings: Settings, clock: Clock, logs: LogDirectories, source: random.Random) -> None:
        """Raise MetadataError for directories with logs and no metadata, LogDirectoryError, KafkaError."""
        super().__init__(settings, clock, logs, source)
        self.controller = Controller(self)
        self.moves = LogMoves(self)
        self.quotas = QuotaManager(self)
        self.coordinators = Coordinators(self, self.controller)
        self.watchers.append(self.coordinators)
        self._shares: SharePartitions | None = None

    @property
    def groups(self) -> GroupCoordinator:
        """The coordinator of all groups."""
        groups = self.coordinators.made.get(GROUPS_TOPIC) or self.coordinators.find_coordinator_by_state_topic(
            GROUPS_TOPIC
        )
        return groups  # type: ignore[return-value]  # which the table says, and no import does

    @property
    def transactions(self) -> TransactionCoordinator:
        """The coordinator of all transactions."""
        return self.coordinators.find_coordinator_by_state_topic(TRANSACTIONS_TOPIC)  # type: ignore[return-value]

    @property
    def share_states(self) -> ShareCoordinator:
        """The coordinator of the states of all share partitions."""
        return self.coordinators.find_coordinator_by_state_topic(SHARE_STATE_TOPIC)  # type: ignore[return-value]

    @property
    def shares(self) -> SharePartitions:
        """The share partitions that this process leads."""
        if self._shares is None:
            from minibroker.broker.share.share_partitions import SharePartitions  # many brokers never need it

            self._shares = SharePartitions(self, self.controller, self.share_states)
            self.watchers.append(self._shares)
        return self._shares

    @cached_property
    def telemetry(self) -> ClientTelemetry:
        """The metrics that clients push."""
        from minibroker.broker.client_telemetry import ClientTelemetry  # which few clients have

        return ClientTelemetry(self)

    def load_cluster(self) -> None:
        """Replay the metadata log, begin an epoch in it, register nodes, open the logs, elect leaders.

        Raises MetadataError, LogDirectoryError, or KafkaError(KAFKA_STORAGE_ERROR).
        """
        is_new = self.metadata_log.is_new
        removed: set[bytes] = set()
        try:
            self.metadata_log.replay_all_records(lambda record: self._apply_replayed_record(record, removed))
        except MetadataError as error:
            raise MetadataError(f"{error}; {self.metadata_repair_advice}") from error
        if not (self.logs.was_clean_shutdown or self.static_settings["accept.lost.metadata"]):
            self._check_no_topic_record_lost(removed)
        if not is_new:
            self._check_feature_levels()
        self.metadata_log.begin_leader_epoch(
            min(self.nodes, default=self.static_settings["node.id"]), self.clock.wall_ms()
        )
        if is_new:
            first = self.controller.make_bootstrap_records(
                self.metadata_log.read_bootstrap_records(), self.first_levels
            )
            self.commit_metadata_records([*first, *self.first_records])
        elif self.first_records:
            log.warning("this cluster has begun already: the credentials for a new one are left out")
        drop_unusable_configs(self.image.configs)
        registration.register_nodes(self)
        self.logs.broker_epoch = min((node.broker_epoch for node in self.nodes.values()), default=None)
        self.apply_broker_configs()
        for topic in self.image.topics.values():
            self.open_logs_of_topic(topic)
        self._rename_stray_logs()
        for topic in self.image.topics.values():
            for partition in topic.partitions:
                self.on_leader_changed(partition)
        if not self.logs.was_clean_shutdown:
            elections.bump_all_leader_epochs(self)
        elections.elect_leaders_at_start(self)
        self._resume_log_moves()
        self.coordinators.load_all_coordinators()

    def _apply_replayed_record(self, record: Message, removed_topic_ids: set[bytes]) -> None:
        """Apply a record of the metadata log to the image; add the id of a topic that it removes to the set."""
        self.image.apply_record(record)
        if isinstance(record, RemoveTopicRecord):
            removed_topic_ids.add(record.topic_id)

    def _check_no_topic_record_lost(self, removed_topic_ids: set[bytes]) -> None:
        """Raise MetadataError if a log has records, but its topic is unknown and was not deleted.

        A crash may leave an empty log of a topic whose creation was not committed. Records need a committed topic.
        """
        for name, index in self.logs.list_logs():
            topic = self.image.topics.get(name)
            if name == METADATA_TOPIC or topic is not None and topic.find_partition(index) is not None:
                continue
            path, topic_id, size_bytes = self.logs.describe_unopened_log(name, index)
            if size_bytes and topic_id not in removed_topic_ids:
                storage = self.metadata_log.storage
                raise MetadataError(
                    f"{path} has records, and {storage.directory}, which ends at offset {storage.log_end_offset}, does "
                    f"not know its topic: it may have lost its end; {self.metadata_repair_advice}"
                )

    def _resume_log_moves(self) -> None:
        """Begin again the moves between log directories that the last stop interrupted."""
        for (name, index), directory in self.logs.list_interrupted_moves():
            topic = self.image.topics.get(name)
            partition = None if topic is None else topic.find_partition(index)
            if partition is not None and partition.has_local_log:
                self.moves.start_log_move(partition, directory)

    def _check_feature_levels(self) -> None:
        """Raise MetadataError for a cluster whose records we might misunderstand."""
        name = features.METADATA_VERSION
        level, levels = self.image.features.get(name), features.SUPPORTED[name]
        if level not in levels:
            raise MetadataError(f"the cluster has {name} {level}, and this broker supports {levels[0]} to {levels[-1]}")

    def fence_nodes_at_shutdown(self) -> None:
        """Record that the nodes are fenced, for brokers and tools that read the metadata log later."""
        try:
            registration.fence_nodes(self)
        except KafkaError as error:
            log.warning("the metadata log could not record that the nodes have gone: %s", error)

    def _rename_stray_logs(self) -> None:
        """Rename the files of logs whose topic or partition the metadata does not know."""
        for name, index in self.logs.list_logs():
            topic = self.image.topics.get(name)
            if name != METADATA_TOPIC and (topic is None or topic.find_partition(index) is None):
                self.rename_stray_log(name, index)
