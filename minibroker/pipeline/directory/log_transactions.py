"""The transactions of one log, for readers of committed records: the last stable offset, and aborted transactions.

As at a broker's start, the `.txnindex` files of segments that are known to be synced are trusted. For other segments,
aborted transactions come from the markers in the log. `minibroker.pipeline.decode` skips their records.

The outcome in a damaged marker is unknown. Unless that is an error, its transaction counts as aborted: so no
uncommitted record is read, and the damage itself becomes a row.
"""

from __future__ import annotations

from contextlib import closing

from minibroker.pipeline.directory.finding import FoundLog
from minibroker.pipeline.directory.log_walking import HeaderAtPosition, iterate_headers_or_damage
from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.pipeline.directory.segment_files import (
    BatchBoundary,
    LogView,
    OpenSegment,
    SegmentFile,
    make_boundary_after,
)
from minibroker.pipeline.log_source import CorruptData
from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from minibroker.storage.batch_scanning import read_stored_batch
from minibroker.storage.checkpoints.checkpoint_texts import (
    RECOVERY_POINT_CHECKPOINT,
    MalformedCheckpoint,
    parse_offset_checkpoint,
)
from minibroker.storage.files import File
from minibroker.storage.inspection.log_inspection import DamagedBytes
from minibroker.storage.names import CLEAN_SHUTDOWN, INDEX_SUFFIX, SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX
from minibroker.storage.producers.aborted_transactions import (
    AbortedTransaction,
    AbortedTransactions,
    decode_aborted_transactions,
)
from minibroker.storage.producers.producer_state import CorruptSnapshot, ProducerStates
from minibroker.storage.producers.transaction_markers import read_marker
from minibroker.storage.segment_indexes import CorruptIndex, OffsetIndex

MAX_OFFSET = (1 << 63) - 1


class LogTransactions:
    """The transactions in a log, up to where it was last read.

    With `fail_on_damage` it is an error if the outcome of a transaction is unknown; otherwise its records are left out.
    """

    def __init__(self, *, fail_on_damage: bool = True) -> None:
        self._fail_on_damage = fail_on_damage
        self._states = ProducerStates()
        self._aborted: list[AbortedTransaction] = []
        self._begun: dict[
            int, HeaderAtPosition
        ] = {}  # by producer, the first batch of its open transaction in this segment
        self._segment: SegmentFile | None = None  # the segment up to which the log was read
        self._place = BatchBoundary(0, 0)
        self._cuts = 0

    def find_last_stable_offset(self) -> int:
        """Return the first offset of the oldest open transaction, or the end of the log."""
        return self._states.find_first_unstable_offset(self._place.next_offset)

    def list_aborted_transactions(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """Return (producer id, first offset, marker's offset) of aborted transactions from `start` to before `end`."""
        between = AbortedTransactions(DISK, self._aborted).list_transactions_between(start, end)
        return [(each.producer_id, each.first_offset, each.last_offset) for each in between]

    def read_new_batches(self, view: LogView) -> None:
        """Read what was added to the log. Raises `OSError`, and `CorruptData` if a marker cannot be read."""
        index = self._find_last_read_segment(view) if self._cuts == view.cuts else None
        if index is None:
            index = self._load_trusted_state(view) if view.segments else 0
        try:
            for segment in view.segments[index:]:
                self._replay_segment(segment, view.get_size_in_log(segment))
            self._cuts = view.cuts
        except CorruptData:
            self._cuts = -1  # the next call begins again, and raises again
            raise

    def _find_last_read_segment(self, view: LogView) -> int | None:
        """Return the index of the last segment that was read, if it still is what it was; else None."""
        for index, segment in enumerate(view.segments):
            if self._segment is not None and segment.path == self._segment.path:
                with closing(OpenSegment(segment, view.get_size_in_log(segment))) as opened:
                    return index if opened.is_boundary(self._place) else None
        return None

    def _load_trusted_state(self, view: LogView) -> int:
        """Load what can be trusted. Return the index of the segment from which the log must be read."""
        indexed = _read_trusted_entries(view)
        index, self._states = _read_newest_snapshot(view, len(indexed))
        self._aborted = sorted(
            (each for entries in indexed[:index] for each in entries), key=lambda each: each.last_offset
        )
        self._segment = None
        return index

    def _replay_segment(self, segment: SegmentFile, size_bytes: int) -> None:
        """Apply the batches of a segment up to `size_bytes`, from where its last reading ended."""
        with closing(OpenSegment(segment, size_bytes)) as opened:
            if self._segment is None or self._segment.path != segment.path:
                self._place = opened.start
            place = self._place
            self._begun.clear()
            for step in iterate_headers_or_damage(opened.file, place.position, size_bytes, place.next_offset):
                if isinstance(step, DamagedBytes):
                    if self._states.open_transactions:  # the damage may contain a marker
                        self._end_transactions_as_aborted(
                            f"{step.path}: position {step.position}: {step.found}", place.next_offset - 1
                        )
                    continue
                position, header = step
                if header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) and header.producer_id >= 0:
                    self._apply_batch(opened.file, position, header)
                place = make_boundary_after(position, header)
            self._check_first_batch_of_open_transaction(opened.file, place.next_offset - 1)
        self._segment, self._place = segment, place

    def _apply_batch(self, file: File, position: int, header: BatchHeader) -> None:
        if not header.is_control:
            is_open = header.producer_id in self._states.open_transactions
            self._states.apply_appended_batch(header, header.base_offset)
            if not is_open and header.is_transactional:
                self._begun[header.producer_id] = position, header
            return
        self._begun.pop(header.producer_id, None)
        try:
            marker = read_marker(read_stored_batch(file, position, header))
        except CorruptBatch as error:
            self._end_transactions_as_aborted(str(error.message), header.base_offset, header.producer_id)
            return
        aborted = self._states.end_transaction(header, header.base_offset, marker)
        if aborted is not None:
            self._aborted.append(aborted)

    def _check_first_batch_of_open_transaction(self, file: File, offset: int) -> None:
        """Check a transaction's first batch: a damaged one must not hold up all offsets behind it."""
        for producer_id, (position, header) in self._begun.items():
            if producer_id in self._states.open_transactions:
                try:
                    read_stored_batch(file, position, header)
                except CorruptBatch as error:
                    self._end_transactions_as_aborted(str(error.message), offset, producer_id)

    def _end_transactions_as_aborted(self, problem: str, offset: int, producer_id: int = -1) -> None:
        """End the producer's open transaction at `offset` as if aborted; if it has none, those of all producers.

        Its id may be damaged too.
        """
        if self._fail_on_damage:
            raise CorruptData(f"{problem}; it is unknown whether a transaction was committed")
        open_ones = self._states.open_transactions
        for each in [producer_id] if producer_id in open_ones else list(open_ones):
            self._aborted.append(self._states.abort_hanging_transaction(each, offset))


def _read_trusted_entries(view: LogView) -> list[list[AbortedTransaction]]:
    """Return the entries of the `.txnindex` files of the first segments, up to the last segment or a damaged file."""
    found: list[list[AbortedTransaction]] = []
    safe_end = _find_trusted_end_offset(view.log)
    for index, segment in enumerate(view.segments[:-1]):
        end = view.get_end_offset_of_segment(index)
        entries = _read_transaction_index(segment, end) if end <= safe_end else None
        if entries is None:
            break
        found.append(entries)
    return found


def _find_trusted_end_offset(log: FoundLog) -> int:
    """Return the offset up to which a broker would trust the log: its end, after a clean stop."""
    if DISK.exists(f"{log.log_directory}/{CLEAN_SHUTDOWN}"):
        return MAX_OFFSET
    try:
        text = DISK.read_whole(f"{log.log_directory}/{RECOVERY_POINT_CHECKPOINT}")
        return parse_offset_checkpoint(text).get(log.partition, 0)
    except (FileNotFoundError, MalformedCheckpoint):
        return 0


def _read_transaction_index(segment: SegmentFile, end: int) -> list[AbortedTransaction] | None:
    """Return the entries of a segment's `.txnindex`, or None if they cannot be trusted.

    Without the file nothing was aborted, unless the segment's other indexes are missing too.
    """
    try:
        if DISK.size_bytes(segment.make_path(INDEX_SUFFIX)) % OffsetIndex.ENTRY.size:
            return None
        if not DISK.exists(segment.make_path(TRANSACTION_INDEX_SUFFIX)):
            return []
        entries = decode_aborted_transactions(DISK.read_whole(segment.make_path(TRANSACTION_INDEX_SUFFIX)))
    except (FileNotFoundError, CorruptIndex):
        return None
    is_whole = all(segment.base_offset <= each.last_offset < end for each in entries)
    return entries if is_whole else None


def _read_newest_snapshot(view: LogView, index: int) -> tuple[int, ProducerStates]:
    """Return the newest known snapshot at or before segment `index`: the index of its segment, and the producers."""
    for at in range(index, -1, -1):  # there is one of the first segment only if earlier records were removed
        segment, states = view.segments[at], ProducerStates()
        try:
            states.load_snapshot(DISK.read_whole(segment.path + SNAPSHOT_SUFFIX), segment.base_offset)
            return at, states
        except (FileNotFoundError, CorruptSnapshot):
            states.clear_all_producers(segment.base_offset)
    return 0, states
