"""A program that copies a topic exactly once: read, write, and commit the offsets, in one transaction after the other.

    python3 -m tests.clients.transactional_copier SERVERS NAME SEED

It prints a line for each attempt whose end it knows: "committed N" or "aborted N", N as in the header of the attempt's
records. It ends when its producer can no longer go on; whoever started it starts it again. Nothing here tests anything.
"""

from __future__ import annotations

import random
import sys
import time

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition

SOURCE, TARGET, GROUP = "source", "target", "copiers"
PATIENCE_S = 30
TIMEOUT_MS = 6000  # of a transaction: what nobody ends holds up readers for so long
ABORTED_SHARE = 0.15
RECORDS_MAX = 40


class Copier:
    """One member of the group, with a transactional id of its own."""

    def __init__(self, servers: str, name: str, seed: int) -> None:
        self._chosen = random.Random(seed)
        self._name = f"{name}-{seed}"
        self._attempt = 0
        common = {"bootstrap.servers": servers, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
        self._consumer = Consumer(
            {
                **common,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 3000,
                "heartbeat.interval.ms": 300,
                "fetch.wait.max.ms": 50,
            }
        )
        self._producer = Producer(
            {**common, "transactional.id": name, "transaction.timeout.ms": TIMEOUT_MS, "linger.ms": 1}
        )

    def run(self) -> None:
        """Copy until the producer or the consumer fails for good, which is an exception."""
        self._producer.init_transactions(PATIENCE_S)
        self._consumer.subscribe([SOURCE])
        while True:
            messages = self._consumer.consume(self._chosen.randrange(1, RECORDS_MAX), 0.1)
            records = [message for message in messages if message.error() is None]
            if records:
                self._copy(records)

    def _copy(self, records: list[confluent_kafka.Message]) -> None:
        self._attempt += 1
        attempt = f"{self._name}-{self._attempt}"
        self._producer.begin_transaction()
        try:
            self._write(records, attempt)
            if self._chosen.random() < ABORTED_SHARE:
                self._producer.flush(PATIENCE_S)
                self._abort(records, attempt)
                return
            self._producer.commit_transaction(PATIENCE_S)
        except confluent_kafka.KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._abort(records, attempt)
            return
        print("committed", attempt, flush=True)

    def _write(self, records: list[confluent_kafka.Message], attempt: str) -> None:
        for record in records:
            self._producer.produce(
                TARGET,
                record.value(),
                key=record.key(),
                partition=record.partition() or 0,
                headers={"attempt": attempt},
            )
        ends: dict[int, int] = {}
        for record in records:
            ends[record.partition() or 0] = (record.offset() or 0) + 1
        offsets = [TopicPartition(SOURCE, partition, offset) for partition, offset in ends.items()]
        self._producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata(), PATIENCE_S)

    def _abort(self, records: list[confluent_kafka.Message], attempt: str) -> None:
        self._producer.abort_transaction(PATIENCE_S)
        print("aborted", attempt, flush=True)
        self._rewind({record.partition() or 0 for record in records})

    def _rewind(self, partitions: set[int]) -> None:
        """Read again from what is committed; a partition that has gone to another member is not ours to seek."""
        held = {each.partition for each in self._consumer.assignment()}
        asked = [TopicPartition(SOURCE, partition) for partition in partitions & held]
        for found in self._consumer.committed(asked, PATIENCE_S) if asked else ():
            try:
                self._consumer.seek(TopicPartition(SOURCE, found.partition, max(found.offset, 0)))
            except confluent_kafka.KafkaException:
                time.sleep(0)  # revoked just now


if __name__ == "__main__":
    Copier(sys.argv[1], sys.argv[2], int(sys.argv[3])).run()
