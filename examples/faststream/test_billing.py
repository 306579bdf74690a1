"""The whole application, with a real broker, where FastStream's own TestKafkaBroker would leave Kafka out."""

import asyncio

from billing import made_app


def test_an_order_gets_an_invoice_although_the_leader_moves(kafka):
    kafka.create_topic("invoices")
    kafka.produce("orders", '{"id": 7, "pieces": 3, "price_cents": 250}')
    kafka.faults.add(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=1)

    async def run():
        app = made_app(kafka.bootstrap_servers)
        running = asyncio.create_task(app.run())
        (invoice,) = await kafka.aexpect("invoices", timeout="20 s")
        app.exit()
        await running
        return invoice

    assert asyncio.run(run()).json == {"order": 7, "cents": 750}
