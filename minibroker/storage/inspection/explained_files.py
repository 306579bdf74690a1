"""Explains the files of a log directory byte by byte, as `protocol.explaining` does for frames.

`inspected_files` has their layouts, and shows them entry by entry for `dump`, which compares them with each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from minibroker.protocol.explaining.meanings import format_timestamp
from minibroker.protocol.explaining.messages import explain_records
from minibroker.protocol.explaining.parts import ExplainedPart, PartCursor, UnreadablePart
from minibroker.protocol.records.crc import crc32c
from minibroker.storage.inspection.index_inspection import SNAPSHOT_CRC_START
from minibroker.storage.inspection.inspected_files import (
    LAYOUTS,
    CheckpointLayout,
    EntryLayout,
    FileKind,
    InspectedFile,
    JsonObject,
    PropertiesLayout,
)
from minibroker.storage.inspection.text_inspection import iterate_json_fields

_TYPES: Final = {"b": "int8", "h": "int16", "i": "int32", "I": "uint32", "q": "int64"}
_ABOUT_JSON: Final = {
    "leaderId": "The node that leads this epoch, -1 if none is known.",
    "leaderEpoch": "The newest epoch that this node knows; an older leader is refused.",
    "votedId": "The node that this one voted for in the epoch, -1 if for none: it votes once, also after a restart.",
    "votedDirectoryId": "The log directory of the node that this one voted for.",
    "appliedOffset": "Not used.",
    "currentVoters": "The voters, as controller.quorum.voters names them; later versions have them in the log.",
    "data_version": "1 if the voters are in the log (kraft.version 1), and 0 if they are here.",
    "brokerEpoch": "The epoch of the broker that stopped: its replicas count as complete if it comes back with it.",
}
_SNAPSHOT_HEAD: Final = (("version", "h"), ("crc", "I"), ("entries", "i"))

# The size of an entry of each index, in which a file may be read from any entry on.
ENTRY_BYTES: Final[dict[FileKind, int]] = {
    kind: layout.packing.size
    for kind, layout in LAYOUTS.items()
    if isinstance(layout, EntryLayout) and kind is not FileKind.PRODUCER_SNAPSHOT
}


def explain_file(data: bytes, inspected: InspectedFile, topic: str | None = None, start: int = 0) -> ExplainedPart:
    """Explain the content of a file of the kind that its name says. The topic is by default that of its directory.

    `start` is where the data begins in the file: with a batch, or with an entry of an index.
    """
    if inspected.kind in (FileKind.LOG, FileKind.METADATA_SNAPSHOT):
        whole = explain_records(data, topic=topic or inspected.topic)
        whole.name, whole.type = inspected.kind.value, "file"
        return whole
    cursor = PartCursor(data)
    with cursor.add_part(inspected.kind.value, "file") as whole, cursor.limit_cursor_to_part(whole):
        match LAYOUTS[inspected.kind]:
            case EntryLayout() as layout:
                _explain_entries(cursor, layout, inspected, start)
            case CheckpointLayout(columns):
                _explain_lines(cursor, columns)
            case PropertiesLayout():
                _explain_properties(cursor)
            case JsonObject():
                _explain_json(cursor)
    return whole


def _explain_fixed_size_entries(cursor: PartCursor, layout: EntryLayout, start: int) -> list[list[ExplainedPart]]:
    """Explain all entries of one size up to the end, or to the zeros that Kafka reserves for later ones."""
    first = start // layout.packing.size
    codes = layout.packing.format.lstrip(">")
    entries: list[list[ExplainedPart]] = []
    while cursor.left_bytes:
        if not any(memoryview(cursor.data)[cursor.position : cursor.end]):
            with cursor.add_part("reserved", "bytes") as part:
                part.meaning = "zeros, for later entries"
                cursor.position = cursor.end
            return entries
        with cursor.add_part(f"entry [{first + len(entries)}]", "entry"):
            entries.append(
                [_explain_number(cursor, name, code) for name, code in zip(layout.names, codes, strict=True)]
            )
    return entries


def _explain_number(cursor: PartCursor, name: str, code: str) -> ExplainedPart:
    """Add the part of a number with this `struct` format letter."""
    with cursor.add_part(name, _TYPES[code]) as part:
        part.value = cursor.read_number(Struct(f">{code}"))
    return part


def _explain_entries(cursor: PartCursor, layout: EntryLayout, inspected: InspectedFile, start: int) -> None:
    """Explain the entries of an index or a producer snapshot."""
    base_offset = inspected.base_offset or 0
    if inspected.kind is FileKind.PRODUCER_SNAPSHOT:
        _explain_snapshot_head(cursor)
    for entry in _explain_fixed_size_entries(cursor, layout, start):
        if inspected.kind is FileKind.OFFSET_INDEX:
            offset, position = entry
            offset.meaning = f"offset {base_offset + offset.value}, with which a batch ends"
            position.meaning = "of that batch in the .log file"
        elif inspected.kind is FileKind.TIME_INDEX:
            timestamp, offset = entry
            timestamp.meaning = format_timestamp(timestamp.value)
            offset.meaning = f"offset {base_offset + offset.value}: none up to it has a larger timestamp"
        elif inspected.kind is FileKind.PRODUCER_SNAPSHOT:
            for part in entry:
                part.meaning = (
                    format_timestamp(part.value) if part.name == "timestamp" else "none" if part.value == -1 else ""
                )


def _explain_snapshot_head(cursor: PartCursor) -> None:
    """Explain the version, the checksum and the count of a producer snapshot."""
    _, crc, _ = (_explain_number(cursor, name, code) for name, code in _SNAPSHOT_HEAD)
    computed = crc32c(memoryview(cursor.data)[SNAPSHOT_CRC_START : cursor.end])
    crc.meaning = "right" if crc.value == computed else f"WRONG: the bytes have {computed}"


def _explain_lines(cursor: PartCursor, columns: Sequence[str]) -> None:
    """Explain a checkpoint: a version, the number of rows, and the rows."""
    names, data = iter(("version", "rows")), bytes(cursor.data)
    while cursor.left_bytes:
        with cursor.add_part(next(names, "row"), "line") as part:
            part.value = _read_text_line(cursor, data)
            if part.name == "row":
                words = zip(columns, part.value.split(), strict=False)
                part.meaning = ", ".join(f"{column} {word}" for column, word in words)


def _read_text_line(cursor: PartCursor, data: bytes) -> str:
    """Read a line of the cursor's data, with its end."""
    found = data.find(b"\n", cursor.position, cursor.end)
    start, end = cursor.position, cursor.end if found < 0 else found
    cursor.position = min(end + 1, cursor.end)
    return data[start:end].decode(errors="replace")


def _explain_properties(cursor: PartCursor) -> None:
    """Explain a properties file: a part for each line."""
    data = bytes(cursor.data)
    while cursor.left_bytes:
        with cursor.add_part("property", "line") as part:
            part.value = _read_text_line(cursor, data)
            if part.value.startswith("#"):
                part.name = "comment"


def _explain_json(cursor: PartCursor) -> None:
    """Explain a file with a JSON object: a part for each field."""
    import json  # a slow import

    try:
        fields = list(iterate_json_fields(bytes(cursor.data)))
    except ValueError as error:
        raise UnreadablePart(f"no JSON object: {error}") from None
    for _, end, key, value in fields:
        with cursor.add_part(key, "JSON") as part:
            part.value = value if isinstance(value, str | int) else json.dumps(value)
            part.about, cursor.position = _ABOUT_JSON.get(key, ""), end
    if fields:
        with cursor.add_part("end", "JSON"):
            cursor.position = cursor.end
