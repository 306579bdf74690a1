"""The parts of an OffsetCommit and of a transaction, in this process and without sockets.

Each request is given to its connection, and then the turn ends: logs are written, and answers are sent. A figure is the
first decile of many, so that other work on the machine hardly counts.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import programs
import wire
from machine import ROOT
from report import Case, Column, Sample, Section
from servers import Target

sys.path.insert(0, str(ROOT))

TURNS = 200
COLUMNS = (Column("request_us", "request, us"), Column("turn_us", "end of its turn, us"))
STEPS = ("AddPartitionsToTxn", "Produce", "EndTxn")
ADD_VERSION, PRODUCE_VERSION, END_VERSION = 0, 10, 1  # as librdkafka sends them


def sections() -> list[Section]:
    """A row for each request. The markers, and the record that all are written, are part of EndTxn's turn."""
    cases = [
        Case("OffsetCommit of 1 partition, one of 50 in a turn", _commits(50, 1)),
        Case("OffsetCommit of 100 partitions", _commits(1, 100)),
    ]
    for records, partitions in ((1, 1), (100, 10)):
        shape = f"{records:>3} records in {partitions:>2}"
        cases += [Case(f"{shape}: {step}", _transactions(records, partitions, step)) for step in STEPS]
    return [Section("parts", "Parts: commits and transactions in this process, without sockets", COLUMNS, cases)]


@contextmanager
def _harness(target: Target, partitions: int) -> Iterator[Any]:
    """A cluster without sockets, with a topic. Raises Unavailable where another server is measured."""
    if target.name != "minibroker":
        raise programs.Unavailable("it is minibroker's own code that is measured")
    from tests.broker.harness import Harness

    with TemporaryDirectory(prefix="minibroker-benchmark-data-") as folder, Harness(Path(folder)) as harness:
        harness.create_topic("t", partitions)
        yield harness


def _commits(connections: int, partitions: int) -> Callable[[Target], Sample]:
    def measure(target: Target) -> Sample:
        timing = _Timing()
        with _harness(target, partitions) as harness:
            harness.cluster.groups.log.create_topic()
            frame = wire.commit_request("g", "t", partitions)
            clients = [harness.client() for _ in range(connections)]
            for _ in range(TURNS):
                timing.run(harness, [(client, frame) for client in clients])
        return timing.sample(connections)

    return measure


def _transactions(records: int, partitions: int, step: str) -> Callable[[Target], Sample]:
    def measure(target: Target) -> Sample:
        timings: dict[str, _Timing] = defaultdict(_Timing)
        with _harness(target, partitions) as harness:
            client = harness.client()
            for name, frames in _transaction_frames(harness, records // partitions, partitions):
                timings[name].run(harness, [(client, frame) for frame in frames])
        return timings[step].sample(1)

    return measure


def _transaction_frames(harness: Any, records: int, partitions: int) -> Iterator[tuple[str, list[bytes]]]:
    """Yield the requests of one transaction after the other: `records` for each partition."""
    from minibroker.protocol.messages.produce import ProduceRequest
    from minibroker.protocol.messages.transactions import AddPartitionsToTxnRequest, EndTxnRequest
    from tests.broker.harness import TopicData, batch, frame_of
    from tests.broker.transactions.producing import CLASSIC, TransactionalProducer

    own = TransactionalProducer(harness, versions=CLASSIC)
    own.init()
    who = {"producer_id": own.producer_id, "producer_epoch": own.epoch}
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=own.producer_id,
        v3_and_below_producer_epoch=own.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=list(range(partitions)))
        ],
    )
    ended = EndTxnRequest(transactional_id="tx", committed=True, **who)
    for number in range(TURNS):
        produced = []
        for index in range(partitions):
            data = batch(*["x" * 100] * records, transactional=True, base_sequence=number * records, **who)
            parts = [TopicData.PartitionProduceData(index=index, records=memoryview(data))]
            topics = [TopicData(name="t", partition_data=parts)]
            asked = ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=1000, topic_data=topics)
            produced.append(frame_of(asked, PRODUCE_VERSION))
        yield "AddPartitionsToTxn", [frame_of(added, ADD_VERSION)]
        yield "Produce", produced
        yield "EndTxn", [frame_of(ended, END_VERSION)]


class _Timing:
    """How long the requests of one turn took, and its end, for each turn."""

    def __init__(self) -> None:
        self._requests: list[float] = []
        self._ends: list[float] = []

    def run(self, harness: Any, asked: list[tuple[Any, bytes]]) -> None:
        """Give each connection its request, and end the turn; what that has appended is written in another one."""
        given = [(client.connection.process_received_data, memoryview(bytearray(frame))) for client, frame in asked]
        begun_at = time.perf_counter()
        for receive, frame in given:
            receive(frame, len(frame))
        ending_at = time.perf_counter()
        harness.end_turn()
        harness.end_turn()
        ended_at = time.perf_counter()
        self._requests.append(ending_at - begun_at)
        self._ends.append(ended_at - ending_at)
        for client, _ in asked:
            client.outlet.items.clear()

    def sample(self, requests: int) -> Sample:
        """The figures of one of so many requests in a turn."""
        request, end = (sorted(all)[len(all) // 10] / requests * 1e6 for all in (self._requests, self._ends))
        return {"request_us": request, "turn_us": end}
