"""The records of consumer groups as the coordinator folds them in, at its start and after each append.

What each record changes in its group is in `recording`; here is only which group that is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minibroker.broker.groups.classic.group import ClassicGroup
from minibroker.broker.groups.consumer.group import ConsumerGroup
from minibroker.broker.groups.consumer.recording import APPLIED
from minibroker.broker.groups.offsets import CommittedOffsets
from minibroker.protocol.declare import Message
from minibroker.protocol.messages.group_records import ConsumerGroupMetadataKey

if TYPE_CHECKING:
    from minibroker.broker.groups.coordinator import GroupCoordinator


def replay(coordinator: GroupCoordinator, key: Any, value: Message | None) -> None:
    """Fold one record of a consumer group in. A group that is not there is made, but not by a tombstone."""
    group = coordinator.groups.get(key.group_id)
    if not isinstance(group, ConsumerGroup):
        if value is None:
            return
        offsets = CommittedOffsets() if group is None else group.offsets
        group = coordinator.groups[key.group_id] = ConsumerGroup(coordinator, key.group_id, offsets)
    if value is None and isinstance(key, ConsumerGroupMetadataKey):
        _remove(coordinator, group)
    else:
        APPLIED[type(key)](group, key, value)


def _remove(coordinator: GroupCoordinator, group: ConsumerGroup) -> None:
    """What is left of a group that is gone is what it has committed, as of one that never had members."""
    del coordinator.groups[group.group_id]
    if not group.offsets.is_empty:
        coordinator.groups[group.group_id] = ClassicGroup(coordinator, group.group_id, group.offsets)


REPLAYED: dict[type[Message], Callable[[GroupCoordinator, Any, Any], None]] = dict.fromkeys(APPLIED, replay)
