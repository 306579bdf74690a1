"""A file of a log directory for people: its kind, which follows from its name, and its content, in order.

`LAYOUTS` says what is in each kind of file besides logs. By it `iterate_file_contents` yields entry by entry, and what
is damaged; `explained_files` explains byte by byte.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from struct import Struct
from typing import Final, NamedTuple

from minibroker.protocol.records.compression import MAX_UNCOMPRESSED_BYTES
from minibroker.protocol.records.walking import FoundBatch
from minibroker.storage.checkpoints.checkpoint_texts import (
    ABORTED_TRANSACTIONS_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    MalformedCheckpoint,
    parse_leader_epochs,
)
from minibroker.storage.checkpoints.leader_epochs import LeaderEpochs
from minibroker.storage.files import Disk, File
from minibroker.storage.inspection.index_inspection import (
    Entry,
    OffsetEntry,
    ProducerStateEntry,
    TransactionEntry,
    iterate_offset_entries,
    iterate_snapshot_entries,
    iterate_time_entries,
    iterate_transaction_entries,
    iterate_undamaged_entries,
)
from minibroker.storage.inspection.index_verification import (
    IndexCheck,
    OffsetIndexCheck,
    TimeIndexCheck,
    TransactionIndexCheck,
)
from minibroker.storage.inspection.inspected_records import FoundRecord, iterate_inspected_records
from minibroker.storage.inspection.log_inspection import DamagedBytes, InspectionNote, LogInspection
from minibroker.storage.inspection.text_inspection import (
    ABORTED_COLUMNS,
    EPOCH_COLUMNS,
    OFFSET_COLUMNS,
    TextLine,
    iterate_checkpoint_lines,
    iterate_json_lines,
    iterate_property_lines,
)
from minibroker.storage.names import (
    CLEAN_SHUTDOWN,
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    QUORUM_STATE,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    list_offsets_with_suffix,
    parse_base_offset,
    parse_log_name,
)
from minibroker.storage.producers.aborted_transactions import TRANSACTION_ENTRY
from minibroker.storage.producers.producer_state import SNAPSHOT_ENTRY
from minibroker.storage.segment_indexes import OffsetIndex, TimeIndex

METADATA_TOPIC = "__cluster_metadata"
METADATA_SNAPSHOT_SUFFIX = ".checkpoint"
MAX_EPOCHS_BYTES = 16 << 20

_ON_THE_WAY = "|".join(re.escape(suffix) for suffix in (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX))
_NAME = re.compile(rf"(?P<stem>.+?)(?P<suffix>\.[a-z]+)(?P<state>{_ON_THE_WAY})?")


class FileKind(Enum):
    """The kinds of files; the value is the kind's name for people."""

    LOG = "segment"
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    TRANSACTION_INDEX = "index of aborted transactions"
    PRODUCER_SNAPSHOT = "snapshot of producer states"
    METADATA_SNAPSHOT = "snapshot of the metadata log"
    LEADER_EPOCHS = "leader epochs"
    OFFSETS = "offsets of partitions"
    ABORTED_COUNTS = "sizes of the indexes of aborted transactions"
    PARTITION_METADATA = "partition's topic id"
    META_PROPERTIES = "identity of the log directory"
    QUORUM_STATE = "newest leader epoch of the metadata log"
    CLEAN_SHUTDOWN = "mark of an orderly stop"


_BY_SUFFIX = {
    LOG_SUFFIX: FileKind.LOG,
    INDEX_SUFFIX: FileKind.OFFSET_INDEX,
    TIME_INDEX_SUFFIX: FileKind.TIME_INDEX,
    TRANSACTION_INDEX_SUFFIX: FileKind.TRANSACTION_INDEX,
    SNAPSHOT_SUFFIX: FileKind.PRODUCER_SNAPSHOT,
    METADATA_SNAPSHOT_SUFFIX: FileKind.METADATA_SNAPSHOT,
}
_BY_NAME = {
    LEADER_EPOCH_CHECKPOINT: FileKind.LEADER_EPOCHS,
    RECOVERY_POINT_CHECKPOINT: FileKind.OFFSETS,
    LOG_START_OFFSET_CHECKPOINT: FileKind.OFFSETS,
    REPLICATION_OFFSET_CHECKPOINT: FileKind.OFFSETS,
    CLEANER_OFFSET_CHECKPOINT: FileKind.OFFSETS,
    ABORTED_TRANSACTIONS_CHECKPOINT: FileKind.ABORTED_COUNTS,
    PARTITION_METADATA: FileKind.PARTITION_METADATA,
    META_PROPERTIES: FileKind.META_PROPERTIES,
    QUORUM_STATE: FileKind.QUORUM_STATE,
    CLEAN_SHUTDOWN: FileKind.CLEAN_SHUTDOWN,
}


class EntryLayout(NamedTuple):
    """Entries of one size, with the names of their numbers."""

    packing: Struct
    names: tuple[str, ...]


class CheckpointLayout(NamedTuple):
    """The rows of a checkpoint, in which words are separated by a space."""

    columns: tuple[str, ...]


class PropertiesLayout(NamedTuple):
    """Lines with a key and a value, and the keys that must be there."""

    separator: str
    required: tuple[str, ...]


class JsonObject(NamedTuple):
    """A JSON object, and the keys that must be there."""

    required: tuple[str, ...]


LAYOUTS: Final[dict[FileKind, EntryLayout | CheckpointLayout | PropertiesLayout | JsonObject]] = {
    FileKind.OFFSET_INDEX: EntryLayout(OffsetIndex.ENTRY, ("relative_offset", "position")),
    FileKind.TIME_INDEX: EntryLayout(TimeIndex.ENTRY, ("timestamp", "relative_offset")),
    FileKind.TRANSACTION_INDEX: EntryLayout(TRANSACTION_ENTRY, TransactionEntry._fields[1:]),
    FileKind.PRODUCER_SNAPSHOT: EntryLayout(SNAPSHOT_ENTRY, ProducerStateEntry._fields[1:]),
    FileKind.LEADER_EPOCHS: CheckpointLayout(EPOCH_COLUMNS),
    FileKind.OFFSETS: CheckpointLayout(OFFSET_COLUMNS),
    FileKind.ABORTED_COUNTS: CheckpointLayout(ABORTED_COLUMNS),
    FileKind.PARTITION_METADATA: PropertiesLayout(": ", ("version", "topic_id")),
    FileKind.META_PROPERTIES: PropertiesLayout("=", ("version", "cluster.id", "node.id")),
    FileKind.QUORUM_STATE: JsonObject(("leaderId", "leaderEpoch", "data_version")),
    FileKind.CLEAN_SHUTDOWN: JsonObject(("version", "brokerEpoch")),
}
_WITH_LOG = frozenset((FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX))

InspectedItem = FoundBatch | FoundRecord | Entry | TextLine | InspectionNote | DamagedBytes


class InspectedFile(NamedTuple):
    """A file. `base_offset` is the offset in its name, None if there is none."""

    path: str
    kind: FileKind
    base_offset: int | None

    @property
    def topic(self) -> str | None:
        """The topic of the log that the file belongs to, None if it is unknown."""
        if self.kind is FileKind.METADATA_SNAPSHOT:
            return METADATA_TOPIC
        found = parse_log_name(os.path.basename(os.path.dirname(os.path.abspath(self.path))))
        return found[0] if found else None

    @property
    def has_name_used_by_kafka(self) -> bool:
        """Whether the name is surely Kafka's: a name with a segment's suffix must also contain an offset."""
        return self.base_offset is not None or self.kind not in (*_WITH_LOG, FileKind.PRODUCER_SNAPSHOT)

    def make_path_with_suffix(self, suffix: str) -> str:
        """Return the path of the same segment's file with another suffix."""
        directory, name = os.path.split(self.path)
        match = _NAME.fullmatch(name)
        assert match is not None  # its kind is known by its suffix
        return os.path.join(directory, f"{match['stem']}{suffix}{match['state'] or ''}")


def identify_file(path: str) -> InspectedFile | None:
    """Return the file with its kind and offset by its name, None if it is of no kind that can be shown."""
    name = os.path.basename(path)
    if name in _BY_NAME:
        return InspectedFile(path, _BY_NAME[name], None)
    match = _NAME.fullmatch(name)
    kind = _BY_SUFFIX.get(match["suffix"]) if match else None
    return (
        InspectedFile(path, kind, None if kind is FileKind.METADATA_SNAPSHOT else parse_base_offset(name))
        if kind
        else None
    )


class InspectionOptions(NamedTuple):
    """Options of an inspection: show the `records` of each batch that has at most `most_bytes` of them, and `verify`.

    To verify a `.log` file means to compare it with all its indexes, and its leader epochs with their checkpoint. The
    indexes in `shown` are left out, as they are shown themselves.
    """

    records: bool = True
    verify: bool = False
    shown: frozenset[str] = frozenset()
    most_bytes: int = MAX_UNCOMPRESSED_BYTES


def iterate_file_contents(disk: Disk, inspected: InspectedFile, options: InspectionOptions) -> Iterator[InspectedItem]:
    """Yield the content of a file, and every damage.

    A read error is also reported as damage. Raises `OSError` if the file cannot be opened.
    """
    file = disk.open_to_read(inspected.path)
    try:
        yield from _iterate_open_file_contents(disk, file, inspected, options)
    except OSError as error:
        path = error.filename or inspected.path
        yield DamagedBytes(path, 0, 0, None, "a file that can be read to its end", error.strerror or str(error))


def _iterate_open_file_contents(
    disk: Disk, file: File, inspected: InspectedFile, options: InspectionOptions
) -> Iterator[InspectedItem]:
    """Yield the content of an open file, by its kind, and every damage."""
    kind = inspected.kind
    if kind is FileKind.METADATA_SNAPSHOT or (kind is FileKind.LOG and not options.verify):
        yield from _iterate_log_findings(disk, file, inspected, [], options)
    elif kind is FileKind.LOG:
        beside = [each for each in _open_indexes_of_segment(disk, inspected) if each[0].path not in options.shown]
        for index, of_index in beside:
            yield from (each for each in _iterate_file_entries(index, of_index) if isinstance(each, DamagedBytes))
        yield from _iterate_log_findings(
            disk, file, inspected, [_make_index_check(file, *each) for each in beside], options
        )
    else:
        yield from _iterate_file_entries(file, inspected)
        if options.verify and kind in _WITH_LOG:
            yield from _compare_index_with_log(disk, file, inspected)


def _compare_index_with_log(disk: Disk, file: File, inspected: InspectedFile) -> Iterator[DamagedBytes]:
    """Compare an index with its log, if that exists. Yield the damage."""
    path = inspected.make_path_with_suffix(LOG_SUFFIX)
    with suppress(FileNotFoundError):
        log = disk.open_to_read(path)
        found = _iterate_log_findings(
            disk,
            log,
            inspected._replace(path=path),
            [_make_index_check(log, file, inspected)],
            InspectionOptions(records=False),
        )
        yield from (each for each in found if isinstance(each, DamagedBytes) and each.path == file.path)


def _iterate_file_entries(
    file: File, inspected: InspectedFile
) -> Iterator[Entry | TextLine | InspectionNote | DamagedBytes]:
    """Yield the entries of an index, a snapshot or a text file, by its kind, with notes and damage."""
    layout, base_offset = LAYOUTS[inspected.kind], inspected.base_offset or 0
    match layout:
        case CheckpointLayout(columns):
            yield from iterate_checkpoint_lines(file, columns)
        case PropertiesLayout(separator, required):
            yield from iterate_property_lines(file, separator, required)
        case JsonObject(required):
            yield from iterate_json_lines(file, required)
        case _ if inspected.kind is FileKind.OFFSET_INDEX:
            yield from iterate_offset_entries(file, base_offset)
        case _ if inspected.kind is FileKind.TIME_INDEX:
            yield from iterate_time_entries(file, base_offset)
        case _ if inspected.kind is FileKind.TRANSACTION_INDEX:
            yield from iterate_transaction_entries(file)
        case _:
            yield from iterate_snapshot_entries(file)


def _iterate_log_findings(
    disk: Disk, file: File, inspected: InspectedFile, checks: list[IndexCheck], options: InspectionOptions
) -> Iterator[FoundBatch | FoundRecord | InspectionNote | DamagedBytes]:
    """Yield the batches of a log, their records if wanted, and the damage of the log and of checked indexes."""
    is_segment = inspected.kind is not FileKind.METADATA_SNAPSHOT
    inspection = LogInspection(
        file,
        base_offset=inspected.base_offset,
        end_offset=_find_next_base_offset(disk, inspected),
        known=_iterate_indexed_batches(disk, inspected) if is_segment else (),
        epochs=_read_leader_epochs_of_log(disk, inspected) if is_segment and options.verify else None,
    )
    for finding in inspection.iterate_findings():
        yield finding
        if isinstance(finding, FoundBatch):
            if options.records:
                yield from iterate_inspected_records(file, finding, options.most_bytes)
            for check in checks:
                yield from check.check_batch(finding)
        elif isinstance(finding, DamagedBytes):
            for check in checks:
                check.skip_entries_of_damage(finding)
    for check in checks:
        yield from check.check_remaining_entries(file.size_bytes())


def _iterate_indexed_batches(disk: Disk, inspected: InspectedFile) -> Iterator[tuple[int, int]]:
    """Yield (last offset, position) of the batches that are in the offset index."""
    with suppress(FileNotFoundError):
        index = disk.open_to_read(inspected.make_path_with_suffix(INDEX_SUFFIX))
        for entry in iterate_undamaged_entries(iterate_offset_entries(index, inspected.base_offset or 0), OffsetEntry):
            yield entry.offset, entry.log_position


def _find_next_base_offset(disk: Disk, inspected: InspectedFile) -> int | None:
    """Return the next segment's base offset; None if this is the last segment, or one being deleted or swapped in."""
    directory, name = os.path.split(inspected.path)
    base_offset = inspected.base_offset
    if base_offset is None or not name.endswith(LOG_SUFFIX):
        return None
    others = list_offsets_with_suffix(disk.list_names(directory or "."), LOG_SUFFIX)
    return min((offset for offset in others if offset > base_offset), default=None)


def _open_indexes_of_segment(disk: Disk, inspected: InspectedFile) -> Iterator[tuple[File, InspectedFile]]:
    """Yield the indexes of a segment that exist, each as an open file."""
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
        path = inspected.make_path_with_suffix(suffix)
        with suppress(FileNotFoundError):
            yield disk.open_to_read(path), inspected._replace(path=path, kind=_BY_SUFFIX[suffix])


def _make_index_check(log: File, file: File, inspected: InspectedFile) -> IndexCheck:
    """Return the check of an index against the log that it belongs to."""
    entries = _iterate_file_entries(file, inspected)
    if inspected.kind is FileKind.OFFSET_INDEX:
        return OffsetIndexCheck(file.path, entries)
    if inspected.kind is FileKind.TIME_INDEX:
        return TimeIndexCheck(file.path, entries)
    return TransactionIndexCheck(log, file.path, entries)


def _read_leader_epochs_of_log(disk: Disk, inspected: InspectedFile) -> LeaderEpochs | None:
    """Return the leader epochs of the log, None if they cannot be read; showing the checkpoint itself reports why."""
    path = os.path.join(os.path.dirname(inspected.path), LEADER_EPOCH_CHECKPOINT)
    with suppress(FileNotFoundError, MalformedCheckpoint):
        return LeaderEpochs(parse_leader_epochs(disk.open_to_read(path).read(0, MAX_EPOCHS_BYTES)))
    return None
