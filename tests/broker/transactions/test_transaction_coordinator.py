"""Transactions from a producer's and a reader's side, over crashes, timeouts and partitions that do not answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.broker.metadata.partitions import TRANSACTIONS_TOPIC
from minibroker.broker.transactions.transaction import LAST_CLIENT_EPOCH, TransactionState
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.records.batch import check_batch
from minibroker.storage.files import File
from tests.broker.harness import Harness
from tests.broker.transactions.producing import CLASSIC, OWN_EPOCHS, TransactionalProducer, fetched

OK = ErrorCode.NONE
GENERATIONS = pytest.mark.parametrize("versions", [CLASSIC, OWN_EPOCHS], ids=["classic", "own epochs"])
TOPICS = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with Harness(tmp_path, settings=TOPICS) as harness:
        harness.create_topic("t", 2)
        yield harness


def state(harness: Harness, transactional_id: str = "tx") -> TransactionState:
    return harness.cluster.transactions.transactions[transactional_id].state


@GENERATIONS
def test_committed_records_become_visible_together_and_aborted_ones_never(
    harness: Harness, versions: dict[str, int]
) -> None:
    producer = TransactionalProducer(harness, versions=versions)
    assert producer.init() == OK
    assert producer.send("a") == producer.send("b", partition=1) == OK
    assert fetched(harness) == [] and fetched(harness, committed=False) == ["a"]
    assert producer.finish() == OK
    assert (fetched(harness), fetched(harness, partition=1)) == (["a"], ["b"])
    assert producer.send("lost") == OK
    assert producer.finish(commit=False) == OK
    assert producer.send("c") == OK
    assert producer.finish() == OK
    assert fetched(harness) == ["a", "c"]
    assert fetched(harness, committed=False) == ["a", "lost", "c"]


def test_each_partition_gets_a_marker_with_its_own_offset_and_the_time(harness: Harness) -> None:
    producer = TransactionalProducer(harness)
    producer.init()
    assert [producer.send("a"), producer.send("b", partition=1), producer.send("c", partition=1)] == [OK] * 3
    harness.clock.advance(5)
    assert producer.finish() == OK
    for index, offset in ((0, 1), (1, 2)):
        region = harness.partition("t", index).log.read(offset, 1 << 20)
        assert region is not None
        header = check_batch(region.read())
        assert (header.base_offset, header.is_control) == (offset, True)
        assert header.base_timestamp == header.max_timestamp == harness.clock.wall_ms()


@GENERATIONS
def test_the_producer_waits_until_the_markers_are_written(harness: Harness, versions: dict[str, int]) -> None:
    producer = TransactionalProducer(harness, versions=versions)
    producer.init()
    producer.send("a")
    harness.cluster.transactions.markers.hold_back_markers("tx")
    assert producer.end() == OK
    assert state(harness) is TransactionState.PREPARE_COMMIT
    assert producer.send("b") == ErrorCode.CONCURRENT_TRANSACTIONS
    assert TransactionalProducer(harness, versions=versions).init() == ErrorCode.CONCURRENT_TRANSACTIONS
    harness.cluster.transactions.markers.send_held_markers("tx")
    harness.clock.advance(0)
    assert state(harness) is TransactionState.COMPLETE_COMMIT
    assert producer.send("b") == OK


@GENERATIONS
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("crash", [True, False])
def test_a_transaction_whose_end_was_recorded_is_completed_after_a_restart(
    harness: Harness, versions: dict[str, int], commit: bool, crash: bool
) -> None:
    producer = TransactionalProducer(harness, versions=versions)
    producer.init()
    producer.send("a")
    producer.send_offset("g", 5)
    harness.cluster.transactions.markers.hold_back_markers("tx")
    assert producer.end(commit=commit) == OK
    harness.restart(crash=crash)
    assert fetched(harness) == []
    harness.clock.advance(0)
    assert state(harness) is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
    assert fetched(harness) == (["a"] if commit else [])
    offsets = harness.cluster.groups.groups["g"].offsets
    assert (list(offsets.by_partition), offsets.pending) == ([("t", 0)] if commit else [], {})
    assert producer.send("b") == OK
    assert producer.finish() == OK


@GENERATIONS
@pytest.mark.parametrize("crash", [True, False])
def test_an_open_transaction_continues_after_a_restart(harness: Harness, versions: dict[str, int], crash: bool) -> None:
    producer = TransactionalProducer(harness, versions=versions)
    producer.init()
    producer.send("a")
    producer.send_offset("g", 5)
    harness.restart(crash=crash)
    assert (fetched(harness), fetched(harness, committed=False)) == ([], ["a"])
    assert harness.cluster.groups.groups["g"].offsets.is_offset_unstable("t", 0)
    assert producer.send("b") == OK
    assert producer.finish() == OK
    assert fetched(harness) == ["a", "b"]
    assert harness.cluster.groups.groups["g"].offsets.by_partition["t", 0].offset == 5


@GENERATIONS
def test_a_new_producer_with_the_same_id_aborts_and_fences_the_old_one(
    harness: Harness, versions: dict[str, int]
) -> None:
    zombie, producer = (TransactionalProducer(harness, versions=versions) for _ in range(2))
    zombie.init()
    zombie.send("zombie")
    assert producer.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    harness.clock.advance(0)
    assert producer.init() == OK
    assert producer.producer_id == zombie.producer_id and producer.epoch > zombie.epoch
    assert zombie.produce("late") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.end() == ErrorCode.PRODUCER_FENCED
    assert zombie.send_offset("g", 1) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert producer.send("mine") == OK
    assert producer.finish() == OK
    assert fetched(harness) == ["mine"]


@GENERATIONS
def test_a_transaction_that_exceeds_its_timeout_is_aborted(harness: Harness, versions: dict[str, int]) -> None:
    producer = TransactionalProducer(harness, versions=versions)
    producer.init(timeout_ms=30_000)
    producer.send("slow")
    harness.clock.advance(30_000)
    assert state(harness) is TransactionState.ONGOING
    harness.clock.advance(10_000)
    assert state(harness) is TransactionState.COMPLETE_ABORT
    # The next epoch is what an end by the producer itself would have led to: there a commit comes too late.
    assert producer.end() == (ErrorCode.PRODUCER_FENCED if versions is CLASSIC else ErrorCode.INVALID_TXN_STATE)
    assert producer.produce("late") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert fetched(harness) == []


def test_no_markers_are_sent_for_a_partially_read_transaction_log(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = TransactionalProducer(harness, versions=CLASSIC)
    producer.init()
    producer.send("a")
    producer.finish()
    producer.send("not to be committed")
    partitions = harness.cluster.image.topics[TRANSACTIONS_TOPIC].partitions
    (kept,) = [each.log for each in partitions if each.log.log_end_offset]
    decision = kept.read(2, 1)  # behind an id and its partition
    assert decision is not None and decision.next_offset == 3
    read = File.read

    def fail_after_the_decision(file: File, position: int, size: int) -> bytes:
        if file.path == decision.file.path and position > decision.position:
            raise OSError("no more of it")
        return read(file, position, size)

    with monkeypatch.context() as patched:
        patched.setattr(File, "read", fail_after_the_decision)
        harness.restart(crash=True, settings={"transaction.state.log.load.buffer.size": "1"})
        harness.clock.advance(60_000)
        assert harness.cluster.transactions.transactions == {}
        assert producer.end(commit=False) == ErrorCode.NOT_COORDINATOR
        assert fetched(harness) == ["a"]
    harness.restart()
    assert producer.finish(commit=False) == OK
    assert fetched(harness) == ["a"]


def test_an_unused_transactional_id_expires(harness: Harness) -> None:
    producer = TransactionalProducer(harness)
    producer.init()
    producer.send("a")
    producer.finish()
    harness.clock.advance(6 * 86_400_000)
    assert "tx" in harness.cluster.transactions.transactions
    harness.clock.advance(2 * 86_400_000)
    assert harness.cluster.transactions.transactions == {}
    assert producer.end() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    harness.restart()
    assert harness.cluster.transactions.transactions == {}


def test_markers_are_retried_until_every_partition_has_one(harness: Harness) -> None:
    producer = TransactionalProducer(harness)
    producer.init()
    producer.send("a")
    producer.send("b", partition=1)
    log = harness.partition("t", 1).log
    log.offline = "its disk is away"
    producer.finish()
    assert state(harness) is TransactionState.PREPARE_COMMIT
    assert harness.cluster.transactions.markers.get_partitions_without_marker("tx") == {("t", 1)}
    assert fetched(harness) == ["a"]
    log.offline = ""
    harness.clock.advance(100)
    assert state(harness) is TransactionState.COMPLETE_COMMIT
    assert fetched(harness, partition=1) == ["b"]


def test_partitions_of_a_deleted_topic_need_no_marker(harness: Harness) -> None:
    harness.create_topic("gone")
    producer = TransactionalProducer(harness)
    producer.init()
    producer.send("a")
    producer.send("b", topic="gone")
    harness.cluster.controller.delete_topic(harness.cluster.image.topics["gone"])
    assert producer.finish() == OK
    assert state(harness) is TransactionState.COMPLETE_COMMIT


def test_offsets_of_a_transaction_are_pending_until_it_commits(harness: Harness) -> None:
    producer = TransactionalProducer(harness)
    producer.init()
    assert producer.send_offset("g", 7) == OK
    offsets = harness.cluster.groups.groups["g"].offsets
    assert offsets.is_offset_unstable("t", 0) and offsets.find_offset("t", 0) is None
    producer.finish(commit=False)
    assert not offsets.is_offset_unstable("t", 0) and offsets.find_offset("t", 0) is None
    assert producer.send_offset("g", 8) == OK
    producer.finish()
    found = offsets.find_offset("t", 0)
    assert found is not None and found.offset == 8


def test_a_partition_not_added_by_an_older_client_is_rejected(harness: Harness) -> None:
    producer = TransactionalProducer(harness, versions=CLASSIC)
    producer.init()
    assert producer.produce("a") == ErrorCode.INVALID_TXN_STATE
    producer.versions = {**CLASSIC, "produce": 11}
    assert producer.produce("a") == ErrorCode.TRANSACTION_ABORTABLE
    assert harness.partition("t").log.log_end_offset == 0


def test_each_node_writes_markers_to_the_partitions_it_leads(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3, settings=TOPICS) as harness:
        harness.create_topic("t", 3, 3)
        assert {harness.partition("t", index).leader_id for index in range(3)} == {1, 2, 3}
        for number in range(4):
            producer = TransactionalProducer(harness, f"tx-{number}")
            assert producer.init() == OK
            assert [producer.send(f"{number}", partition=index) for index in range(3)] == [OK] * 3
            assert producer.finish(commit=number != 2) == OK
        assert [fetched(harness, partition=index) for index in range(3)] == [["0", "1", "3"]] * 3


@GENERATIONS
def test_a_producer_whose_transactional_id_has_a_new_producer_id_is_fenced(
    harness: Harness, versions: dict[str, int]
) -> None:
    producer, second = (TransactionalProducer(harness, versions=versions) for _ in range(2))
    assert producer.init() == OK
    transactions = harness.cluster.transactions.transactions
    transactions["tx"].producer_epoch = LAST_CLIENT_EPOCH
    producer.epoch = LAST_CLIENT_EPOCH
    assert producer.send("a") == OK
    assert second.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    harness.clock.advance(0)
    assert second.init() == OK
    assert second.producer_id != producer.producer_id
    assert producer.produce("b") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert second.send("c") == OK
