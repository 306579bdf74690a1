"""What it costs that the disk has each batch before it is acknowledged, and what is saved where many wait together.

The broker's data and the bare file are on the same file system, the one of the temporary directory.
"""

from __future__ import annotations

import os
import time
from tempfile import TemporaryFile

import exchanges
import wire
from programs import Unavailable
from report import Case, Column, Sample, Section
from servers import Target

CONNECTIONS = (1, 10, 50, 200)
EACH_BATCH = {"flush.messages": "1"}
RECORD = b"x" * 100

COLUMNS = (
    Column("rate", "requests/s", higher_is_better=True),
    Column("p50_us", "p50, us"),
    Column("p99_us", "p99, us"),
    Column("server_us", "server us each"),
)


def sections(seconds: float) -> list[Section]:
    """One section, rows of `seconds` each."""
    cases = [Case("the file alone: one write, one fsync", lambda target: _bare(target, seconds))]
    for count in CONNECTIONS:
        cases.append(_case(f"{count:>3} connections, flush.messages=1", count, EACH_BATCH, seconds))
        cases.append(_case(f"{count:>3} connections", count, {}, seconds))
    return [
        Section("durability", "Fsync before the answer: Produce v9, acks=all, one record of 100 bytes", COLUMNS, cases)
    ]


def _case(name: str, connections: int, configs: dict[str, str], seconds: float) -> Case:
    def measure(target: Target) -> Sample:
        if configs and target.name == "kfake":
            raise Unavailable("it writes no files")
        with wire.topic(target.server, configs=configs) as topic:
            request = wire.produce_request(topic, wire.batch([RECORD]))
            ran = exchanges.run(target.server, request, wire.produce_error_at(topic), seconds, connections)
        return {
            "rate": ran["requests"] / ran["seconds"],
            "p50_us": ran["p50_us"],
            "p99_us": ran["p99_us"],
            "server_us": ran["server_cpu_seconds"] / ran["requests"] * 1e6,
        }

    return Case(name, measure)


def _bare(target: Target, seconds: float) -> Sample:
    """Measure what this disk gives one writer: no broker has a part in it."""
    if target.name != "minibroker":
        raise Unavailable("it is the same for all servers")
    batch = wire.batch([RECORD])
    taken_us = []
    with TemporaryFile(buffering=0) as file:
        over_at = time.perf_counter() + seconds
        while (begun_at := time.perf_counter()) < over_at:
            file.write(batch)
            os.fsync(file.fileno())
            taken_us.append((time.perf_counter() - begun_at) * 1e6)
    taken_us.sort()
    count = len(taken_us)
    return {"rate": count / seconds, "p50_us": taken_us[count // 2], "p99_us": taken_us[count * 99 // 100]}
