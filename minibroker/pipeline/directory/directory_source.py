"""The log source that reads a log directory, for planning and for Spark's classes.

It combines the other files of this package, and keeps a view of each log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

import pyarrow as pa

from minibroker.pipeline.directory import splitting
from minibroker.pipeline.directory.finding import FoundLog, find_logs, parse_log_paths, read_log_start_offsets
from minibroker.pipeline.directory.log_transactions import LogTransactions
from minibroker.pipeline.directory.log_walking import BLOCK_BYTES
from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.pipeline.directory.segment_files import LogView, find_offset_at
from minibroker.pipeline.directory.splitting import SplitReader
from minibroker.pipeline.log_source import (
    Bounds,
    DataLoss,
    OffsetRange,
    OptionError,
    ReadRequest,
    Split,
    TopicPartition,
    TopicSelection,
)
from minibroker.pipeline.planning import limit_range_to_bounds

# Each Spark task costs as much as reading some megabytes: with 16 MB a read took half as long again.
SPLIT_BYTES = 64 << 20
TRIES = 5

IsolationLevel = Literal["read_uncommitted", "read_committed"]


class DirectorySource:
    """The logs of a log directory, minibroker's or Apache Kafka's own. No broker is needed.

    `path` is a log directory, several separated by commas, or the directory of one partition. A log begins at its log
    start offset and ends behind its last whole batch: what a broker that starts on the directory would serve. While a
    broker is running, the end may be beyond its high watermark if the topic has replicas elsewhere; such a log should
    be read from the broker. A log may be appended to while it is read.

    With `read_committed`, a log ends at its last stable offset, and records of aborted transactions are left out. With
    `fail_on_data_loss` false, lost offsets are skipped, also where splits are made. With `fail_on_damage` false, a
    transaction with a damaged marker is left out, as its outcome is unknown; otherwise that raises `CorruptData`, even
    from `find_bounds`. `split_bytes` is the approximate size of a split. All methods raise `OptionError` for an invalid
    path, and `OSError`.
    """

    def __init__(
        self,
        path: str,
        selection: TopicSelection = TopicSelection(),  # noqa: B008 - it is frozen
        isolation_level: IsolationLevel = "read_uncommitted",
        *,
        fail_on_data_loss: bool = True,
        fail_on_damage: bool = True,
        split_bytes: int = SPLIT_BYTES,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self._paths = parse_log_paths(path)
        if not self._paths:
            raise OptionError("path: it has no directory")
        self._selection = selection
        self._is_committed = isolation_level == "read_committed"
        self._fail_on_data_loss = fail_on_data_loss
        self._fail_on_damage = fail_on_damage
        self._split_bytes = split_bytes
        self._block_bytes = block_bytes
        self._views: dict[TopicPartition, LogView] = {}
        self._transactions: dict[TopicPartition, LogTransactions] = {}

    def __getstate__(self) -> dict[str, object]:
        """Leave out the views of logs: a copy makes its own."""
        return {**self.__dict__, "_views": {}, "_transactions": {}}

    def list_partitions(self, *, missing_ok: bool = False) -> Sequence[TopicPartition]:
        """Return the selected partitions, sorted.

        Raises `OptionError` if a named one does not exist, unless `missing_ok`. Internal topics are included only if
        they are named, or if the path is the directory of one partition.
        """
        found = find_logs(self._paths)
        if self._selection == TopicSelection() and all(log.path in self._paths for log in found.values()):
            return sorted(found)
        return self._selection.choose_partitions(found, missing_ok=missing_ok)

    def find_bounds(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Bounds]:
        """Return where the partitions begin and end now. A second call reads only what was added since.

        Raises `DataLoss` if a partition is gone; with `fail_on_data_loss` false, leave it out.
        """
        wanted = list(partitions)
        return _retry_while_files_change(lambda: self._find_bounds_now(wanted))

    def _find_bounds_now(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Return where partitions begin and end, by the files that exist now. Raises `FileNotFoundError`."""
        found = find_logs(self._paths)
        starts = {each: read_log_start_offsets(each) for each in {log.log_directory for log in found.values()}}
        bounds = {}
        for partition in partitions:
            log = found.get(partition)
            if log is not None:
                bounds[partition] = self._find_bounds_of_log(log, starts[log.log_directory].get(partition, 0))
            elif self._fail_on_data_loss:
                raise DataLoss(f"{partition} is gone from {', '.join(self._paths)}")
        return bounds

    def find_offsets_at(self, timestamps_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """Return the first offset with the given timestamp (ms) or a later one, as Kafka's ListOffsets finds it.

        None means that there is none, or that the isolation level hides it.
        """
        return _retry_while_files_change(lambda: self._find_offsets_at_now(timestamps_ms))

    def _find_offsets_at_now(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        bounds = self._find_bounds_now(list(timestamps_ms))
        found: dict[TopicPartition, int | None] = {}
        for partition, timestamp_ms in timestamps_ms.items():
            found[partition] = None
            if partition in bounds:
                earliest, latest = bounds[partition]
                offset = find_offset_at(self._views[partition], timestamp_ms, earliest)
                found[partition] = offset if offset is not None and offset < latest else None
        return found

    def make_splits(self, ranges: Sequence[OffsetRange], min_splits: int = 0) -> list[Split]:
        """Split the ranges for tasks: about `min_splits`, or more. Together they read each offset once.

        Ranges are cut only between batches, so a few large batches may give fewer splits. Raises `DataLoss` if offsets
        are gone, or if the log does not reach the end.
        """
        return _retry_while_files_change(lambda: self._make_splits_of_current_files(ranges, min_splits))

    def _make_splits_of_current_files(self, ranges: Sequence[OffsetRange], min_splits: int) -> list[Split]:
        wanted = [each for each in self._iterate_existing_ranges(ranges) if each.start < each.end]
        found = [list(splitting.iterate_extents(self._views[each.partition], each.start, each.end)) for each in wanted]
        step_bytes = self._split_bytes
        if min_splits > 0:
            total_bytes = sum(extent.length_bytes for of_range in found for extent in of_range)
            step_bytes = max(1, min(step_bytes, total_bytes // min_splits))
        return [
            self._add_aborted_transactions(split)
            for offsets, of_range in zip(wanted, found, strict=True)
            for split in splitting.pack_stretches(
                splitting.cut_into_stretches(of_range, offsets, step_bytes), offsets, step_bytes
            )
        ]

    def read_split(self, split: Split, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split, in the order of their offsets.

        Raises `DataLoss` if the split is no longer where it was: its segment is gone, shorter, or was replaced. If the
        request does not fail on data loss, read what is left of its offsets instead. Raises `CorruptData` with file,
        position and offset.
        """
        return SplitReader(split, request, self._find_stretches, self._block_bytes).read_rows()

    def close(self) -> None:
        """Forget the views of logs. No file is kept open."""
        self._views.clear()
        self._transactions.clear()

    def _find_bounds_of_log(self, log: FoundLog, start: int) -> Bounds:
        """Return the first offset of a log, `start` or later, and the end that the isolation level allows to read."""
        view = self._views.get(log.partition)
        if view is None or view.log != log:
            view = self._views[log.partition] = LogView(log)
            self._transactions[log.partition] = LogTransactions(fail_on_damage=self._fail_on_damage)
        earliest = max(start, view.read_changes().start_offset)
        latest = view.end.next_offset
        if self._is_committed:
            transactions = self._transactions[log.partition]
            transactions.read_new_batches(view)
            latest = min(latest, transactions.find_last_stable_offset())
        return Bounds(earliest, max(latest, earliest))

    def _iterate_existing_ranges(self, ranges: Sequence[OffsetRange]) -> Iterator[OffsetRange]:
        """Yield the parts of the ranges that still exist. Raises `DataLoss`."""
        bounds = self._find_bounds_now([each.partition for each in ranges])
        for each in ranges:
            if each.partition in bounds and each.start < each.end:
                yield limit_range_to_bounds(each, bounds[each.partition], self._fail_on_data_loss)

    def _add_aborted_transactions(self, split: Split) -> Split:
        """Return the split with the aborted transactions of its offsets, if only committed records are read."""
        if not self._is_committed:
            return split
        assert isinstance(split.place, splitting.SplitStretches)
        transactions = self._transactions[split.offsets.partition]
        aborted = tuple(transactions.list_aborted_transactions(split.offsets.start, split.offsets.end))
        return replace(split, place=replace(split.place, aborted=aborted))

    def _find_stretches(self, offsets: OffsetRange) -> list[splitting.BatchStretch]:
        """Return the batches that have these offsets now, after a file was replaced; none if the log is gone."""
        log = find_logs([each for each in self._paths if DISK.is_directory(each)]).get(offsets.partition)
        if log is None:
            return []
        found = _retry_while_files_change(
            lambda: list(splitting.iterate_extents(LogView(log).read_changes(), offsets.start, offsets.end))
        )
        return splitting.cut_into_stretches(found, offsets, self._split_bytes)


Result = TypeVar("Result")


def _retry_while_files_change(read_files: Callable[[], Result]) -> Result:
    """Run `read_files`, and again while files disappear: retention and compaction do not wait for readers."""
    gone = ""
    for _ in range(TRIES):
        try:
            return read_files()
        except FileNotFoundError as error:
            gone = error.filename
    raise DataLoss(f"{gone} is gone, and more files were removed during a second attempt")
