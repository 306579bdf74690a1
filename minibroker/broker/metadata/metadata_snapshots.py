"""Kafka's snapshots of the metadata: `<end offset, 20 digits>-<epoch, 10 digits>.checkpoint` beside the metadata log.

A snapshot replaces all records below its end offset, so the log below it may be deleted. It is a sequence of batches
like the log; the first record is a header, and the last one a footer, without which the file is incomplete.
`bootstrap.checkpoint`, which `kafka-storage format` writes, has the same format.

     control batch   SnapshotHeader, with kraft.version 1 also KRaftVersion and KRaftVoters
     batches         metadata records, offsets from 0 on
     control batch   SnapshotFooter
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.messages.control_records import KRaftVersionRecord
from minibroker.protocol.records.batch import check_batch, iterate_batches
from minibroker.protocol.records.control import ControlType, decode_control_message, decode_control_type
from minibroker.protocol.records.record import Record
from minibroker.protocol.records.varints import Bytes
from minibroker.storage.files import Disk

log = logging.getLogger("minibroker.metadata")

BOOTSTRAP = "bootstrap.checkpoint"
_NAME = re.compile(r"(?P<end_offset>[0-9]{20})-(?P<leader_epoch>[0-9]{10})\.checkpoint")


class Snapshot(NamedTuple):
    """The replacement of the log below `end_offset`, whose last record was written in `leader_epoch`."""

    path: str
    end_offset: int
    leader_epoch: int
    data: bytes


def find_newest_snapshot(disk: Disk, directory: str) -> Snapshot | None:
    """Return the newest complete snapshot in a directory; warn of newer, incomplete ones. Raises `OSError`."""
    for match in filter(None, map(_NAME.fullmatch, reversed(disk.list_names(directory)))):
        path = f"{directory}/{match[0]}"
        data = disk.read_whole(path)
        reason = find_snapshot_incompleteness(data)
        if reason is None:
            return Snapshot(path, int(match["end_offset"]), int(match["leader_epoch"]), data)
        log.warning("the snapshot %s is skipped: %s", path, reason)
    return None


def iterate_record_values_in(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, value) of the records in complete batches, without control batches. Raises KafkaError."""
    for position, header in iterate_batches(data):
        check_batch(data, position)
        if not header.is_control:
            for record in _iterate_records(memoryview(data)[position : position + header.size_bytes]):
                yield record.offset, record.value or b""


def _iterate_records(batch: Bytes) -> Iterator[Record]:
    from minibroker.protocol.records.payload import iterate_records_of_batch  # a new cluster has nothing to read

    return iterate_records_of_batch(batch)


def find_kraft_version(data: bytes, previous_level: int) -> int:
    """Return the level of kraft.version after the control batches among complete batches. Raises KafkaError."""
    level = previous_level
    for position, header in iterate_batches(data):
        if header.is_control:
            for record in _iterate_records(memoryview(data)[position : position + header.size_bytes]):
                if decode_control_type(record.key) == ControlType.KRAFT_VERSION:
                    message = decode_control_message(record)
                    level = message.k_raft_version if isinstance(message, KRaftVersionRecord) else level
    return level


def find_snapshot_incompleteness(data: bytes) -> str | None:
    """Return why these bytes are not a complete snapshot, or None."""
    end, last = 0, None
    try:
        for position, header in iterate_batches(data):
            check_batch(data, position)
            end = position + header.size_bytes
            last = data[position:end] if header.is_control else None
        footer = last is not None and [decode_control_type(record.key) for record in _iterate_records(last)][-1]
    except KafkaError as error:
        return str(error)
    if end < len(data):
        return f"its last batch, at {end}, is torn"
    return None if footer == ControlType.SNAPSHOT_FOOTER else "it does not end with a footer"
