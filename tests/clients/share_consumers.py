"""librdkafka's share consumer (a preview) for tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Thread
from typing import Any

from confluent_kafka import ShareConsumer

CLOSING_S = 10


@contextmanager
def share_consumer(config: Mapping[str, Any], *topics: str) -> Iterator[ShareConsumer]:
    """A consumer of these topics.

    It is closed in another thread, and left there if it does not come to an end: right after an assignment,
    librdkafka 2.16 may wait in it for ever, where not even the test's time-out ends it.
    """
    consumer = ShareConsumer(dict(config))
    try:
        consumer.subscribe(list(topics))
        yield consumer
    finally:
        closing = Thread(target=consumer.close, daemon=True)
        closing.start()
        closing.join(CLOSING_S)
