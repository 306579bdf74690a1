"""The view of files: a log directory byte by byte, and index entries with the batches they point to.

It reads files and changes none, so it also shows the directory of a broker that does not run, or a single file.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

from minibroker.broker.metadata.partitions import Partition
from minibroker.broker.upkeep.cleaner import get_cleaning_limits
from minibroker.explorer.answers_in_threads import make_answer_in_thread
from minibroker.explorer.trees import make_tree_of_parts
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.explaining.parts import MOST_DECOMPRESSED_BYTES
from minibroker.protocol.legible import make_legible
from minibroker.protocol.records.batch import LOG_OVERHEAD_BYTES
from minibroker.protocol.records.walking import FoundBatch
from minibroker.storage.compaction.batch_reading import UncleanableLog
from minibroker.storage.compaction.cleaning import make_cleaning_plan
from minibroker.storage.compaction.dirtiness import is_cleaning_due, measure_dirtiness
from minibroker.storage.compaction.predicted_removals import predict_removed_records
from minibroker.storage.files import Disk
from minibroker.storage.inspection.explained_files import ENTRY_BYTES, explain_file
from minibroker.storage.inspection.index_inspection import OffsetEntry, TimeEntry, TransactionEntry
from minibroker.storage.inspection.inspected_files import (
    FileKind,
    InspectedFile,
    InspectionOptions,
    identify_file,
    iterate_file_contents,
)
from minibroker.storage.inspection.log_inspection import DamagedBytes
from minibroker.storage.log import Log
from minibroker.storage.log_settings import COMPACT
from minibroker.storage.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from minibroker.storage.retention import LogExtent, list_deletion_reasons
from minibroker.testing.broker import Broker
from minibroker.web.messages import Answer
from minibroker.web.routes import Routes

MOST_INSPECTED_BYTES: Final = 256 << 20  # a larger log is not walked through for its damage
MOST_LISTED_BYTES: Final = 4 << 20  # half a second; a larger file is looked at once somebody opens it
MOST_DAMAGE: Final = 100
SECONDS: Final = 1.0  # in which all files are looked at
MOST_FILES: Final = 10_000
MOST_DEPTH: Final = 3
WINDOW_BYTES: Final = 256 << 10  # of a log
WINDOW_ENTRIES: Final = 3_000  # of an index
MOST_SHOWN_BYTES: Final = 16 << 20  # of any other file
MOST_BATCHES: Final = 2_000
MOST_ENTRIES: Final = 2_000
MOST_COMPACTED_BYTES: Final = 64 << 20  # a cleaning reads about 30 MB/s
MOST_OFFSETS: Final = 100_000
LENGTH_POSITION: Final = 8  # of a batch, in all formats
FindRoot = Callable[[], Path]


def make_damage_routes(root: FindRoot) -> Routes:
    """Return the routes that find damage. Threads read the files, as they may be large."""
    routes = Routes("/files")
    damaged = DamagedFiles()

    @routes.get("/damage")
    async def get_damage(path: str) -> list[dict[str, Any]] | None:
        """Return what is wrong with a file, None if it is too large to tell; a log is compared with its indexes."""
        return await asyncio.to_thread(find_damage, find_file_below(root(), path))

    @routes.get("/damaged")
    async def list_damaged() -> dict[str, Any]:
        """Return how much damage each damaged file has; `unknown` files were not looked at."""
        return await asyncio.to_thread(damaged.count_damage_below, root())

    return routes


def find_damage(inspected: InspectedFile) -> list[dict[str, Any]] | None:
    """Return the first damage of a file, `MOST_DAMAGE` places at most, or None if the file is too large."""
    if Disk().size_bytes(inspected.path) > MOST_INSPECTED_BYTES:
        return None
    found = iterate_file_contents(
        Disk(), inspected, InspectionOptions(records=True, verify=True, most_bytes=MOST_DECOMPRESSED_BYTES)
    )
    damage = islice((each for each in found if isinstance(each, DamagedBytes)), MOST_DAMAGE)
    return [each._asdict() | {"path": os.path.basename(each.path)} for each in damage]


class DamagedFiles:
    """The damage of the files below a directory. A file that has not changed is not read again."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int, int], int] = {}

    def count_damage_below(self, root: Path) -> dict[str, Any]:
        """Return how much damage each damaged file has. This ends after `SECONDS`; ask again for the rest.

        Large files are left out: one that grows would be read from its beginning each time.
        """
        ends = time.monotonic() + SECONDS
        base = root.parent if root.is_file() else root
        counts: dict[tuple[str, int, int], int] = {}
        damaged: dict[str, int] = {}
        unknown = 0
        for each in describe_files(root)["files"]:
            name = f"{each['folder']}/{each['name']}" if each["folder"] else each["name"]
            with suppress(OSError, LookupError):
                state = os.stat(base / name)
                key = name, state.st_size, state.st_mtime_ns
                if state.st_size > MOST_LISTED_BYTES or (key not in self._counts and time.monotonic() > ends):
                    unknown += 1
                    continue
                known = self._counts.get(key)
                counts[key] = len(find_damage(find_file_below(root, name)) or ()) if known is None else known
                damaged |= {name: counts[key]} if counts[key] else {}
        self._counts = counts
        return {"damaged": damaged, "unknown": unknown}


def make_file_routes(root: FindRoot, broker: Broker | None = None) -> Routes:
    """Return the routes of the files view. Threads read the files, as they may be large."""
    routes = Routes("/files")

    @routes.get("")
    async def list_files() -> dict[str, Any]:
        """Return all files of a log directory that can be shown, with their sizes."""
        return await asyncio.to_thread(describe_files, root())

    @routes.get("/content")
    async def get_content(path: str, at: int = 0) -> Answer:
        """Return a file byte by byte; of a large log or index, some batches or entries from a position on."""
        found = find_file_below(root(), path)
        return await make_answer_in_thread(lambda: show_file_content(found, at))

    @routes.get("/segment")
    async def get_segment(path: str) -> dict[str, Any]:
        """Return the batches of a segment, and the entries of its indexes, to be drawn."""
        return await asyncio.to_thread(describe_segment, find_file_below(root(), path))

    @routes.get("/retention")
    async def get_retention(path: str) -> list[str]:
        """Return the segments beside this file that retention would take now, with the reasons."""
        return [] if broker is None else explain_retention(broker, find_file_below(root(), path))

    @routes.get("/compaction")
    async def get_compaction(path: str) -> dict[str, Any] | None:
        """Return what compaction would take now of the log with this file, or None if its topic is not compacted."""
        found = find_file_below(root(), path)
        partition = None if broker is None else _find_partition(broker, found)
        if broker is None or partition is None or COMPACT not in partition.log.settings.cleanup_policy:
            return None
        return await show_removable_records(broker, partition.log, found)

    return routes


def describe_files(root: Path) -> dict[str, Any]:
    """Return the files below a directory, or the file, by their paths relative to it."""
    if root.is_file():
        found = identify_file(str(root))
        files = [] if found is None else [_describe_file(root, root.parent)]
        return {"files": files, "more": 0}
    walked = (path for path in _iterate_files_in_folder(root, MOST_DEPTH) if identify_file(str(path)) is not None)
    files = [_describe_file(path, root) for path in islice(walked, MOST_FILES)]
    return {"files": sorted(files, key=_make_sort_key), "more": sum(1 for _ in walked)}


def _make_sort_key(file: dict[str, Any]) -> tuple[bool, str, str]:
    """Return where a file is in the list: internal topics are last."""
    return file["folder"].startswith("__"), file["folder"], file["name"]


def _iterate_files_in_folder(folder: Path, depth: int) -> Iterator[Path]:
    with suppress(OSError):  # it was removed meanwhile
        for entry in sorted(os.scandir(folder), key=lambda each: each.name):
            if entry.is_dir(follow_symlinks=False) and depth > 1:
                yield from _iterate_files_in_folder(Path(entry.path), depth - 1)
            elif entry.is_file(follow_symlinks=False):
                yield Path(entry.path)


def _describe_file(path: Path, root: Path) -> dict[str, Any]:
    found = identify_file(str(path))
    size = 0
    with suppress(OSError):
        size = path.stat().st_size
    folder = path.parent.relative_to(root).as_posix()
    kind = "" if found is None else found.kind.value
    return {"folder": "" if folder == "." else folder, "name": path.name, "kind": kind, "size": size}


def find_file_below(root: Path, name: str) -> InspectedFile:
    """Return a file below the root. Raises LookupError for a path that leads anywhere else."""
    base = root.parent if root.is_file() else root
    path = (base / name).resolve()
    found = identify_file(str(path)) if path.is_relative_to(base.resolve()) and path.is_file() else None
    if found is None or (root.is_file() and path != root.resolve() and path.stem != root.stem):
        raise LookupError(f"there is no file {make_legible(name)} here that can be shown")
    return found


def show_file_content(inspected: InspectedFile, at: int = 0) -> dict[str, Any]:
    """Return a file's tree: of a log from the batch on that has the byte `at`, of an index from that entry on.

    `next` is where what follows begins, None if nothing does.
    """
    size = Disk().size_bytes(inspected.path)
    start, length = _choose_byte_window(inspected, at, size)
    with open(inspected.path, "rb") as file:
        file.seek(start)
        data = file.read(length)
    shown = make_tree_of_parts(explain_file(data, inspected, start=start), data)
    shown["blocks"][0]["base"] = start
    return {
        "tree": shown,
        "start": start,
        "size": size,
        "next": _find_next_window(inspected, start, start + len(data), size),
    }


def _choose_byte_window(inspected: InspectedFile, at: int, size: int) -> tuple[int, int]:
    """Return the position in a file from which to show it, and how many bytes to show."""
    if inspected.kind is FileKind.LOG:
        return (_find_batch_with_byte(inspected, at)[0] if size > WINDOW_BYTES else 0), WINDOW_BYTES
    entry = ENTRY_BYTES.get(inspected.kind)
    if entry is None:
        return 0, MOST_SHOWN_BYTES
    return max(min(at, size - 1), 0) // entry * entry, WINDOW_ENTRIES * entry


def _find_next_window(inspected: InspectedFile, start: int, end: int, size: int) -> int | None:
    """Return the position where the next window begins, None after the last one."""
    if end == size or (inspected.kind is not FileKind.LOG and inspected.kind not in ENTRY_BYTES):
        return None
    if inspected.kind is not FileKind.LOG:
        return end
    following, behind = _find_batch_with_byte(inspected, end)
    return behind if following == start else following


def _find_batch_with_byte(inspected: InspectedFile, position: int) -> tuple[int, int]:
    """Return begin and end of the batch that has the byte `position`, by the offset index and the batches' lengths."""
    entries = _read_index_entries(inspected, INDEX_SUFFIX, OffsetEntry)
    start = max((entry.log_position for entry in entries if entry.log_position <= position), default=0)
    size = Disk().size_bytes(inspected.path)
    with open(inspected.path, "rb") as file:
        while True:
            file.seek(start + LENGTH_POSITION)
            length = int.from_bytes(file.read(4), "big", signed=True)
            following = min(start + LOG_OVERHEAD_BYTES + max(length, 0), size)
            if following > position or following >= size:
                return start, following
            start = following


def _read_index_entries(inspected: InspectedFile, suffix: str, kind: type[Any]) -> list[Any]:
    """Return the entries of an index beside a log, at most `MOST_ENTRIES`; none if there is no such file."""
    found = identify_file(inspected.make_path_with_suffix(suffix))
    if found is None or not os.path.exists(found.path):
        return []
    return [
        each
        for each in islice(iterate_file_contents(Disk(), found, InspectionOptions()), MOST_ENTRIES)
        if isinstance(each, kind)
    ]


def describe_segment(inspected: InspectedFile) -> dict[str, Any]:
    """Return what a drawing of a segment needs: batches, and entries of the indexes that point at them."""
    log = identify_file(inspected.make_path_with_suffix(LOG_SUFFIX))
    if log is None or not os.path.exists(log.path):
        return {"size": 0, "batches": [], "index": [], "timeindex": [], "aborted": []}
    walked = iterate_file_contents(Disk(), log, InspectionOptions(records=False))
    batches = [each for each in islice(walked, MOST_BATCHES) if isinstance(each, FoundBatch)]
    aborted = _read_index_entries(log, TRANSACTION_INDEX_SUFFIX, TransactionEntry)
    return {
        "log": os.path.basename(log.path),
        "size": os.path.getsize(log.path),
        "batches": [_describe_batch(each, aborted) for each in batches],
        "index": [(each.offset, each.log_position) for each in _read_index_entries(log, INDEX_SUFFIX, OffsetEntry)],
        "timeindex": [(each.timestamp, each.offset) for each in _read_index_entries(log, TIME_INDEX_SUFFIX, TimeEntry)],
        "aborted": [(each.producer_id, each.first_offset, each.last_offset) for each in aborted],
    }


def _describe_batch(batch: FoundBatch, aborted: list[TransactionEntry]) -> dict[str, Any]:
    header = batch.header
    kind = "control" if header.is_control else "transactional" if header.is_transactional else "plain"
    if kind == "transactional" and any(
        each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
        for each in aborted
    ):
        kind = "aborted"
    place = {"position": batch.position, "size": header.size_bytes}
    return place | {"first": header.base_offset, "last": header.last_offset, "kind": kind}


def explain_retention(broker: Broker, inspected: InspectedFile) -> list[str]:
    """Return a line for each segment of the same partition that retention would remove now."""
    partition = _find_partition(broker, inspected)
    if partition is None:
        return []
    log = partition.log
    extent = LogExtent(log.log_start_offset, log.high_watermark, log.log_end_offset)
    reasons = list_deletion_reasons(log.segments, extent, log.settings, broker.moving_clock.wall_ms())
    return [
        f"{os.path.basename(segment.path)}: {reason.value}"
        for segment, reason in zip(log.segments, reasons, strict=False)
    ]


async def show_removable_records(broker: Broker, log: Log, inspected: InspectedFile) -> dict[str, Any]:
    """Return what cleaning a log would remove now: how much of each segment, and which records of `inspected`."""
    now_ms = broker.moving_clock.wall_ms()
    dirt = measure_dirtiness(log, now_ms)
    plan = make_cleaning_plan(log, dirt, get_cleaning_limits(broker.running.cluster.settings), now_ms)
    said: dict[str, Any] = {"ratio": dirt.ratio, "is_due": is_cleaning_due(log, dirt), "segments": [], "offsets": []}
    if sum(source.size_bytes for source in plan.sources) > MOST_COMPACTED_BYTES:
        return said | {"why": "the log is too large to look at all of its records"}
    shown = next((each.path for each in plan.sources if inspected.base_offset == each.base_offset), "")
    try:
        found = await asyncio.to_thread(lambda: list(predict_removed_records(plan, shown, MOST_OFFSETS)))
    except (UncleanableLog, KafkaError, OSError) as error:  # it is damaged, or was compacted meanwhile
        return said | {"why": make_legible(str(error))}
    said["segments"] = [
        each._replace(path=os.path.basename(each.path), offsets=[])._asdict() for each in found if each.taken_records
    ]
    said["offsets"] = [offset for each in found for offset in each.offsets]
    return said


def _find_partition(broker: Broker, inspected: InspectedFile) -> Partition | None:
    """Return the partition in whose directory a file is."""
    folder = os.path.dirname(inspected.path)
    for topic in broker.running.cluster.image.topics.values():
        for partition in topic.partitions:
            if partition.has_local_log and os.path.realpath(os.path.dirname(partition.log.segments[0].path)) == folder:
                return partition
    return None
