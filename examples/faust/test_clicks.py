"""The application in the test's own event loop, without a worker."""

import asyncio

from clicks import made_app


def test_clicks_are_counted(kafka, tmp_path):
    for topic in ("clicks", "counts"):
        kafka.create_topic(topic, partitions=1)
    kafka.produce("clicks", "home", "cart", "home")

    async def run():
        async with made_app(kafka.bootstrap_servers, str(tmp_path)):
            return await kafka.aexpect("counts", 3, timeout="30 s")

    counts = {(record.key.decode(), record.text) for record in asyncio.run(run())}
    assert counts == {("home", "1"), ("cart", "1"), ("home", "2")}
