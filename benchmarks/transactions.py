"""Transactions: how many a producer commits in a second, and what being idempotent costs for each batch.

The producer is librdkafka's, in this process. The cost of idempotence is that of the producer's state alone, measured
here without a server: what a broker does for a batch with a producer id, and for none without.
"""

from __future__ import annotations

import itertools
import os
import time
from importlib.util import find_spec
from typing import Any

import wire
from machine import cpu_seconds
from programs import Failed, Unavailable
from report import Case, Column, Sample, Section
from servers import Server, Target

PATIENCE_S = 30
SHAPES = ((1, 1), (100, 1), (100, 10))  # records and partitions of a transaction
BATCHES = 20_000
PRODUCERS = 50
IDEMPOTENCE_TARGET_US = 3
TRANSACTION_COLUMNS = (
    Column("rate", "transactions/s", higher_is_better=True),
    Column("p50_ms", "p50, ms"),
    Column("server_us", "server us each"),
)
IDEMPOTENCE_COLUMNS = (Column("batch_us", "us a batch"),)

_numbers = itertools.count(1)


def sections(seconds: float) -> list[Section]:
    """Rows of `seconds` each."""
    return [
        Section(
            "transactions",
            "Transactions: begin, produce, commit, one after the other; librdkafka",
            TRANSACTION_COLUMNS,
            [_transactions_case(records, partitions, seconds) for records, partitions in SHAPES],
        ),
        Section(
            "idempotence",
            "Idempotence: checking and noting one batch of one of 50 producers, in this process",
            IDEMPOTENCE_COLUMNS,
            [Case("in sequence", _in_sequence, {"batch_us": IDEMPOTENCE_TARGET_US}), Case("repeated", _repeated)],
        ),
    ]


def _transactions_case(records: int, partitions: int, seconds: float) -> Case:
    def measure(target: Target) -> Sample:
        return commit_transactions(target.server, records, partitions, seconds)

    return Case(name_shape(records, partitions), measure)


def name_shape(records: int, partitions: int) -> str:
    """Return the name of a row."""
    return f"{records:>3} records, {partitions:>2} partitions"


def commit_transactions(server: Server, records: int, partitions: int, seconds: float, warm_up: int = 1) -> Sample:
    """Commit transactions for some seconds, after some to warm up; return the figures of `TRANSACTION_COLUMNS`."""
    if find_spec("confluent_kafka") is None:
        raise Unavailable("confluent_kafka is not installed")
    with wire.topic(server, partitions) as topic:
        producer = _producer(f"{server.host}:{server.port}")
        for _ in range(warm_up):
            _transaction(producer, topic, records, partitions)
        taken: list[float] = []
        cpu_before, begun_at = cpu_seconds(server.pid), time.perf_counter()
        while (now := time.perf_counter()) < begun_at + seconds or not taken:
            _transaction(producer, topic, records, partitions)
            taken.append(time.perf_counter() - now)
        elapsed = time.perf_counter() - begun_at
        server_us = (cpu_seconds(server.pid) - cpu_before) / len(taken) * 1e6
    return {"rate": len(taken) / elapsed, "p50_ms": sorted(taken)[len(taken) // 2] * 1e3, "server_us": server_us}


def _producer(bootstrap: str) -> Any:
    from confluent_kafka import KafkaException, Producer

    config = {
        "bootstrap.servers": bootstrap,
        "transactional.id": f"benchmark-{os.getpid()}-{next(_numbers)}",
        "linger.ms": 0,
        "retry.backoff.ms": 1,
        "log_level": 3,
    }
    producer = Producer(config)
    try:
        producer.init_transactions(PATIENCE_S)
    except KafkaException as error:
        raise Failed(str(error)) from error
    return producer


def _transaction(producer: Any, topic: str, records: int, partitions: int) -> None:
    producer.begin_transaction()
    for number in range(records):
        producer.produce(topic, b"x" * 100, partition=number % partitions)
    producer.commit_transaction(PATIENCE_S)


# --- idempotence --------------------------------------------------------------------------------


def _must_be_ours(target: Target) -> None:
    if target.name != "minibroker":
        raise Unavailable("it is minibroker's own code that is measured")


def _headers() -> list[Any]:
    """The headers of batches of one record, of all producers in turn."""
    from minibroker.protocol.records.batch import read_header

    batch = wire.batch([b"x"])
    header = read_header(bytes(batch))
    return [
        header._replace(producer_id=number % PRODUCERS, producer_epoch=0, base_sequence=number // PRODUCERS)
        for number in range(BATCHES)
    ]


def _in_sequence(target: Target) -> Sample:
    from minibroker.storage.producers.producer_state import ProducerStates

    _must_be_ours(target)
    states, headers = ProducerStates(), _headers()
    begun_at = time.process_time()
    for offset, header in enumerate(headers):
        states.check_epoch_and_sequence(header)
        states.apply_appended_batch(header, offset)
    return {"batch_us": (time.process_time() - begun_at) / BATCHES * 1e6}


def _repeated(target: Target) -> Sample:
    from minibroker.storage.producers.producer_state import ProducerStates

    _must_be_ours(target)
    states, headers = ProducerStates(), _headers()
    for offset, header in enumerate(headers):
        states.apply_appended_batch(header, offset)
    last = headers[-PRODUCERS:]
    begun_at = time.process_time()
    for _repetition in range(BATCHES // PRODUCERS):
        for header in last:
            states.check_epoch_and_sequence(header)
    return {"batch_us": (time.process_time() - begun_at) / BATCHES * 1e6}
