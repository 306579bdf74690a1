"""A FastAPI service: takes orders by HTTP, and writes them to Kafka before it says so."""

import os
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel


class Order(BaseModel):
    """What is ordered."""

    id: int
    pieces: int


def made_app(servers: str) -> FastAPI:
    """Return the service for a Kafka."""

    @asynccontextmanager
    async def lifespan(app: FastAPI):
        async with AIOKafkaProducer(bootstrap_servers=servers, acks="all", request_timeout_ms=2000) as producer:
            app.state.producer = producer
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders", status_code=201)
    async def order(order: Order):
        try:
            written = await app.state.producer.send_and_wait("orders", order.model_dump_json().encode())
        except KafkaError as error:
            raise HTTPException(503, type(error).__name__) from None
        return {"offset": written.offset}

    return app


app = made_app(os.environ.get("KAFKA", "localhost:9092"))
