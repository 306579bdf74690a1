"""Reading the records of one batch of format 2 one by one, to say in words what is wrong with them.

Which batches to look at so closely is found out in `records.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.batch import ELIDED_BIT, LOG_APPEND_TIME, BatchHeader
from minibroker.protocol.records.record import Malformed, Record, read_record
from minibroker.protocol.records.restarting import restored
from minibroker.protocol.records.varints import Bytes, MalformedVarint


class Unreadable(ValueError):
    """Records that cannot be read: `kind` is that of the finding, the message its detail."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


def what_is_wrong(payload: Bytes, header: BatchHeader, *, compacted: bool) -> tuple[str, str] | None:
    """(kind, detail) of the first thing that is wrong, None if nothing is."""
    try:
        records = list(read_records(payload, header))
    except Unreadable as error:
        return error.kind, str(error)
    before, last_delta = -1, header.last_offset_delta
    for place, record in enumerate(records):
        expected = f"between {before + 1} and {last_delta}" if compacted else str(place)
        delta = record.offset - header.base_offset
        if not before < delta <= last_delta or not compacted and delta != place:
            return "record-offset", f"record {place} has offset delta {delta}, expected {expected}"
        before = delta
    if not compacted and len(records) != last_delta + 1:
        return "record-count", f"{len(records)} records, the last offset delta is {last_delta}"
    largest = max((record.timestamp for record in records), default=header.max_timestamp)
    if header.timestamp_type == LOG_APPEND_TIME or header.max_timestamp == largest:
        return None
    return "max-timestamp", f"{header.max_timestamp} in the header, {largest} in the records"


def read_records(payload: Bytes, header: BatchHeader) -> Iterator[Record]:
    """The records of a payload, with the times that they bear themselves.

    Raises `Unreadable` at the first that is malformed, and for a wrong count.
    """
    if header.attributes & ELIDED_BIT:
        try:
            payload = restored(bytes(payload), header.record_count)
        except KafkaError as error:
            raise Unreadable("record", str(error)) from error
    position = 0
    for place in range(header.record_count):
        if position == len(payload):
            detail = f"{header.record_count} records in the header, {place} in the batch"
            raise Unreadable("record-count", detail)
        try:
            record, position = read_record(payload, position, header, None)
        except (MalformedVarint, Malformed) as error:
            raise Unreadable("record", f"record {place}: {error}") from error
        yield record
    if position != len(payload):
        left = len(payload) - position
        raise Unreadable("record-count", f"{left} bytes are left behind the {header.record_count} records")
