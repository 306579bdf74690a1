#!/usr/bin/env python3
"""The pipeline's jobs on a directory larger than what they may hold in memory.

A broker writes the directory, the commands of the command line work on it, and their processes are watched: how long
they take, and what the JVM and the Python processes hold at most. All of it is below one temporary directory, which is
removed. `python3 benchmarks/pipeline_jobs.py --help` tells the options.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table

import exchanges
import machine
import servers
import wire

ROOT = Path(__file__).resolve().parent.parent
TOPIC = "events"
PARTITIONS = 4
RECORDS_PER_BATCH = 16
VALUE_BYTES = 1000
SEGMENT_BYTES = 256 << 20
NO_LIMIT_SECONDS = 3600.0
PIPELINED = 16
SAMPLE_S = 0.5
MB = 1_000_000
MIB = 1 << 20
HEAD = ("job", "seconds", "MB/s", "CPU s", "JVM, MiB", "Python, MiB", "all, MiB")


class Held(NamedTuple):
    """Memory of a process and its descendants, shared pages counted once (PSS), and CPU time so far."""

    jvm_bytes: int
    python_bytes: int
    cpu_s: float


class Watched(NamedTuple):
    """The time that a command took, and the most memory that it held."""

    seconds: float
    cpu_s: float
    jvm_bytes: int
    python_bytes: int
    all_bytes: int


def generate(folder: str, size_bytes: int) -> None:
    """Write about so many bytes into a data directory, by a broker: values of 1 KB, batches of 16 KB, uncompressed."""
    with servers.minibroker_on(folder, settings=[f"log.segment.bytes={SEGMENT_BYTES}"]) as server:
        with wire.Client(server) as client:
            client.create_topic(TOPIC, PARTITIONS)
        for partition in range(PARTITIONS):
            batch = wire.batch(values(partition))
            request = wire.produce_request(TOPIC, batch, partition)
            count = size_bytes // PARTITIONS // len(batch)
            answer = wire.produce_error_at(TOPIC)
            exchanges.run(server, request, answer, NO_LIMIT_SECONDS, connections=1, depth=PIPELINED, limit=count)


def values(seed: int) -> list[bytes]:
    """JSON such as programs write, of which compression makes about a half."""
    random, found = Random(seed), []
    for number in range(RECORDS_PER_BATCH):
        text = json.dumps({"order": random.getrandbits(40), "number": number, "state": "shipped", "note": ""})
        found.append(text.replace('""', f'"{random.randbytes((VALUE_BYTES - len(text)) // 2).hex()}"').encode())
    return found


def watch(words: Sequence[str]) -> Watched:
    """Run a command of `minibroker pipeline`. Raises `subprocess.CalledProcessError` if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "minibroker", "pipeline", *words]
    began = time.perf_counter()
    peaks, cpu_s = [0, 0, 0], 0.0
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            held = held_by(process.pid)
            total = held.jvm_bytes + held.python_bytes
            peaks = [max(pair) for pair in zip(peaks, (held.jvm_bytes, held.python_bytes, total), strict=True)]
            cpu_s = max(cpu_s, held.cpu_s)
            time.sleep(SAMPLE_S)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Watched(time.perf_counter() - began, cpu_s, *peaks)


def held_by(pid: int) -> Held:
    """Return what a process and its descendants hold now."""
    jvm = python = 0
    ticks = 0
    for each in family(pid):
        try:
            pss = next(line for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines() if "Pss:" in line)
            name = Path(f"/proc/{each}/comm").read_text().strip()
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except (OSError, StopIteration):
            continue  # it has ended since
        size = int(pss.split()[1]) << 10
        jvm, python = (jvm + size, python) if name == "java" else (jvm, python + size)
        ticks += sum(map(int, fields[11:15]))  # with children that have ended
    return Held(jvm, python, ticks / os.sysconf("SC_CLK_TCK"))


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for each in found:
        try:
            for task in os.listdir(f"/proc/{each}/task"):
                found += map(int, Path(f"/proc/{each}/task/{task}/children").read_text().split())
        except OSError:
            continue  # it has ended since
    return found


def jobs(data: str, out: Path) -> dict[str, list[str]]:
    """The commands, by what they are called in the table."""
    return {
        "archive": ["archive", "--path", data, "--out", str(out / "archive")],
        "verify": ["verify", "--path", data],
        "rewrite to lz4": ["rewrite", "--path", data, "--output", str(out / "rewritten"), "--compression", "lz4"],
    }


@click.command()
@click.option(
    "--size-gb", "sizes", type=float, multiple=True, default=(2.1,), help="Of the directory. Can be repeated."
)
@click.option("--engine", "engines", multiple=True, default=("local", "spark"), help="Can be repeated.")
@click.option("--only", multiple=True, metavar="JOB", help="Only this job. Can be repeated.")
def main(sizes: tuple[float, ...], engines: tuple[str, ...], only: tuple[str, ...]) -> None:
    """Archive, verify and rewrite a directory that is made for it, and print what that takes."""
    load_before = machine.load_average()
    table = Table(*HEAD, title="The pipeline's jobs; memory is the largest sum of PSS", title_justify="left")
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="minibroker-benchmark-") as folder:
            data = f"{folder}/data"
            generate(data, round(size * 1e9))
            stored = sum(file.stat().st_size for file in Path(data).glob(f"{TOPIC}-*/*.log"))
            there = {engine: jobs(data, Path(folder, engine)) for engine in engines}
            for engine, name in product(engines, there[engines[0]]):
                words = [*there[engine][name], "--engine", engine]
                if only and name.split()[0] not in only:
                    continue
                took = watch([*words, "--master", "local[2]"])
                row = [
                    f"{name}, {engine}, {stored / 1e9:.2f} GB",
                    f"{took.seconds:.0f}",
                    f"{stored / MB / took.seconds:.0f}",
                ]
                memory = (took.jvm_bytes, took.python_bytes, took.all_bytes)
                table.add_row(*row, f"{took.cpu_s:.0f}", *(f"{each / MIB:.0f}" for each in memory))
                click.echo(f"{row[0]}: {row[1]} s", err=True)
    Console(width=120).print(table)
    click.echo(machine.describe(load_before))


if __name__ == "__main__":
    main()
