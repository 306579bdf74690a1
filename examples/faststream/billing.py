"""A FastStream application: reads orders, and writes an invoice for each."""

import os

from faststream import FastStream
from faststream.confluent import KafkaBroker
from pydantic import BaseModel


class Order(BaseModel):
    """What is ordered."""

    id: int
    pieces: int
    price_cents: int


class Invoice(BaseModel):
    """What it costs."""

    order: int
    cents: int


def made_app(servers: str) -> FastStream:
    """Return the application for a Kafka."""
    broker = KafkaBroker(servers)

    @broker.subscriber("orders", group_id="billing", auto_offset_reset="earliest")
    @broker.publisher("invoices")
    async def bill(order: Order) -> Invoice:
        return Invoice(order=order.id, cents=order.pieces * order.price_cents)

    return FastStream(broker)


app = made_app(os.environ.get("KAFKA", "localhost:9092"))
