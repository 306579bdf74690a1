"""Rates and token buckets against Apache Kafka's own classes: thousands of random histories."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from conformance.kafka_reference import kafka_command
from minibroker.broker.quotas.quota_windows import Rate, TokenBucket, Windows

PROGRAM = Path(__file__).parent / "Windows.java"
COUNT = 2_000
START_MS = 1_700_000_000_000  # Kafka's buckets are full at first because its clock does not begin at 0

History = tuple[int, int, float, list[tuple[int, float]]]


def histories() -> list[History]:
    source = random.Random(11)
    made: list[History] = []
    for _ in range(COUNT):
        now_ms, records = START_MS, []
        for _ in range(source.randint(1, 30)):
            now_ms += source.choice(
                (0, 1, source.randint(0, 500), source.randint(500, 1500), source.randint(0, 30_000))
            )
            records.append((now_ms, float(source.randint(0, 1000))))
        made.append((source.randint(1, 12), source.randint(1, 3), float(source.randint(1, 300)), records))
    return made


def ours(history: History) -> list[list[float]]:
    count, size_s, bound, records = history
    windows = Windows(count, 1000 * size_s)
    rate, bucket = Rate(windows), TokenBucket(windows)
    measured = []
    for now_ms, value in records:
        rate.record_value(value, now_ms)
        bucket.take_tokens(value, bound, now_ms)
        measured.append(
            [rate.measure_rate(now_ms), rate.measure_window_ms(now_ms), bucket.refill_and_get_tokens(bound, now_ms)]
        )
    return measured


def test_quota_usage_is_measured_as_by_kafka() -> None:
    asked = histories()
    command = kafka_command(str(PROGRAM))
    ran = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=True)
    for history, theirs in zip(asked, json.loads(ran.stdout), strict=True):
        for here, there in zip(ours(history), theirs, strict=True):
            assert here == pytest.approx(there, rel=1e-9, abs=1e-6), history
