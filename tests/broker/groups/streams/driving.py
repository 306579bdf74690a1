"""Members of streams groups as a client plays them: they beat, give up what they must, and remember the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minibroker.broker.groups.streams.streams_group import StreamsGroup
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from tests.broker.harness import Harness, Waiting

GROUP = "g"
REBALANCE_MS = 60_000
SESSION_MS = 45_000
BEAT_MS = 5000

TaskIds = StreamsGroupHeartbeatRequest.TaskIds
TaskOffset = StreamsGroupHeartbeatRequest.TaskOffset
TopicInfo = StreamsGroupHeartbeatRequest.TopicInfo
Topology = StreamsGroupHeartbeatRequest.Topology
Subtopology = Topology.Subtopology


def topology(*sources: str, changelog: str | None = None, epoch: int = 0) -> Topology:
    """Return a topology with one subtopology, which has state if it has a changelog."""
    infos = [] if changelog is None else [TopicInfo(name=changelog)]
    one = Subtopology(subtopology_id="0", source_topics=[*sources], state_changelog_topics=infos)
    return Topology(epoch=epoch, subtopologies=[one])


def configure(harness: Harness, name: str, value: str) -> None:
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = kind.AlterableConfig(name=name, value=value)
    resource = kind(resource_type=32, resource_name=GROUP, configs=[change])
    (answer,) = harness.request(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert answer.error_code == ErrorCode.NONE, answer


def describe(harness: Harness, group: str = GROUP) -> Any:
    """Return StreamsGroupDescribe's answer for one group."""
    (described,) = harness.request(StreamsGroupDescribeRequest(group_ids=[group]), 1).groups
    return described


def group_of(harness: Harness, group: str = GROUP) -> StreamsGroup:
    """Return the group itself, for a look inside."""
    return harness.cluster.groups.get_streams_group(group)


class Player:
    """One member, which runs `active`, `standby` and `warmup`; `epoch` is 0 before it has joined.

    `version` is that of its heartbeats.
    """

    version = 1

    def __init__(
        self, harness: Harness, member_id: str, topology: Topology, process: str = "", instance: str | None = None
    ) -> None:
        self.harness = harness
        self.member_id = member_id
        self.topology = topology
        self.process = process or member_id
        self.instance = instance
        self.epoch = 0
        self.active: dict[str, set[int]] = {}
        self.standby: dict[str, set[int]] = {}
        self.warmup: dict[str, set[int]] = {}
        harness.coordinator(GROUP)

    def ask(self, version: int | None = None, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """Return the answer to one heartbeat with these fields, and those that every heartbeat of this member has."""
        defaults = {
            "group_id": GROUP,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
        }
        request = StreamsGroupHeartbeatRequest(**{**defaults, **fields})
        answer = self.harness.request(request, self.version if version is None else version)
        return answer.response() if isinstance(answer, Waiting) else answer

    def join(self, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """Join, or join again, with nothing."""
        self.epoch, self.active, self.standby, self.warmup = 0, {}, {}, {}
        first = {
            "topology": self.topology,
            "process_id": self.process,
            "rebalance_timeout_ms": REBALANCE_MS,
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
        }
        return self._taken(self.ask(**{**first, **fields}))

    def beat(self, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """Report all tasks, and do what the answer says."""
        said = {
            "active_tasks": _said(self.active),
            "standby_tasks": _said(self.standby),
            "warmup_tasks": _said(self.warmup),
        }
        return self._taken(self.ask(**{**said, **fields}))

    def restored(self, task: int, offset: int, end: int) -> StreamsGroupHeartbeatResponse:
        """Report how far the state of a task of subtopology 0 is restored."""
        said = [[TaskOffset(subtopology_id="0", partition=task, offset=each)] for each in (offset, end)]
        return self.beat(task_offsets=said[0], task_end_offsets=said[1])

    def _taken(self, answer: StreamsGroupHeartbeatResponse) -> StreamsGroupHeartbeatResponse:
        if answer.error_code == ErrorCode.NONE:
            self.epoch = answer.member_epoch
            if answer.active_tasks is not None:
                self.active, self.standby = _tasks(answer.active_tasks), _tasks(answer.standby_tasks)
                self.warmup = _tasks(answer.warmup_tasks)
        return answer


def _said(tasks: Mapping[str, set[int]]) -> list[TaskIds]:
    return [TaskIds(subtopology_id=each, partitions=sorted(partitions)) for each, partitions in tasks.items()]


def _tasks(said: Any) -> dict[str, set[int]]:
    return {each.subtopology_id: set(each.partitions) for each in said or ()}


def settle(*players: Player) -> None:
    """Send heartbeats until nothing changes."""
    for _ in range(2 + 3 * len(players)):
        for player in players:
            assert player.beat().error_code == ErrorCode.NONE
    assert group_of(players[0].harness).state_name == "Stable"
