"""Members of a share group are killed, fall silent and release at random, and the broker is killed: no record is lost.

    SHARE_TORTURE_S=600 SHARE_TORTURE_SEED=7 python3 -m pytest conformance/share/test_share_torture.py -n0

Every record is acknowledged, rejected, or delivered as often as the limit allows and no more often; delivery counts are
right, no record is locked by two members at once, and nothing is refused to a member that still has its lock. Without
SHARE_TORTURE_SEED every run has a seed of its own, which is printed at its end.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conformance.conftest import Broker
from conformance.share.brokers import share_broker
from conformance.share.dead_letters import collect, letters
from conformance.share.history import History
from conformance.share.torture import Torture
from conformance.share.writing import PATIENCE_S, TransactionalWriter, Writer, written
from conformance.wire.connection import Connection
from conformance.wire.members import look_up
from conformance.wire.requests import create_request, end_offset, metadata_of, repeated, topic
from conformance.wire.share_members import configure, start_offset

TORTURE_S = float(os.environ.get("SHARE_TORTURE_S", "4"))
MEMBERS, PARTITIONS = 4, 3
GROUP, TOPIC, QUEUE = "tortured", "torture", "dlq.tortured"
LOCK_MS, LIMIT = 1000, 3
KILL_AFTER_S = {"minibroker": (0.2, 1.5), "kafka": (2.0, 8.0)}  # Kafka takes longer to be ready


@pytest.fixture
def own_broker(tmp_path: Path, against: str) -> Iterator[Broker]:
    with share_broker(tmp_path, against) as broker:
        yield broker


@pytest.fixture
def tortured(own_broker: Broker) -> Torture:
    with Connection(own_broker.bootstrap_servers) as connection:
        repeated(
            lambda: connection.ask(create_request(topic(TOPIC, PARTITIONS)), 7).topics[0].error_code,
            lambda code: code in (0, 36),
        )
        found = repeated(lambda: metadata_of(connection, TOPIC), lambda answer: answer.error_code == 0)
        look_up(connection, GROUP)
        configure(
            connection,
            GROUP,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            record_lock_duration_ms=str(LOCK_MS),
            delivery_count_limit=str(LIMIT),
            session_timeout_ms="2000",
        )
        collect(connection, GROUP, QUEUE, PARTITIONS)
    return Torture(own_broker.bootstrap_servers, GROUP, TOPIC, found.topic_id, History(LOCK_MS / 1000, LIMIT))


@pytest.mark.timeout(300 + 2 * TORTURE_S)
def test_no_record_is_lost_or_miscounted_despite_kills(
    own_broker: Broker, tortured: Torture, against: str, record_property: Callable[[str, object], None]
) -> None:
    seed = int(os.environ.get("SHARE_TORTURE_SEED") or random.SystemRandom().randrange(1 << 32))
    chosen = random.Random(seed)
    writers = [
        Writer(tortured, range(PARTITIONS - 1), random.Random(chosen.random())),
        TransactionalWriter(tortured, [PARTITIONS - 1], random.Random(chosen.random())),
    ]
    members = [
        threading.Thread(target=tortured.run_members, args=(random.Random(chosen.random()),), daemon=True)
        for _ in range(MEMBERS)
    ]
    for thread in (*writers, *members):
        thread.start()
    killed_at = killed_often(own_broker, tortured, chosen, KILL_AFTER_S[against])
    await_records(own_broker)
    for writer in writers:
        writer.stop.set()
    for writer in writers:
        writer.join()
    tortured.is_calm = True
    ends = await_end(own_broker)
    tortured.stop.set()
    for thread in members:
        thread.join(PATIENCE_S)
    counts = ", ".join(f"{number} {what}" for what, number in sorted(tortured.counts.items()))
    record_property("seed", f"{seed}: {sum(ends)} records, {len(killed_at)} kills of the broker, {counts}")
    assert ([writer.failures for writer in writers], tortured.faults) == ([[], []], [])
    assert [lost for lost in tortured.lost if lost[1] < killed_at.get(lost[0], float("inf"))] == []
    found = [written(own_broker.bootstrap_servers, TOPIC, partition, end) for partition, end in enumerate(ends)]
    assert all(each.due for each in found)
    faults = list(tortured.history.faults(found))
    dead = letters(own_broker.bootstrap_servers, QUEUE, PARTITIONS)
    faults += tortured.history.faults_of_letters(dead, tortured.values)
    assert faults == [], f"seed {seed}: {len(faults)} faults: " + "\n".join(faults[:20])
    assert_nothing_comes_again(own_broker, tortured)


def killed_often(
    broker: Broker, torture: Torture, chosen: random.Random, after_s: tuple[float, float]
) -> dict[int, float]:
    """Kill the broker until the time is over; by incarnation, when that was."""
    killed_at: dict[int, float] = {}
    deadline = time.monotonic() + TORTURE_S
    while time.monotonic() < deadline:
        time.sleep(chosen.uniform(*after_s))
        killed_at[torture.incarnation] = time.monotonic()
        broker.kill()
        torture.incarnation += 1
        broker.start()
    return killed_at


def await_records(broker: Broker) -> None:
    """Wait until each partition has records: on a busy machine, transactions take long to begin."""
    with Connection(broker.bootstrap_servers) as connection:
        ends = repeated(lambda: [end_offset(connection, TOPIC, index) for index in range(PARTITIONS)], all, 60)
    assert all(ends), ends


def await_end(broker: Broker) -> list[int]:
    """Wait until the group has nothing more to do, and return the end of each partition."""
    with Connection(broker.bootstrap_servers) as connection:
        ends = [end_offset(connection, TOPIC, partition) for partition in range(PARTITIONS)]

        def left() -> list[int]:
            return [start_offset(connection, GROUP, TOPIC, partition)[1] for partition in range(PARTITIONS)]

        assert repeated(left, lambda lags: set(lags) == {0}, 60) == [0] * PARTITIONS
    return ends


def assert_nothing_comes_again(broker: Broker, torture: Torture) -> None:
    """Check that another start finds all as it was."""
    broker.kill()
    torture.incarnation += 1
    broker.start()
    before, torture.is_calm = torture.counts["deliveries"], True
    torture.stop.clear()
    member = threading.Thread(target=torture.run_members, args=(random.Random(0),), daemon=True)
    member.start()
    await_end(broker)
    time.sleep(0.5)
    torture.stop.set()
    member.join(PATIENCE_S)
    assert (torture.counts["deliveries"], torture.faults) == (before, [])
