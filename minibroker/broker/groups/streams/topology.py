"""An application's topology, and the topics that it needs.

A subtopology reads source topics and repartition topics, writes to other subtopologies' repartition topics, and keeps
its state in changelog topics. `configure_topology` decides how many partitions the internal topics have, and finds out
which are missing. There are limits on a topology's size, since one that a request describes in a few bytes may have
millions of tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

from minibroker.broker.groups.streams.tasks import TaskId
from minibroker.broker.metadata.image import Image
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.streams_group_records import StreamsGroupTopologyValue
from minibroker.protocol.messages.streams_groups import StreamsGroupHeartbeatRequest

Subtopology = StreamsGroupTopologyValue.Subtopology
TopicInfo = StreamsGroupTopologyValue.TopicInfo
ReportedTopology = StreamsGroupHeartbeatRequest.Topology

MAXIMUM_NAMES = 2000  # of topics, their configs, and subtopologies in one topology
MAXIMUM_TASKS = 5000
NOT_SAID = 0  # a number of partitions or replicas that the broker is to choose
LISTED = 3  # names in a message


class HeartbeatStatus(IntEnum):
    """What a heartbeat's answer says about the group (StreamsGroupHeartbeatResponse.Status)."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class Topology:
    """A topology, as recorded. It never changes."""

    def __init__(self, value: StreamsGroupTopologyValue) -> None:
        self.value = value
        self.epoch = value.epoch
        self.subtopologies: Mapping[str, Subtopology] = {
            each.subtopology_id: each for each in sorted(value.subtopologies, key=lambda each: each.subtopology_id)
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topology) and (self.epoch, self.subtopologies) == (other.epoch, other.subtopologies)

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def subtopology_ids(self) -> Mapping[str, str]:
        """The id of the subtopology that reads each topic."""
        return {
            name: each.subtopology_id
            for each in self.subtopologies.values()
            for name in (*each.source_topics, *(topic.name for topic in each.repartition_source_topics))
        }

    @cached_property
    def topic_names(self) -> frozenset[str]:
        """The names of source and internal topics, which must exist before there are tasks."""
        changelogs = (topic.name for each in self.subtopologies.values() for topic in each.state_changelog_topics)
        return frozenset((*self.subtopology_ids, *changelogs))


def parse_topology(topology: ReportedTopology) -> Topology:
    """Return the topology of a request that has passed `check_topology_size`."""
    value = StreamsGroupTopologyValue
    return Topology(
        value(
            epoch=topology.epoch,
            subtopologies=[
                Subtopology(
                    subtopology_id=each.subtopology_id,
                    source_topics=each.source_topics,
                    source_topic_regex=each.source_topic_regex,
                    state_changelog_topics=[_make_topic_info(topic) for topic in each.state_changelog_topics],
                    repartition_sink_topics=each.repartition_sink_topics,
                    repartition_source_topics=[_make_topic_info(topic) for topic in each.repartition_source_topics],
                    copartition_groups=[
                        Subtopology.CopartitionGroup(
                            source_topics=group.source_topics,
                            source_topic_regex=group.source_topic_regex,
                            repartition_source_topics=group.repartition_source_topics,
                        )
                        for group in each.copartition_groups
                    ],
                )
                for each in topology.subtopologies
            ],
        )
    )


def _make_topic_info(topic: StreamsGroupHeartbeatRequest.TopicInfo) -> TopicInfo:
    """Return a topic of a heartbeat's topology in the form of the topology record."""
    configs = [StreamsGroupTopologyValue.TopicConfig(key=each.key, value=each.value) for each in topic.topic_configs]
    return TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=configs,
    )


def check_topology_size(topology: ReportedTopology) -> None:
    """Check that a topology has not too many names, and no subtopology twice.

    Raises KafkaError(STREAMS_INVALID_TOPOLOGY).
    """
    if len({each.subtopology_id for each in topology.subtopologies[:MAXIMUM_NAMES]}) < len(topology.subtopologies):
        raise _make_invalid_topology_error(f"A topology may have {MAXIMUM_NAMES} subtopologies at most, each once.")
    count = 0
    for subtopology in topology.subtopologies:
        groups = subtopology.copartition_groups
        count += 1 + len(subtopology.source_topics) + len(subtopology.repartition_sink_topics) + len(groups)
        infos = subtopology.state_changelog_topics, subtopology.repartition_source_topics
        count += sum(1 + len(topic.topic_configs) for topics in infos for topic in topics[:MAXIMUM_NAMES])
        count += sum(
            len(group.source_topics) + len(group.repartition_source_topics) for group in groups[:MAXIMUM_NAMES]
        )
        if count > MAXIMUM_NAMES or max(map(len, infos)) > MAXIMUM_NAMES:
            raise _make_invalid_topology_error(f"A topology may have {MAXIMUM_NAMES} topics and configs at most.")


def list_topology_topic_names(topology: ReportedTopology) -> dict[str, None]:
    """Return the names of all topics of a topology, each once, as the client lists them."""
    return {
        name: None
        for each in topology.subtopologies
        for name in (
            *each.source_topics,
            *each.repartition_sink_topics,
            *(topic.name for topic in each.repartition_source_topics),
            *(topic.name for topic in each.state_changelog_topics),
        )
    }


# --- with the topics that there are -----------------------------------------------------------------------


class NewTopic(NamedTuple):
    """An internal topic that the broker is to create; -1 replicas are the broker's default."""

    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]


class TopologyProblem(NamedTuple):
    """What keeps a group from getting tasks, for the status of the heartbeats' answers."""

    status: HeartbeatStatus
    detail: str


class ConfiguredSubtopology(NamedTuple):
    """A subtopology with its number of tasks, and the numbers of partitions of its internal topics by name."""

    task_count: int
    is_stateful: bool
    topic_names: tuple[str, ...]  # that it reads
    partition_counts: Mapping[str, int]


class ConfiguredTopology(NamedTuple):
    """A topology beside the topics that there are. `subtopologies` is None if the numbers of tasks are not known."""

    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    missing: Mapping[str, NewTopic] = {}
    problem: TopologyProblem | None = None

    def iterate_task_ids(self, *, stateful_only: bool = False) -> Iterator[TaskId]:
        """Yield the tasks of all subtopologies, or of those with state."""
        for subtopology_id, each in (self.subtopologies or {}).items():
            if each.is_stateful or not stateful_only:
                yield from (TaskId(subtopology_id, partition) for partition in range(each.task_count))

    @property
    def is_ready(self) -> bool:
        """Whether all topics are there, so that tasks may run."""
        return self.problem is None


class _MisconfiguredTopology(Exception):
    """A topology that needs topics which are missing, or have another number of partitions."""

    def __init__(self, status: HeartbeatStatus, detail: str) -> None:
        super().__init__(detail)
        self.problem = TopologyProblem(status, detail)


def configure_topology(topology: Topology, image: Image) -> ConfiguredTopology:
    """Return a topology with the numbers of its tasks, and what is missing.

    Raises KafkaError(STREAMS_INVALID_TOPOLOGY) for a topology that cannot work with any topics.
    """
    try:
        _check_source_topics_exist(topology, image)
        counts = _PartitionCounts(topology, image)
        subtopologies = {each: _configure_subtopology(one, counts) for each, one in topology.subtopologies.items()}
        if sum(each.task_count for each in subtopologies.values()) > MAXIMUM_TASKS:
            raise _make_invalid_topology_error(f"A topology may have {MAXIMUM_TASKS} tasks at most.")
        missing = _find_missing_topics(topology, image, counts)
    except _MisconfiguredTopology as failure:
        return ConfiguredTopology(None, {}, failure.problem)
    if not missing:
        return ConfiguredTopology(subtopologies)
    detail = f"Internal topics are missing: {_format_topic_names(sorted(missing))}"
    return ConfiguredTopology(subtopologies, missing, TopologyProblem(HeartbeatStatus.MISSING_INTERNAL_TOPICS, detail))


def _check_source_topics_exist(topology: Topology, image: Image) -> None:
    sources = {name for each in topology.subtopologies.values() for name in each.source_topics}
    missing = sorted(sources - image.topics.keys())
    if missing:
        raise _MisconfiguredTopology(
            HeartbeatStatus.MISSING_SOURCE_TOPICS, f"Source topics {_format_topic_names(missing)} are missing."
        )


def _format_topic_names(names: list[str]) -> str:
    shown = ", ".join(names[:LISTED])
    return f"{shown} and {len(names) - LISTED} additional topics" if len(names) > LISTED else shown


def _configure_subtopology(subtopology: Subtopology, counts: _PartitionCounts) -> ConfiguredSubtopology:
    """Return the subtopology with its number of tasks, and the partition counts of its internal topics."""
    read = (*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics))
    internal = (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics)
    return ConfiguredSubtopology(
        max(map(counts.get_partition_count, read)),
        bool(subtopology.state_changelog_topics),
        tuple(dict.fromkeys(read)),
        {topic.name: counts.get_partition_count(topic.name) for topic in internal},
    )


def _find_missing_topics(topology: Topology, image: Image, counts: _PartitionCounts) -> dict[str, NewTopic]:
    """Return the internal topics to create; those that exist must have the right number of partitions."""
    missing = {}
    for subtopology in topology.subtopologies.values():
        for info in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            expected = counts.decided.get(info.name, info.partitions)
            topic = image.topics.get(info.name)
            if topic is None:
                configs = {config.key: config.value for config in info.topic_configs}
                missing[info.name] = NewTopic(expected, info.replication_factor or -1, configs)
            elif info.name in counts.decided and len(topic.partitions) != expected:
                detail = f"Existing topic {info.name} has different number of partitions: "
                detail += f"expected {expected}, found {len(topic.partitions)}"
                raise _MisconfiguredTopology(HeartbeatStatus.INCORRECTLY_PARTITIONED_TOPICS, detail)
    return missing


class _PartitionCounts:
    """The numbers of partitions of all topics of a topology: those that exist, and those that were decided on.

    A repartition topic has as many as the largest topic of those that write to it read, unless the application says
    how many; topics that are read together must have the same number. A changelog has one for each task.
    """

    def __init__(self, topology: Topology, image: Image) -> None:
        self._image = image
        self._subtopologies = topology.subtopologies.values()
        self.decided: dict[str, int] = {}
        self._fixed = self._get_fixed_repartition_counts()
        self._internal = {topic.name for each in self._subtopologies for topic in each.repartition_source_topics}
        self._decide_repartition_topic_counts()
        for subtopology in self._subtopologies:
            for group in _iterate_copartition_groups(subtopology):
                self._equalize_copartitioned_counts(group)
        for each in self._subtopologies:
            count = max(self.get_partition_count(name) for name in _list_read_topic_names(each))
            sources = set(each.source_topics)
            self.decided |= {topic.name: count for topic in each.state_changelog_topics if topic.name not in sources}

    def find_partition_count(self, name: str) -> int | None:
        """Return the number of partitions, None if it is not known yet."""
        topic = self._image.topics.get(name)
        return self.decided.get(name) if topic is None else len(topic.partitions)

    def get_partition_count(self, name: str) -> int:
        """Return the number of partitions. Raises KafkaError(STREAMS_INVALID_TOPOLOGY)."""
        count = self.find_partition_count(name)
        if count is None:
            raise _make_invalid_topology_error(f"Number of partitions is not set for topic: {name}")
        return count

    def _get_fixed_repartition_counts(self) -> dict[str, int]:
        """Return the partition counts that the topology itself sets for repartition topics, by name."""
        return {
            topic.name: topic.partitions
            for each in self._subtopologies
            for topic in each.repartition_source_topics
            if topic.partitions != NOT_SAID
        }

    def _decide_repartition_topic_counts(self) -> None:
        """Derive the partition counts of all repartition topics, from those of the topics that flow into them."""
        self.decided.update(self._fixed)
        readers: dict[str, list[Subtopology]] = {}
        for each in self._subtopologies:
            for topic in each.repartition_source_topics:
                readers.setdefault(topic.name, []).append(each)
        looked_at = deque(self._subtopologies)
        left = {each.subtopology_id for each in self._subtopologies}
        while looked_at:
            each = looked_at.popleft()
            if each.subtopology_id in left and self._decide_sink_topic_counts(each):
                left.remove(each.subtopology_id)
                looked_at.extend(reader for name in each.repartition_sink_topics for reader in readers.get(name, ()))
        if left:
            raise _make_invalid_topology_error(
                "Failed to compute number of partitions for all repartition topics. There may be loops in the "
                "topology that cannot be resolved."
            )
        if not self._internal <= self.decided.keys():
            raise _make_invalid_topology_error(
                "Failed to compute number of partitions for all repartition topics, because a repartition source topic "
                "is never used as a sink topic."
            )

    def _decide_sink_topic_counts(self, subtopology: Subtopology) -> bool:
        """Set the counts of repartition topics that a subtopology writes to; return False if its inputs lack theirs."""
        undecided = [name for name in subtopology.repartition_sink_topics if name not in self.decided]
        if not undecided:
            return True
        counts = [
            *(self.decided.get(topic.name, 0) for topic in subtopology.repartition_source_topics),
            *(len(self._image.topics[name].partitions) for name in subtopology.source_topics),
        ]
        if not any(counts):
            return False
        self.decided |= dict.fromkeys(undecided, max(counts))
        return True

    def _equalize_copartitioned_counts(self, names: frozenset[str]) -> None:
        """Give the repartition topics among co-partitioned topics the same number of partitions as the others."""
        counts = {name: self.get_partition_count(name) for name in sorted(names)}
        outside = {name: count for name, count in counts.items() if name not in self._internal}
        fixed = {name: count for name, count in counts.items() if name in self._fixed}
        given = outside or fixed
        if len(set(given.values())) > 1:
            raise _make_unequal_counts_error(given)
        count = max((given or counts).values())
        for name in sorted(names & self._internal):
            if name in fixed and fixed[name] != count:
                raise _MisconfiguredTopology(
                    HeartbeatStatus.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{fixed[name]}] of repartition topic [{name}] doesn't match number of "
                    f"partitions [{count}] of the source topic.",
                )
            self.decided[name] = count


def _list_read_topic_names(subtopology: Subtopology) -> Iterable[str]:
    """Return the source and repartition topics of a subtopology. Raises KafkaError if there are none."""
    names = [*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics)]
    if not names:
        raise _make_invalid_topology_error(f"No source topics found for subtopology {subtopology.subtopology_id}")
    return names


def _iterate_copartition_groups(subtopology: Subtopology) -> Iterator[frozenset[str]]:
    """Yield the names of topics that must have the same number of partitions. Raises KafkaError."""
    repartition = [topic.name for topic in subtopology.repartition_source_topics]
    for group in subtopology.copartition_groups:
        named = (group.source_topics, subtopology.source_topics), (group.repartition_source_topics, repartition)
        if any(not 0 <= index < len(names) for indexes, names in named for index in indexes):
            raise _make_invalid_topology_error(
                f"A copartition group of subtopology {subtopology.subtopology_id} has other topics than it reads."
            )
        together = frozenset(names[index] for indexes, names in named for index in indexes)
        if together:
            yield together


def _make_unequal_counts_error(counts: Mapping[str, int]) -> _MisconfiguredTopology:
    found = ", ".join(f"{name}={count}" for name, count in counts.items())
    detail = f"Following topics do not have the same number of partitions: [{{{found}}}]"
    return _MisconfiguredTopology(HeartbeatStatus.INCORRECTLY_PARTITIONED_TOPICS, detail)


def _make_invalid_topology_error(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
