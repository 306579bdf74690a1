"""The test kit: what an embedded broker's start and reset take, what its journal costs, and the unused pytest plugin.

The broker runs in a thread of this process, as in a test; the process that other sections measure has no part in it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import wire
from programs import HERE, Unavailable
from report import Case, Column, Sample, Section
from servers import Server, Target

if TYPE_CHECKING:
    from minibroker.testing import Broker

STARTS = RESETS = IMPORTS = 10
REQUESTS = 2_000
RECORD = wire.batch([b"x" * 100])
TIMED_IMPORT = """\
import time, pytest
begun_at = time.process_time()
import minibroker.testing.plugin
print(time.process_time() - begun_at)
"""
TIMED_SECURITY = """\
import time
from minibroker.testing import Broker

def timed(**security):
    begun_at = time.process_time()
    with Broker(**security) as broker:
        if security:
            broker.client_config("confluent", user="alice")
            broker.issuer.token("alice")
        return time.process_time() - begun_at

secured = {"security": "SASL_SSL", "users": {"alice": "a", "bob": "b"}}
timed()
print(timed(**secured), min(timed(**secured) for _ in range(10)), min(timed() for _ in range(10)))
"""


def sections() -> list[Section]:
    """The sections of what a test waits for, and of what the journal costs."""
    waits = [
        Case("start to the first acknowledged produce", _start, {"ms": 30}),
        Case("reset, of a topic with a record", lambda target: _reset(target, topics=1), {"ms": 5}),
        Case("reset, of 100 topics", lambda target: _reset(target, topics=100), {"ms": 5}),
        Case(
            "security, the first in a process: imports, certificates, users, issuer, token",
            _first_security,
            {"ms": 100},
        ),
        Case("security, each further one", _further_security, {"ms": 20}),
        Case("the plugin in a pytest that does not use it", _plugin, {"ms": 5}),
    ]
    return [
        Section(
            "testing",
            "Test kit: what a test waits for, in the test's own process; the best of ten each",
            (Column("ms", "ms"),),
            waits,
        ),
        Section(
            "testing-journal",
            "Test kit: ping-pong with an embedded broker, Produce of one record of 100 bytes",
            (Column("broker_us", "broker us each"),),
            [
                Case("journal off", lambda target: _requests(target, journal=False)),
                Case("journal on", lambda target: _requests(target, journal=True)),
            ],
        ),
    ]


def _broker(target: Target) -> Broker:
    """One that has not been started. Raises Unavailable where another server is measured."""
    if target.name != "minibroker":
        raise Unavailable("it is minibroker's test kit")
    from minibroker.testing import Broker

    return Broker()


def _server(broker: Broker) -> Server:
    host, port = broker.bootstrap_servers.split(":")
    return Server(host, int(port), 0, 0.0, 0.0)


def _produce(broker: Broker, *topics: str) -> None:
    with wire.Client(_server(broker)) as client:
        for topic in topics:
            client.create_topic(topic)
            client.produce(topic, RECORD)


def _start(target: Target) -> Sample:
    taken = []
    for _ in range(STARTS):
        broker = _broker(target)
        begun_at = time.perf_counter()
        with broker:
            _produce(broker, "first")
            taken.append(time.perf_counter() - begun_at)
    return {"ms": min(taken) * 1e3}


def _reset(target: Target, topics: int) -> Sample:
    taken = []
    with _broker(target) as broker:
        for _ in range(RESETS):
            _produce(broker, *(f"topic-{number}" for number in range(topics)))
            begun_at = time.perf_counter()
            broker.reset()
            taken.append(time.perf_counter() - begun_at)
    return {"ms": min(taken) * 1e3}


def _first_security(target: Target) -> Sample:
    return {"ms": min(first - plain for first, _, plain in _security(target)) * 1e3}


def _further_security(target: Target) -> Sample:
    return {"ms": min(further - plain for _, further, plain in _security(target)) * 1e3}


def _security(target: Target) -> list[tuple[float, ...]]:
    """Return the CPU time of starts in several processes: the first with security, a further one, one without."""
    _broker(target)
    command = [sys.executable, "-c", TIMED_SECURITY]
    runs = [subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=True) for _ in range(3)]
    return [tuple(map(float, run.stdout.split())) for run in runs]


def _plugin(target: Target) -> Sample:
    """CPU time, as the wall clock would show what else the machine does."""
    _broker(target)
    command = [sys.executable, "-c", TIMED_IMPORT]
    runs = [subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True) for _ in range(IMPORTS)]
    if any(run.returncode for run in runs):
        raise Unavailable("pytest is not installed")
    return {"ms": min(float(run.stdout) for run in runs) * 1e3}


def _requests(target: Target, journal: bool) -> Sample:
    """CPU time of the broker's own thread."""
    with _broker(target) as broker, wire.Client(_server(broker)) as client:
        if journal:
            broker.journal.on()
        client.create_topic("first")
        for _ in range(REQUESTS // 10):
            client.produce("first", RECORD)
        before = broker.loop.call_on_loop(time.thread_time)
        for _ in range(REQUESTS):
            client.produce("first", RECORD)
        return {"broker_us": (broker.loop.call_on_loop(time.thread_time) - before) / REQUESTS * 1e6}
