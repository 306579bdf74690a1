"""The expiry of committed offsets, and of groups without members and offsets (KIP-211).

`upkeep.housekeeping` calls it every `offsets.retention.check.interval.ms`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from minibroker.broker.clock import Then, process_items_in_slices
from minibroker.broker.groups.group_coordinator import delete_offsets_in_batches
from minibroker.protocol.errors import KafkaError

if TYPE_CHECKING:
    from minibroker.broker.groups.group import Group
    from minibroker.broker.groups.group_coordinator import GroupCoordinator

log = logging.getLogger("minibroker.groups")

MINUTE_MS = 60_000


def expire_offsets_of_all_groups(coordinator: GroupCoordinator, callback: Then) -> None:
    """Expire the offsets of all groups in slices, then call `callback`."""
    process_items_in_slices(
        coordinator.cluster.clock,
        lambda group: expire_offsets_of_group(coordinator, group),
        coordinator.groups.iterate_present_values(),
        callback,
    )


def expire_offsets_of_group(coordinator: GroupCoordinator, group: Group) -> None:
    """Delete the offsets of a group that are older than `offsets.retention.minutes`, or than their client wanted.

    A group is deleted if it has no members, and no offset is left.
    """
    retention_ms = coordinator.cluster.settings["offsets.retention.minutes"] * MINUTE_MS
    now_ms = coordinator.cluster.clock.wall_ms()
    expired = group.offsets.list_expired_partitions(
        now_ms, retention_ms, group.get_offset_retention_start_ms, group.is_subscribed_to
    )
    try:
        if group.is_empty and group.may_expire and len(expired) == len(group.offsets.list_partitions()):
            coordinator.delete_group(group)
            log.info("%s is deleted: it has no members, and no offset is left", group)
        else:
            delete_offsets_in_batches(coordinator, group, expired)
    except KafkaError as error:
        log.error("offsets of %s that have expired stay for now: %s", group, error)
