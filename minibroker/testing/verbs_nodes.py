"""What a test says to a broker about its nodes, leaders and coordinators: the names of `Broker` for it.

How it is done stands in `topology`.
"""

from __future__ import annotations

from functools import cached_property

from minibroker.testing.embedded import Embedded
from minibroker.testing.topology import Topology


class NodeVerbs(Embedded):
    """Nodes, leaders, coordinators. Each raises KafkaError for a node or a partition that is not there."""

    @cached_property
    def _topology(self) -> Topology:
        return Topology(self)

    # --- nodes ------------------------------------------------------------------------------------

    def stop_node(self, node: int) -> None:
        """Stop one of the nodes: queued answers leave, its port is refused, and others lead what they can."""
        self.loop.call(lambda: self._topology.stop(node, cleanly=True))

    def kill_node(self, node: int) -> None:
        """Kill one of the nodes: its clients are cut off, its port is refused, and others lead what they can."""
        self.loop.call(lambda: self._topology.stop(node, cleanly=False))

    def start_node(self, node: int) -> None:
        """Bring back a node that was stopped or killed, at the same port."""
        self.loop.run(self._topology.start(node))

    async def astart_node(self, node: int) -> None:
        """Start a node as `start_node` does."""
        await self.loop.arun(self._topology.start(node))

    def pause_node(self, node: int) -> None:
        """Pause a node: it takes requests and answers none, as a process that is stopped by SIGSTOP."""
        self.loop.call(lambda: self._topology.pause(node))

    def resume_node(self, node: int) -> None:
        """Let a paused node go on, with what it was asked meanwhile."""
        self.loop.call(lambda: self._topology.resume(node))

    def make_stale(self, node: int) -> None:
        """Make a node's Metadata name the leaders as they are now, whatever becomes of them."""
        self.loop.call(lambda: self._topology.make_stale(node))

    def refresh(self, node: int) -> None:
        """Make a stale node's Metadata name the leaders as they are."""
        self.loop.call(lambda: self._topology.refresh(node))

    # --- leaders ----------------------------------------------------------------------------------

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The node that leads the partition, None for nobody."""
        return self.loop.call(lambda: self._topology.leader(topic, partition))

    def move_leader(self, topic: str, node: int, partition: int = 0) -> None:
        """Make a node the partition's leader; one that is no replica becomes one."""
        self.loop.call(lambda: self._topology.move_leader(topic, partition, node))

    def leave_leaderless(self, topic: str, partition: int = 0) -> None:
        """Leave the partition without a leader, until `move_leader` or `elect_leaders`."""
        self.loop.call(lambda: self._topology.leave_leaderless(topic, partition))

    def elect_leaders(self) -> None:
        """Elect a leader for every partition that can have one."""
        self.loop.call(lambda: self._topology.elect())

    def begin_epoch(self, topic: str, partition: int = 0) -> int:
        """Begin another epoch of the leader; return the epoch."""
        return self.loop.call(lambda: self._topology.begin_epoch(topic, partition))

    def truncate(self, topic: str, offset: int, partition: int = 0) -> int:
        """Lose the batches from that of `offset` on, as an unclean election does; the new leader epoch (KIP-320)."""
        return self.loop.call(lambda: self._topology.truncate(topic, partition, offset))

    # --- coordinators -----------------------------------------------------------------------------

    def coordinator(self, *, group: str | None = None, transactional_id: str | None = None) -> int | None:
        """The node that coordinates a group or a transactional id, None for nobody yet."""
        return self.loop.call(lambda: self._topology.coordinator(group=group, transactional_id=transactional_id))

    def move_coordinator(self, node: int, *, group: str | None = None, transactional_id: str | None = None) -> None:
        """Make a node the coordinator of a group or a transactional id."""
        self.loop.call(lambda: self._topology.move_coordinator(node, group=group, transactional_id=transactional_id))
