"""Who writes what a tortured share group reads, and what is there in the end: numbers, plain and in transactions."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Any

import confluent_kafka

from conformance.share.history import Written
from conformance.share.torture import Torture
from conformance.wire.connection import Connection
from conformance.wire.requests import asked, fetch_request
from minibroker.protocol.records.batch import iterate_batches
from minibroker.protocol.records.control import ControlType, decode_control_type
from minibroker.protocol.records.payload import iterate_records_of_batch

PATIENCE_S = 60
BURST = 40  # records, at most
AHEAD = 1000  # records that nobody has seen yet, about
ABORTED_SHARE = 0.3
PERSISTENT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "log_level": 0}


class Writer(threading.Thread):
    """Writes numbers to some partitions, in bursts, until `stop` is set and all are written."""

    def __init__(self, torture: Torture, partitions: Sequence[int], chosen: random.Random) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.failures: list[str] = []
        self._torture = torture
        self._partitions = partitions
        self._chosen = chosen
        self._written = 0
        self._settings: dict[str, Any] = {**PERSISTENT, "bootstrap.servers": torture.address}

    def run(self) -> None:
        producer = confluent_kafka.Producer({**self._settings, "enable.idempotence": True})
        while self._goes_on():
            self._produce(producer)
        if left := producer.flush(PATIENCE_S):
            self.failures.append(f"{left} records were not written")

    def _goes_on(self) -> bool:
        """Wait a little, and until readers follow; return whether there is more to write."""
        time.sleep(self._chosen.uniform(0.01, 0.1))
        while self._written > len(self._torture.values) + AHEAD and not self.stop.is_set():
            time.sleep(0.01)
        return not self.stop.is_set()

    def _produce(self, producer: confluent_kafka.Producer) -> None:
        for partition in self._partitions:
            for _ in range(self._chosen.randrange(BURST)):
                producer.produce(self._torture.topic, b"%d" % self._written, partition=partition)
                self._written += 1
        producer.poll(0)


class TransactionalWriter(Writer):
    """Writes in transactions, of which some are aborted."""

    def run(self) -> None:
        producer = self._producer()
        while self._goes_on():
            try:
                self._transact(producer)
            except confluent_kafka.KafkaException:
                producer = self._producer()
        self._producer()

    def _producer(self) -> confluent_kafka.Producer:
        """Return a producer, after the transaction of the one before is aborted."""
        producer = confluent_kafka.Producer({**self._settings, "transactional.id": self._torture.topic})
        is_last = False
        while not is_last:
            is_last = self.stop.is_set()
            try:
                producer.init_transactions(PATIENCE_S)
            except confluent_kafka.KafkaException as error:
                failure = f"transactions: {error}"
            else:
                return producer
        self.failures.append(failure)
        return producer

    def _transact(self, producer: confluent_kafka.Producer) -> None:
        """Write in a transaction. Raises KafkaException if another producer must go on."""
        producer.begin_transaction()
        self._produce(producer)
        producer.flush(PATIENCE_S)
        if self._chosen.random() < ABORTED_SHARE:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)


def written(address: str, topic: str, partition: int, end: int) -> Written:
    """Read a partition up to its end, and tell by the markers what was committed."""
    found = Written(set(), set())
    open_: dict[int, set[int]] = {}
    offset = 0
    with Connection(address) as connection:
        while offset < end:
            (topic_answer,) = connection.ask(fetch_request({topic: [asked(partition, offset)]}), 12).responses
            data = bytes(topic_answer.partitions[0].records)
            for position, header in iterate_batches(data):
                offset = header.last_offset + 1
                offsets = range(header.base_offset, offset)
                if header.is_control:
                    (marker,) = iterate_records_of_batch(data, position)
                    ended = open_.pop(header.producer_id, set())
                    is_committed = decode_control_type(marker.key) is ControlType.COMMIT
                    (found.due if is_committed else found.aborted).update(ended)
                elif header.is_transactional:
                    open_.setdefault(header.producer_id, set()).update(offsets)
                else:
                    found.due.update(offsets)
    assert not open_, "a transaction is open"
    return found
