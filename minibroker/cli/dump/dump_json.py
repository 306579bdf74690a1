"""The objects of `minibroker dump --json`: one for each file, batch, record, entry, note and damage.

Numbers stay numbers, and times are in ms since 1970. `dump_text` prints the same for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from os.path import abspath, basename, dirname
from typing import Any

from minibroker.cli.dump.dump_records import DecodedKeyAndValue, make_decoded_record_object
from minibroker.cli.dump.dump_text import get_codec_name
from minibroker.cli.shared import make_bytes_field
from minibroker.protocol.records.batch import MAGIC, BatchHeader
from minibroker.protocol.records.walking import FoundBatch
from minibroker.storage.inspection.inspected_files import InspectedFile, InspectedItem
from minibroker.storage.inspection.inspected_records import FoundRecord
from minibroker.storage.inspection.log_inspection import DamagedBytes, InspectionNote
from minibroker.storage.inspection.text_inspection import TextLine
from minibroker.storage.names import parse_log_name

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


def make_head_object(inspected: InspectedFile, size_bytes: int) -> dict[str, Any]:
    """Return the JSON object about a file that is printed before what is in it."""
    kind = inspected.kind.name.lower()
    base = {"type": "file", "path": inspected.path, "kind": kind, "size_bytes": size_bytes}
    place = parse_log_name(basename(dirname(abspath(inspected.path))))
    partition = None if place is None else place[1]
    return {**base, "topic": inspected.topic, "partition": partition, "base_offset": inspected.base_offset}


def make_totals_object(files: int, total: Mapping[str, int], damaged: Mapping[str, int]) -> dict[str, Any]:
    """Return the JSON object that is printed after several files: the counts of all, and of damages by damaged file."""
    counts = {"batches": total.get("batch", 0), "records": total.get("record", 0), "damages": total.get("damage", 0)}
    return {"type": "total", "files": files, **counts, "damaged": dict(damaged)}


def make_item_object(item: InspectedItem, decoded_record: DecodedKeyAndValue | None = None) -> dict[str, Any]:
    """Return the JSON object of an item; `decoded_record` is the meaning of a record, if known."""
    if isinstance(item, FoundBatch):
        return _make_batch_object(item)
    if isinstance(item, FoundRecord):
        return _make_record_object(item, decoded_record)
    if isinstance(item, TextLine):
        return {"type": "line", **item._asdict()}
    kind = "damage" if isinstance(item, DamagedBytes) else "note" if isinstance(item, InspectionNote) else "entry"
    return {"type": kind, **item._asdict()}


def _make_batch_object(batch: FoundBatch) -> dict[str, Any]:
    header = batch.header
    return {
        "type": "batch",
        "position": batch.position,
        "size_bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": _get_record_count(header),
        "leader_epoch": header.partition_leader_epoch,
        "magic": header.magic,
        "codec": get_codec_name(header),
        "timestamp_type": TIMESTAMP_TYPES[header.timestamp_type],
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "delete_horizon_ms": header.delete_horizon_ms,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "crc": header.crc,
        "computed_crc": batch.computed_crc,
    }


def _make_record_object(found_record: FoundRecord, decoded_record: DecodedKeyAndValue | None) -> dict[str, Any]:
    record = found_record.record
    return {
        "type": "record",
        "position": found_record.position,
        "size_bytes": found_record.size_bytes,
        "decompressed": found_record.is_decompressed,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **make_bytes_field("key", record.key),
        **make_bytes_field("value", record.value),
        "headers": [{"name": name, **make_bytes_field("value", content)} for name, content in record.headers],
        **({} if decoded_record is None else make_decoded_record_object(decoded_record)),
    }


def _get_record_count(header: BatchHeader) -> int | None:
    """Return the count, or None for a wrapper of format 0 or 1, which would have to be decompressed."""
    return None if header.magic < MAGIC and header.compression else header.record_count
