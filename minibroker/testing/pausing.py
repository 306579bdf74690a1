"""Nodes that stand still, and nodes that know the cluster only as it once was: interceptors while there are any.

What a test calls stands in `topology`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minibroker.broker.requests.interceptors import Call, Interceptor
from minibroker.broker.requests.parked import Parked
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.testing.counting import put_first

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.testing.embedded import Embedded

LeaderAndEpoch = tuple[int, int]


class Paused(Interceptor):
    """Holds the requests of some nodes until they go on, and the answers to what was asked before."""

    def __init__(self, broker: Embedded) -> None:
        self._broker = broker
        self._held: dict[int, list[tuple[Call, Parked]]] = {}
        broker.when_reset.append(self.resume_all)

    def pause(self, node_id: int) -> None:
        """Hold all requests of the node from now on, and all answers."""
        if not self._held:
            put_first(self._broker, self)
        self._held.setdefault(node_id, [])
        self._broker.running.server.hold(node_id)

    def resume(self, node_id: int) -> None:
        """Let them go on."""
        held = self._held.pop(node_id, [])
        if not self._held and self in self._broker.interceptors:
            self._broker.interceptors.remove(self)
        self._broker.running.server.let_go(node_id)
        for call, parked in held:
            call.go_on(parked)

    def resume_all(self) -> None:
        """Let all nodes go on."""
        for node_id in list(self._held):
            self.resume(node_id)

    def before(self, call: Call) -> Parked | None:
        held = self._held.get(call.context.node.node_id)
        if held is None:
            return None
        parked = Parked()
        held.append((call, parked))
        return parked


class Stale(Interceptor):
    """Has some nodes answer Metadata with the leaders and brokers that there were when they were made stale."""

    def __init__(self, broker: Embedded) -> None:
        self._broker = broker
        self._known: dict[int, dict[tuple[str, int], LeaderAndEpoch]] = {}
        broker.when_reset.append(self.refresh_all)

    def make_stale(self, node_id: int, cluster: Cluster) -> None:
        """Let the node remember the cluster as it is now."""
        if not self._known:
            self._broker.interceptors.append(self)
        self._known[node_id] = {
            (topic.name, each.index): (each.leader_id, each.leader_epoch)
            for topic in cluster.image.topics.values()
            for each in topic.partitions
        }

    def refresh(self, node_id: int) -> None:
        """Let the node know the cluster as it is."""
        if self._known.pop(node_id, None) is not None and not self._known:
            self._broker.interceptors.remove(self)

    def refresh_all(self) -> None:
        """Let all nodes know the cluster as it is."""
        for node_id in list(self._known):
            self.refresh(node_id)

    def answer(self, call: Call, response: Message) -> Message:
        known = self._known.get(call.context.node.node_id)
        if known is not None and call.api_key == ApiKey.METADATA:
            _make_old(response, known)
        return response


def _make_old(response: Any, known: dict[tuple[str, int], LeaderAndEpoch]) -> None:
    for topic in response.topics:
        if topic.partitions and not any(name == topic.name for name, _ in known):
            topic.error_code, topic.partitions = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []
        for partition in topic.partitions:
            leader = known.get((topic.name, partition.partition_index))
            if leader is not None:
                partition.leader_id, partition.leader_epoch = leader
                partition.error_code = ErrorCode.NONE
