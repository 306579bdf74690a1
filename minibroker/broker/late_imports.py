"""Modules that neither a start nor a request should wait for: imported one after the other once clients can connect.

The coordinators, and all that they import, take 30 ms: all clients would wait for the first one of a group. An import
opens a file: where clients or logs may soon have taken all descriptors, there is no pause between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Final

from minibroker.broker.requests.served import FAMILIES
from minibroker.operating_system import count_free_descriptors
from minibroker.storage.files import TOO_MANY_FILES

PAUSE_SECONDS = 0.002
FEW_DESCRIPTORS = 512  # more than clients take in a pause
RETRY_SECONDS = 1.0  # when there is none; some client will close
# Each comes after what it imports, so that none takes more than a few milliseconds.
LATE: Final = (
    "uuid",
    "hashlib",
    "ipaddress",
    "minibroker.broker.coordination.coordinator_logs",
    "minibroker.protocol.messages.group_records",
    "minibroker.broker.groups.group_entries",
    "minibroker.broker.groups.classic.members",
    "minibroker.broker.groups.classic.classic_group",
    "minibroker.broker.groups.commits",
    "minibroker.broker.handlers.commit_template",
    "minibroker.broker.groups.consumer.assignors.range",
    "minibroker.broker.groups.reconciling_group",
    "minibroker.broker.groups.consumer.classic_metadata",
    "minibroker.broker.groups.consumer.member",
    "minibroker.patterns.syntax",
    "minibroker.broker.groups.consumer.subscriptions",
    "minibroker.broker.groups.consumer.migration",
    "minibroker.broker.groups.consumer.updating",
    "minibroker.broker.groups.consumer.consumer_group",
    "minibroker.protocol.messages.share_group_records",
    "minibroker.protocol.messages.streams_group_records",
    "minibroker.protocol.messages.share_state_records",
    "minibroker.broker.share.states",
    "minibroker.broker.groups.share.share_group",
    "minibroker.broker.groups.streams.topology",
    "minibroker.broker.groups.streams.streams_group",
    "minibroker.broker.groups.group_coordinator",
    "minibroker.broker.groups.consumer.heartbeat",
    "minibroker.broker.groups.consumer.consumer_descriptions",
    "minibroker.broker.groups.group_expiry",
    "minibroker.broker.share.share_coordinator",
    "minibroker.protocol.records.scanning",
    "minibroker.protocol.records.validation",
    "minibroker.storage.validation",
    "minibroker.broker.share.dead_letters",
    "minibroker.broker.share.share_partition",
    "minibroker.broker.share.share_partitions",
    "minibroker.broker.groups.share.share_heartbeat",
    "minibroker.broker.groups.streams.streams_updating",
    "minibroker.broker.groups.streams.streams_heartbeat",
    "minibroker.broker.groups.streams.streams_describing",
    "minibroker.broker.transactions.markers",
    "minibroker.broker.transactions.transaction_coordinator",
    "minibroker.storage.compaction.batch_filter",
    "minibroker.storage.compaction.rewriting",
    "minibroker.broker.upkeep.cleaner",
    "minibroker.broker.configs.settings_without_effect",
    "minibroker.broker.configs.resource_configs",
    "zstandard",
    "cramjam",
    "minibroker.broker.handlers.down_conversion",
    *(f"minibroker.broker.handlers.{family}" for family in FAMILIES),
)


async def import_late_modules(
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep, count_free: Callable[[], int] = count_free_descriptors
) -> None:
    """Import the modules of `LATE`, with a pause before each unless few file descriptors are left (`count_free`)."""
    for name in LATE:
        if count_free() > FEW_DESCRIPTORS:
            await sleep(PAUSE_SECONDS)
        while not _import_unless_out_of_descriptors(name):
            await sleep(RETRY_SECONDS)


def _import_unless_out_of_descriptors(name: str) -> bool:
    """Import a module; return False if too few file descriptors were left for that."""
    try:
        import_module(name)
    except OSError as error:
        if error.errno not in TOO_MANY_FILES:
            raise
        return False
    return True
