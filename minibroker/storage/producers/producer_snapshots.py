"""The `.snapshot` files of one log's producer states: which there are, taking one, starting from the best one.

What a state is and when it changes is `producer_state.py`'s business. A snapshot's name is the offset it was taken at.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from minibroker.protocol.records.batch import BatchHeader
from minibroker.storage.batch_scanning import headers, stored_batch
from minibroker.storage.files import Disk
from minibroker.storage.names import SNAPSHOT_SUFFIX, segment_name
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

    def take(self, states: ProducerStates, start_offset: int, *, sync: bool = True) -> bool:
        """Write the state down, unless there is a snapshot of its offset, or the log only begins there; whether it did.

        Without `sync` the next flush need not sync it: its checksum tells a start that a power cut has spoilt it.
        """
        if states.end_offset <= start_offset or states.end_offset in self._offsets:
            return False
        self._disk.write_whole(self._path(states.end_offset), states.snapshot(), sync=False)
        self._offsets = sorted((*self._offsets, states.end_offset))
        if sync:
            self._unsynced.add(states.end_offset)
        return True

    def load(self, states: ProducerStates, start_offset: int, end_offset: int) -> None:
        """Set `states` to the newest good snapshot at or before `end_offset`, or to nothing at `start_offset`."""
        for offset in reversed([offset for offset in self._offsets if start_offset <= offset <= end_offset]):
            try:
                states.load(self._disk.read_whole(self._path(offset)), offset)
                return
            except CorruptSnapshot as error:
                logger.warning("%s is of no use, the log is read instead: %s", self._path(offset), error)
                self.remove([offset])
        states.clear(start_offset)

    def remove(self, offsets: Iterable[int]) -> None:
        """Remove the snapshots of these offsets."""
        for offset in offsets:
            self._disk.remove(self._path(offset))
            self._offsets.remove(offset)
            self._unsynced.discard(offset)

    def remove_after(self, offset: int) -> None:
        """Remove the snapshots of a future that was cut off."""
        self.remove([other for other in self._offsets if other > offset])

    def remove_before(self, offset: int) -> None:
        """Remove the snapshots of segments that are no more."""
        self.remove([other for other in self._offsets if other < offset])

    def remove_strays(self, base_offsets: Sequence[int]) -> None:
        """Remove those that belong to no segment, but keep the newest one: a clean stop leaves it at the log's end."""
        strays = [offset for offset in self._offsets if offset not in base_offsets]
        if strays and base_offsets and strays[-1] > base_offsets[-1]:
            strays.pop()
        self.remove(strays)

    def unsynced_paths(self) -> list[str]:
        """The paths of the snapshots that may not be on the disk itself."""
        return [self._path(offset) for offset in sorted(self._unsynced)]

    def note_synced(self) -> None:
        """The caller sees to the sync of what `unsynced_paths` gave."""
        self._unsynced.clear()

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{segment_name(offset)}{SNAPSHOT_SUFFIX}"


def note_stored(
    states: ProducerStates, segment: Segment, position: int, header: BatchHeader
) -> AbortedTransaction | None:
    """Take in a batch that lies in a segment, if a producer with an id wrote it; the transaction that it aborts.

    Raises `OSError`.
    """
    if header.producer_id < 0:
        return None
    if not header.is_control:
        states.update(header, header.base_offset)
        return None
    marker = read_marker(stored_batch(segment.file, position, header))
    return states.end_transaction(header, header.base_offset, marker)


def replay(states: ProducerStates, segments: Sequence[Segment], end_offset: int) -> None:
    """Bring `states` from its own offset to `end_offset` by reading on there. Raises `CorruptBatch`, `OSError`."""
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    for segment, segment_end in zip(segments, ends, strict=True):
        if segment_end <= states.end_offset:
            continue
        start = segment.position_of(states.end_offset) if states.end_offset > segment.base_offset else 0
        for position, header in headers(segment.file, start, segment.size_bytes):
            if header.base_offset >= end_offset:
                break
            note_stored(states, segment, position, header)
    states.end_offset = end_offset
