"""A data directory in which there is a file of every kind, and what its broker served: the ground for damage.

Nothing here tests anything.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from minibroker.broker.upkeep.cleaner import LogCleaner
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.offsets import OffsetCommitRequest
from minibroker.protocol.messages.quotas import AlterClientQuotasRequest
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from minibroker.storage.checkpoints.checkpoint_texts import REPLICATION_OFFSET_CHECKPOINT
from tests.broker.harness import Harness, batch
from tests.broker.transactions.producing import TransactionalProducer
from tests.damage.reading import Seen, seen_by
from tests.storage.support import Aside

SETTINGS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
ROUNDS = 12
CHECKPOINTED_MS = 61_000  # by then every checkpoint has been written

OffsetTopic = OffsetCommitRequest.OffsetCommitRequestTopic


class Ground(NamedTuple):
    """A `directory` as a stop or a kill has left it, and what is `seen` once a broker has started on a copy of it."""

    name: str
    directory: Path
    seen: Seen


def grounds(folder: Path) -> list[Ground]:
    """One after an orderly stop, one after a kill early on, one after a kill when checkpoints had been written."""
    return [
        _ground(folder / "stopped", lambda harness: harness.stop()),
        _ground(folder / "killed", _kill),
        _ground(folder / "killed-later", _checkpoint_and_kill),
    ]


def opened(directory: Path) -> Harness:
    """A broker on what is in `directory`. Raises what a start raises."""
    return Harness(directory, settings=SETTINGS)


def _ground(folder: Path, end: Callable[[Harness], None]) -> Ground:
    harness = opened(folder)
    _fill(harness)
    end(harness)
    copy = folder.with_name(folder.name + "-seen")
    shutil.copytree(folder, copy)
    with opened(copy) as started:
        return Ground(folder.name, folder, seen_by(started))


def _kill(harness: Harness) -> None:
    harness.logs.write_checkpoint_soon(REPLICATION_OFFSET_CHECKPOINT)  # as every five seconds
    harness.clock.advance(0)
    harness.stop(crash=True)


def _checkpoint_and_kill(harness: Harness) -> None:
    harness.clock.advance(CHECKPOINTED_MS)
    harness.logs.write_checkpoints()
    harness.create_topic("late", 1)
    for number in range(3):
        harness.produce("late", f"late {number}")
        harness.produce("plain", f"after the checkpoints {number}")
    harness.stop(crash=True)


def _fill(harness: Harness) -> None:
    harness.create_topic("plain", 2, index_interval_bytes="300")
    harness.create_topic("single")
    harness.create_topic("transactions", 2, index_interval_bytes="300")
    harness.create_topic("compacted", 1, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    harness.create_topic("empty", 1, retention_ms="-1")
    harness.coordinator("group")
    for name in ("one", "two"):
        producer = TransactionalProducer(harness, name)
        assert producer.init() == ErrorCode.NONE
        _transactions(producer)
    for number in range(ROUNDS):
        _records(harness, number)
        harness.clock.advance(1000)
    _compact(harness)
    for number in range(3):
        _keyed(harness, number + ROUNDS)
    left_open = TransactionalProducer(harness, "open")
    assert left_open.init() == ErrorCode.NONE
    assert left_open.send("left open", topic="transactions") == ErrorCode.NONE
    entity = AlterClientQuotasRequest.EntryData.EntityData(entity_type="client-id", entity_name="quick")
    operation = AlterClientQuotasRequest.EntryData.OpData(key="producer_byte_rate", value=1e9)
    entry = AlterClientQuotasRequest.EntryData(entity=[entity], ops=[operation])
    harness.request(AlterClientQuotasRequest(entries=[entry]))


def _transactions(producer: TransactionalProducer) -> None:
    for number in range(ROUNDS):
        for partition in (0, 1):
            values = [f"{producer.transactional_id} {number} {index}" for index in range(3)]
            assert producer.send(*values, topic="transactions", partition=partition) == ErrorCode.NONE
        assert producer.finish(commit=number % 3 != 0) == ErrorCode.NONE
        if number % 4 == 2:
            _roll(producer.harness, "transactions")


def _records(harness: Harness, number: int) -> None:
    now_ms = harness.clock.wall_ms()
    for partition in (0, 1):
        sent = batch(
            *(f"plain {number} {index}" for index in range(4)),
            timestamp=now_ms,
            producer_id=5000 + partition,
            producer_epoch=0,
            base_sequence=4 * number,
        )
        assert harness.produce_batch("plain", sent, partition=partition).error_code == ErrorCode.NONE
    harness.produce("single", f"single {number}", timestamp=now_ms)
    if number % 3 == 2:
        _roll(harness, "plain", "compacted", "__consumer_offsets", "__transaction_state")
    _keyed(harness, number)
    _commit(harness, number)


def _roll(harness: Harness, *topics: str) -> None:
    """Begin segments, which else would have a megabyte at least."""
    for name in topics:
        for partition in harness.cluster.image.topics[name].partitions:
            partition.log.roll_segment_if_used()


def _keyed(harness: Harness, number: int) -> None:
    made = [Record(0, harness.clock.wall_ms(), b"key%d" % key, b"value %d" % number, ()) for key in range(4)]
    assert harness.produce_batch("compacted", bytes(build_batch(made))).error_code == ErrorCode.NONE


def _commit(harness: Harness, offset: int) -> None:
    partition = OffsetTopic.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetTopic(topic_id=harness.partition("plain").topic.topic_id, name="plain", partitions=[partition])
    for group in ("group", "other"):
        answer = harness.request(OffsetCommitRequest(group_id=group, topics=[topic]), node=harness.coordinator(group))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE, answer


def _compact(harness: Harness) -> None:
    aside = Aside()
    cleaner = LogCleaner(harness.cluster, aside.take, lambda seconds: harness.clock.advance(seconds * 1000))
    cleaner.start_checks()
    harness.clock.advance(0)
    while aside.jobs:
        aside.do()
        harness.clock.advance(0)
    cleaner.close()
    assert harness.partition("compacted").log.clean_offset
