"""Kafka Streams applications whose tasks the broker assigns (KIP-1071): their results are exact, whoever is killed."""

from __future__ import annotations

import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from conformance import builds
from conformance.clients import JAVA_OPTIONS
from conformance.conftest import Broker
from conformance.kafka_reference import kafka_command, running_kafka
from conformance.wire.connection import Connection
from conformance.wire.groups import commit, committed, find_coordinator
from conformance.wire.streams_members import Member, configure, describe, settle, tasks_of, word_count
from minibroker.protocol.errors import ErrorCode
from tests.clients.ports import free_ports
from tests.running import running_broker

STREAMS = "4.3.1"
TOOL = "org.apache.kafka.tools.streams.StreamsGroupCommand"
PATIENCE_S = 120
HEARTBEAT_S = 3
PARTITIONS = 4
WORDS = [f"word-{number}" for number in range(20)]
SETTINGS = {
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.initial.rebalance.delay.ms": "0",
}


class Application:
    """An instance of the application, with its lines of output."""

    def __init__(self, folder: Path, broker: Broker, kind: str, *settings: str) -> None:
        program = ["java", *JAVA_OPTIONS, "-cp", builds.kafka_streams(STREAMS), "conformance.WordCount"]
        self._log = folder.with_suffix(".log")
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*program, broker.bootstrap_servers, kind, kind, "lines", "results", str(folder), *settings],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        """Return what it has printed: its states, and what it logs."""
        return self._log.read_text()

    def stop(self) -> int:
        """Ask it to end, and wait; return its status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()


@pytest.fixture
def kafka_or_minibroker(against: str, tmp_path: Path) -> Iterator[Broker]:
    """A broker with an address that stays, and short timeouts."""
    with ExitStack() as stack:
        if against == "kafka":
            broker: Any = stack.enter_context(running_kafka(tmp_path, SETTINGS))
        else:
            settings = {**SETTINGS, "listeners": f"PLAINTEXT://127.0.0.1:{free_ports(1)}"}
            broker = stack.enter_context(
                running_broker(tmp_path, *(f"{key}={value}" for key, value in settings.items()))
            )
        topics = [NewTopic("lines", PARTITIONS, 1), NewTopic("results", 1, 1)]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        for created in admin.create_topics(topics).values():
            created.result()
        yield broker


@contextmanager
def applications() -> Iterator[Callable[[Application], Application]]:
    """Kill at the end of the block what was started in it."""
    started: list[Application] = []
    try:
        yield lambda one: started.append(one) or one  # type: ignore[func-returns-value]
    finally:
        for one in started:
            one.kill()


def eventually(what: Callable[[], bool], *instances: Application) -> None:
    """Wait until something is true; the instances must run meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        for one in instances:
            assert one.process.poll() is None, one.log[-4000:]
        assert time.monotonic() < deadline, "\n".join(one.log[-3000:] for one in instances)
        time.sleep(0.2)


def write(broker: Broker, expected: Counter[str], count: int) -> None:
    """Write lines of words, and count them."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "log_level": 0})
    for number in range(count):
        words = [WORDS[number % len(WORDS)], WORDS[number * 7 % len(WORDS)]]
        expected.update(words)
        producer.produce("lines", " ".join(words).encode(), partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


class Results:
    """What the application has committed so far, by key and in order."""

    def __init__(self, broker: Broker) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "reader",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.subscribe(["results"])
        self.values: dict[str, list[int]] = defaultdict(list)

    def are(self, expected: Counter[str]) -> bool:
        """Read on; return whether the last counts are these."""
        for message in self._consumer.consume(1000, 0.5):
            if message.error() is None:
                self.values[message.key().decode()].append(int.from_bytes(message.value(), "big"))
        return {key: values[-1] for key, values in self.values.items()} == expected

    def close(self) -> None:
        """End the consumer."""
        self._consumer.close()


def test_words_are_counted_exactly_once_despite_kills(kafka_or_minibroker: Broker, tmp_path: Path) -> None:
    """Two instances with standbys; one of them is killed, then the broker, then a third instance joins."""
    broker, expected = kafka_or_minibroker, Counter[str]()
    settings = "processing.guarantee=exactly_once_v2", "producer.transaction.timeout.ms=5000"
    with Connection(broker.bootstrap_servers) as connection:
        find_coordinator(connection, "count")
        configure(connection, "count", num_standby_replicas="1", assignment_interval_ms="0")
    with applications() as started:
        first, second = (
            started(Application(tmp_path / name, broker, "count", *settings)) for name in ("first", "second")
        )
        results = Results(broker)
        write(broker, expected, 400)
        eventually(lambda: results.are(expected), first, second)
        eventually(lambda: _standbys(broker) == PARTITIONS, first, second)
        write(broker, expected, 400)
        second.kill()
        write(broker, expected, 400)
        eventually(lambda: results.are(expected), first)
        broker.kill()
        broker.start()
        write(broker, expected, 400)
        third = started(Application(tmp_path / "third", broker, "count", *settings))
        eventually(lambda: results.are(expected), first, third)
        eventually(lambda: _standbys(broker) == PARTITIONS, first, third)
        assert (first.stop(), third.stop()) == (0, 0), first.log[-3000:] + third.log[-3000:]
        results.close()
    for word, values in results.values.items():
        assert values == sorted(set(values)), word  # a count that was lost would be there twice
    with Connection(broker.bootstrap_servers) as connection:
        assert describe(connection, "count").group_state == "Empty"


def test_kafkas_streams_groups_tool_describes_resets_and_deletes_groups(kafka_or_minibroker: Broker) -> None:
    broker, group = kafka_or_minibroker, "app"
    tool = kafka_command(TOOL)  # installed before the member is there, as that may take longer than its session

    def groups(*arguments: str) -> list[list[str]]:
        """Ask the tool, which takes a minute on a busy machine: the member stays alive meanwhile."""
        command = [*tool, "--bootstrap-server", broker.bootstrap_servers, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
            while run.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    run.wait(HEARTBEAT_S)
                if is_there:
                    assert member.beat().error_code == 0
            output, errors = run.communicate()
        assert run.returncode == 0, output + errors
        return [line.split() for line in output.splitlines()]

    with Connection(broker.bootstrap_servers) as connection:
        find_coordinator(connection, group)
        configure(connection, group, session_timeout_ms="60000")
        member, is_there = Member(connection, group, "m-1", word_count("lines", group)), True
        member.join()
        settle(connection, group, member)
        said = {"generation_id_or_member_epoch": member.epoch, "member_id": "m-1"}
        assert commit(connection, group, ("lines", 0, 5), **said) == {("lines", 0): 0}
        assert [group, "Stable"] in groups("--list", "--state")
        (line,) = (each for each in groups("--describe", "--group", group, "--members", "--verbose") if "m-1" in each)
        assert "ACTIVE: 0:[0,1,2,3]; 1:[0,1,2,3]; TARGET-ACTIVE:" in " ".join(line)
        member.ask(member_epoch=-1)
        is_there = False
        reset = "--reset-offsets", "--group", group, "--to-earliest", "--all-input-topics", "--execute"
        assert [group, "lines", "0", "0"] in groups(*reset)
        assert committed(connection, group)["lines", 0] == 0
        groups("--delete", "--group", group)
        assert describe(connection, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def _standbys(broker: Broker) -> int:
    """Return how many standbys run."""
    with Connection(broker.bootstrap_servers) as connection:
        found = describe(connection, "count")
    return sum(len(tasks) for one in found.members for tasks in tasks_of(one.assignment.standby_tasks).values())
