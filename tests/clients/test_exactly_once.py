"""Exactly once, under torture: copying loops and their broker are killed, connections break off at any byte.

    TORTURE_S=600 TORTURE_SEED=7 python3 -m pytest --thorough tests/clients/test_exactly_once.py -n0

Without TORTURE_SEED every run has a seed of its own, which is printed at its end. It decides what is killed in which
order, and where connections break; what a loop or the broker is doing just then depends on the machine as well.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.confluent import LOG, Confluent
from tests.clients.cutting import cutting_proxy
from tests.clients.interface import PATIENCE_S
from tests.clients.ports import free_ports
from tests.clients.transactional_copier import SOURCE, TARGET
from tests.running import RunningBroker, running_broker

TORTURE_S = int(os.environ.get("TORTURE_S", "25"))
PARTITIONS = 4
COPIERS = 3
CUT_SHARE = 0.3
HANGS_AFTER_S = 15
SETTINGS = (
    "group.min.session.timeout.ms=1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
)


class Copiers:
    """The loops, each in a process of its own that is started again when it ends. `lines` is what all have printed."""

    def __init__(self, servers: str, directory: Path, chosen: random.Random) -> None:
        self._servers = servers
        self._output = directory / "copiers.stdout"
        self._chosen = chosen
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.starts = 0
        self.kills = 0

    def keep_running(self) -> None:
        """Start those that do not run."""
        for number in range(COPIERS):
            name = f"copier-{number}"
            process = self._processes.get(name)
            if process is None or process.poll() is not None:
                self._start(name)

    def _start(self, name: str) -> None:
        seed = self._chosen.randrange(1 << 32)
        command = [sys.executable, "-m", "tests.clients.transactional_copier", self._servers, name, str(seed)]
        with self._output.open("ab") as output:
            self._processes[name] = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
        self.starts += 1

    def kill_one(self) -> None:
        """Kill one of them, chosen at random, with SIGKILL."""
        name = self._chosen.choice(sorted(self._processes))
        self._processes[name].kill()
        self._processes[name].wait()
        self.kills += 1

    def stop(self) -> None:
        """Kill all."""
        for process in self._processes.values():
            process.kill()
            process.wait()

    def told(self, what: str) -> set[str]:
        """The attempts that ended so: "committed" or "aborted"."""
        lines = self._output.read_text().splitlines()
        return {line.split()[1] for line in lines if line.startswith(what) and len(line.split()) == 2}


class Numbers(threading.Thread):
    """An idempotent producer that numbers what it writes to each partition of the source, until `stop`."""

    def __init__(self, servers: str) -> None:
        super().__init__()
        self.stop = threading.Event()
        self.counts = [0] * PARTITIONS
        self.failures: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
            },
            logger=LOG,
        )

    def run(self) -> None:
        while not self.stop.is_set():
            for partition in range(PARTITIONS):
                value = b"%d:%d" % (partition, self.counts[partition])
                self._producer.produce(SOURCE, value, partition=partition, on_delivery=self._delivered)
                self.counts[partition] += 1
            self._producer.poll(0.02)
        if self._producer.flush(PATIENCE_S):
            self.failures.append("not all records were acknowledged")

    def _delivered(self, error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
        if error is not None:
            self.failures.append(str(error))


class Reader(threading.Thread):
    """A reader of committed records that follows the target: (attempt, value) of each, by partition."""

    def __init__(self, servers: str) -> None:
        super().__init__()
        self.stop = threading.Event()
        self.seen: list[list[tuple[str, bytes]]] = [[] for _ in range(PARTITIONS)]
        self.offsets: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "fetch.wait.max.ms": 50,
            },
            logger=LOG,
        )
        self._consumer.assign([TopicPartition(TARGET, partition, 0) for partition in range(PARTITIONS)])

    def run(self) -> None:
        while not self.stop.is_set():
            for message in self._consumer.consume(1000, 0.1):
                if message.error() is None:
                    attempt = (message.headers() or [("attempt", b"")])[0][1] or b""
                    self.seen[message.partition() or 0].append((attempt.decode(), message.value() or b""))
                    self.offsets[message.partition() or 0].append(message.offset() or 0)
        self._consumer.close()

    def counts(self) -> list[int]:
        """How many records were read, by partition."""
        return [len(records) for records in self.seen]

    def values(self) -> list[list[bytes]]:
        """The values of all records, by partition."""
        return [[value for _, value in records] for records in self.seen]


def tortured(broker: RunningBroker, copiers: Copiers, chosen: random.Random) -> int:
    """Kill this and that until the time is over; how often it was the broker."""
    kills, deadline = 0, time.monotonic() + TORTURE_S
    while time.monotonic() < deadline:
        copiers.keep_running()
        time.sleep(chosen.uniform(0.1, 1.5))
        if chosen.random() < 0.5:
            copiers.kill_one()
        else:
            broker.kill()
            broker.start()
            kills += 1
    return kills


def await_copied(copiers: Copiers, numbers: Numbers, reader: Reader) -> None:
    """Let the loops come to the end undisturbed, but for those that hang.

    librdkafka 2.16 at times waits for ever in send_offsets_to_transaction: for a connection that it never begins.
    """
    now = time.monotonic()
    deadline, progress, before = now + 4 * PATIENCE_S, now, reader.counts()
    while (counts := reader.counts()) != numbers.counts and time.monotonic() < deadline:
        copiers.keep_running()
        if any(count > written for count, written in zip(counts, numbers.counts, strict=True)):
            break
        if counts != before:
            before, progress = counts, time.monotonic()
        elif time.monotonic() > progress + HANGS_AFTER_S:
            copiers.stop()
            progress = time.monotonic()
        time.sleep(0.1)
    time.sleep(0.5)  # so that what is there twice is read, too


@pytest.mark.thorough
@pytest.mark.timeout(240 + 2 * TORTURE_S)
def test_every_record_is_copied_once_and_in_order_despite_kills(
    tmp_path: Path, complaints: list[str], record_property: Callable[[str, object], None]
) -> None:
    complaints.append("")  # that the broker is away is what clients complain of
    seed = int(os.environ.get("TORTURE_SEED") or random.SystemRandom().randrange(1 << 32))
    chosen = random.Random(seed)
    port = free_ports(2)
    servers = f"127.0.0.1:{port + 1}"  # where clients go through what cuts their connections
    listeners = f"listeners=PLAINTEXT://127.0.0.1:{port}", f"advertised.listeners=PLAINTEXT://{servers}"
    with (
        running_broker(tmp_path, *listeners, *SETTINGS) as broker,
        cutting_proxy(port + 1, port, seed, CUT_SHARE) as proxy,
    ):
        with Confluent().admin(servers) as admin:
            admin.create_topic(SOURCE, PARTITIONS, {})
            admin.create_topic(TARGET, PARTITIONS, {})
        numbers, reader, copiers = Numbers(servers), Reader(servers), Copiers(servers, tmp_path, chosen)
        numbers.start()
        reader.start()
        try:
            kills = tortured(broker, copiers, chosen)
            numbers.stop.set()
            numbers.join()
            await_copied(copiers, numbers, reader)
        finally:
            copiers.stop()
            numbers.stop.set()
            reader.stop.set()
            numbers.join()
            reader.join()
        committed, aborted = copiers.told("committed"), copiers.told("aborted")
        count = sum(numbers.counts)
        record_property(
            "seed",
            f"{seed}: {count} records, {len(committed)} commits, {len(aborted)} aborts, {kills} kills of the broker, "
            f"{copiers.kills} of loops, {proxy.cuts} connections cut",
        )
        assert numbers.failures == []
        check(numbers, reader, committed, aborted)
        assert_nothing_stays_open(servers)


def check(numbers: Numbers, reader: Reader, committed: set[str], aborted: set[str]) -> None:
    """Every input is in the output once, in order, and nothing of it was aborted."""
    for partition, values in enumerate(reader.values()):
        expected = [b"%d:%d" % (partition, number) for number in range(numbers.counts[partition])]
        twice = [value for value, times in Counter(values).items() if times > 1]
        assert twice == [], f"partition {partition}: {twice[:10]} are there more than once"
        assert values == expected
        assert reader.offsets[partition] == sorted(set(reader.offsets[partition]))
    seen = {attempt for records in reader.seen for attempt, _ in records}
    assert seen & aborted == set()
    assert len(committed) > 10 and len(aborted) > 0


def assert_nothing_stays_open(servers: str) -> None:
    """Check that a new producer with the loops' ids, or time, ends what they have left open."""
    admin = AdminClient({"bootstrap.servers": servers}, logger=LOG)
    deadline = time.monotonic() + PATIENCE_S
    while (unstable := unstable_partitions(admin)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert unstable == []


def unstable_partitions(admin: AdminClient) -> list[int]:
    """The partitions of the target whose last stable offset is not their end."""
    asked = [TopicPartition(TARGET, partition) for partition in range(PARTITIONS)]
    latest = confluent_kafka.admin.OffsetSpec.latest()
    ends = []
    for isolation in (confluent_kafka.IsolationLevel.READ_COMMITTED, confluent_kafka.IsolationLevel.READ_UNCOMMITTED):
        futures = admin.list_offsets(dict.fromkeys(asked, latest), isolation_level=isolation)
        ends.append({found.partition: future.result().offset for found, future in futures.items()})
    return [partition for partition, end in ends[0].items() if ends[1][partition] != end]
