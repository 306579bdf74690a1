"""Produce and consume with librdkafka: sizes, codecs, acks and idempotence, as a C program drives it.

Each sample writes a topic of its own, and the rows with acks=1 read it back.
"""

from __future__ import annotations

import itertools
from typing import Any

import programs
import wire
from machine import cpu_seconds
from report import Case, Column, Sample, Section
from servers import Server, Target

SIZES_BYTES = ("100", "1024")
MIXED_SIZES_BYTES = "50-150"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = {
    "acks=1": ["acks=1"],
    "acks=all": ["acks=all"],
    "idempotent": ["acks=all", "enable.idempotence=true"],
}
# 8 MB of messages wait in the client at most: with gzip, the queue's default of 100,000 takes 7 s to flush.
COMMON = ["log_level=3", "enable.metrics.push=false"]
WRITE_ON = ["queue.buffering.max.kbytes=8192"]
# A full queue makes librdkafka wait for a second before it fetches again, which is no server's doing.
READ_ON = ["queued.min.messages=10000000", "fetch.queue.backoff.ms=0"]
TARGETS = {
    ("100", "none"): {"rate": 1.3e6, "server_us": 0.14},
    ("1024", "none"): {"rate": 0.39e6, "server_us": 1.05},
}
COLUMNS = (
    Column("rate", "messages/s", higher_is_better=True),
    Column("mb_rate", "MB/s", higher_is_better=True),
    Column("server_us", "server us each"),
    Column("client_us", "client us each"),
)


def sections(seconds: float) -> list[Section]:
    """Produce for `seconds` a row, or 200 MB; consume as much as one such row wrote."""
    how = "librdkafka in C, one partition, values of hexadecimal text"
    rows = [*itertools.product(SIZES_BYTES, ACKS, CODECS), (MIXED_SIZES_BYTES, "acks=1", "none")]
    producing = [_produce_case(size, codec, acks, seconds) for size, acks, codec in rows]
    consuming = [_consume_case(size, codec, seconds) for size, codec in itertools.product(SIZES_BYTES, CODECS)]
    return [
        Section("produce", f"Produce: {how}", COLUMNS, producing),
        Section("consume", f"Consume: {how}", COLUMNS, consuming),
    ]


def _produce_case(size: str, codec: str, acks: str, seconds: float) -> Case:
    def measure(target: Target) -> Sample:
        with wire.topic(target.server) as topic:
            return run(target.server, *producing(topic, size, codec, acks, seconds))

    return Case(f"{size:>6} B {codec:6} {acks}", measure, TARGETS.get((size, codec), {}))


def _consume_case(size: str, codec: str, seconds: float) -> Case:
    def measure(target: Target) -> Sample:
        with wire.topic(target.server) as topic:
            written = client(target.server, *producing(topic, size, codec, "acks=1", seconds))
            return run(target.server, "consume", topic, size, written["messages"], *READ_ON)

    return Case(f"{size:>6} B {codec}", measure)


def producing(topic: str, size: str, codec: str, acks: str, seconds: float) -> list[object]:
    return ["produce", topic, size, seconds, f"compression.codec={codec}", *ACKS[acks], *WRITE_ON]


def client(server: Server, *words: object) -> dict[str, Any]:
    bootstrap = f"bootstrap.servers={server.host}:{server.port}"
    return programs.measure(programs.librdkafka(), [*words, bootstrap, *COMMON])


def run(server: Server, *words: object) -> Sample:
    programs.librdkafka()  # compile before the server's CPU is read
    before = cpu_seconds(server.pid)
    ran = client(server, *words)
    cpu, messages, seconds = cpu_seconds(server.pid) - before, ran["messages"], ran["seconds"]
    return {
        "rate": messages / seconds,
        "mb_rate": ran["value_bytes"] / seconds / 1e6,
        "server_us": cpu / messages * 1e6,
        "client_us": ran["cpu_seconds"] / messages * 1e6,
    }
