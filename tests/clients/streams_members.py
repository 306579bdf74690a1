"""A member of a group of Kafka Streams that speaks by hand: it sends heartbeats, and runs nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minibroker.client.blocking import Client
from minibroker.client.connection_settings import ClientSettings
from minibroker.protocol.messages.streams_groups import StreamsGroupHeartbeatRequest as Heartbeat
from minibroker.protocol.primitives import format_uuid

SUBTOPOLOGY = "0"
LEAVING, JOINING = -1, 0


class StreamsMember:
    """One member of an application with one subtopology, which reads the topic."""

    def __init__(self, client: Client, group: str, topic: str) -> None:
        self.member_id = format_uuid(uuid.uuid4().bytes)
        self.epoch = JOINING
        self.tasks: list[Heartbeat.TaskIds] = []
        self._client, self._group, self._topic = client, group, topic

    def beat(self, epoch: int | None = None) -> Any:
        """The answer to a heartbeat; the tasks that it assigns are taken."""
        said: dict[str, Any] = {}
        if self.epoch == JOINING:
            subtopology = Heartbeat.Topology.Subtopology(subtopology_id=SUBTOPOLOGY, source_topics=[self._topic])
            topology = Heartbeat.Topology(epoch=1, subtopologies=[subtopology])
            said = {"topology": topology, "process_id": "process", "rebalance_timeout_ms": 30_000}
        request = Heartbeat(
            group_id=self._group,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            active_tasks=self.tasks,
            standby_tasks=[],
            warmup_tasks=[],
            **said,
        )
        answer = self._client.request(request, self._client.find_coordinator("group", self._group))
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.active_tasks is not None:
                self.tasks = [
                    Heartbeat.TaskIds(subtopology_id=each.subtopology_id, partitions=each.partitions)
                    for each in answer.active_tasks
                ]
        return answer


@contextmanager
def streams_member(servers: str, group: str, topic: str) -> Iterator[StreamsMember]:
    """A member that has joined and knows its tasks, until the block ends."""
    with Client(ClientSettings({"bootstrap.servers": servers}, "streams")) as client:
        member = StreamsMember(client, group, topic)
        for _ in range(2):
            answer = member.beat()
            assert answer.error_code == 0, answer
        yield member
        member.beat(LEAVING)
