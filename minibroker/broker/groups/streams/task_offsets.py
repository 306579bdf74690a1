"""How far members have restored the state of their tasks, as their heartbeats report it (KIP-1071, since Kafka 4.4).

The offsets of a task are sums over its changelog partitions. They are kept in memory only, as in Kafka: members report
them again every `streams.task.offset.interval.ms`, and at once when a warm-up has caught up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from minibroker.broker.groups.streams.tasks import TaskId
from minibroker.broker.groups.streams.topology import MAXIMUM_TASKS
from minibroker.protocol.errors import ErrorCode, KafkaError

UNKNOWN_OFFSET = (1 << 63) - 1  # what a member reports before it knows


class ReportedOffset(Protocol):
    """The offset of a task in a request."""

    subtopology_id: str
    partition: int
    offset: int


class TaskOffsets(NamedTuple):
    """What a member has reported: how far it is (`restored`), and where the changelogs end (`ends`)."""

    restored: Mapping[TaskId, int] = {}
    ends: Mapping[TaskId, int] = {}

    def make_updated_offsets(
        self, restored_offsets: Sequence[ReportedOffset] | None, end_offsets: Sequence[ReportedOffset] | None
    ) -> TaskOffsets:
        """Return the offsets after a heartbeat; None means as before. Raises KafkaError(INVALID_REQUEST)."""
        return TaskOffsets(
            self.restored if restored_offsets is None else _map_offsets_by_task(restored_offsets),
            self.ends if end_offsets is None else _map_offsets_by_task(end_offsets),
        )

    def is_caught_up(self, task: TaskId, acceptable_lag: int) -> bool:
        """Return whether the task's restored offset is at most `acceptable_lag` behind; False if it is unknown."""
        restored, end = self.restored.get(task, UNKNOWN_OFFSET), self.ends.get(task, UNKNOWN_OFFSET)
        return UNKNOWN_OFFSET not in (restored, end) and end - restored <= acceptable_lag


NO_OFFSETS = TaskOffsets()


def _map_offsets_by_task(reported: Sequence[ReportedOffset]) -> dict[TaskId, int]:
    """Return the reported offsets by task. Raises KafkaError(INVALID_REQUEST) for too many, or a task named twice."""
    if len(reported) > MAXIMUM_TASKS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"A member may report {MAXIMUM_TASKS} task offsets at most.")
    found: dict[TaskId, int] = {}
    for each in reported:
        task = TaskId(each.subtopology_id, each.partition)
        if task in found:
            entry = f"subtopology {each.subtopology_id} and partition {each.partition}."
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Task offsets contain a duplicate entry for {entry}")
        found[task] = each.offset
    return found
