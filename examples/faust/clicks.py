"""A Faust application: counts the clicks on each page, in a table with a changelog topic."""

import faust


def made_app(servers: str, data_dir: str) -> faust.App:
    """Return the application for a Kafka."""
    app = faust.App(
        "clicks",
        broker=f"kafka://{servers}",
        store="memory://",
        datadir=data_dir,
        topic_partitions=1,
        web_enabled=False,
    )
    clicks = app.topic("clicks", value_serializer="raw")
    counts = app.topic("counts", key_type=str, value_type=str, value_serializer="raw")
    table = app.Table("pages", default=int, partitions=1)

    @app.agent(clicks)
    async def count(stream):
        async for page in stream:
            name = page.decode()
            table[name] += 1
            await counts.send(key=name, value=str(table[name]))

    return app
