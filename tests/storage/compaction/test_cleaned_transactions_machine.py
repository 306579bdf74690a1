"""Transactions that are committed and aborted at random in a log that is compacted, cut off by crashes and reopened.

Whoever reads committed records as Kafka's consumers do must see the latest one of each key, and none that was aborted.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from minibroker.protocol.records.batch import check_batch
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.control import ControlType, decode_control_type, make_transaction_marker
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.storage.log import Log
from tests.storage.compaction.support import SETTINGS, clean, pairs
from tests.storage.support import NOW_MS, append, open_at, read_batches

RETENTION_MS = 1000
LOG_SETTINGS = SETTINGS._replace(delete_retention_ms=RETENTION_MS)
PRODUCERS = (7, 8)
keys = st.sampled_from([f"key{number}" for number in range(4)])

Found = dict[str, tuple[int, str]]  # by key, offset and value of the latest record


def committed(log: Log, start: int) -> list[tuple[int, str, str]]:
    """(offset, key, value) of what a consumer of committed records gets that begins at `start`."""
    waiting = sorted(log.list_aborted_transactions(start, log.last_stable_offset), key=lambda each: each.first_offset)
    aborted: set[int] = set()
    found = []
    for data in read_batches(log, start):
        header = check_batch(data)
        if header.base_offset >= log.last_stable_offset:
            break
        while waiting and waiting[0].first_offset <= header.last_offset:
            aborted.add(waiting.pop(0).producer_id)
        if header.is_control:
            ends = (decode_control_type(record.key) for record in iterate_records_of_batch(data))
            if ControlType.ABORT in ends:
                aborted.discard(header.producer_id)
        elif header.producer_id not in aborted or not header.is_transactional:
            found += [
                (each.offset, (each.key or b"").decode(), (each.value or b"").decode())
                for each in iterate_records_of_batch(data)
            ]
    return [each for each in found if each[0] >= start]


class TransactionsMachine(RuleBasedStateMachine):
    """`written` has every record that was committed; `open` by producer those of its transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="transactions-machine-"))
        self.log = open_at(self.directory, LOG_SETTINGS)
        self.now_ms = NOW_MS
        self.written: list[tuple[int, str, str]] = []
        self.open: dict[int, list[tuple[int, str, str]]] = {}
        self.sequences = dict.fromkeys(PRODUCERS, 0)

    def teardown(self) -> None:
        self.log.close_without_flush()
        shutil.rmtree(self.directory)

    @rule(key=keys)
    def write(self, key: str) -> None:
        self.written += self._append_config_changes(key)

    @rule(producer=st.sampled_from(PRODUCERS), key=keys)
    def write_in_a_transaction(self, producer: int, key: str) -> None:
        sequence, self.sequences[producer] = self.sequences[producer], self.sequences[producer] + 1
        options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
        self.open.setdefault(producer, []).extend(self._append_config_changes(key, **options))

    @rule(producer=st.sampled_from(PRODUCERS), key=keys, commits=st.booleans())
    def write_and_end_a_transaction(self, producer: int, key: str, commits: bool) -> None:
        self.write_in_a_transaction(producer, key)
        self._end(producer, commits)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), commits=st.booleans())
    def end_a_transaction(self, data: st.DataObject, commits: bool) -> None:
        self._end(data.draw(st.sampled_from(sorted(self.open))), commits)

    def _end(self, producer: int, commits: bool) -> None:
        record = make_transaction_marker(committed=commits, coordinator_epoch=1, timestamp=self.now_ms)
        append(
            self.log, build_batch([record], producer_id=producer, producer_epoch=0, transactional=True, control=True)
        )
        ended = self.open.pop(producer)
        if commits:
            self.written += ended

    def _append_config_changes(self, key: str, **options: int | bool) -> list[tuple[int, str, str]]:
        value = f"value at {self.log.log_end_offset}"
        offset = append(self.log, pairs((key, value), timestamp=self.now_ms, **options))
        return [(offset, key, value)]

    @rule()
    def roll(self) -> None:
        self.log.roll_segment_if_used()

    @rule(rounds=st.integers(1, 4))
    def compact(self, rounds: int) -> None:
        """Several times, as the marker of an aborted transaction goes with the third."""
        for _ in range(rounds):
            self.write("key0")
            self.log.roll_segment_if_used()
            self.now_ms += RETENTION_MS
            clean(self.log, self.now_ms)

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.log = open_at(self.directory, LOG_SETTINGS)

    @rule()
    def crash_and_start(self) -> None:
        recovery_point = self.log.recovery_point
        self.log.close_without_flush()
        self.log = open_at(self.directory, LOG_SETTINGS, clean=False, recovery_point=recovery_point)

    @invariant()
    def the_latest_committed_record_of_each_key_is_read_and_no_other_value_was_ever_written(self) -> None:
        stable = [each for each in sorted(self.written) if each[0] < self.log.last_stable_offset]
        latest = {key: (offset, value) for offset, key, value in stable}
        found = committed(self.log, 0)
        assert {key: (offset, value) for offset, key, value in found} == latest
        assert set(found) <= set(stable)

    @invariant()
    def who_begins_later_reads_the_same(self) -> None:
        whole = committed(self.log, 0)
        for start in (self.log.last_stable_offset // 3, self.log.last_stable_offset // 2):
            assert committed(self.log, start) == [each for each in whole if each[0] >= start]

    @invariant()
    def readers_stop_before_the_first_open_transaction(self) -> None:
        first = min((records[0][0] for records in self.open.values()), default=self.log.log_end_offset)
        assert self.log.last_stable_offset == first


TestTransactionsMachine = TransactionsMachine.TestCase
