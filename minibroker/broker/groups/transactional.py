"""Offsets that transactions commit: pending from the record on, the group's once the marker says so (KIP-98).

What a pending offset hides from readers is told in `offsets.py`; the transactions themselves are coordinated elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from minibroker.broker.groups.commits import Committed, offsets_batch
from minibroker.broker.groups.offsets import CommittedOffset
from minibroker.protocol.steps import Steps

if TYPE_CHECKING:
    from minibroker.broker.groups.coordinator import GroupCoordinator


class TransactionalOffsets:
    """Which groups an open transaction commits offsets of: by partition of `__consumer_offsets` and producer id."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator
        self._groups: dict[tuple[int, int], set[str]] = {}

    def commit(
        self, group_id: str, producer: tuple[int, int], offsets: Sequence[Committed], check: Callable[[], None]
    ) -> Steps[None]:
        """Record (topic, partition, offset) for a group as part of the producer's transaction, all or none.

        `producer` is its id and epoch; `check` is called in the last step, as by `commit_offsets`. Raises KafkaError
        with the code for the client.
        """
        batch = yield from offsets_batch(self._coordinator, group_id, offsets, producer)
        check()
        if batch is None:
            return
        topic = self._coordinator.topic
        index = topic.partition_of(group_id)
        topic.append_batch(index, batch, producer)
        for name, partition, committed in offsets:
            self.pend(index, producer[0], group_id, name, partition, committed)

    def pend(
        self, index: int, producer_id: int, group_id: str, topic: str, partition: int, committed: CommittedOffset
    ) -> None:
        """Fold in a record of a transaction that is open, in this partition of `__consumer_offsets`."""
        group = self._coordinator.groups.get(group_id) or self._coordinator.classic_group(group_id)
        group.offsets.pending.setdefault(producer_id, {})[topic, partition] = committed
        self._groups.setdefault((index, producer_id), set()).add(group_id)

    def ended(self, index: int, producer_id: int, *, committed: bool) -> None:
        """The marker is written: what was pending is the group's offset, or was never said."""
        for group_id in self._groups.pop((index, producer_id), ()):
            group = self._coordinator.groups.get(group_id)
            if group is not None:
                group.offsets.settle(producer_id, committed=committed)

    def forget(self, index: int) -> None:
        """Forget what is known of one partition of the topic."""
        self._groups = {where: groups for where, groups in self._groups.items() if where[0] != index}

    def clear(self) -> None:
        """Forget all."""
        self._groups.clear()
