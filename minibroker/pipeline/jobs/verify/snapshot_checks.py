"""Checks `.snapshot` files, in which a broker stores its producers' states, by themselves and against the log.

Their format is described in `storage/producers/producer_state.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from minibroker.pipeline.jobs.verify.findings import Problem
from minibroker.pipeline.jobs.verify.producer_checks import MAX_SEQUENCE, State
from minibroker.protocol.records.crc import crc32c
from minibroker.storage.inspection.index_inspection import SNAPSHOT_CRC_START, SNAPSHOT_HEAD, ProducerStateEntry
from minibroker.storage.producers.producer_state import SNAPSHOT_ENTRY, SNAPSHOT_VERSION


def read_snapshot(path: Path) -> tuple[list[ProducerStateEntry], list[Problem]]:
    """Return the entries of a snapshot, and the problems of the file by itself. Raises `OSError`."""
    data = path.read_bytes()
    if len(data) < SNAPSHOT_HEAD.size:
        return [], [Problem("snapshot", 0, -1, f"{len(data)} bytes, less than its header")]
    version, stored, count = SNAPSHOT_HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        return [], [Problem("snapshot", 0, -1, f"version {version}")]
    computed = crc32c(memoryview(data)[SNAPSHOT_CRC_START:])
    if stored != computed:
        return [], [Problem("snapshot", 0, -1, f"checksum {stored:08x}, computed {computed:08x}")]
    if count * SNAPSHOT_ENTRY.size != len(data) - SNAPSHOT_HEAD.size:
        return [], [Problem("snapshot", 0, -1, f"{count} entries in {len(data)} bytes")]
    rows = enumerate(SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[SNAPSHOT_HEAD.size :]))
    return [ProducerStateEntry(SNAPSHOT_HEAD.size + place * SNAPSHOT_ENTRY.size, *row) for place, row in rows], []


def wrong_states(
    entries: list[ProducerStateEntry],
    states: Mapping[int, State],
    opened: Mapping[int, int],
    *,
    start: int,
    compacted: bool,
    missing: int,
) -> Iterator[Problem]:
    """Yield where a snapshot differs from the log up to its offset. `missing` is that of `State`, up to there.

    An expired producer may be only in the log. If retention or compaction has removed records of a producer, only the
    remaining ones count.
    """
    for entry in entries:
        state = states.get(entry.producer_id)
        if state is not None and state.missing != missing:
            continue  # its last batch may have been compacted away
        said = _difference(entry, state, opened, start, compacted)
        if said:
            yield Problem("snapshot-state", entry.position, entry.last_offset, f"producer {entry.producer_id}: {said}")


def _difference(
    entry: ProducerStateEntry, state: State | None, opened: Mapping[int, int], start: int, compacted: bool
) -> str:
    if state is None:
        return "the log has nothing of it" if entry.last_offset >= start and not compacted else ""
    if entry.producer_epoch != state.epoch:
        return f"epoch {entry.producer_epoch}, in the log {state.epoch}"
    sequence_known = entry.last_sequence >= 0 and state.expected is not None and state.last_offset >= 0
    if sequence_known and (entry.last_sequence + 1) & MAX_SEQUENCE != state.expected:
        return f"last sequence {entry.last_sequence}, by the log {state.expected} is next"
    if sequence_known and entry.last_offset != state.last_offset:
        return f"last offset {entry.last_offset}, in the log {state.last_offset}"
    first = opened.get(entry.producer_id, -1)
    if entry.transaction_first_offset != first and not compacted and not -1 < entry.transaction_first_offset < start:
        return f"a transaction open since {entry.transaction_first_offset}, in the log {first}"
    return ""
