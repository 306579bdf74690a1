"""Topics and records over HTTP, and the journal of requests.

They do what the methods of `Broker` of the same names do.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from minibroker.testing.broker import Broker
from minibroker.testing.control.errors import WAITED
from minibroker.testing.control.models import (
    Expectation,
    JournalState,
    NewRecords,
    NewTopic,
    Record,
    RecordsAsked,
    Request,
    RequestsAsked,
    Silence,
    Switch,
    record_model,
    request_model,
)


def record_routes(broker: Broker) -> APIRouter:
    """Their paths."""
    routes = APIRouter(tags=["records"])

    @routes.post("/topics", status_code=201)
    async def create(asked: NewTopic) -> dict[str, str]:
        """Make a topic."""
        await broker.acreate_topic(asked.name, asked.partitions, **asked.config)
        return {"topic": asked.name}

    @routes.post("/fill", status_code=204)
    async def fill(source: dict[str, Any]) -> None:
        """Make topics with records: {"orders": ["first", {"key": "k", "value": {"id": 2}}]}."""
        await broker.afill(source)

    @routes.get("/topics/{topic}/records")
    async def records(topic: str, asked: Annotated[RecordsAsked, Query()]) -> list[Record]:
        """All records of a topic, those of open and aborted transactions too."""
        return [record_model(record) for record in broker.records(topic, asked.partition)]

    @routes.post("/topics/{topic}/records")
    async def produce(topic: str, asked: NewRecords) -> dict[str, int]:
        """Append records as one batch; the offset of the first. A missing topic is made."""
        offset = await broker.aproduce(
            topic,
            *asked.all_values,
            key=asked.any_key,
            partition=asked.partition,
            headers=asked.headers,
            timestamp_ms=asked.timestamp_ms,
        )
        return {"offset": offset}

    _expectations(broker, routes)
    _journal(broker, routes)
    return routes


def _expectations(broker: Broker, routes: APIRouter) -> None:
    @routes.post("/topics/{topic}/expect", responses=WAITED)
    async def expect(topic: str, asked: Expectation | None = None) -> list[Record]:
        """The first records of a topic, once there are so many."""
        asked = asked or Expectation()
        found = await broker.aexpect(topic, asked.count, asked.timeout, committed=asked.committed)
        return [record_model(record) for record in found]

    @routes.post("/topics/{topic}/expect-nothing", status_code=204, responses=WAITED)
    async def expect_nothing(topic: str, asked: Silence | None = None) -> None:
        """Wait, and answer 408 if a record has come meanwhile."""
        await broker.aassert_nothing_produced(topic, (asked or Silence()).during)


def _journal(broker: Broker, routes: APIRouter) -> None:
    @routes.get("/requests")
    async def requests(asked: Annotated[RequestsAsked, Query()]) -> list[Request]:
        """Return what the journal has, oldest first."""
        found = broker.requests(asked.api, client_id=asked.client_id, node=asked.node, error=asked.error)
        return [request_model(exchange, asked.raw) for exchange in found]

    @routes.delete("/requests", status_code=204)
    async def forget() -> None:
        """Forget all requests."""
        broker.journal.clear()

    @routes.get("/journal")
    async def journal() -> JournalState:
        """Whether it is on, and how much it has."""
        kept = broker.on_loop(broker.journal.found)
        return JournalState(on=broker.journal.is_on, kept=len(kept), dropped=broker.journal.dropped)

    @routes.post("/journal")
    async def switch(asked: Switch) -> JournalState:
        """Switch the journal on or off."""
        if asked.on:
            broker.journal.on()
        else:
            broker.journal.off()
        return await journal()
