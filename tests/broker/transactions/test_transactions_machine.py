"""Random transactions of several producers, with crashes, restarts, timeouts and disks that are away, against a model.

The model is what producers were told: a reader of committed records must see exactly what was committed, in order, and
nothing of what was aborted; offsets likewise. How each request is answered is tested by name in `test_coordinator.py`.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from minibroker.broker.transactions.transaction import ENDING, TransactionState
from minibroker.protocol.errors import ErrorCode
from tests.broker.harness import Harness
from tests.broker.transactions.producing import CLASSIC, OWN_EPOCHS, TransactionalProducer, fetched

PARTITIONS = 2
PRODUCERS = st.integers(0, 2)
PARTITION = st.integers(0, PARTITIONS - 1)
TIMEOUT_MS = 30_000
OK = ErrorCode.NONE


class Modelled:
    """One producer as the test knows it: what it has written since its transaction began, and who it is."""

    def __init__(self, producer: TransactionalProducer) -> None:
        self.producer = producer
        self.fresh = False  # it has not introduced itself, or was fenced
        self.written: list[tuple[int, str]] = []
        self.offset: int | None = None


class TransactionsMachine(RuleBasedStateMachine):
    """`committed` is by partition what readers must see once all markers are written."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="transactions-machine-"))
        self.harness = Harness(
            self.directory,
            settings={"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"},
        )
        self.harness.create_topic("t", PARTITIONS)
        self.names = 0
        self.committed: list[set[str]] = [set() for _ in range(PARTITIONS)]
        self.aborted: set[str] = set()
        self.offsets: dict[str, int] = {}
        self.numbers = 0

    def teardown(self) -> None:
        self.harness.logs.close_without_checkpoints()
        shutil.rmtree(self.directory)

    @initialize(generations=st.lists(st.sampled_from(["classic", "own epochs"]), min_size=3, max_size=3))
    def begin(self, generations: list[str]) -> None:
        versions = {"classic": CLASSIC, "own epochs": OWN_EPOCHS}
        self.producers = [
            Modelled(TransactionalProducer(self.harness, f"tx-{number}", versions[generation]))
            for number, generation in enumerate(generations)
        ]
        for modelled in self.producers:
            assert modelled.producer.init(TIMEOUT_MS) == OK

    # --- steps ----------------------------------------------------------------------------------

    def _lose(self, modelled: Modelled) -> None:
        """Note that what the producer has written since its transaction began will never be committed."""
        self.aborted.update(value for _, value in modelled.written)
        modelled.written, modelled.offset = [], None

    @rule(index=PRODUCERS)
    def take_over(self, index: int) -> None:
        """Another instance of the producer begins; the one before is fenced."""
        modelled = self.producers[index]
        newer = TransactionalProducer(self.harness, modelled.producer.transactional_id, modelled.producer.versions)
        code = newer.init(TIMEOUT_MS)
        assert code in (OK, ErrorCode.CONCURRENT_TRANSACTIONS)
        self._lose(modelled)
        while code != OK:
            self.harness.clock.advance(100)
            code = newer.init(TIMEOUT_MS)
        older, modelled.producer = modelled.producer, newer
        assert older.produce("zombie") != OK
        assert older.end() != OK

    @rule(index=PRODUCERS, partition=PARTITION)
    def send(self, index: int, partition: int) -> None:
        modelled = self.producers[index]
        self.numbers += 1
        value = f"{self.numbers}"
        if modelled.producer.send(value, partition=partition) == OK:
            modelled.written.append((partition, value))

    @rule(index=PRODUCERS)
    def send_offset(self, index: int) -> None:
        modelled = self.producers[index]
        self.numbers += 1
        if modelled.producer.send_offset(modelled.producer.transactional_id, self.numbers) == OK:
            modelled.offset = self.numbers

    @rule(index=PRODUCERS, commit=st.booleans(), at_once=st.booleans())
    def end(self, index: int, commit: bool, at_once: bool) -> None:
        modelled = self.producers[index]
        empty = not modelled.written and modelled.offset is None
        code = modelled.producer.finish(commit=commit) if at_once else modelled.producer.end(commit=commit)
        if empty:
            return
        assert code == OK
        if commit:
            for partition, value in modelled.written:
                self.committed[partition].add(value)
            if modelled.offset is not None:
                self.offsets[modelled.producer.transactional_id] = modelled.offset
            modelled.written, modelled.offset = [], None
        else:
            self._lose(modelled)

    @rule(crash=st.booleans())
    def restart(self, crash: bool) -> None:
        self.harness.restart(crash=crash)

    @rule()
    def wait(self) -> None:
        self.harness.clock.advance(100)

    @rule()
    def wait_until_transactions_time_out(self) -> None:
        self.harness.clock.advance(TIMEOUT_MS + 20_000)
        for modelled in self.producers:
            if modelled.written or modelled.offset is not None:
                self._lose(modelled)
                self.take_over(self.producers.index(modelled))

    @rule(partition=PARTITION)
    def a_disk_is_away_for_a_moment(self, partition: int) -> None:
        log = self.harness.partition("t", partition).log
        log.offline = "its disk is away"
        self.harness.clock.advance(200)
        log.offline = ""

    # --- what must hold -------------------------------------------------------------------------

    @invariant()
    def readers_of_committed_records_see_nothing_else(self) -> None:
        for partition in range(PARTITIONS):
            values = fetched(self.harness, partition=partition)
            assert values == sorted(values, key=int)
            assert len(values) == len(set(values))
            assert set(values) <= self.committed[partition]

    @invariant()
    def once_all_is_quiet_all_that_was_committed_is_there(self) -> None:
        transactions = self.harness.cluster.transactions.transactions.values()
        if any(each.state in ENDING or each.state is TransactionState.ONGOING for each in transactions):
            return
        for partition in range(PARTITIONS):
            log = self.harness.partition("t", partition).log
            assert log.last_stable_offset == log.high_watermark
            assert set(fetched(self.harness, partition=partition)) == self.committed[partition]
        groups = self.harness.cluster.groups.groups
        found = {
            group_id: offset.offset
            for group_id, group in groups.items()
            if (offset := group.offsets.find_offset("t", 0)) is not None
        }
        assert found == self.offsets


TestTransactions = pytest.mark.timeout(300)(TransactionsMachine.TestCase)
