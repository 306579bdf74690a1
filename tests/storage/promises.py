"""What a log has promised in a simulated history, and whether it holds it: what must be there, and what may.

Written without a look at how the log does it: all is told from the batches that were appended.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from minibroker.protocol.records.batch import TRANSACTIONAL_BIT, BatchHeader, check_batch, set_offset_and_epoch
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.storage.batch_scanning import iterate_headers
from minibroker.storage.log import Log
from minibroker.storage.producers.producer_state import ProducerStates
from minibroker.storage.producers.transaction_markers import read_marker
from tests.storage.support import offset_for_timestamp, read_batches


class Appended(NamedTuple):
    """A batch as it lies in the log."""

    header: BatchHeader
    data: bytes


class Promises:
    """`batches` are those that were acknowledged, in their order, also those that were deleted since.

    No power cut may take what ends at or before `durable_end`, and no kill what was acknowledged.
    """

    def __init__(self) -> None:
        self.batches: list[Appended] = []
        self.end = 0
        self.durable_end = 0
        self._latest_start = 0
        self._in_the_air: list[Appended] = []  # not acknowledged yet; what comes of them is told in their order
        self._failed: list[Appended] = []  # whole batches of a write that failed, which may be on the disk
        self._cuts = 0
        self._wanted_end: int | None = None  # of a truncation that may have been done in part
        self._required_end = 0

    # --- what happens ---------------------------------------------------------------------------------

    def attempted(self, data: bytearray, base_offset: int, leader_epoch: int) -> None:
        """The batch is about to be appended, behind those that are in the air already."""
        placed = bytearray(data)
        set_offset_and_epoch(placed, 0, base_offset, leader_epoch)
        self._in_the_air.append(Appended(check_batch(placed), bytes(placed)))

    def acknowledged(self, count: int = 1) -> None:
        """The appends of the first batches in the air have come back."""
        assert len(self._in_the_air) >= count
        self.batches += self._in_the_air[:count]
        self.end = self.batches[-1].header.next_offset
        del self._in_the_air[:count]

    def refused(self, count: int = 1) -> None:
        """The appends of the first batches in the air have failed: nothing of them may be seen.

        Of several that were written together, some may be whole on the disk: a power cut may bring them back, as long
        as nothing was synced since.
        """
        if count > 1:
            self._failed += self._in_the_air[:count]
        del self._in_the_air[:count]

    def promise_of_flush(self) -> Callable[[], None]:
        """Return the function to call when the flush that is asked for now is said to be done."""
        cuts, end_offset = self._cuts, self.end

        def done() -> None:
            if cuts == self._cuts:
                self.durable_end = max(self.durable_end, end_offset)
                self._failed = [each for each in self._failed if each.header.base_offset >= end_offset]

        return done

    def may_begin_at(self, offset: int) -> None:
        """Note that the log may begin there from now on."""
        self._latest_start = max(self._latest_start, offset)

    def may_end_at(self, offset: int) -> None:
        """Note that the log was asked to end there."""
        self._wanted_end = offset
        self._cuts += 1
        self.durable_end = min(self.durable_end, self.batch_end_before(offset))

    def ends_at(self, offset: int) -> None:
        """Note that the truncation is done: a batch goes whole, so that it may have been a little more."""
        self.batches = [each for each in self.batches if each.header.next_offset <= offset]
        self.end = offset
        self.durable_end = min(self.durable_end, offset)
        self._wanted_end = None

    def was_killed(self, *, was_trimmed: bool) -> None:
        """The process is gone; the disk remembers all that it had written, also what should have been trimmed."""
        if was_trimmed:
            self._failed.clear()
        self._required_end = self.end
        if self._wanted_end is not None:
            self._required_end = self.batch_end_before(self._wanted_end)

    def power_was_cut(self) -> None:
        """Only what was synced is sure to be there."""
        self._required_end = self.durable_end

    def was_stopped(self) -> None:
        """The log was closed without complaint."""
        self._required_end = self.durable_end = self.end

    def batch_end_before(self, offset: int) -> int:
        """Where the last batch ends that lies wholly before `offset`: a truncation there cuts to this."""
        return max((each.header.next_offset for each in self.batches if each.header.next_offset <= offset), default=0)

    # --- whether it is kept ---------------------------------------------------------------------------

    def check_start(self, log: Log) -> None:
        """The log has just been opened."""
        found = [Appended(check_batch(data), data) for data in read_batches(log)]
        self._check_batches(found)
        assert log.log_start_offset <= self._latest_start, "the log begins later than it was told to"
        assert log.log_end_offset >= self._required_end, f"the log ends at {log.log_end_offset}: {self._required_end}"
        self._check_edges(log, found)
        self._take_over(log, found)
        self.check_open(log)

    def _check_edges(self, log: Log, found: list[Appended]) -> None:
        """The batches reach from the log start offset, or before it, to the end."""
        if found:
            assert found[0].header.base_offset <= log.log_start_offset
            assert found[-1].header.next_offset == log.log_end_offset
        else:
            assert log.log_start_offset == log.log_end_offset

    def _check_batches(self, found: list[Appended]) -> None:
        """Each is one that was appended there, and they follow each other."""
        known = {each.data for each in (*self.batches, *self._in_the_air, *self._failed)}
        for header, data in found:
            assert data in known, f"not so: {header}"
        for before, after in pairwise(found):
            assert before.header.next_offset == after.header.base_offset, "a hole"

    def _take_over(self, log: Log, found: list[Appended]) -> None:
        """From now on this is what counts."""
        first_offset = found[0].header.base_offset if found else log.log_end_offset
        self.batches = [each for each in self.batches if each.header.next_offset <= first_offset] + found
        self.end = log.log_end_offset
        self.durable_end = min(self.durable_end, self.end)
        self._latest_start = max(self._latest_start, log.log_start_offset)
        self._in_the_air.clear()
        self._failed.clear()
        self._wanted_end = None
        self._cuts += 1

    def check_open(self, log: Log) -> None:
        """The log holds what it holds, and what is derived from it agrees. Raises `KafkaError` if the disk fails."""
        assert log.log_start_offset <= self._latest_start
        assert log.log_end_offset == log.high_watermark == self.end
        expected = [each for each in self.batches if each.header.next_offset > log.log_start_offset]
        assert read_batches(log) == [each.data for each in expected]
        _check_lookups(log, expected)
        _check_indexes(log)
        base_offset = log.segments[0].base_offset
        _check_producers(log, [each for each in self.batches if each.header.base_offset >= base_offset])
        self._check_transactions(log, base_offset)
        for header, _ in expected:
            offset = max(header.base_offset, log.log_start_offset)
            assert log.epochs.find_epoch_at(offset) == header.partition_leader_epoch

    def _check_transactions(self, log: Log, base_offset: int) -> None:
        """Check that the aborted ones are those of a replay, and that the stable offset is possible.

        It lies between the one by all batches and the one by the batches that are left: a log may have forgotten the
        part of an open transaction that lies before its first segment.
        """
        all_of_them, those_left = Transactions(), Transactions()
        for header, data in self.batches:
            all_of_them.take(header, data)
            if header.base_offset >= base_offset:
                those_left.take(header, data)
        stable = [max(found.stable_offset(self.end), log.log_start_offset) for found in (all_of_them, those_left)]
        assert stable[0] <= log.last_stable_offset <= stable[1]
        known = {each.last_offset: each for each in log.list_aborted_transactions(base_offset, self.end)}
        for producer_id, first_offset, last_offset in those_left.aborted:
            assert known[last_offset].producer_id == producer_id
            assert known[last_offset].first_offset <= first_offset
        assert known.keys() <= {last_offset for _, _, last_offset in all_of_them.aborted}


class Transactions:
    """The transactions of some batches, oldest first: `aborted` are (producer id, first offset, marker's offset)."""

    def __init__(self) -> None:
        self.aborted: list[tuple[int, int, int]] = []
        self._open: dict[int, int] = {}

    def take(self, header: BatchHeader, data: bytes) -> None:
        """The next batch."""
        if header.is_control:
            marker = read_marker(data)
            first_offset = self._open.pop(header.producer_id, None)
            if first_offset is not None and marker is not None and not marker.committed:
                self.aborted.append((header.producer_id, first_offset, header.base_offset))
        elif header.attributes & TRANSACTIONAL_BIT:
            self._open.setdefault(header.producer_id, header.base_offset)

    def stable_offset(self, end_offset: int) -> int:
        """Where the oldest open transaction begins; the end, if there is none."""
        return min(self._open.values(), default=end_offset)


def _check_lookups(log: Log, expected: list[Appended]) -> None:
    """Each offset is found, and each time, as by going through all records."""
    for header, data in expected:
        region = log.read(header.last_offset, 1)
        assert region is not None and region.read() == data
    records = [
        record
        for each in expected
        for record in iterate_records_of_batch(each.data)
        if record.offset >= log.log_start_offset
    ]
    for target in {record.timestamp for record in records if record.timestamp >= 0}:
        first = next(record for record in records if record.timestamp >= target)
        found = offset_for_timestamp(log, target)
        assert found is not None and (found.offset, found.timestamp) == (first.offset, first.timestamp)


def _check_indexes(log: Log) -> None:
    """Entries of both indexes are about batches that are there, and no segment believes in another largest time."""
    for segment in log.segments:
        segment.load_last_entries()
        segment.indexes.load_entries()
        stored = list(iterate_headers(segment.file, 0, segment.size_bytes))
        positions = {header.last_offset: position for position, header in stored}
        for offset, position in segment.indexes.offsets.list_entries():
            assert positions[offset] == position
        for timestamp, offset in segment.indexes.times.list_entries():
            times = [header.max_timestamp for _, header in stored if header.last_offset <= offset]
            assert max(times) == timestamp
        assert segment.indexes.max_timestamp == max((header.max_timestamp for _, header in stored), default=-1)


def _check_producers(log: Log, batches: list[Appended]) -> None:
    """The producers of the batches that are there are where a replay of these brings them."""
    replayed = ProducerStates()
    for header, data in batches:
        if header.is_control:
            replayed.end_transaction(header, header.base_offset, read_marker(data))
        elif header.producer_id >= 0:
            replayed.apply_appended_batch(header, header.base_offset)
    known = dict(log.producers.iterate_entries())
    for producer_id, entry in replayed.iterate_entries():
        assert known[producer_id].epoch == entry.epoch
        if entry.batches:  # but for the timestamp: a snapshot has only the one of the producer's last batch of all
            assert known[producer_id].batches[-1][:-1] == entry.batches[-1][:-1]
