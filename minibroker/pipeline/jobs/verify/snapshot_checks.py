"""Checks `.snapshot` files, in which a broker stores its producers' states, by themselves and against the log.

int16 version (1)   uint32 CRC-32C of the rest   int32 entries
entry: int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta, int64 timestamp,
       int32 coordinator epoch, int64 first offset of the open transaction
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from minibroker.pipeline.jobs.verify.findings import Problem
from minibroker.pipeline.jobs.verify.producer_checks import MAX_SEQUENCE, State
from minibroker.protocol.records.crc import crc32c

VERSION = 1
_HEAD = Struct(">hIi")
_CRC_END = 6
_ENTRY = Struct(">qhiqiqiq")


class SnapshotEntry(NamedTuple):
    """An entry of a snapshot, about one producer."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


def read_snapshot(path: Path) -> tuple[list[SnapshotEntry], list[Problem]]:
    """Return the entries of a snapshot, and the problems of the file by itself. Raises `OSError`."""
    data = path.read_bytes()
    if len(data) < _HEAD.size:
        return [], [Problem("snapshot", 0, -1, f"{len(data)} bytes, less than its header")]
    version, stored, count = _HEAD.unpack_from(data)
    if version != VERSION:
        return [], [Problem("snapshot", 0, -1, f"version {version}")]
    computed = crc32c(memoryview(data)[_CRC_END:])
    if stored != computed:
        return [], [Problem("snapshot", 0, -1, f"checksum {stored:08x}, computed {computed:08x}")]
    if count * _ENTRY.size != len(data) - _HEAD.size:
        return [], [Problem("snapshot", 0, -1, f"{count} entries in {len(data)} bytes")]
    return [SnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :])], []


def wrong_states(
    entries: list[SnapshotEntry],
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
    for place, entry in enumerate(entries):
        position = _HEAD.size + place * _ENTRY.size
        state = states.get(entry.producer_id)
        if state is not None and state.missing != missing:
            continue  # its last batch may have been compacted away
        said = _difference(entry, state, opened, start, compacted)
        if said:
            yield Problem("snapshot-state", position, entry.last_offset, f"producer {entry.producer_id}: {said}")


def _difference(
    entry: SnapshotEntry, state: State | None, opened: Mapping[int, int], start: int, compacted: bool
) -> str:
    if state is None:
        return "the log has nothing of it" if entry.last_offset >= start and not compacted else ""
    if entry.epoch != state.epoch:
        return f"epoch {entry.epoch}, in the log {state.epoch}"
    sequence_known = entry.last_sequence >= 0 and state.expected is not None and state.last_offset >= 0
    if sequence_known and (entry.last_sequence + 1) & MAX_SEQUENCE != state.expected:
        return f"last sequence {entry.last_sequence}, by the log {state.expected} is next"
    if sequence_known and entry.last_offset != state.last_offset:
        return f"last offset {entry.last_offset}, in the log {state.last_offset}"
    first = opened.get(entry.producer_id, -1)
    if entry.transaction_first_offset != first and not compacted and not -1 < entry.transaction_first_offset < start:
        return f"a transaction open since {entry.transaction_first_offset}, in the log {first}"
    return ""
