"""The `.snapshot` files of a log's producer states. A snapshot's name is the offset at which it was taken."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from minibroker.protocol.records.batch import BatchHeader
from minibroker.storage.batch_scanning import iterate_headers, read_stored_batch
from minibroker.storage.files import Disk
from minibroker.storage.names import SNAPSHOT_SUFFIX, make_segment_name
from minibroker.storage.producers.aborted_transactions import AbortedTransaction
from minibroker.storage.producers.producer_state import CorruptSnapshot, ProducerStates
from minibroker.storage.producers.transaction_markers import read_marker
from minibroker.storage.segment import Segment

logger = logging.getLogger(__name__)


class ProducerSnapshots:
    """The snapshot files in a log's directory. All methods raise `OSError`."""

    __slots__ = ("_disk", "_directory", "_offsets", "_unsynced")

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[int]) -> None:
        self._disk = disk
        self._directory = directory
        self._offsets = sorted(offsets)
        self._unsynced: set[int] = set()

    def take_snapshot(self, states: ProducerStates, start_offset: int, *, sync: bool = True) -> bool:
        """Write a snapshot, unless there is one of this offset, or the log begins there. Return whether it was written.

        Without `sync`, the next flush need not sync it: a start recognises a damaged snapshot by its checksum.
        """
        if states.end_offset <= start_offset or states.end_offset in self._offsets:
            return False
        self._disk.write_whole(self._make_snapshot_path(states.end_offset), states.encode_snapshot(), sync=False)
        self._offsets = sorted((*self._offsets, states.end_offset))
        if sync:
            self._unsynced.add(states.end_offset)
        return True

    def load_newest_snapshot(self, states: ProducerStates, start_offset: int, end_offset: int) -> None:
        """Load the newest sound snapshot at or before `end_offset` into `states`, or clear them at `start_offset`."""
        for offset in reversed([offset for offset in self._offsets if start_offset <= offset <= end_offset]):
            try:
                states.load_snapshot(self._disk.read_whole(self._make_snapshot_path(offset)), offset)
                return
            except CorruptSnapshot as error:
                logger.warning("%s is damaged, the log is read instead: %s", self._make_snapshot_path(offset), error)
                self.remove_snapshots([offset])
        states.clear_all_producers(start_offset)

    def remove_snapshots(self, offsets: Iterable[int]) -> None:
        """Remove the snapshots of these offsets."""
        for offset in offsets:
            self._disk.remove(self._make_snapshot_path(offset))
            self._offsets.remove(offset)
            self._unsynced.discard(offset)

    def remove_snapshots_after(self, offset: int) -> None:
        """Remove the snapshots behind `offset`, where the log was truncated."""
        self.remove_snapshots([other for other in self._offsets if other > offset])

    def remove_snapshots_before(self, offset: int) -> None:
        """Remove the snapshots of deleted segments."""
        self.remove_snapshots([other for other in self._offsets if other < offset])

    def remove_stray_snapshots(self, base_offsets: Sequence[int]) -> None:
        """Remove snapshots that belong to no segment, but keep that of a clean stop, at the end of the log."""
        strays = [offset for offset in self._offsets if offset not in base_offsets]
        if strays and base_offsets and strays[-1] > base_offsets[-1]:
            strays.pop()
        self.remove_snapshots(strays)

    def list_unsynced_paths(self) -> list[str]:
        """Return the paths of the snapshots that may not be synced."""
        return [self._make_snapshot_path(offset) for offset in sorted(self._unsynced)]

    def mark_synced(self) -> None:
        """Mark the files as synced. The caller syncs what `list_unsynced_paths` has returned."""
        self._unsynced.clear()

    def _make_snapshot_path(self, offset: int) -> str:
        return f"{self._directory}/{make_segment_name(offset)}{SNAPSHOT_SUFFIX}"


def replay_batch(
    states: ProducerStates, segment: Segment, position: int, header: BatchHeader
) -> AbortedTransaction | None:
    """Update `states` by a stored batch, if it has a producer id. Return the transaction that it aborts, or None.

    Raises `OSError`.
    """
    if header.producer_id < 0:
        return None
    if not header.is_control:
        states.apply_appended_batch(header, header.base_offset)
        return None
    marker = read_marker(read_stored_batch(segment.file, position, header))
    return states.end_transaction(header, header.base_offset, marker)


def replay_batches(states: ProducerStates, segments: Sequence[Segment], end_offset: int) -> None:
    """Update `states` by the batches from `states.end_offset` to `end_offset`. Raises `CorruptBatch`, `OSError`."""
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    for segment, segment_end in zip(segments, ends, strict=True):
        if segment_end <= states.end_offset:
            continue
        start = segment.find_position_of_offset(states.end_offset) if states.end_offset > segment.base_offset else 0
        for position, header in iterate_headers(segment.file, start, segment.size_bytes):
            if header.base_offset >= end_offset:
                break
            replay_batch(states, segment, position, header)
    states.end_offset = end_offset
