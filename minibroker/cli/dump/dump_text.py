"""The lines of `minibroker dump`: one for each batch, record, entry, note and damage.

`storage.inspection.inspected_files` reads the files; `dump_json` prints the same as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from minibroker.cli.dump.dump_records import DecodedKeyAndValue, DecodedMessage
from minibroker.protocol.legible import format_readable
from minibroker.protocol.records.batch import MAGIC, MAX_SEQUENCE, BatchHeader
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.walking import FoundBatch
from minibroker.quantities import format_instant
from minibroker.storage.inspection.index_inspection import (
    OffsetEntry,
    ProducerStateEntry,
    TimeEntry,
    TransactionEntry,
)
from minibroker.storage.inspection.inspected_files import InspectedFile, InspectedItem
from minibroker.storage.inspection.inspected_records import FoundRecord
from minibroker.storage.inspection.log_inspection import DamagedBytes, InspectionNote
from minibroker.storage.inspection.text_inspection import TextLine
from minibroker.storage.segment_indexes import NO_TIMESTAMP

SHOWN_BYTES = 200  # of a key or value: the rest is in --json


def make_head_line(inspected: InspectedFile, size_bytes: int) -> str:
    """Return the line about a file that is printed before what is in it."""
    start = "" if inspected.base_offset is None else f" from offset {inspected.base_offset}"
    return f"{_format_value_readably(inspected.path)}: {inspected.kind.value}{start}, {size_bytes} bytes"


def make_item_line(item: InspectedItem, decoded_record: DecodedKeyAndValue | None = None) -> str:
    """Return the line of an item; `decoded_record` is the meaning of a record, if known."""
    if isinstance(item, FoundRecord):
        return make_record_line(item, decoded_record)
    if isinstance(item, FoundBatch):
        return make_batch_line(item)
    if isinstance(item, DamagedBytes):
        return make_damage_line(item)
    if isinstance(item, InspectionNote):
        return f"note at {item.position}: {item.text}"
    if isinstance(item, TextLine):
        fields = ", ".join(
            f"{_format_value_readably(name.replace('_', ' '))} {_format_value_readably(value)}"
            for name, value in item.fields.items()
        )
        return f"  line at {item.position}: {fields}"
    return f"  entry at {item.position}: {_format_entry(item)}"


def get_kind_name(item: InspectedItem) -> str:
    """Return what the summary calls an item: `record`, `batch`, `damage`, `note`, `line` or `entry`."""
    if isinstance(item, FoundRecord):
        return "record"
    if isinstance(item, FoundBatch):
        return "batch"
    if isinstance(item, DamagedBytes):
        return "damage"
    return "note" if isinstance(item, InspectionNote) else "line" if isinstance(item, TextLine) else "entry"


def make_summary_line(counts: Mapping[str, int]) -> str:
    """Return the line with the number of items of each kind in a file; `counts` has them by `get_kind_name`."""
    plurals = {"batch": "batches", "entry": "entries"}
    found = [
        f"{count} {name if count == 1 else plurals.get(name, name + 's')}"
        for name, count in sorted(counts.items())
        if name not in ("note", "damage")
    ]
    damages = counts.get("damage", 0)
    return ", ".join([*(found or ["nothing"]), f"{damages or 'no'} damage{'s' if damages > 1 else ''}"])


def make_batch_line(batch: FoundBatch) -> str:
    """Return the line of a batch: its place and the fields of its header."""
    header = batch.header
    if header.magic < MAGIC:
        return _make_message_line(batch)
    records = f"{header.record_count} record{'' if header.record_count == 1 else 's'}"
    parts = [
        f"offset{_format_range(header.base_offset, header.last_offset)}",
        records,
        f"codec {get_codec_name(header)}",
    ]
    parts += [_format_timestamps(header), f"leader epoch {header.partition_leader_epoch}", *_format_producer(header)]
    parts += ["transactional"] * header.is_transactional + ["control"] * header.is_control
    if header.delete_horizon_ms is not None:
        parts.append(f"delete horizon {format_time(header.delete_horizon_ms)}")
    return f"batch at {batch.position}, {header.size_bytes} bytes: {', '.join(parts)}, crc {_format_crc(batch)}"


def _make_message_line(batch: FoundBatch) -> str:
    """Return the line of a message of format 0 or 1: its place and the fields of its header."""
    header = batch.header
    parts = [f"format {header.magic}", f"offset {header.base_offset}"]
    if header.compression:
        parts = [
            f"format {header.magic}",
            f"wrapper up to offset {header.base_offset}",
            f"codec {get_codec_name(header)}",
        ]
    parts += [_format_timestamps(header), f"crc {_format_crc(batch)}"]
    return f"message at {batch.position}, {header.size_bytes} bytes: {', '.join(parts)}"


def make_record_line(found_record: FoundRecord, decoded_record: DecodedKeyAndValue | None) -> str:
    """Return the line of a record, with its meaning if known, else its bytes."""
    record = found_record.record
    parts = [f"offset {record.offset}", format_time(record.timestamp)]
    if decoded_record is None:
        parts += [f"key {_format_bytes(record.key)}", f"value {_format_bytes(record.value)}"]
    else:
        parts.append(format_decoded_record(decoded_record))
    parts += [f"header {_format_value_readably(name)} {_format_bytes(value)}" for name, value in record.headers]
    where = f"{found_record.position} decompressed" if found_record.is_decompressed else found_record.position
    return f"  record at {where}, {found_record.size_bytes} bytes: {', '.join(parts)}"


def format_decoded_record(decoded_record: DecodedKeyAndValue) -> str:
    """Return a decoded record as text: its key, if that is a message, and its value."""
    key, value = decoded_record
    parts = [] if key is None else [_format_decoded_message(key)]
    return ", ".join([*parts, "tombstone" if value is None else _format_decoded_message(value)])


def make_damage_line(damage: DamagedBytes) -> str:
    """Return the line of a damage: what is broken, where, and what was expected."""
    offset = "" if damage.offset is None else f", offset {damage.offset}"
    passed = f"; {damage.size_bytes} bytes passed over" if damage.size_bytes else ""
    expected = f"expected {damage.expected}, found {damage.found}"
    return _format_value_readably(f"DAMAGE in {damage.path} at {damage.position}{offset}: {expected}{passed}")


def get_codec_name(header: BatchHeader) -> str:
    """Return the codec's name in `compression.type`, or its number if it is unknown."""
    known = header.compression in Compression._value2member_map_
    return Compression(header.compression).name.lower() if known else str(header.compression)


def format_time(timestamp_ms: int) -> str:
    """Return a timestamp in UTC, or the number if it is no valid time."""
    if timestamp_ms < 0:
        return "no time" if timestamp_ms == NO_TIMESTAMP else str(timestamp_ms)
    return format_instant(timestamp_ms)


def _format_range(first: int, last: int) -> str:
    return f" {first}" if first == last else f"s {first} to {last}"


def _format_timestamps(header: BatchHeader) -> str:
    if header.timestamp_type:
        return f"append time {format_time(header.max_timestamp)}"
    first, last = format_time(header.base_timestamp), format_time(header.max_timestamp)
    if header.delete_horizon_ms is not None:
        return f"create time up to {last}"
    return f"create time {first}" if first == last else f"create time {first} to {last}"


def _format_producer(header: BatchHeader) -> list[str]:
    if header.producer_id < 0:
        return ["no producer id"]
    sequences = (
        f"sequence{_format_range(header.base_sequence, header.last_sequence)}" if header.base_sequence >= 0 else ""
    )
    return [f"producer {header.producer_id} epoch {header.producer_epoch} {sequences}".rstrip()]


def _format_crc(batch: FoundBatch) -> str:
    stored = f"{batch.header.crc:#010x}"
    return f"{stored} ok" if batch.is_sound else f"{stored} WRONG, computed {batch.computed_crc:#010x}"


def _format_bytes(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = '"' + format_readable(data[:SHOWN_BYTES]).replace('"', '\\"') + '"'
    return text if len(data) <= SHOWN_BYTES else f"{text}... ({len(data)} bytes)"


def _format_value_readably(value: Any) -> str:
    return format_readable(str(value).encode("utf-8", "surrogateescape"))


def _format_decoded_message(message: DecodedMessage) -> str:
    version = "" if message.version is None else f" v{message.version}"
    return f"{message.name}{version} {_format_value_readably(json.dumps(message.fields, ensure_ascii=False))}"


def _format_entry(entry: OffsetEntry | TimeEntry | TransactionEntry | ProducerStateEntry) -> str:
    if isinstance(entry, OffsetEntry):
        return f"the batch that ends with offset {entry.offset} is at {entry.log_position}"
    if isinstance(entry, TimeEntry):
        return f"the largest time up to offset {entry.offset} is {format_time(entry.timestamp)}"
    if isinstance(entry, TransactionEntry):
        offsets = f"offsets {entry.first_offset} to {entry.last_offset}"
        return f"producer {entry.producer_id} aborted {offsets}, last stable offset {entry.last_stable_offset}"
    return _format_producer_state(entry)


def _format_producer_state(entry: ProducerStateEntry) -> str:
    parts = [f"producer {entry.producer_id} epoch {entry.producer_epoch}"]
    if entry.last_offset >= 0:
        first = (entry.last_sequence - entry.offset_delta) & MAX_SEQUENCE
        parts.append(
            f"last batch up to offset {entry.last_offset} with sequence{_format_range(first, entry.last_sequence)}"
        )
    parts.append(format_time(entry.timestamp))
    if entry.transaction_first_offset >= 0:
        parts.append(f"in a transaction from offset {entry.transaction_first_offset} on")
    if entry.coordinator_epoch >= 0:
        parts.append(f"coordinator epoch {entry.coordinator_epoch}")
    return ", ".join(parts)
