"""Waiting over HTTP: the answer comes as soon as it is so, and after the timeout 408 with how far it came.

They do what the methods of `Broker` of the same names do.
"""

from __future__ import annotations

from fastapi import APIRouter

from minibroker.testing.broker import Broker
from minibroker.testing.control.errors import WAITED
from minibroker.testing.control.models import (
    CaughtUpWait,
    CommitWait,
    GroupWait,
    Request,
    RequestWait,
    WatermarkWait,
    request_model,
)


def wait_routes(broker: Broker) -> APIRouter:
    """Their paths."""
    routes = APIRouter(tags=["waits"])

    @routes.post("/groups/{group}/wait", responses=WAITED)
    async def group_wait(group: str, asked: GroupWait | None = None) -> dict[str, list[str]]:
        """The members, once the group is in this state with so many of them."""
        asked = asked or GroupWait()
        return {"members": await broker.await_group(group, asked.members, asked.state, asked.timeout)}

    @routes.post("/groups/{group}/wait-for-commit", responses=WAITED)
    async def commit_wait(group: str, asked: CommitWait) -> dict[str, int]:
        """The offset that the group has committed."""
        found = await broker.await_commit(group, asked.topic, asked.partition, asked.offset, asked.timeout)
        return {"offset": found}

    @routes.post("/groups/{group}/wait-until-caught-up", status_code=204, responses=WAITED)
    async def caught_up_wait(group: str, asked: CaughtUpWait) -> None:
        """Wait until the group has committed all that the topic has."""
        await broker.await_caught_up(group, asked.topic, asked.timeout)

    @routes.post("/topics/{topic}/wait-for-high-watermark", responses=WAITED)
    async def watermark_wait(topic: str, asked: WatermarkWait) -> dict[str, int]:
        """The high watermark, once it is at least this offset."""
        return {"offset": await broker.await_high_watermark(topic, asked.offset, asked.partition, asked.timeout)}

    @routes.post("/requests/wait", responses=WAITED)
    async def request_wait(asked: RequestWait) -> list[Request]:
        """The requests that the journal has, once there are so many."""
        found = await broker.await_requests(
            asked.api, asked.count, asked.timeout, client_id=asked.client_id, node=asked.node, error=asked.error
        )
        return [request_model(exchange, False) for exchange in found]

    return routes
