"""The state of a cluster: nodes, metadata, logs, and what they share. One event loop owns it; nothing locks.

`assembly` adds who decides on it and who coordinates groups and transactions; requests are answered in `handlers`.
"""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from minibroker.broker.clock import Clock
from minibroker.broker.configs.listeners import shift_settings_to_node
from minibroker.broker.configs.settings import Settings
from minibroker.broker.configs.valid_values import parse_super_users
from minibroker.broker.metadata import features
from minibroker.broker.metadata.cordoning import CORDONED, find_cordoned_paths, find_cordoned_paths_to_avoid
from minibroker.broker.metadata.image import Image
from minibroker.broker.metadata.leaders import NOT_HOSTED
from minibroker.broker.metadata.metadata_log import METADATA_SETTINGS, MetadataError, MetadataLog
from minibroker.broker.metadata.partitions import (
    METADATA_TOPIC,
    NO_LEADER,
    Partition,
    Topic,
)
from minibroker.broker.security.authorizer import Authorizer
from minibroker.broker.security.delegation import SECRET_KEY
from minibroker.broker.turn import Turn
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata_records import BROKER_RESOURCE, METADATA_TOPIC_ID
from minibroker.protocol.primitives import ZERO_UUID, format_uuid, make_uuid
from minibroker.protocol.steps import CHUNK_ITEMS, Steps, apply_to_items_in_steps
from minibroker.storage.checkpoints.checkpoint_texts import PARTITION_METADATA
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.recovery.recovery import LogDirectoryError

if TYPE_CHECKING:
    from minibroker.broker.metadata.nodes import Node
    from minibroker.storage.directories.log_dirs import LogDirectories

log = logging.getLogger("minibroker.cluster")

# Why a sound log cannot be opened: to repair it, or to start without it, would lose what is in it.
SOUND_BUT_CLOSED: Final = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EMFILE,
    errno.ENFILE,
)


class PartitionWatcher(Protocol):
    """Whoever keeps something about partitions."""

    def on_leader_changed(self, partition: Partition) -> None:
        """Note that the partition has another leader, or none."""

    def on_topic_deleted(self, topic: Topic) -> Steps[None]:
        """Forget what the watcher keeps about a deleted topic."""

    def on_transaction_ended(self, topic: str, index: int, producer_id: int, *, committed: bool) -> None:
        """Note that a partition has a marker that ends a transaction of this producer."""


class Cluster:
    """All state of the process. Only `commit_metadata_records` changes the image; `commits` counts the changes.

    `first_levels` are the initial levels of features of a new cluster, `first_records` what its log begins with beside.
    """

    def __init__(self, settings: Settings, clock: Clock, logs: LogDirectories, source: random.Random) -> None:
        """Raise MetadataError for directories with logs and no metadata, LogDirectoryError, KafkaError."""
        self.static_settings = settings
        self.settings = settings  # of the node with the lowest id; they hold for all that the nodes share
        self._settings_of_nodes: dict[int, Settings] = {}
        self.clock = clock
        self.logs = logs
        self.random = source
        self.cluster_id = logs.cluster_id
        self.nodes: dict[int, Node] = {}
        self.image = Image(settings[SECRET_KEY])
        self.authorizer = self._make_authorizer()
        self.first_levels: Mapping[str, int] = features.INITIAL
        self.first_records: Sequence[Message] = ()
        self.metadata_log = MetadataLog(self._open_metadata_log(), logs.disk)
        self.commits = 0
        self.turn = Turn()
        self.watchers: list[PartitionWatcher] = []
        self.configured: Callable[[], None] = lambda: None  # called when configs of brokers have changed

    def _make_authorizer(self) -> Authorizer | None:
        settings = self.static_settings
        if not settings["authorizer.class.name"]:
            return None
        privileged = parse_super_users(settings["super.users"])
        allow_without_acl = settings["allow.everyone.if.no.acl.found"]
        return Authorizer(self.image.acls, privileged, allow_without_acl=allow_without_acl)

    # --- start ----------------------------------------------------------------------------------

    def _open_metadata_log(self) -> Log:
        """Open the metadata log, which must be whole unless `accept.lost.metadata` is set.

        Raises MetadataError, KafkaError.
        """
        logs, accepted = self.logs, self.static_settings["accept.lost.metadata"]
        if not logs.has_log(METADATA_TOPIC, 0):
            if logs.list_logs() and not accepted:
                from minibroker.quantities import format_count  # here, as it imports datetime, which takes 2 ms

                held = f"hold{'s' if len(logs.directories) == 1 else ''} {format_count(len(logs.list_logs()), 'log')}"
                raise MetadataError(
                    f"{logs} {held}, but no {METADATA_TOPIC}-0, which says what they are: "
                    f"if it is elsewhere, name its directory in log.dirs too; else {self.metadata_repair_advice}"
                )
            return logs.create_log(METADATA_TOPIC, 0, METADATA_TOPIC_ID, METADATA_SETTINGS)
        try:
            storage = logs.open_log(METADATA_TOPIC, 0, METADATA_SETTINGS, refuse_record_loss=not accepted)
        except LogDirectoryError as error:
            is_damaged = getattr(error.__cause__, "errno", None) not in SOUND_BUT_CLOSED
            raise MetadataError(f"{error}; {self.metadata_repair_advice}" if is_damaged else str(error)) from error
        problem = None
        if storage.topic_id not in (ZERO_UUID, METADATA_TOPIC_ID):
            problem = (
                f"{storage.directory}/{PARTITION_METADATA} says that it is of topic {format_uuid(storage.topic_id)}"
            )
        elif storage.log_end_offset == 0 and len(logs.list_logs()) > 1:
            problem = f"{storage.directory} ends at offset 0, and there are {len(logs.list_logs()) - 1} other logs"
        if problem and not accepted:
            raise MetadataError(f"{problem}; {self.metadata_repair_advice}")
        if storage.topic_id != METADATA_TOPIC_ID:
            logs.assign_topic_id(storage, METADATA_TOPIC_ID)
        return storage

    @property
    def metadata_repair_advice(self) -> str:
        """What to do about a metadata log that is not whole."""
        paths = " ".join(directory.path for directory in self.logs.directories)
        return f"`minibroker repair {paths}` rebuilds what it can, --set accept.lost.metadata=true starts without it"

    def open_logs_of_topic(self, topic: Topic) -> None:
        """Open the logs of a topic at the start: of each partition with a replica or a log in this process."""
        self.apply_configs_to_topic(topic)
        for partition in topic.partitions:
            holds = self.logs.has_log(topic.name, partition.index)
            here = any(node in self.nodes for node in partition.replicas)
            if here and not holds:
                log.warning("%s is in no log directory, and begins empty", partition)
            if here or holds:
                partition.log = self._open_partition_log(partition)
                partition.hold_high_watermark_while_under_min_isr()
                if partition.log.leader_epoch > partition.leader_epoch:
                    known = partition.leader_epoch
                    log.warning(
                        "%s has leader epoch %d, and the metadata only %d", partition, partition.log.leader_epoch, known
                    )

    def open_log_if_hosted(self, partition: Partition) -> None:
        """Open a partition's log if one of its replicas is on a node here, and it is not open yet."""
        if not partition.has_local_log and any(node in self.nodes for node in partition.replicas):
            partition.log = self._open_partition_log(partition)

    def _open_partition_log(self, partition: Partition) -> Log:
        topic = partition.topic
        return self._open_log(topic.name, partition.index, topic.topic_id, topic.settings, partition.replicas)

    def _open_log(
        self, topic: str, partition: int, topic_id: bytes, settings: LogSettings, replicas: Sequence[int]
    ) -> Log:
        if self.logs.has_log(topic, partition):
            log = self.logs.open_log(topic, partition, settings)
            if log.topic_id == ZERO_UUID:
                self.logs.assign_topic_id(log, topic_id)
            if log.topic_id == topic_id:
                return log
            named, known = format_uuid(log.topic_id), format_uuid(topic_id)
            self.rename_stray_log(
                topic, partition, f", as its {PARTITION_METADATA} names topic {named} instead of {known}"
            )
        avoided = find_cordoned_paths_to_avoid(replicas, self._log_paths, self.list_cordoned_log_dirs)
        return self.logs.create_log(topic, partition, topic_id, settings, paths_to_avoid=avoided)

    def rename_stray_log(self, topic: str, partition: int, reason: str = "") -> None:
        """Rename the files of a log that the metadata does not know, so that nothing is lost."""
        path = self.logs.rename_log_to_stray(topic, partition, self.random.randbytes(16).hex())
        log.warning(
            "%s-%d is not a partition of this cluster%s: its files are now in %s", topic, partition, reason, path
        )

    # --- logs of partitions that come and go ------------------------------------------------------

    def create_partition_log(
        self, topic: str, index: int, topic_id: bytes, settings: LogSettings, replicas: Sequence[int] = ()
    ) -> Log:
        """Create the empty log of a partition that is committed later. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        return self._open_log(topic, index, topic_id, settings, replicas)

    def commit_new_partitions(self, name: str, topic_id: bytes, records: list[Message], logs: list[Log]) -> Steps[None]:
        """Commit a new topic, or new partitions of one, with their logs: nobody sees a part of it.

        Raises KafkaError; UNKNOWN_TOPIC_OR_PARTITION for a topic that was deleted in the meantime.
        """
        known = self.image.topics_by_id.get(topic_id)
        beside = Image()  # the records are folded into it before they are written, in steps
        if known is not None:
            beside.add_topic(known.copy_topic())
        for record in records:
            beside.apply_record(record)
            yield
        topic = beside.topics[name]
        for log in logs:
            topic.partitions[log.partition].log = log
        batch = yield from self.metadata_log.build_batch_in_steps(
            records, self.clock.wall_ms(), self._get_metadata_version()
        )
        if known is not self.image.topics_by_id.get(topic_id):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
        self.metadata_log.append_batch(batch)
        self.image.copy_topic_from_image(topic, beside)
        self.apply_configs_to_topic(self.image.topics[name])
        for log in logs:
            topic.partitions[log.partition].hold_high_watermark_while_under_min_isr()
        self._count_commit_and_flush_soon()

    @property
    def _log_paths(self) -> list[str]:
        return [directory.path for directory in self.logs.directories]

    def list_cordoned_log_dirs(self, node_id: int) -> list[str]:
        """Return the paths of the log directories in which a broker takes no new replicas."""
        return find_cordoned_paths(self.image, node_id, self.static_settings[CORDONED], self._log_paths)

    def is_cordoned(self, node_id: int) -> bool:
        """Return whether a broker takes no new replicas at all."""
        return len(self.list_cordoned_log_dirs(node_id)) == len(self.logs.directories)

    def delete_partition_logs(self, logs: Iterable[Log]) -> None:
        """Delete logs, and their files after file.delete.delay.ms. The next start sets aside what cannot be removed."""
        for removed in logs:
            try:
                self.logs.delete_log(removed, self.random.randbytes(16).hex())
            except KafkaError as error:
                log.warning("%s; the next start sets it aside", error)

    # --- change ---------------------------------------------------------------------------------

    def commit_metadata_records(self, records: Iterable[Message]) -> None:
        """Write the records to the metadata log, all or none, and apply them to the image.

        Their sync has begun then; answers that report them wait for it (`durable`).
        """
        decided = list(records)
        self.metadata_log.append_messages(decided, self.clock.wall_ms(), self._get_metadata_version())
        for record in decided:
            self.image.apply_record(record)
        self._count_commit_and_flush_soon()

    def commit_metadata_records_in_steps(self, records: Sequence[Message]) -> Steps[None]:
        """Write many records, all or none, and apply them to the image, some in each step.

        The caller sees to it that nobody else changes meanwhile what they are about.
        """
        if not records:
            return
        batch = yield from self.metadata_log.build_batch_in_steps(
            records, self.clock.wall_ms(), self._get_metadata_version()
        )
        self.metadata_log.append_batch(batch)
        yield from apply_to_items_in_steps(self.image.apply_record, records)
        self._count_commit_and_flush_soon()

    @property
    def answer_cache_generation(self) -> tuple[int, int]:
        """The numbers of commits and of failed logs: cached answers about the cluster hold while both stay the same."""
        return self.commits, Log.failures

    def _get_metadata_version(self) -> int:
        return self.image.features.get(features.METADATA_VERSION, features.LOWEST_METADATA_VERSION)

    def _count_commit_and_flush_soon(self) -> None:
        """Count a commit, which makes cached answers stale, and sync the metadata log soon."""
        self.commits += 1
        self.metadata_log.storage.flush_soon()

    def apply_log_settings(self, partitions: Iterable[Partition]) -> None:
        """Give the partitions' logs the present settings; logs of the same topic and leader share them."""
        made: dict[tuple[Topic, int], LogSettings] = {}
        for partition in partitions:
            partition.hold_high_watermark_while_under_min_isr()
            if partition.has_local_log:
                key = partition.topic, partition.leader_id
                if key not in made:
                    made[key] = self.get_log_settings(partition)
                partition.log.update_settings(made[key])

    def apply_configs_to_topic(self, topic: Topic) -> None:
        """Give a topic the settings that follow from its configs and those of the brokers."""
        topic.settings = self.settings.get_log_settings(topic.overrides)
        topic.min_insync_replicas = self.settings.get_topic_value("min.insync.replicas", topic.overrides)

    def apply_broker_configs(self) -> None:
        """Compute all settings anew from the recorded configs of the brokers, and apply them to listeners and TLS."""
        self._settings_of_nodes.clear()
        first = min(self.nodes, default=None)
        of_all = self.image.get_configs(BROKER_RESOURCE, "")
        self.settings = (
            self.static_settings.with_dynamic_configs(cluster=of_all)
            if first is None
            else self.get_node_settings(first)
        )
        for node in self.nodes.values():
            for tls in node.tls.values():
                tls.renew_tls_settings(self.get_node_settings(node.node_id))
        self.configured()

    def get_node_settings(self, node_id: int) -> Settings:
        """Return the settings of one node: the shared ones, its own addresses, and what was changed for it alone."""
        node = self.nodes.get(node_id)
        if node is None:
            return self.settings
        if node_id not in self._settings_of_nodes:
            of_all, own = self.image.get_configs(BROKER_RESOURCE, ""), self._get_configs_of_node(node_id)
            static = shift_settings_to_node(self.static_settings, node_id, node.rack)
            self._settings_of_nodes[node_id] = static.with_dynamic_configs(cluster=of_all, broker=own)
        return self._settings_of_nodes[node_id]

    def _get_configs_of_node(self, node_id: int) -> Mapping[str, str]:
        return self.image.configs.get((BROKER_RESOURCE, str(node_id)), {})

    @property
    def _has_node_configs(self) -> bool:
        """Return whether one of several nodes has recorded configs of its own."""
        return len(self.nodes) > 1 and any(map(self._get_configs_of_node, self.nodes))

    def get_log_settings(self, partition: Partition) -> LogSettings:
        """Return the settings for the log of a partition, from its topic and from the node of its leader."""
        topic = partition.topic
        if not self._has_node_configs:
            return topic.settings
        return self.get_node_settings(partition.leader_id).get_log_settings(topic.overrides)

    def on_leader_changed(self, partition: Partition) -> None:
        """Give the partition's log the settings of its leader's node, and tell the watchers of the leader."""
        if self._has_node_configs and partition.has_local_log:
            partition.log.update_settings(self.get_log_settings(partition))
        for watcher in self.watchers:
            watcher.on_leader_changed(partition)

    @property
    def node_id_of_log_directories(self) -> int:
        """The node that has the log directories in the metadata, the one that `meta.properties` names."""
        owner: int = self.static_settings["node.id"]
        return owner

    @property
    def controller_id(self) -> int:
        """The node that clients see as the controller, -1 for none; every node serves its requests."""
        return min(self.nodes, default=NO_LEADER)

    def make_uuid(self) -> bytes:
        """Return a random UUID (16 raw bytes), as the id of a new topic, directory or instance."""
        return make_uuid(self.random)

    def iterate_partitions(self) -> Iterator[Partition]:
        """Yield the partitions of all topics."""
        for topic in self.image.topics.values():
            yield from topic.partitions

    def iterate_partition_portions(self, topics: Iterable[Topic] | None = None) -> Iterator[list[Partition]]:
        """Yield the partitions of these topics, or of all present ones, in portions for one step each.

        A topic may grow or be deleted between two portions; each portion has what exists when it is made.
        """
        portion: list[Partition] = []
        for topic in list(self.image.topics.values() if topics is None else topics):
            at = 0
            while topic.topic_id in self.image.topics_by_id and at < len(topic.partitions):
                more = topic.partitions[at : at + CHUNK_ITEMS - len(portion)]
                portion += more
                at += len(more)
                if len(portion) == CHUNK_ITEMS:
                    yield portion
                    portion = []
        if portion:
            yield portion
