"""A consumer at the end of a partition gets a record when it is produced, not when its fetch has waited long enough."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from queue import Queue

from tests.clients.confluent import Confluent
from tests.clients.interface import PATIENCE_S, Client, Record
from tests.running import RunningBroker

ROUNDS = 10
LONGER_THAN_THE_TEST_MS = 2000 * PATIENCE_S


def test_an_append_wakes_a_waiting_consumer(broker: RunningBroker, topic: str, client: Client) -> None:
    came: Queue[Record] = Queue()
    records = [Record(b"k", b"%d" % number) for number in range(ROUNDS)]

    def tail() -> None:
        with client.consumer(broker.bootstrap_servers, topic, wait_ms=LONGER_THAN_THE_TEST_MS) as consumer:
            for _ in records:
                (read,) = consumer.read(1)
                came.put(read.record)

    with ThreadPoolExecutor(1) as threads, Confluent().producer(broker.bootstrap_servers) as producer:
        done = threads.submit(tail)
        for record in records:
            producer.send(topic, [record])
            assert came.get(timeout=PATIENCE_S) == record
        done.result(PATIENCE_S)
