"""Nodes that are paused, and nodes with stale metadata. Each is an interceptor only while there is such a node.

`node_verbs` has the methods for them.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from minibroker.broker.delayed_operations import Promise
from minibroker.broker.requests.interceptors import Call, Interceptor
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.testing.embedded.embedded_broker import EmbeddedBroker

LeaderAndEpoch = tuple[int, int]


async def wait_until_request_released(held_requests: list[Promise[None]]) -> None:
    """Add a request to `held_requests`, and wait until it is released."""
    released: Promise[None] = Promise()
    held_requests.append(released)
    await released


class PausedNodes(Interceptor):
    """Holds the requests of paused nodes, and the answers to earlier requests."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self._held: dict[int, list[Promise[None]]] = {}  # the requests of each paused node
        broker.reset_callbacks.append(self.resume_all)

    def pause(self, node_id: int) -> None:
        """Hold all requests and answers of the node from now on."""
        if not self._held:
            self._broker.add_interceptor_first(self)
        self._held.setdefault(node_id, [])
        self._broker.running.server.hold_output_of_node(node_id)

    def resume(self, node_id: int) -> None:
        """Resume the node."""
        held = self._held.pop(node_id, [])
        if not self._held and self in self._broker.interceptors:
            self._broker.interceptors.remove(self)
        self._broker.running.server.release_output_of_node(node_id)
        for released in held:
            released.resolve(None)

    def resume_all(self) -> None:
        """Resume all nodes."""
        for node_id in list(self._held):
            self.resume(node_id)

    def before_request(self, call: Call) -> Coroutine[Any, Any, None] | None:
        """Hold the request if its node is paused."""
        held = self._held.get(call.context.node.node_id)
        return None if held is None else wait_until_request_released(held)


class StaleNodes(Interceptor):
    """Keeps the leaders in the Metadata answers of stale nodes as they were when the nodes became stale."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self._known: dict[int, dict[tuple[str, int], LeaderAndEpoch]] = {}
        broker.reset_callbacks.append(self.refresh_all)

    def make_stale(self, node_id: int, cluster: Cluster) -> None:
        """Let this node's Metadata answers name the current leaders until `refresh`."""
        if not self._known:
            self._broker.interceptors.append(self)
        self._known[node_id] = {
            (topic.name, each.index): (each.leader_id, each.leader_epoch)
            for topic in cluster.image.topics.values()
            for each in topic.partitions
        }

    def refresh(self, node_id: int) -> None:
        """Let this node's Metadata answers name the leaders of the moment again."""
        if self._known.pop(node_id, None) is not None and not self._known:
            self._broker.interceptors.remove(self)

    def refresh_all(self) -> None:
        """Drop the old leaders of all nodes."""
        for node_id in list(self._known):
            self.refresh(node_id)

    def alter_response(self, call: Call, response: Message) -> Message:
        """Put the old leaders into the Metadata answer of a stale node."""
        known = self._known.get(call.context.node.node_id)
        if known is not None and call.api_key == ApiKey.METADATA:
            _replace_with_old_leaders(response, known)
        return response


def _replace_with_old_leaders(response: Any, old_leaders: dict[tuple[str, int], LeaderAndEpoch]) -> None:
    for topic in response.topics:
        if topic.partitions and not any(name == topic.name for name, _ in old_leaders):
            topic.error_code, topic.partitions = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []
        for partition in topic.partitions:
            leader = old_leaders.get((topic.name, partition.partition_index))
            if leader is not None:
                partition.leader_id, partition.leader_epoch = leader
                partition.error_code = ErrorCode.NONE
