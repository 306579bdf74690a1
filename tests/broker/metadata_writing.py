"""Metadata as another controller would have written it: batches for the log and for snapshots, made here for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from minibroker.protocol.declare import Message
from minibroker.protocol.messages.control_records import SnapshotFooterRecord, SnapshotHeaderRecord
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.control import make_control_record
from minibroker.protocol.records.metadata_values import encode_metadata_record
from minibroker.protocol.records.record import Record

LEVEL = 30  # of metadata.version
HEADER, FOOTER = (
    bytes(build_batch([make_control_record(kind, timestamp=0)], control=True))
    for kind in (SnapshotHeaderRecord(), SnapshotFooterRecord())
)


def batch_of(messages: Sequence[Message], *, base_offset: int = 0, leader_epoch: int = 1) -> bytes:
    """One batch with these records."""
    records = [Record(0, 0, None, encode_metadata_record(message, LEVEL), ()) for message in messages]
    return bytes(build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch))


def snapshot_of(messages: Sequence[Message]) -> bytes:
    """A whole snapshot with these records."""
    return HEADER + batch_of(messages) + FOOTER


def write_snapshot(directory: Path, end_offset: int, leader_epoch: int, content: bytes) -> Path:
    """The snapshot file in the directory of a metadata log."""
    path = directory / f"{end_offset:020d}-{leader_epoch:010d}.checkpoint"
    path.write_bytes(content)
    return path
