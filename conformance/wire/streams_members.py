"""Members of streams groups (KIP-1071) that speak by hand, and topologies for them.

What must come back lives in the tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conformance.wire.connection import Connection
from conformance.wire.requests import configure_group, repeated
from minibroker.protocol.messages.streams_groups import StreamsGroupDescribeRequest, StreamsGroupHeartbeatRequest

VERSION = 0  # members of version 1 get warm-ups from minibroker, but not from Kafka 4.4.0
REBALANCE_MS = 60_000
(
    STALE_TOPOLOGY,
    MISSING_SOURCE_TOPICS,
    INCORRECTLY_PARTITIONED_TOPICS,
    MISSING_INTERNAL_TOPICS,
    SHUTDOWN_APPLICATION,
    ASSIGNMENT_DELAYED,
    MISSING_CLIENT_TAGS,
) = range(7)

TaskIds = StreamsGroupHeartbeatRequest.TaskIds
TaskOffset = StreamsGroupHeartbeatRequest.TaskOffset
Endpoint = StreamsGroupHeartbeatRequest.Endpoint
TopicInfo = StreamsGroupHeartbeatRequest.TopicInfo
Topology = StreamsGroupHeartbeatRequest.Topology
Subtopology = Topology.Subtopology
KeyValue = StreamsGroupHeartbeatRequest.KeyValue
Tasks = Mapping[str, set[int]]


def configure(connection: Connection, group: str, **configs: str) -> None:
    """Set configs of a group, by Kafka's names without `streams.`, with underscores for dots."""
    configure_group(connection, group, **{f"streams_{name}": value for name, value in configs.items()})


def internal(name: str, partitions: int = 0, **configs: str) -> TopicInfo:
    """Return an internal topic; with 0 partitions the broker chooses how many. Configs have underscores for dots."""
    return TopicInfo(
        name=name,
        partitions=partitions,
        topic_configs=[KeyValue(key=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def subtopology(name: str, *sources: str, **more: Any) -> Subtopology:
    """Return a subtopology that reads topics."""
    return Subtopology(subtopology_id=name, source_topics=[*sources], **more)


def topology(*subtopologies: Subtopology, epoch: int = 0) -> Topology:
    """Return a topology."""
    return Topology(epoch=epoch, subtopologies=[*subtopologies])


def word_count(source: str, group: str, **configs: str) -> Topology:
    """Return the topology of an application that counts words: by a repartition topic, with a changelog."""
    repartition, changelog = f"{group}-repartition", f"{group}-changelog"
    return topology(
        subtopology("0", source, repartition_sink_topics=[repartition]),
        subtopology(
            "1",
            repartition_source_topics=[internal(repartition)],
            state_changelog_topics=[internal(changelog, **configs)],
        ),
    )


def task_ids(tasks: Tasks) -> list[TaskIds]:
    """Return tasks as requests have them."""
    return [TaskIds(subtopology_id=each, partitions=sorted(partitions)) for each, partitions in tasks.items()]


def tasks_of(said: Sequence[Any] | None) -> dict[str, set[int]]:
    """Return the tasks of an answer."""
    return {each.subtopology_id: set(each.partitions) for each in said or ()}


class Member:
    """A member that runs the tasks it is assigned."""

    def __init__(
        self, connection: Connection, group: str, member_id: str, topology: Topology, process: str | None = None
    ) -> None:
        self.connection = connection
        self.group = group
        self.member_id = member_id
        self.topology = topology
        self.process = process or member_id
        self.epoch = 0
        self.endpoint_epoch = 0
        self.active: dict[str, set[int]] = {}
        self.standby: dict[str, set[int]] = {}
        self.warmup: dict[str, set[int]] = {}

    def ask(self, version: int = VERSION, **fields: Any) -> Any:
        """Return the answer to a heartbeat with these fields."""
        said = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "endpoint_information_epoch": self.endpoint_epoch,
            **fields,
        }
        return self.connection.ask(StreamsGroupHeartbeatRequest(**said), version)

    def join(self, **fields: Any) -> Any:
        """Return the answer to a join; what it assigns is taken."""
        said = {
            "member_epoch": 0,
            "rebalance_timeout_ms": REBALANCE_MS,
            "topology": self.topology,
            "process_id": self.process,
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
            **fields,
        }
        self.active, self.standby, self.warmup = {}, {}, {}
        return self._taken(self.ask(**said))

    def beat(self, **fields: Any) -> Any:
        """Return the answer to a heartbeat that reports all tasks; what it assigns is taken."""
        said = {
            "active_tasks": task_ids(self.active),
            "standby_tasks": task_ids(self.standby),
            "warmup_tasks": task_ids(self.warmup),
            **fields,
        }
        return self._taken(self.ask(**said))

    def _taken(self, answer: Any) -> Any:
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            self.endpoint_epoch = answer.endpoint_information_epoch
            if answer.active_tasks is not None:
                self.active, self.standby = tasks_of(answer.active_tasks), tasks_of(answer.standby_tasks)
                self.warmup = tasks_of(answer.warmup_tasks)
        return answer


def told(answer: Any) -> list[tuple[int, str]]:
    """Return what an answer says about the group: codes and details."""
    return [(each.status_code, each.status_detail) for each in answer.status or ()]


def describe(connection: Connection, group: str, version: int = VERSION, **fields: Any) -> Any:
    """Return the description of a group."""
    request = StreamsGroupDescribeRequest(group_ids=[group], **fields)
    (answer,) = connection.ask(request, version).groups
    return answer


def settle(connection: Connection, group: str, *members: Member, version: int = VERSION) -> Any:
    """Send heartbeats of all members until the group is stable; return its description."""

    def beat() -> Any:
        for member in members:
            assert member.beat(version=version).error_code == 0
        return describe(connection, group)

    return repeated(beat, lambda seen: seen.group_state == "Stable")
