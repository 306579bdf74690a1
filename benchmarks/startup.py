"""Start-up and memory: from exec to the first acknowledged record, and what idle connections hold.

The budgets are those of an idle machine. Nothing here asks twice: the announced line, then the two answers.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, nullcontext

import wire
from machine import cpu_seconds, resident_kib
from programs import Unavailable
from report import Case, Column, Sample, Section
from servers import Target

IDLE_CONNECTIONS = 1000
FIRST_RECORD = wire.batch([b"x" * 100])


def sections() -> list[Section]:
    """The start-up section, and the one on memory."""
    start = Section(
        "startup",
        "Start-up: exec to the line that says it listens, to the first acknowledged record (create topic, produce)",
        (
            Column("listening_ms", "listening, ms"),
            Column("produced_ms", "first ack, ms"),
            Column("cpu_ms", "server CPU, ms"),
            Column("client_cpu_ms", "client CPU, ms"),
            Column("resident_mib", "RSS then, MiB"),
        ),
        [Case("start", measure_start, {"listening_ms": 330, "produced_ms": 500, "resident_mib": 27})],
    )
    memory = Section(
        "memory",
        "Memory: the server after the rows so far; a fresh one with idle connections that asked one ApiVersions each",
        (
            Column("resident_mib", "RSS, MiB"),
            Column("kib_each", "KiB each"),
            Column("cpu_us", "server us each"),
            Column("client_cpu_us", "client us each"),
        ),
        [
            Case("after the rows so far", measure_resident, {"resident_mib": 47e6 / 2**20}),
            Case(f"{IDLE_CONNECTIONS:,} idle connections", measure_idle),
        ],
    )
    return [start, memory]


def measure_start(target: Target) -> Sample:
    """One start of a fresh server. Raises Unavailable for a server that is not ours to start."""
    if target.start is None:
        raise Unavailable("it was not started by the benchmark")
    with wire.topic(target.server) as topic, wire.Client(target.server) as client:
        client.produce(topic, FIRST_RECORD)  # our own side compiles its messages on first use
    with target.start() as server:
        client_cpu = time.process_time()
        with wire.Client(server) as client:
            client.exchange([wire.create_topic_request("first")], None)
            client.wait_for_leader("first")  # Apache Kafka answers before its broker knows the topic
            client.produce("first", FIRST_RECORD)
        produced_at = time.perf_counter()
        return {
            "listening_ms": (server.listening_at - server.exec_at) * 1e3,
            "produced_ms": (produced_at - server.exec_at) * 1e3,
            "cpu_ms": cpu_seconds(server.pid) * 1e3,
            "client_cpu_ms": (time.process_time() - client_cpu) * 1e3,
            "resident_mib": resident_kib(server.pid) / 1024,
        }


def measure_resident(target: Target) -> Sample:
    """Measure what the server holds after whatever ran on it."""
    return {"resident_mib": resident_kib(target.server.pid) / 1024}


def measure_idle(target: Target) -> Sample:
    """Measure what connections add to a fresh server (to a used one, where a fresh one is not ours to start)."""
    with nullcontext(target.server) if target.start is None else target.start() as server:
        resident, cpu, client_cpu = resident_kib(server.pid), cpu_seconds(server.pid), time.process_time()
        with ExitStack() as stack:
            for _ in range(IDLE_CONNECTIONS):
                stack.enter_context(wire.Client(server)).ask_api_versions()
            held = resident_kib(server.pid)
            return {
                "resident_mib": held / 1024,
                "kib_each": (held - resident) / IDLE_CONNECTIONS,
                "cpu_us": (cpu_seconds(server.pid) - cpu) / IDLE_CONNECTIONS * 1e6,
                "client_cpu_us": (time.process_time() - client_cpu) / IDLE_CONNECTIONS * 1e6,
            }
