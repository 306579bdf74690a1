"""The reader of streams that Spark calls, on planning and a `LogSource`."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import datasource

import minibroker.pipeline.planning as planning
from minibroker.pipeline.log_source import LogSource, ReadRequest
from minibroker.pipeline.option_values import warn_of_ignored_options
from minibroker.pipeline.options import ReadOptions
from minibroker.pipeline.plain_errors import iterate_with_plain_errors, raise_plain_errors
from minibroker.pipeline.planning import JsonOffsets, Offsets, make_json_offsets, parse_json_offsets
from minibroker.pipeline.sources.tables import SplitPartition, iterate_rows


class StreamReader(DataSourceStreamReader, datasource.SupportsTriggerAvailableNow):
    """`spark.readStream`: a process of Spark's driver keeps it while the query runs. Tasks read with copies."""

    def __init__(self, options: ReadOptions, request: ReadRequest, source: LogSource) -> None:
        self._options = options
        self._request = request
        self._source = source
        self._initial: JsonOffsets | None = None
        self._latest: Offsets | None = None
        self._until: Offsets | None = None  # the end of a query with the trigger `availableNow`
        self._last_batch_s: float | None = None

    @raise_plain_errors
    def initialOffset(self) -> JsonOffsets:
        """Return where a query without a checkpoint begins, always the same. Raises `OptionError`."""
        if self._initial is None:
            self._initial = make_json_offsets(planning.find_initial_offsets(self._options, self._source))
        return self._initial

    def getDefaultReadLimit(self) -> datasource.ReadLimit:
        """Return the limit of a batch. Spark's Python limits cannot have both a minimum and a maximum."""
        if self._options.max_offsets_per_trigger is not None:
            return datasource.ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return datasource.ReadMinRows(self._options.min_offsets_per_trigger)
        return datasource.ReadAllAvailable()

    @raise_plain_errors
    def latestOffset(self, start: JsonOffsets, limit: datasource.ReadLimit) -> JsonOffsets:
        """Return where the next batch ends; `start` if there is none yet."""
        if self._latest is None:
            warn_of_ignored_options(self._options.ignored)
        if self._until is None:
            self._latest = planning.find_end_offsets(self._options, self._source)
        else:
            self._latest = self._until
        begin = parse_json_offsets(start)
        if not isinstance(limit, datasource.ReadAllAvailable) and self._must_wait_for_offsets(begin, self._latest):
            return make_json_offsets(begin)
        end = self._latest
        if isinstance(limit, datasource.ReadMaxRows):
            end = planning.limit_end_offsets(begin, end, limit.max_rows, self._source)
        return make_json_offsets(end)

    def _must_wait_for_offsets(self, start: Offsets, end: Offsets) -> bool:
        """Return whether there are fewer than `minOffsetsPerTrigger` offsets, and the last batch is too recent."""
        least, now_s = self._options.min_offsets_per_trigger, time.monotonic()
        if least is None or self._until is not None:
            return False
        last_s, delay_s = self._last_batch_s, self._options.max_trigger_delay_ms / 1000
        if last_s is not None and now_s - last_s < delay_s:
            there = planning.count_offsets_by_partition(start, end, self._source)
            if sum(there.values()) < least:
                return True
        self._last_batch_s = now_s
        return False

    def reportLatestOffset(self) -> JsonOffsets | None:
        """Return the end of the log when it was last read, for the query's progress."""
        return None if self._latest is None else make_json_offsets(self._latest)

    @raise_plain_errors
    def prepareForTriggerAvailableNow(self) -> None:
        """Note the end of the log: the query ends there."""
        self._until = planning.find_end_offsets(self._options, self._source)

    @raise_plain_errors
    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[InputPartition]:
        """Return the parts of a batch's tasks. They have the same offsets after a restart. Raises `DataLoss`."""
        ranges = planning.find_stream_ranges(
            self._options, self._source, parse_json_offsets(start), parse_json_offsets(end)
        )
        return [SplitPartition(split) for split in planning.make_splits(self._options, self._source, ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run in a task: yield its rows. Raises `DataLoss` and `CorruptData`."""
        return iterate_with_plain_errors(iterate_rows(self._source, partition, self._request))

    def stop(self) -> None:
        """Close connections and files."""
        self._source.close()
