"""A member of a group as a program of its own, so that it can be killed: `python -m tests.clients.group_member ...`.

It reads, commits, and says on stdout what happens to it, a line of JSON an event. What must come of it is the tests'.

    library servers group topic assignor [instance]

An assignor of the broker's, as `consumer:uniform`, has the member speak the protocol of KIP-848, of which librdkafka
knows. A topic that begins with ^ is a pattern.

Events have `at` (ns of the monotonic clock, which all processes share) and `event`: `assigned` and `revoked` with
partitions, `read` with (partition, offset, value) of some records, `committed` with the offset by partition, `refused`
when a commit was, `closed`. A record is told before its offset is committed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

SESSION_MS = 6000  # a member that gets no processor for so long is taken for dead
STATIC_SESSION_MS = 40_000  # in which a static member that was killed is back, also on a machine that is busy
HEARTBEAT_MS = 300
KAFKA_PYTHON_POLL_MS = 2500
STDOUT = 1

stopped = False


def say(event: str, **what: Any) -> None:
    """Tell of an event at once: nothing is left in a buffer when the process is killed."""
    os.write(STDOUT, json.dumps({"at": time.monotonic_ns(), "event": event, **what}).encode() + b"\n")


def say_read(records: Iterable[tuple[int, int, bytes]]) -> None:
    say("read", records=[(partition, offset, value.decode()) for partition, offset, value in records])


def session_ms(instance: str | None) -> int:
    return SESSION_MS if instance is None else STATIC_SESSION_MS


def confluent(servers: str, group: str, topic: str, assignor: str, instance: str | None) -> None:
    from confluent_kafka import Consumer, KafkaException

    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "max.poll.interval.ms": 60_000,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    protocol, _, remote_assignor = assignor.rpartition(":")
    if protocol:
        settings |= {"group.protocol": protocol, "group.remote.assignor": remote_assignor}
    else:
        settings |= {
            "partition.assignment.strategy": assignor,
            "session.timeout.ms": session_ms(instance),
            "heartbeat.interval.ms": HEARTBEAT_MS,
        }
    if instance is not None:
        settings["group.instance.id"] = instance
    consumer = Consumer(settings)

    def told(event: str) -> Callable[[Any, Any], None]:
        return lambda _, partitions: say(event, partitions=[each.partition for each in partitions])

    consumer.subscribe([topic], on_assign=told("assigned"), on_revoke=told("revoked"), on_lost=told("revoked"))
    while not stopped:
        messages = [each for each in consumer.consume(100, timeout=0.1) if each.error() is None]
        if messages:
            say_read((each.partition(), each.offset(), each.value()) for each in messages)
            try:
                done = consumer.commit(asynchronous=False)
                say("committed", offsets={each.partition: each.offset for each in done if each.error is None})
            except KafkaException as error:
                say("refused", why=str(error))
    consumer.close()


def kafka_python(servers: str, group: str, topic: str, assignor: str, instance: str | None) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaConnectionError, KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            say("revoked", partitions=[each.partition for each in revoked])

        def on_partitions_assigned(self, assigned: Any) -> None:
            say("assigned", partitions=[each.partition for each in assigned])

        def on_partitions_lost(self, lost: Any) -> None:
            say("revoked", partitions=[each.partition for each in lost])

    assignors = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        group_instance_id=instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[assignors[assignor]],
        session_timeout_ms=session_ms(instance),
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    consumer.subscribe([topic], listener=Listener())
    while not stopped:
        try:
            # kafka-python 3.0.12 never takes note of a join that ends after the poll that began it: polls are long.
            found = consumer.poll(timeout_ms=KAFKA_PYTHON_POLL_MS)
        except KafkaConnectionError:  # the broker is away, of which others tell nobody
            continue
        if found:
            say_read((each.partition, each.offset, each.value) for records in found.values() for each in records)
            try:
                consumer.commit()
                say("committed", offsets={where.partition: records[-1].offset + 1 for where, records in found.items()})
            except KafkaError as error:
                say("refused", why=str(error))
    consumer.close()


def aiokafka(servers: str, group: str, topic: str, assignor: str, instance: str | None) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            say("revoked", partitions=[each.partition for each in revoked])

        async def on_partitions_assigned(self, assigned: Any) -> None:
            say("assigned", partitions=[each.partition for each in assigned])

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            group_instance_id=instance,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=[
                {"range": RangePartitionAssignor, "sticky": StickyPartitionAssignor}[assignor]
            ],
            session_timeout_ms=session_ms(instance),
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        consumer.subscribe([topic], listener=Listener())
        await consumer.start()
        while not stopped:
            found = await consumer.getmany(timeout_ms=100)
            if found:
                say_read((each.partition, each.offset, each.value) for records in found.values() for each in records)
                offsets = {where: records[-1].offset + 1 for where, records in found.items()}
                try:
                    await consumer.commit(offsets)
                    say("committed", offsets={where.partition: offset for where, offset in offsets.items()})
                except KafkaError as error:
                    say("refused", why=str(error))
        # It leaves without a word to its listener, and others may have its partitions before it is through with that.
        say("revoked", partitions=[each.partition for each in consumer.assignment()])
        await consumer.stop()

    asyncio.run(run())


def main() -> None:
    def stop(*_: object) -> None:
        global stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    library, servers, group, topic, assignor, *instance = sys.argv[1:]
    libraries = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka}
    libraries[library](servers, group, topic, assignor, instance[0] if instance else None)
    say("closed")


if __name__ == "__main__":
    main()
