"""What a compacted log has promised in a simulated history: the latest record of each key, and none never written.

What any log promises is in `promises.py`.
"""

from __future__ import annotations

from itertools import pairwise

from minibroker.protocol.records.batch import TRANSACTIONAL_BIT, BatchHeader, check_batch
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record
from minibroker.storage.log import Log
from minibroker.storage.producers.transaction_markers import read_marker
from tests.storage.promises import Appended, Promises
from tests.storage.support import read_batches


class CompactedPromises(Promises):
    """`batches` are those that the log was last seen to hold, and what was acknowledged since.

    `_records` has each record ever acknowledged, by offset, and `_required` the offsets of those that neither a power
    cut was free to take, nor a truncation with what came in their place. `_aborted` are the offsets of those in
    transactions that were aborted: they may vanish, and so may tombstones and markers.
    """

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[int, Record] = {}
        self._required: set[int] = set()
        self._aborted: set[int] = set()
        self._open: dict[int, list[int]] = {}
        self._holes: list[tuple[int, int]] = []  # that truncations have left between the last batch and the end

    def acknowledged(self, count: int = 1) -> None:
        super().acknowledged(count)
        for header, data in self.batches[-count:]:
            self._note(header, data)

    def _note(self, header: BatchHeader, data: bytes) -> None:
        if header.is_control:
            offsets = self._open.pop(header.producer_id, [])
            marker = read_marker(data)
            if marker is not None and not marker.committed:
                self._aborted.update(offsets)
            return
        for record in iterate_records_of_batch(data):
            self._records[record.offset] = record
            self._required.add(record.offset)
            if header.attributes & TRANSACTIONAL_BIT:
                self._open.setdefault(header.producer_id, []).append(record.offset)

    def check_open(self, log: Log) -> None:
        """Raises `KafkaError` if the disk fails."""
        found = _stored(log)
        self._check_records(found, self.end)
        self.batches = found
        super().check_open(log)

    def may_end_at(self, offset: int) -> None:
        super().may_end_at(offset)
        self._required &= _offsets(self.batches)

    def ends_at(self, offset: int) -> None:
        super().ends_at(offset)
        self._forget_from(offset)
        self._open.clear()
        for batch in self.batches:
            self._note(*batch)
        self._holes.append((max((each.header.next_offset for each in self.batches), default=0), offset))

    def check_start(self, log: Log) -> None:
        for start, end in self._holes:  # nothing tells a start of a hole behind the last batch
            if start < self._required_end <= end:
                self._required_end = start
        super().check_start(log)

    def _check_edges(self, log: Log, found: list[Appended]) -> None:
        assert not found or found[-1].header.next_offset <= log.log_end_offset

    def _check_batches(self, found: list[Appended]) -> None:
        self._check_records(found, self._required_end)

    def _check_records(self, found: list[Appended], required_end: int) -> None:
        """Each record was written there, and the latest of each key that had to be there is, or a later one."""
        for before, after in pairwise(found):
            assert before.header.next_offset <= after.header.base_offset
        known = dict(self._records)
        left = [each for each in (*self._in_the_air, *self._failed) if not each.header.is_control]
        possible = {
            record for _, data in left for record in iterate_records_of_batch(data)
        }  # several may be of one offset
        latest_found: dict[bytes | None, int] = {}
        for header, data in found:
            for record in () if header.is_control else iterate_records_of_batch(data):
                assert record == known.get(record.offset) or record in possible, f"not so: {record}"
                latest_found[record.key] = record.offset
        latest: dict[bytes | None, Record] = {}
        for offset, record in self._records.items():
            is_required = self._latest_start <= offset < required_end and offset in self._required
            if (is_required or record.value is None) and offset not in self._aborted:
                latest[record.key] = record
        for key, record in latest.items():
            assert record.value is None or latest_found.get(key, -1) >= record.offset, f"gone: {record}"

    def _take_over(self, log: Log, found: list[Appended]) -> None:
        self._required = {offset for offset in self._required if offset < self._required_end}
        super()._take_over(log, found)
        self._forget_from(log.log_end_offset)
        self._open.clear()  # a marker may be lost
        for batch in found:
            self._note(*batch)

    def _forget_from(self, end_offset: int) -> None:
        """The log has lost its end."""
        self._records = {offset: record for offset, record in self._records.items() if offset < end_offset}
        self._required = {offset for offset in self._required if offset < end_offset}
        self._aborted = {offset for offset in self._aborted if offset < end_offset}

    def _check_transactions(self, log: Log, base_offset: int) -> None:
        """Markers may be gone, with the records of their transactions."""
        assert log.log_start_offset <= log.last_stable_offset <= log.log_end_offset


def _offsets(batches: list[Appended]) -> set[int]:
    return {record.offset for _, data in batches for record in iterate_records_of_batch(data)}


def _stored(log: Log) -> list[Appended]:
    return [Appended(check_batch(data), data) for data in read_batches(log)]
