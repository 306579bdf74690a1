"""Start-up and memory: from exec to the first acknowledged record, what each option adds, and what connections hold.

The budgets are those of an idle machine. Nothing here asks twice: the announced line, then the two answers.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from urllib.request import urlopen

import wire
from machine import ROOT, cpu_seconds, resident_kib
from programs import Unavailable
from report import Case, Column, Sample, Section
from servers import MINIBROKER, NotListening, Target, data_directory

IDLE_CONNECTIONS = 1000
FIRST_RECORD = wire.batch([b"x" * 100])
STARTS = 7  # the best of which is a sample: other work on the machine only adds to it
LOOP_ALONE = """\
import asyncio, uvloop

async def main():
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    print("listens", flush=True)
    await server.serve_forever()

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
"""
KIT = """\
from minibroker.testing import Broker

with Broker():
    print("listens", flush=True)
    input()
"""
SERVE = (*MINIBROKER, "serve", "--temporary", "--log-level", "warning", "--set", "listeners=PLAINTEXT://127.0.0.1:0")
URL = re.compile(r"is (?:controlled|explored) at (http://[^/\s]+)")


def sections() -> list[Section]:
    """The start-up sections, and the one on memory, which is the last."""
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
    return [start, _starts(), memory]


def _starts() -> Section:
    """What each option adds to a start."""
    return Section(
        "starts",
        f"Starts: exec to the line that says all ports listen, the best of {STARTS}; then GET /v1/clock of the control",
        (
            Column("cpu_ms", "CPU, ms"),
            Column("listening_ms", "listening, ms"),
            Column("first_ms", "first answer, ms"),
            Column("first_cpu_ms", "CPU, ms"),
        ),
        [
            Case("asyncio and uvloop alone", partial(measure_starts, ("-c", LOOP_ALONE), 1)),
            Case("serve", partial(measure_starts, SERVE, 1), {"listening_ms": 62}),
            Case("serve --registry 0", partial(measure_starts, (*SERVE, "--registry", "0"), 2)),
            Case("serve --control 0", partial(measure_starts, (*SERVE, "--control", "0"), 2), {"first_ms": 30}),
            Case(
                "serve --registry 0 --control 0",
                partial(measure_starts, (*SERVE, "--registry", "0", "--control", "0"), 3),
                {"listening_ms": 150, "first_ms": 30},
            ),
            Case("serve --explorer", partial(measure_starts, (*SERVE, "--explorer"), 2), {"listening_ms": 170}),
            Case("Broker() of the test kit in a new process", partial(measure_starts, ("-c", KIT), 1), {"cpu_ms": 120}),
        ],
    )


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


def measure_starts(words: Sequence[str], lines: int, target: Target) -> Sample:
    """Start a process several times; the best of each figure. Raises Unavailable for servers that are not ours."""
    if target.name != "minibroker":
        raise Unavailable("it has no such options")
    one_start(words, lines)  # which may compile what it imports
    taken = [one_start(words, lines) for _ in range(STARTS)]
    return {name: min(each[name] for each in taken) for name in taken[0]}


def one_start(words: Sequence[str], lines: int) -> Sample:
    """Start a process, and wait for so many lines; ask its control, if it says where that is. Raises NotListening."""
    exec_at = time.perf_counter()
    with (
        data_directory() as folder,
        subprocess.Popen(
            [sys.executable, *words],
            cwd=ROOT,
            env={"PATH": "", "TMPDIR": folder, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        said = "".join(process.stdout.readline() for _ in range(lines))
        listening_at, cpu = time.perf_counter(), cpu_seconds(process.pid)
        if said.count("\n") < lines:
            raise NotListening(f"{process.args!r} said {said!r}")
        sample = {"listening_ms": (listening_at - exec_at) * 1e3, "cpu_ms": cpu * 1e3}
        if (control := URL.search(said)) is not None:
            asked_at = time.perf_counter()
            urlopen(f"{control[1]}/v1/clock").close()
            sample["first_ms"] = (time.perf_counter() - asked_at) * 1e3
            sample["first_cpu_ms"] = (cpu_seconds(process.pid) - cpu) * 1e3
        process.kill()
    return sample


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
