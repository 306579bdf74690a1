"""How fast a log is compacted, what that costs, and what others notice of it while it goes on.

A topic is filled while it is not compacted; then its settings let the cleaner begin, which looks for work every 10 ms.
Its checkpoint says when it is through. Every sample has a broker of its own.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import exchanges
import servers
import wire
from machine import cpu_seconds, forget_peak, peak_kib, resident_kib
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.record import Record
from programs import Failed, Unavailable
from report import Case, Column, Sample, Section
from servers import Server, Target

TOPIC = "compacted"
BACKOFF_MS = 10
PATIENCE_S = 120.0
POLL_SECONDS = 0.005
LEAD_SECONDS = 0.1  # after which it surely works
SEGMENT_BYTES = 10_000_000
BATCH_BYTES = 500_000
RECORDS_EACH_KEY = 10  # on average: so much of the log is dropped
NEVER = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES), "min.cleanable.dirty.ratio": "1"}
NOW = {"min.cleanable.dirty.ratio": "0"}
CHECKPOINT = "cleaner-offset-checkpoint"


class Load(NamedTuple):
    """The contents of a log to be compacted: values of hexadecimal text, each with a key."""

    value_bytes: int
    size_bytes: int
    codec: Compression = Compression.NONE


SMALL = Load(100, 30_000_000)
LARGE = Load(1_000, 100_000_000)
LONG = Load(100, 80_000_000)  # what takes longer than any row beside it
LARGE_LZ4 = LARGE._replace(codec=Compression.LZ4)


def sections(seconds: float) -> list[Section]:
    """Return what a cleaning costs, and rows of `seconds` each beside one."""
    rates = [
        _cleaning("values of 100 B", SMALL),
        _cleaning("values of 1 KB", LARGE),
        _cleaning("values of 1 KB, lz4", LARGE_LZ4),
    ]
    columns = (
        Column("mb_rate", "MB/s", higher_is_better=True),
        Column("server_ms", "server ms/MB"),
        Column("record_us", "server us a record"),
        Column("kept", "of it stays, %"),
        Column("grown_mib", "RSS for it, MiB"),
    )
    beside = (
        Column("rate", "requests/s", higher_is_better=True),
        Column("p50_us", "p50, us"),
        Column("p99_us", "p99, us"),
    )
    produces = [
        _produce(f"{name}{', beside a cleaning' if cleaning else ''}", count, seconds, cleaning)
        for name, count in (("1 connection", 1), ("50 connections", 50))
        for cleaning in (False, True)
    ]
    return [
        Section(
            "compaction",
            f"Compaction: a log in which each key is written {RECORDS_EACH_KEY} times, a thread on its own",
            columns,
            rates,
        ),
        Section(
            "compaction-beside",
            "Beside the compaction of values of 100 B: Produce v9, one record of 100 bytes",
            beside,
            produces,
        ),
    ]


# --- what it costs --------------------------------------------------------------------------------


def _cleaning(name: str, load: Load) -> Case:
    def measure(target: Target) -> Sample:
        with _filled(target, load) as (folder, server):
            closed_bytes, end_offset = _to_clean(folder)
            resident, cpu, begun_at = resident_kib(server.pid), cpu_seconds(server.pid), time.perf_counter()
            forget_peak(server.pid)
            _let_begin(server)
            while not _is_clean(folder, end_offset):
                if time.perf_counter() - begun_at > PATIENCE_S:
                    raise Failed("the log is not compacted")
                time.sleep(POLL_SECONDS)
            seconds, cpu = time.perf_counter() - begun_at, cpu_seconds(server.pid) - cpu
            left_bytes, _ = _to_clean(folder)
            return {
                "mb_rate": closed_bytes / 1e6 / seconds,
                "server_ms": cpu * 1e3 / (closed_bytes / 1e6),
                "record_us": cpu * 1e6 / end_offset,
                "kept": left_bytes / closed_bytes * 100,
                "grown_mib": (peak_kib(server.pid) - resident) / 1024,
            }

    return Case(name, measure)


# --- what others notice ---------------------------------------------------------------------------


def _produce(name: str, connections: int, seconds: float, cleaning: bool) -> Case:
    def measure(target: Target) -> Sample:
        with _filled(target, LONG) as (folder, server), wire.topic(server) as topic:
            request = wire.produce_request(topic, wire.batch([b"x" * 100]))
            _, end_offset = _to_clean(folder)
            exchanges.run(server, request, wire.produce_error_at(topic), seconds / 4, connections)
            if cleaning:
                _let_begin(server)
                time.sleep(LEAD_SECONDS)
            ran = exchanges.run(server, request, wire.produce_error_at(topic), seconds, connections)
            if cleaning and _is_clean(folder, end_offset):
                raise Failed("the log was compacted before the others were measured")
            if cleaning:
                _await_files(folder)
            return {"rate": ran["requests"] / ran["seconds"], "p50_us": ran["p50_us"], "p99_us": ran["p99_us"]}

    return Case(name, measure)


def _await_files(folder: Path) -> None:
    """Wait until the cleaner writes: before that it learns the keys, which is nothing but work for the processor."""
    give_up_at = time.perf_counter() + PATIENCE_S
    while not list(_partition(folder).glob("*.cleaned")):
        if time.perf_counter() > give_up_at:
            raise Failed("the log is not compacted")
        time.sleep(POLL_SECONDS)


# --- a log to be compacted ------------------------------------------------------------------------


@contextmanager
def _filled(target: Target, load: Load) -> Iterator[tuple[Path, Server]]:
    """A broker with a log that is not compacted before `_let_begin`, and the directory of its data."""
    if target.name != "minibroker":
        raise Unavailable("only minibroker's files are looked at")
    batches = _batches(load)
    often = [f"log.cleaner.backoff.ms={BACKOFF_MS}"]
    with servers.data_directory() as folder, servers.minibroker_on(folder, settings=often) as server:
        with wire.Client(server) as client:
            client.create_topic(TOPIC, configs=NEVER)
            for batch in batches:
                client.produce(TOPIC, batch)
        yield Path(folder), server


@functools.cache
def _batches(load: Load) -> Sequence[bytes]:
    chosen = random.Random(1)
    each = BATCH_BYTES // load.value_bytes
    count = load.size_bytes // BATCH_BYTES
    keys = count * each // RECORDS_EACH_KEY
    now_ms = wire.now_ms()

    def record() -> Record:
        value = chosen.randbytes(load.value_bytes // 2).hex().encode()
        return Record(timestamp=now_ms, key=b"key-%010d" % chosen.randrange(keys), value=value)

    return [bytes(build_batch([record() for _ in range(each)], compression=load.codec)) for _ in range(count)]


def _let_begin(server: Server) -> None:
    with wire.Client(server) as client:
        client.alter_topic(TOPIC, NOW)


def _to_clean(folder: Path) -> tuple[int, int]:
    """(bytes, end offset) of the segments that are no longer written to."""
    *closed, active = sorted(_partition(folder).glob("*.log"))
    return sum(path.stat().st_size for path in closed), int(active.stem)


def _is_clean(folder: Path, end_offset: int) -> bool:
    checkpoint = folder / CHECKPOINT
    return checkpoint.exists() and f"{TOPIC} 0 {end_offset}" in checkpoint.read_text().splitlines()


def _partition(folder: Path) -> Path:
    return folder / f"{TOPIC}-0"
