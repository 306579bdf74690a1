"""Groups of consumers in processes of their own, and what is looked at from outside while they come and go.

The consumers themselves are in `group_member.py`; what happens to them, and must hold, is in `group_scenarios.py`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka.admin import AdminClient

from tests.clients.confluent import LOG
from tests.clients.interface import PATIENCE_S

ROOT = Path(__file__).parents[2]
PAUSE_S = 0.005


class Owned(NamedTuple):
    """A partition while a member had it, in ns of the monotonic clock."""

    partition: int
    since: int
    until: int
    member: str


class Member:
    """A consumer process. `events` is what it has told so far, `was_ended` whether it was killed or had to leave."""

    def __init__(self, name: str, command: list[str], errors: Path) -> None:
        self.name = name
        self.events: list[dict[str, Any]] = []
        self.was_ended = False
        self._ended_at: int | None = None
        with errors.open("ab") as stderr:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=ROOT,
            )
        self._reader = threading.Thread(target=self._listen)
        self._reader.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):  # a killed process may have said half a sentence
                self.events.append(json.loads(line))

    @property
    def assignments(self) -> list[list[int]]:
        """Return what it was assigned, each time."""
        return [event["partitions"] for event in list(self.events) if event["event"] == "assigned"]

    @property
    def owns(self) -> set[int]:
        """The partitions that it has now, as far as it has told."""
        owned: set[int] = set()
        for event in list(self.events):
            if event["event"] == "assigned":
                owned |= set(event["partitions"])
            elif event["event"] == "revoked":
                owned -= set(event["partitions"])
        return owned if self._process.poll() is None else set()

    def read(self) -> set[str]:
        """The values that it has read."""
        told = [event["records"] for event in list(self.events) if event["event"] == "read"]
        return {value for records in told for _, _, value in records}

    def owned(self) -> Iterator[Owned]:
        """Yield what it has had, and when; to be asked when it has ended."""
        since: dict[int, int] = {}
        for event in self.events:
            if event["event"] == "assigned":
                since |= {partition: event["at"] for partition in event["partitions"] if partition not in since}
            elif event["event"] == "revoked":
                yield from (
                    Owned(partition, since.pop(partition), event["at"], self.name)
                    for partition in event["partitions"]
                    if partition in since
                )
        end = self.events[-1]["at"] if self._ended_at is None else self._ended_at
        yield from (Owned(partition, begin, end, self.name) for partition, begin in since.items())

    def kill(self) -> None:
        """End it as a crash does (SIGKILL)."""
        self._ended_at = time.monotonic_ns()
        self._process.kill()
        self._end()

    def leave(self) -> None:
        """Let it leave its group and end."""
        self._process.send_signal(signal.SIGTERM)
        self._end()
        assert self._process.returncode == 0, (self.name, self.events[-3:])

    def end(self) -> None:
        """Kill it unless it has ended."""
        if self._process.poll() is None:
            self.kill()

    def _end(self) -> None:
        self.was_ended = True
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            self._reader.join()
            if self._process.stdout is not None:
                self._process.stdout.close()


class Group:
    """A group's members, those that have ended too, and what the broker was seen to know of its offsets.

    `programs` has the commands of members that are no Python libraries, by name; they take the same arguments.
    """

    def __init__(self, servers: str, name: str, topic: str, directory: Path) -> None:
        self.members: list[Member] = []
        self.seen: list[dict[int, int]] = []
        self.programs: dict[str, list[str]] = {}
        self.servers, self.topic, self._name = servers, topic, name
        self._errors = directory / f"{name}.stderr"
        self._stop = threading.Event()

    def join(self, library: str, assignor: str, instance: str | None = None) -> Member:
        """Start one more member."""
        name = f"{library}-{len(self.members)}"
        program = self.programs.get(library, [sys.executable, "-m", "tests.clients.group_member", library])
        arguments = [self.servers, self._name, self.topic, assignor, *([instance] if instance else [])]
        self.members.append(Member(name, [*program, *arguments], self._errors))
        return self.members[-1]

    def await_owners(self, *members: Member, partitions: int) -> None:
        """Wait until these have all the partitions, each some."""
        everything = set(range(partitions))

        def share_all() -> bool:
            owned = [member.owns for member in members]
            return all(owned) and sum(map(len, owned)) == partitions and set().union(*owned) == everything

        self.wait_for(share_all, "the partitions are not shared among the members")

    def await_end(self, values: set[str]) -> None:
        """Wait until each of these values, which are all there are, was read by somebody, and committed."""
        self.wait_for(lambda: values <= self.read(), "records are missing")
        self.wait_for(lambda: sum(self.seen[-1].values()) == len(values), "not all is committed")

    def await_looks(self, count: int) -> None:
        """Wait until there were more looks than these at what is committed."""
        self.wait_for(lambda: len(self.seen) > count, "what is committed was hardly looked at")

    def wait_for(self, done: Callable[[], bool], what: str) -> None:
        """Poll until `done`; raises AssertionError with what members have told last."""
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            told = {member.name: (sorted(member.owns), member.events[-2:]) for member in self.members}
            assert time.monotonic() < deadline, f"{what}: {told}\n{self._errors.read_text()[-4000:]}"
            time.sleep(0.02)

    def leave(self) -> None:
        """Let all members leave and end that have not been ended."""
        for member in self.members:
            if not member.was_ended:
                member.leave()

    def kind(self) -> confluent_kafka.ConsumerGroupType:
        """Which protocol the group has gone over to."""
        admin = AdminClient({"bootstrap.servers": self.servers}, logger=LOG)
        return admin.describe_consumer_groups([self._name])[self._name].result().type

    def read(self) -> set[str]:
        return set().union(*(member.read() for member in self.members))

    def overlaps(self) -> list[tuple[Owned, Owned]]:
        """Where two members had a partition at one time."""
        owned = sorted(each for member in self.members if member.events for each in member.owned())
        return [
            (one, other)
            for one, other in zip(owned, owned[1:], strict=False)
            if one.partition == other.partition and other.since < one.until and one.member != other.member
        ]

    def watch_offsets(self, partitions: int) -> None:
        """Ask again and again what is committed, until `stop`."""
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.servers, "group.id": self._name, "reconnect.backoff.max.ms": 200}, logger=LOG
        )
        asked = [confluent_kafka.TopicPartition(self.topic, index) for index in range(partitions)]
        while not self._stop.wait(0.05):
            try:
                found = consumer.committed(asked, timeout=5)
            except confluent_kafka.KafkaException:
                continue  # the broker is away
            if all(each.error is None for each in found):
                self.seen.append({each.partition: each.offset for each in found})
        consumer.close()

    def stop(self) -> None:
        self._stop.set()

    def steps_back(self) -> list[tuple[int, int, int]]:
        """(partition, offset, smaller one that was seen after it)."""
        return [
            (partition, before[partition], after[partition])
            for before, after in zip(self.seen, self.seen[1:], strict=False)
            for partition in before
            if after[partition] < before[partition]
        ]


@contextmanager
def group_of(servers: str, name: str, topic: str, partitions: int, directory: Path) -> Iterator[Group]:
    """A group whose members are gone after the block, and whose offsets are watched meanwhile."""
    group = Group(servers, name, topic, directory)
    watcher = threading.Thread(target=group.watch_offsets, args=[partitions])
    watcher.start()
    try:
        yield group
    finally:
        group.stop()
        watcher.join()
        for member in group.members:
            member.end()


class Numbers:
    """A producer that writes the numbers from 0 on to a topic, over all its partitions, until it is stopped."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self.acknowledged: set[str] = set()
        self._stop = threading.Event()
        self._topic, self._partitions = topic, partitions
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 0,
                "reconnect.backoff.max.ms": 200,
            },
            logger=LOG,
        )
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        for number in count():
            if self._stop.wait(PAUSE_S):
                break
            value = str(number)
            self._producer.produce(
                self._topic,
                value.encode(),
                partition=number % self._partitions,
                on_delivery=lambda error, message: error is None and self.acknowledged.add(message.value().decode()),
            )
            self._producer.poll(0)
        left = self._producer.flush(PATIENCE_S)
        assert left == 0, f"{left} records were not acknowledged"

    def __enter__(self) -> Numbers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Write no more; returns when everything is acknowledged."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
