"""Spoilt requests on many connections to a broker process, beside two clients that work.

    python -m tests.broker.fuzzing --frames 1000000 --seed 7

Fails on a traceback in the broker's log, a broker that ends or takes too much memory, an answer that cannot be read,
and whatever the two clients miss. Each finding is shown with the frames of its connection, in hex.
"""

from __future__ import annotations

import argparse
import random
import re
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from minibroker.broker.requests.served import SERVED
from minibroker.protocol import headers
from minibroker.protocol.apis import ApiKey, get_api_name, get_response_class
from minibroker.protocol.messages.topics import CreateTopicsRequest
from minibroker.protocol.primitives import MalformedMessage
from tests.broker.fuzz_neighbours import Neighbour, neighbours
from tests.broker.harness import frame_of
from tests.protocol.mutating import Known, Requests
from tests.running import RunningBroker, running_broker

CONNECTIONS = 200
FRAMES_EACH = (1, 1, 1, 2, 4)  # on a connection: what is behind a spoilt one is seldom read
PATIENCE_S = 0.25  # with a connection on which nothing more comes
LOOK_EVERY = 2_000  # frames, at the broker's log
REMEMBERED = 5_000  # connections, whose frames a traceback may be about
MOST_MEMORY_BYTES = 1 << 30
MOST_BODY_BYTES = 64 << 20
TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(?:\S.*)", re.MULTILINE)
PEER = re.compile(r"closing (\S+:\d+)")
# What would be no finding: it is right that they change what the neighbours see.
LEFT_OUT = {ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.UPDATE_FEATURES, ApiKey.UNREGISTER_BROKER}


class Finding(NamedTuple):
    """Something that must not be: what, and the frames that were sent before it."""

    what: str
    frames: list[bytes]

    def __str__(self) -> str:
        return "\n".join([self.what, *(f"  frame {frame.hex()}" for frame in self.frames)])


class Fuzzer:
    """Sends `frames` requests to the broker, made from `seed`. `run` gives what it found."""

    def __init__(self, broker: RunningBroker, frames: int, seed: int, progress: Callable[[str], None]) -> None:
        host, _, port = broker.bootstrap_servers.partition(",")[0].rpartition(":")
        self.address = host, int(port)
        self.broker = broker
        self.random = random.Random(seed)
        self.known = Known()
        self.requests = Requests(self.random, self.known)
        self.routes = [(key, version) for key, row in SERVED.items() if key not in LEFT_OUT for version in row.versions]
        self.left = frames
        self.sent: dict[str, list[bytes]] = {}
        self.closed_order: deque[str] = deque()
        self.findings: list[Finding] = []
        self.told: set[str] = set()
        self.answers = 0
        self._log_position = 0
        self.progress = progress

    def run(self) -> list[Finding]:
        """Send all frames, until they have been answered or the broker has ended."""
        ask_once(self.address, _topic_request())
        open_now: dict[socket.socket, _Talk] = {}
        look_at = self.left - LOOK_EVERY
        with selectors.DefaultSelector() as selector:
            while self.left > 0 or open_now:
                while self.left > 0 and len(open_now) < CONNECTIONS:
                    talk = self._begin()
                    open_now[talk.socket] = talk
                    selector.register(talk.socket, talk.wants)
                self._turn(selector, open_now)
                if self.left < look_at:
                    look_at = self.left - LOOK_EVERY
                    self._look()
                    self.progress(f"{self.left:,} left, {len(self.findings)} findings")
                    if self.broker.process.poll() is not None:
                        self.findings.append(Finding(f"the broker ended: {self.broker.process.poll()}", []))
                        return self.findings
        self._look()
        return self.findings

    def _begin(self) -> _Talk:
        frames, expected = [], []
        count = min(self.left, self.random.choice(FRAMES_EACH))
        for number in range(count):
            key, version = self.random.choice(self.routes)
            mutations = self.random.choice((1, 1, 2, 4)) if number == count - 1 else self.random.choice((0, 0, 1))
            frames.append(self.requests.frame(key, version, number, mutations=mutations))
            expected.append((key, version, number, mutations))
        self.left -= len(frames)
        data = b"".join(frames)
        whole = data
        if self.random.random() < 0.05:
            data = data[: self.random.randrange(len(data))]
        elif self.random.random() < 0.03:
            data = bytes([*data[:3], data[3] ^ 1 << self.random.randrange(8), *data[4:]])
        in_step = whole.startswith(data)  # else frames begin where none does, and answers may be to anything
        talk = _Talk(self, data, expected, in_step, leave_early=self.random.random() < 0.1)
        self.sent[talk.name] = frames
        self.closed_order.append(talk.name)
        if len(self.closed_order) > REMEMBERED:
            self.sent.pop(self.closed_order.popleft(), None)
        return talk

    def _turn(self, selector: selectors.BaseSelector, open_now: dict[socket.socket, _Talk]) -> None:
        for key, events in selector.select(0.05):
            talk = open_now[key.fileobj]  # type: ignore[index]
            talk.ready(events)
            if not talk.done and talk.wants != key.events:
                selector.modify(talk.socket, talk.wants)
        now = time.monotonic()
        for talk in [talk for talk in open_now.values() if talk.done or now > talk.give_up_at]:
            selector.unregister(talk.socket)
            del open_now[talk.socket]
            talk.socket.close()

    def found(self, what: str, name: str) -> None:
        """Note a finding of a connection, once."""
        if what not in self.told:
            self.told.add(what)
            self.findings.append(Finding(what, self.sent.get(name, [])))

    def learn(self, answer: Any) -> None:
        """Remember the ids in an answer: requests with them get further."""
        for field, values in self.known.numbers.items():
            value = getattr(answer, field, None)
            if isinstance(value, int) and value > 0:
                _keep(values, value)
        member_id = getattr(answer, "member_id", None)
        if member_id:
            _keep(self.known.member_ids, member_id)
        for topic in getattr(answer, "topics", None) or ():
            if any(getattr(topic, "topic_id", b"")) and (getattr(topic, "name", "") or "").startswith("fuzz"):
                _keep(self.known.topic_ids, topic.topic_id)

    def _look(self) -> None:
        """Read what is new in the broker's log, and see how much memory it has taken."""
        with self.broker.stderr_file.open("rb") as log:
            log.seek(self._log_position)
            new = log.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._log_position += len(whole)
        text = whole.decode(errors="replace")
        for match in TRACEBACK.finditer(text):
            before = text[: match.start()].rstrip("\n").rpartition("\n")[2]
            peer = PEER.search(before)
            lines = match[0].splitlines()
            key = "\n".join(lines[-4:])
            if key not in self.told:
                self.told.add(key)
                self.findings.append(Finding(f"{before}\n{match[0]}", self.sent.get(peer[1], []) if peer else []))
        if self.broker.process.poll() is None and peak_bytes(self.broker.process.pid) > MOST_MEMORY_BYTES:
            self.found(f"the broker takes more than {MOST_MEMORY_BYTES >> 20} MiB", "")


class _Talk:
    """One connection of the fuzzer: what is left to send, and what has come."""

    def __init__(
        self, fuzzer: Fuzzer, data: bytes, expected: list[tuple[int, int, int, int]], in_step: bool, leave_early: bool
    ) -> None:
        self.socket = socket.create_connection(fuzzer.address)
        self.socket.setblocking(False)
        host, port = self.socket.getsockname()
        self.name = f"{host}:{port}"
        self.done = False
        self._fuzzer = fuzzer
        self._data = data
        self._expected = deque(expected)
        self._in_step = in_step
        self._leaves_early = leave_early
        self._received = bytearray()
        self.give_up_at = time.monotonic() + PATIENCE_S

    @property
    def wants(self) -> int:
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._data else 0)

    def ready(self, events: int) -> None:
        self.give_up_at = time.monotonic() + PATIENCE_S
        try:
            if events & selectors.EVENT_WRITE and self._data:
                self._data = self._data[self.socket.send(self._data) :]
                self.done = self._leaves_early and not self._data
            if events & selectors.EVENT_READ:
                piece = self.socket.recv(1 << 18)
                self._received += piece
                self._take()
                self.done = self.done or not piece or not self._expected
        except BlockingIOError:
            pass
        except OSError:
            self.done = True

    def _take(self) -> None:
        """Read the whole answers that have come."""
        while len(self._received) >= 4:
            size = int.from_bytes(self._received[:4], "big")
            if not self._in_step:
                self.done = True
                return
            if size > MOST_BODY_BYTES:
                self._fuzzer.found(f"an answer of {size} bytes", self.name)
                self.done = True
                return
            if len(self._received) < 4 + size:
                return
            body = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            self._answer(body)

    def _answer(self, body: bytes) -> None:
        """The answers come in the order of the requests; only acks=0 has none."""
        correlation_id = int.from_bytes(body[:4], "big")
        while self._expected:
            key, version, number, mutations = self._expected.popleft()
            if number == correlation_id:
                self._fuzzer.answers += 1
                self._decode(key, version, mutations, body)
                return
            if key != ApiKey.PRODUCE:
                break
        self._fuzzer.found("an answer that nobody waited for", self.name)
        self.done = True

    def _decode(self, key: int, version: int, mutations: int, body: bytes) -> None:
        header_version = headers.get_response_header_version(key, version)
        _, position = headers.ResponseHeader.decode_from(body, header_version)
        try:
            answer = get_response_class(key).decode(body, version, position)
        except MalformedMessage as error:
            self._fuzzer.found(f"an answer to {get_api_name(key)} {version} that cannot be read: {error}", self.name)
        else:
            self._fuzzer.learn(answer)


def _keep(values: list[Any], value: Any) -> None:
    if value not in values:
        values.append(value)
        del values[:-50]


def _topic_request() -> bytes:
    topic = CreateTopicsRequest.CreatableTopic
    topics = [topic(name="fuzz", num_partitions=3, replication_factor=1)]
    return frame_of(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)


def ask_once(address: tuple[str, int], frame: bytes) -> bytes:
    """Send one request on a connection of its own; the answer's bytes after the size."""
    with socket.create_connection(address, 60) as connection:
        connection.sendall(frame)
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        return connection.recv(size, socket.MSG_WAITALL)


def peak_bytes(pid: int) -> int:
    """The most resident memory that the process has had; 0 where there is no /proc."""
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) << 10 if found else 0


class Outcome(NamedTuple):
    """The results of a run."""

    findings: list[Finding]
    answers: int
    neighbours: list[Neighbour]
    peak_bytes: int
    seconds: float


def fuzz(directory: Path, frames: int, seed: int, progress: Callable[[str], None] = lambda told: None) -> Outcome:
    """Run a broker in `directory` with its two neighbours, and send it `frames` requests; report to `progress`."""
    started_at = time.monotonic()
    backlog = f"socket.listen.backlog.size={CONNECTIONS}"  # fewer, and a connection waits a second for its next SYN
    with running_broker(directory, "log.retention.check.interval.ms=1000", backlog) as broker:
        with neighbours(broker.bootstrap_servers) as working:
            fuzzer = Fuzzer(broker, frames, seed, progress)
            findings = fuzzer.run()
        for each in working:
            findings += [Finding(f"{each.name}: {failure}", []) for failure in each.failures]
        peak = peak_bytes(broker.process.pid)
    return Outcome(findings, fuzzer.answers, working, peak, time.monotonic() - started_at)


def main() -> int:
    """Fuzz as the command line says; 1 if anything was found."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--frames", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="minibroker-fuzz-") as directory:
        outcome = fuzz(Path(directory), arguments.frames, arguments.seed, lambda told: print(told, file=sys.stderr))
    for finding in outcome.findings:
        print(finding, end="\n\n")
    done = ", ".join(f"{each.name} {each.done:,}" for each in outcome.neighbours)
    print(
        f"seed {arguments.seed}: {arguments.frames:,} frames, {outcome.answers:,} answers, {len(outcome.findings)} "
        f"findings, {outcome.peak_bytes >> 20} MiB, {outcome.seconds:.0f} s; beside them {done}"
    )
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    sys.exit(main())
