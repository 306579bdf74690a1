"""A Quix Streams application: sums up what each customer has ordered, with its state in a changelog topic."""

from quixstreams import Application


def made_app(servers: str, state_dir: str) -> Application:
    """Return the application for a Kafka."""
    app = Application(
        broker_address=servers,
        consumer_group="totals",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=0.2,
        state_dir=state_dir,
    )
    orders = app.dataframe(app.topic("orders", value_deserializer="json"))
    orders = orders.apply(with_total, stateful=True)
    orders.to_topic(app.topic("totals", value_serializer="json"))
    return app


def with_total(order, state):
    """Return the total of the order's customer, this order included."""
    total = state.get("cents", 0) + order["cents"]
    state.set("cents", total)
    return {"cents": total}
