"""A log that moves between directories while a client writes to it, and a broker that is killed meanwhile."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient

from tests.clients.confluent import TO_THE_END
from tests.running import RunningBroker, running_broker

PATIENCE_S = 30
MOVES = 6
NAME = "moving"


class Writer(threading.Thread):
    """A thread that writes numbers until the test stops it; `acknowledged` has the number at each offset."""

    def __init__(self, servers: str) -> None:
        super().__init__()
        self.acknowledged: dict[int, int] = {}
        self._stop_soon = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "message.timeout.ms": 10_000,
                "log_level": 0,
                "linger.ms": 1,
            }
        )

    def run(self) -> None:
        numbers = itertools.count()
        while not self._stop_soon.wait(0.001):
            for number in itertools.islice(numbers, 20):
                self._producer.produce(NAME, f"{number:08d}".encode() + bytes(2000), on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            self.acknowledged[message.offset()] = int(message.value()[:8])

    def wait_for(self, count: int) -> None:
        """Wait until so many more have been acknowledged."""
        count += len(self.acknowledged)
        for _ in range(PATIENCE_S * 100):
            if len(self.acknowledged) >= count:
                return
            threading.Event().wait(0.01)
        raise AssertionError(f"only {len(self.acknowledged)} of {count} records are acknowledged")

    def finish(self, timeout_s: float) -> None:
        self._stop_soon.set()
        self.join()
        self._producer.flush(timeout_s)


def everything(servers: str) -> dict[int, int]:
    """The number at each offset."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "log_level": 0, **TO_THE_END}
    )
    consumer.assign([confluent_kafka.TopicPartition(NAME, 0, 0)])
    found: dict[int, int] = {}
    while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
        found[message.offset()] = int(message.value()[:8])
    consumer.close()
    return found


def moves_done(broker: RunningBroker) -> int:
    return broker.log.count(f"{NAME}-0 has moved from")


def move(broker: RunningBroker, directory: Path, wait: bool) -> None:
    """Move the log to a directory, and wait until it is there."""
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    done = moves_done(broker)
    (answer,) = admin.alter_replica_log_dirs({(NAME, 0, 1): str(directory)}).values()
    admin.close()
    assert answer.errno == 0
    for _ in range(PATIENCE_S * 20 if wait else 0):
        if moves_done(broker) > done:
            return
        threading.Event().wait(0.05)
    assert not wait, f"the log does not come to {directory}:\n{broker.log}"


@pytest.mark.parametrize("killed", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_no_record_is_lost_or_duplicated_while_a_log_moves(tmp_path: Path, killed: bool) -> None:
    directories = [tmp_path / name for name in ("one", "two")]
    settings = f"log.dirs={directories[0]},{directories[1]}", "log.segment.bytes=1048576"
    with running_broker(tmp_path, *settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        (made,) = admin.create_topics([NewTopic(NAME, 1, 1)]).values()
        made.result(PATIENCE_S)
        first = 1 if (directories[0] / f"{NAME}-0").exists() else 0
        writer = Writer(broker.bootstrap_servers)
        writer.start()
        for number in range(MOVES):
            writer.wait_for(300)
            move(broker, directories[(first + number) % 2], wait=True)
        if killed:
            move(broker, directories[(first + MOVES) % 2], wait=False)
            broker.kill()
            writer.finish(0)
            broker.start()
        else:
            writer.finish(PATIENCE_S)
        found = everything(broker.bootstrap_servers)
        assert len(writer.acknowledged) >= 300 * MOVES
        assert {offset: found.get(offset) for offset in writer.acknowledged} == writer.acknowledged
        assert sorted(found) == list(range(len(found)))
        assert sorted(found.values()) == list(found.values()), "in the order in which they were sent"
        assert moves_done(broker) >= MOVES
