"""A broker that is killed again and again, also while it starts: nothing acknowledged is lost, reordered or repeated.

    KILLS=1000 KILLS_SEED=7 python3 -m pytest --thorough tests/clients/test_kills.py -n0

Without KILLS_SEED every run has a seed of its own, printed at its end. It decides when the broker is killed; what
the broker is doing just then depends on the machine as well.
"""

from __future__ import annotations

import os
import random
import re
import select
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from minibroker.cli.main import main
from tests.clients.confluent import Confluent
from tests.clients.interface import PATIENCE_S
from tests.clients.killing import Follower, Remembered, TopicMaker, Writer, in_thread, value_of
from tests.clients.ports import free_ports
from tests.running import RunningBroker, running_broker

KILLS = int(os.environ.get("KILLS", "25"))

ROLLING = {"internal.segment.bytes": "20000", "index.interval.bytes": "1000"}
TOPICS = {"flushed": {"flush.messages": "1"}, "flushed-rolling": {"flush.messages": "1", **ROLLING}, "rolling": ROLLING}
WRITERS = 3  # so that one turn of the broker has batches of several connections
PARTITIONS = [(topic, partition) for topic in TOPICS for partition in range(2 * WRITERS)]

# Checkpoints are written so often that kills meet it, and that a start does not read everything again.
SETTINGS = (
    "log.initial.task.delay.ms=0",
    "log.flush.offset.checkpoint.interval.ms=50",
    "replica.high.watermark.checkpoint.interval.ms=50",
)
STARTING = 0.4  # the share of kills that are not to wait until the broker listens
STOPPED = 0.15  # the share of the others before which the broker is stopped in order, and started, as well
LONGEST_RUN_S = 0.2  # from the first acknowledgement to a kill


@pytest.mark.thorough
@pytest.mark.timeout(60 + 10 * KILLS)
def test_kills_cause_no_loss_reordering_or_duplicates(
    tmp_path: Path, complaints: list[str], record_property: Callable[[str, object], None]
) -> None:
    complaints.append("")  # that the broker is away is what clients complain of
    seed = int(os.environ.get("KILLS_SEED") or random.SystemRandom().randrange(1 << 32))
    chosen = random.Random(seed)
    address = f"127.0.0.1:{free_ports()}"
    with running_broker(tmp_path, f"listeners=PLAINTEXT://{address}", *SETTINGS) as broker:
        with Confluent().admin(address) as admin:
            for topic, configs in TOPICS.items():
                admin.create_topic(topic, 2 * WRITERS, configs)
        writers = [Writer(address, PARTITIONS[number::WRITERS], chosen.randrange(10)) for number in range(WRITERS)]
        follower, maker = Follower(address, PARTITIONS), TopicMaker(address)
        with ExitStack() as running:
            writing = [running.enter_context(in_thread(writer)) for writer in writers]
            following = running.enter_context(in_thread(follower))
            early = killed_often(broker, (writers, follower, maker), chosen)
            for writer, thread in zip(writers, writing, strict=True):
                writer.stop.set()
                thread.join()
            sent = {key: count for writer in writers for key, count in writer.sent.items()}
            follower.expected = sent
            following.join()
        told_in_all = sum(writer.told for writer in writers)
        record_property("seed", f"{seed}: {KILLS} kills, {early} of a broker that started, {told_in_all} records")
        assert ([writer.failures for writer in writers], follower.failures) == ([[]] * WRITERS, [])
        acknowledged = {key: told for writer in writers for key, told in writer.acknowledged.items()}
        for (topic, partition), told in acknowledged.items():
            numbers = range(sent[topic, partition])
            assert told == [(number, number) for number in numbers]
            with Confluent().consumer(address, topic, [partition]) as consumer:
                assert consumer.offsets(partition) == (0, len(numbers))
                stored = [(read.offset, read.record.value) for read in consumer.read(len(numbers))]
            assert stored == [(number, value_of(number)) for number in numbers]
        assert min(follower.committed.values()) > 0 and maker.made
        assert maker.made <= maker.found().items()
        assert broker.stop() == 0
        assert not re.search(" (ERROR|CRITICAL) ", broker.log), broker.log
    verified = CliRunner().invoke(main, ["dump", "--no-records", "--verify", str(tmp_path / "data")])
    assert verified.exit_code == 0, verified.output


def killed_often(
    broker: RunningBroker, clients: tuple[list[Writer], Follower, TopicMaker], chosen: random.Random
) -> int:
    """Kill the broker `KILLS` times, and leave it running; how many of the kills came before it listened."""
    writers, follower, maker = clients
    early, start_s = 0, 0.0
    remembered = Remembered(broker.bootstrap_servers, PARTITIONS)
    await_more(writers)
    for kills in range(1, KILLS + 1):
        if any(writer.failures for writer in writers):
            break
        broker.kill()
        committed = dict(follower.committed)
        launched_at = time.monotonic()
        broker.launch()
        if start_s and kills < KILLS and chosen.random() < STARTING:
            time.sleep(start_s * chosen.uniform(0.4, 1.1))
            early += not select.select([broker.process.stdout], [], [], 0)[0]
        else:
            broker.await_listening()
            start_s = time.monotonic() - launched_at
            kept = remembered.offsets()
            assert all(kept[key] >= offset for key, offset in committed.items()), (kept, committed)
            if chosen.random() < STOPPED:
                broker.restart()
            maker.ask()
            await_more(writers)
            time.sleep(chosen.uniform(0, LONGEST_RUN_S))
    return early


def await_more(writers: list[Writer]) -> None:
    """Wait until each has some more records acknowledged, so that others are on their way."""
    deadline = time.monotonic() + PATIENCE_S
    for writer, told in [(writer, writer.told) for writer in writers]:
        while writer.told == told and not writer.failures:
            assert time.monotonic() < deadline, "nothing is acknowledged any more"
            time.sleep(0.005)
