"""Explains the files of a log directory byte by byte, as `protocol.explaining` does for frames.

`dump` shows the same files entry by entry, and compares them with each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from minibroker.protocol.explaining.meanings import moment
from minibroker.protocol.explaining.messages import explain_records
from minibroker.protocol.explaining.parts import Cursor, Part, Unreadable
from minibroker.protocol.records.crc import crc32c
from minibroker.storage.inspection.index_inspection import SNAPSHOT_CRC_START, ProducerStateEntry, TransactionEntry
from minibroker.storage.inspection.inspected_files import InspectedFile, Kind
from minibroker.storage.inspection.text_inspection import ABORTED_COLUMNS, EPOCH_COLUMNS, OFFSET_COLUMNS, json_fields
from minibroker.storage.producers.aborted_transactions import TRANSACTION_ENTRY
from minibroker.storage.producers.producer_state import SNAPSHOT_ENTRY
from minibroker.storage.segment_indexes import OffsetIndex, TimeIndex

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


def explain_file(data: bytes, inspected: InspectedFile, topic: str | None = None, start: int = 0) -> Part:
    """Explain the content of a file, which its name says the kind of. The topic is by default that of its directory.

    `start` is where the data begins in the file: with a batch, or with an entry of an index.
    """
    if inspected.kind in (Kind.LOG, Kind.METADATA_SNAPSHOT):
        whole = explain_records(data, topic=topic or inspected.topic)
        whole.name, whole.type = inspected.kind.value, "file"
        return whole
    cursor = Cursor(data)
    with cursor.part(inspected.kind.value, "file") as whole, cursor.contained(whole):
        _EXPLAINED[inspected.kind](cursor, inspected.base_offset or 0, start)
    return whole


def _entries(cursor: Cursor, packing: Struct, names: Sequence[str], start: int = 0) -> list[list[Part]]:
    """Explain all entries of one size up to the end, or to the zeros that Kafka reserves for later ones."""
    first = start // packing.size
    codes = packing.format.lstrip(">")
    entries: list[list[Part]] = []
    while cursor.left_bytes:
        if not any(memoryview(cursor.data)[cursor.position : cursor.end]):
            with cursor.part("reserved", "bytes") as part:
                part.meaning = "zeros, for later entries"
                cursor.position = cursor.end
            return entries
        with cursor.part(f"entry [{first + len(entries)}]", "entry"):
            entries.append([_number(cursor, name, code) for name, code in zip(names, codes, strict=True)])
    return entries


def _number(cursor: Cursor, name: str, code: str) -> Part:
    with cursor.part(name, _TYPES[code]) as part:
        part.value = cursor.number(Struct(f">{code}"))
    return part


def _offset_index(cursor: Cursor, base_offset: int, start: int) -> None:
    for offset, position in _entries(cursor, OffsetIndex.ENTRY, ("relative_offset", "position"), start):
        offset.meaning = f"offset {base_offset + offset.value}, with which a batch ends"
        position.meaning = "of that batch in the .log file"


def _time_index(cursor: Cursor, base_offset: int, start: int) -> None:
    for timestamp, offset in _entries(cursor, TimeIndex.ENTRY, ("timestamp", "relative_offset"), start):
        timestamp.meaning = moment(timestamp.value)
        offset.meaning = f"offset {base_offset + offset.value}: none up to it has a larger timestamp"


def _transaction_index(cursor: Cursor, base_offset: int, start: int) -> None:
    _entries(cursor, TRANSACTION_ENTRY, TransactionEntry._fields[1:], start)


def _producer_snapshot(cursor: Cursor, base_offset: int, start: int) -> None:
    _, crc, _ = (_number(cursor, name, code) for name, code in _SNAPSHOT_HEAD)
    computed = crc32c(memoryview(cursor.data)[SNAPSHOT_CRC_START : cursor.end])
    crc.meaning = "right" if crc.value == computed else f"WRONG: the bytes have {computed}"
    for entry in _entries(cursor, SNAPSHOT_ENTRY, ProducerStateEntry._fields[1:]):
        for part in entry:
            part.meaning = moment(part.value) if part.name == "timestamp" else "none" if part.value == -1 else ""


def _lines(cursor: Cursor, columns: Sequence[str]) -> None:
    """Explain a checkpoint: a version, the number of rows, and the rows."""
    names, data = iter(("version", "rows")), bytes(cursor.data)
    while cursor.left_bytes:
        with cursor.part(next(names, "row"), "line") as part:
            part.value = _line(cursor, data)
            if part.name == "row":
                words = zip(columns, part.value.split(), strict=False)
                part.meaning = ", ".join(f"{column} {word}" for column, word in words)


def _line(cursor: Cursor, data: bytes) -> str:
    """Read a line of the cursor's data, with its end."""
    found = data.find(b"\n", cursor.position, cursor.end)
    start, end = cursor.position, cursor.end if found < 0 else found
    cursor.position = min(end + 1, cursor.end)
    return data[start:end].decode(errors="replace")


def _properties(cursor: Cursor, base_offset: int, start: int) -> None:
    data = bytes(cursor.data)
    while cursor.left_bytes:
        with cursor.part("property", "line") as part:
            part.value = _line(cursor, data)
            if part.value.startswith("#"):
                part.name = "comment"


def _json(cursor: Cursor, base_offset: int, start: int) -> None:
    import json  # a slow import

    try:
        fields = list(json_fields(bytes(cursor.data)))
    except ValueError as error:
        raise Unreadable(f"no JSON object: {error}") from None
    for _, end, key, value in fields:
        with cursor.part(key, "JSON") as part:
            part.value = value if isinstance(value, str | int) else json.dumps(value)
            part.about, cursor.position = _ABOUT_JSON.get(key, ""), end
    if fields:
        with cursor.part("end", "JSON"):
            cursor.position = cursor.end


ENTRY_BYTES: Final = {
    Kind.OFFSET_INDEX: OffsetIndex.ENTRY.size,
    Kind.TIME_INDEX: TimeIndex.ENTRY.size,
    Kind.TRANSACTION_INDEX: TRANSACTION_ENTRY.size,
}
"""The size of an entry of each index, in which a file may be read from any entry on."""

_EXPLAINED: Final[dict[Kind, Callable[[Cursor, int, int], None]]] = {
    Kind.OFFSET_INDEX: _offset_index,
    Kind.TIME_INDEX: _time_index,
    Kind.TRANSACTION_INDEX: _transaction_index,
    Kind.PRODUCER_SNAPSHOT: _producer_snapshot,
    Kind.LEADER_EPOCHS: lambda cursor, *_: _lines(cursor, EPOCH_COLUMNS),
    Kind.OFFSETS: lambda cursor, *_: _lines(cursor, OFFSET_COLUMNS),
    Kind.ABORTED_COUNTS: lambda cursor, *_: _lines(cursor, ABORTED_COLUMNS),
    Kind.PARTITION_METADATA: _properties,
    Kind.META_PROPERTIES: _properties,
    Kind.QUORUM_STATE: _json,
    Kind.CLEAN_SHUTDOWN: _json,
}
