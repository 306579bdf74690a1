"""How each cost grows: with partitions, with the batches of one, with its segments, and with idle connections.

Every sample has a fresh server. Requests are sent some at a time on one connection, and what counts is the server's CPU
time: how long an answer takes is in the rows of other files.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import exchanges
import servers
import wire
from machine import cpu_seconds, resident_kib
from programs import Unavailable
from report import Case, Column, Sample, Section
from servers import Server, Target

TOPIC = "growing"
REQUESTS = 2_000  # of each kind, after WARM_UP that are not counted
WARM_UP = 64
RECORD = wire.batch([b"x" * 100])
SMALL_FETCH_BYTES = 1_000
ROLL_MS = 1_000  # a batch that is later by more begins another segment
PIPELINED = 64

START = Column("start_ms", "start, CPU ms")
RECOVERY = Column("recovery_ms", "after kill, CPU ms")
FIRST = Column("first_us", "first produce, us")
PRODUCE = Column("produce_us", "produce, us")
FETCH = Column("fetch_us", "fetch anywhere, us")
METADATA = Column("metadata_us", "metadata, us")
TIME = Column("time_us", "offset of a time, us")
RESIDENT = Column("resident_mib", "RSS, MiB")


def sections() -> list[Section]:
    """A table for each thing of which there may be many."""
    how = "server CPU; x: by what ten times as many would multiply it, from the row above"
    partitions = (Column("create_us", "create each, us"), START, RECOVERY, FIRST, PRODUCE, FETCH, METADATA, RESIDENT)
    batches = (Column("fill_us", "append each, us"), START, RECOVERY, PRODUCE, FETCH, RESIDENT)
    segments = (Column("fill_us", "append and roll, us"), START, RECOVERY, PRODUCE, FETCH, TIME, RESIDENT)
    idle = (Column("connect_us", "connect each, us"), PRODUCE, Column("kib_each", "KiB each"), RESIDENT)
    return [
        Section("growth-partitions", f"Partitions of a topic: {how}", partitions, _cases(_partitions, 10, 100, 1000)),
        Section("growth-batches", f"Batches of a partition: {how}", batches, _cases(_batches, 1000, 10_000, 100_000)),
        Section("growth-segments", f"Segments of a partition: {how}", segments, _cases(_segments, 10, 100, 1000)),
        Section("growth-idle", f"Idle connections: {how}", idle, _cases(_idle, 10, 100, 1000)),
    ]


def _cases(measure: Callable[[Target, int], Sample], *sizes: int) -> list[Case]:
    def case(size: int) -> Case:
        return Case(f"{size:>7,}", lambda target: measure(target, size), size=size)

    return [case(size) for size in sizes]


# --- what there are many of -----------------------------------------------------------------------


def _partitions(target: Target, count: int) -> Sample:
    def fill(server: Server) -> Sample:
        with wire.Client(server) as client:
            _roll(client, "first")
            before = cpu_seconds(server.pid)
            client.create_topic(TOPIC, count)
            created = cpu_seconds(server.pid) - before
            every = [wire.produce_request(TOPIC, RECORD, partition) for partition in range(count)]
            client.exchange(every, wire.produce_error_at(TOPIC))
        return {"create_us": created / count * 1e6}

    def use(server: Server) -> Sample:
        first = [wire.produce_request(TOPIC, RECORD, partition) for partition in range(count)]
        some = [number % count for number in range(REQUESTS)]
        produce = [wire.produce_request(TOPIC, RECORD, partition) for partition in some]
        fetch = [wire.fetch_request(TOPIC, SMALL_FETCH_BYTES, 0, partition) for partition in some]
        metadata = [wire.metadata_request(TOPIC)] * (REQUESTS // 20)
        return {
            "first_us": _each_us(server, first, wire.produce_error_at(TOPIC), warm_up=0),
            "produce_us": _each_us(server, produce, wire.produce_error_at(TOPIC)),
            "fetch_us": _each_us(server, fetch, wire.fetch_error_at(TOPIC)),
            "metadata_us": _each_us(server, metadata, None),
        }

    return _restarted(target, fill, use)


def _batches(target: Target, count: int) -> Sample:
    def fill(server: Server) -> Sample:
        with wire.Client(server) as client:
            _roll(client, "first")
            client.create_topic(TOPIC)
        ran = exchanges.run(
            server,
            wire.produce_request(TOPIC, RECORD),
            wire.produce_error_at(TOPIC),
            seconds=600,
            depth=PIPELINED,
            limit=count,
        )
        return {"fill_us": ran["server_cpu_seconds"] / count * 1e6}

    return _restarted(target, fill, lambda server: _use_log(server, count))


def _segments(target: Target, count: int) -> Sample:
    first_ms = wire.now_ms() - 2 * ROLL_MS * count

    def fill(server: Server) -> Sample:
        with wire.Client(server) as client:
            _roll(client, "first")
            before = cpu_seconds(server.pid)
            _roll(client, TOPIC, count, first_ms)
        return {"fill_us": (cpu_seconds(server.pid) - before) / count * 1e6}

    def use(server: Server) -> Sample:
        chosen = random.Random(2)
        times = [first_ms + 2 * ROLL_MS * chosen.randrange(count) for _ in range(REQUESTS)]
        asked = [wire.list_offsets_request(TOPIC, time_ms) for time_ms in times]
        sample = _use_log(server, count)
        return {**sample, "time_us": _each_us(server, asked, wire.list_offsets_error_at(TOPIC))}

    return _restarted(target, fill, use)


def _idle(target: Target, count: int) -> Sample:
    if target.start is None:
        raise Unavailable("it was not started by the benchmark")
    with target.start() as server, ExitStack() as stack:
        with wire.Client(server) as client:
            client.create_topic(TOPIC)
            client.wait_for_leader(TOPIC)
        frames = [wire.produce_request(TOPIC, RECORD)] * REQUESTS
        _each_us(server, frames, wire.produce_error_at(TOPIC))
        resident, cpu = resident_kib(server.pid), cpu_seconds(server.pid)
        for _ in range(count):
            stack.enter_context(wire.Client(server)).ask_api_versions()
        connected, held = cpu_seconds(server.pid) - cpu, resident_kib(server.pid)
        return {
            "connect_us": connected / count * 1e6,
            "kib_each": (held - resident) / count,
            "produce_us": _each_us(server, frames, wire.produce_error_at(TOPIC)),
            "resident_mib": resident_kib(server.pid) / 1024,
        }


def _roll(client: wire.Client, topic: str, count: int = 2, first_ms: int = 0) -> None:
    """Make a topic of so many segments of a batch each. A first one has the server load what it needs for that."""
    times = range(first_ms, first_ms + 2 * ROLL_MS * count, 2 * ROLL_MS)
    client.create_topic(topic, configs={"segment.ms": str(ROLL_MS)})
    client.exchange(
        [wire.produce_request(topic, wire.batch([b"x" * 100], stamp)) for stamp in times], wire.produce_error_at(topic)
    )


# --- what they cost -------------------------------------------------------------------------------


def _restarted(target: Target, fill: Callable[[Server], Sample], use: Callable[[Server], Sample]) -> Sample:
    """Fill a fresh broker, kill it, and start it again; stop that one, start it once more, and use it."""
    if target.name != "minibroker":
        raise Unavailable("only minibroker keeps what it was given")
    with servers.data_directory() as folder:
        with servers.minibroker_on(folder) as server:
            sample = fill(server)
            servers.kill(server)
        with servers.minibroker_on(folder) as server:
            sample["recovery_ms"] = cpu_seconds(server.pid) * 1e3
        with servers.minibroker_on(folder) as server:
            sample["start_ms"] = cpu_seconds(server.pid) * 1e3
            sample |= use(server)
            sample["resident_mib"] = resident_kib(server.pid) / 1024
    return sample


def _use_log(server: Server, count: int) -> Sample:
    """Use partition 0, which has an offset for each of the `count`."""
    chosen = random.Random(1)
    fetch = [wire.fetch_request(TOPIC, SMALL_FETCH_BYTES, chosen.randrange(count)) for _ in range(REQUESTS)]
    return {
        "fetch_us": _each_us(server, fetch, wire.fetch_error_at(TOPIC)),
        "produce_us": _each_us(server, [wire.produce_request(TOPIC, RECORD)] * REQUESTS, wire.produce_error_at(TOPIC)),
    }


def _each_us(server: Server, frames: Sequence[bytes], error_at: int | None, warm_up: int = WARM_UP) -> float:
    with wire.Client(server) as client:
        client.exchange(frames[:warm_up], error_at)
        before = cpu_seconds(server.pid)
        client.exchange(frames, error_at)
        return (cpu_seconds(server.pid) - before) / len(frames) * 1e6
