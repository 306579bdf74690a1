"""The paths of the HTTP control for share groups."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from minibroker.testing.broker import Broker
from minibroker.testing.control.control_answers import (
    AssignedPartitions,
    DeadLetter,
    DeliveredRecord,
    Delivery,
    LockedRecords,
    Offset,
    TopicName,
    dead_letter_model,
    delivered_model,
)
from minibroker.testing.control.http_errors import WAITED
from minibroker.testing.control.models import (
    AssignmentWait,
    DeadLetterQueue,
    DeadLetterWait,
    Redelivery,
    SettledWait,
)


def share_routes(broker: Broker, routes: APIRouter) -> None:
    """Add the paths for what was delivered."""

    @routes.post("/share-groups/{group}/configure", status_code=204)
    async def configure_share_group(group: str, configs: dict[str, Any]) -> None:
        """Set configs of the group, by Kafka's names: {"share.auto.offset.reset": "earliest"}."""
        await broker.share_group(group).aconfigure(**configs)

    @routes.get("/share-groups/{group}/deliveries")
    async def list_deliveries(group: str, topic: str | None = None) -> list[Delivery]:
        """Return what was delivered to the group, of one topic or all, in ranges of offsets."""
        return [Delivery(**each._asdict()) for each in broker.share_group(group).deliveries(topic)]

    @routes.post("/share-groups/{group}/expire-locks")
    async def expire_locks(group: str) -> LockedRecords:
        """End the acquisition locks of the group; return how many records they held."""
        return LockedRecords(records=broker.share_group(group).expire_locks())

    @routes.post("/share-groups/{group}/wait-until-assigned", responses=WAITED)
    async def wait_until_assigned(group: str, asked: AssignmentWait) -> AssignedPartitions:
        """Wait until all partitions of the topic are assigned to members; return the partitions by member."""
        share_group = broker.share_group(group)
        assigned = await share_group.await_until_assigned(asked.topic, asked.members, asked.timeout)
        return AssignedPartitions(members=assigned)

    @routes.post("/share-groups/{group}/wait-until-settled", responses=WAITED)
    async def wait_until_settled(group: str, asked: SettledWait) -> Offset:
        """Wait until all records below an offset are acknowledged or archived; return the first that is not."""
        share_group = broker.share_group(group)
        reached = await share_group.await_until_settled(asked.topic, asked.offset, asked.partition, asked.timeout)
        return Offset(offset=reached)

    @routes.post("/share-groups/{group}/expect-redelivered", responses=WAITED)
    async def expect_redelivered(group: str, asked: Redelivery) -> list[DeliveredRecord]:
        """Wait until records were delivered again; return them."""
        share_group = broker.share_group(group)
        found = await share_group.aexpect_redelivered(asked.topic, asked.count, asked.deliveries, asked.timeout)
        return [delivered_model(record) for record in found]


def dead_letter_routes(broker: Broker, routes: APIRouter) -> None:
    """Add the paths for dead letters."""

    @routes.post("/share-groups/{group}/collect-dead-letters")
    async def collect_dead_letters(group: str, asked: DeadLetterQueue | None = None) -> TopicName:
        """Write a dead letter for each record that is rejected or delivered too often; return their topic."""
        wanted = asked or DeadLetterQueue()
        topic = await broker.share_group(group).acollect_dead_letters(wanted.topic, copies=wanted.copies)
        return TopicName(topic=topic)

    @routes.get("/share-groups/{group}/dead-letters")
    async def list_dead_letters(group: str) -> list[DeadLetter]:
        """Return the dead letters of the group."""
        return [dead_letter_model(letter) for letter in broker.share_group(group).dead_letters()]

    @routes.post("/share-groups/{group}/expect-dead-letters", responses=WAITED)
    async def expect_dead_letters(group: str, asked: DeadLetterWait | None = None) -> list[DeadLetter]:
        """Wait until the group has this many dead letters; return all."""
        wanted = asked or DeadLetterWait()
        found = await broker.share_group(group).aexpect_dead_letters(wanted.count, wanted.timeout)
        return [dead_letter_model(letter) for letter in found]
