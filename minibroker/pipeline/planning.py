"""Plans queries: which offsets a batch query and a batch of a stream read, and how ranges are divided among tasks.

Pure: a `LogSource` says which offsets exist, and the caller passes the time.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from minibroker.pipeline.log_source import Bounds, DataLoss, LogSource, OffsetRange, OptionError, Split, TopicPartition
from minibroker.pipeline.options import EARLIEST, LATEST, Position, ReadOptions

log: Final = logging.getLogger(__name__)

FROM_THE_START: Final = Position("offset", EARLIEST)
TO_THE_END: Final = Position("offset", LATEST)
REMEDY: Final = "failOnDataLoss=false reads what is left"

Offsets = dict[TopicPartition, int]


def find_batch_ranges(options: ReadOptions, source: LogSource) -> list[OffsetRange]:
    """Return the ranges of a batch query: by default from the earliest offset to the latest.

    No range is empty. Raises `OptionError`, and `DataLoss` if requested offsets do not exist.
    """
    partitions = source.list_partitions()
    bounds = source.find_bounds(partitions)
    starts = resolve_position(
        options.starting or FROM_THE_START, partitions, bounds, source, options.no_match == "error"
    )
    ends = resolve_position(options.ending or TO_THE_END, partitions, bounds, source, False)
    found = []
    for partition in partitions:
        wanted = OffsetRange(partition, starts[partition], ends[partition])
        there = limit_range_to_bounds(wanted, bounds[partition], options.fail_on_data_loss)
        if there.start > there.end and there == wanted:
            raise OptionError(f"{partition}: starting offset {there.start} is after ending offset {there.end}")
        found.append(there)
    return [each for each in found if each.start < each.end]


def resolve_position(
    position: Position,
    partitions: Sequence[TopicPartition],
    bounds: Mapping[TopicPartition, Bounds],
    source: LogSource,
    must_match: bool,
) -> Offsets:
    """Return the offset at a position for each partition. Raises `OptionError` if it is for other partitions.

    If no record is as late as a time, return the latest offset, or raise `OptionError` if `must_match`.
    """
    if position.each is not None:
        _require_exact_partitions(position, partitions)
    each = position.each or dict.fromkeys(partitions, position.everywhere or 0)
    if position.unit == "timestamp":
        return _find_offsets_at_times(position, each, bounds, source, must_match)
    edges = {partition: {EARLIEST: bounds[partition].earliest, LATEST: bounds[partition].latest} for partition in each}
    return {partition: edges[partition].get(offset, offset) for partition, offset in each.items()}


def _find_offsets_at_times(
    position: Position,
    times_ms: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, Bounds],
    source: LogSource,
    must_match: bool,
) -> Offsets:
    """Return the first offset at or after the time, else the end, or raise `OptionError` with `must_match`."""
    found = source.find_offsets_at(times_ms)
    offsets = {}
    for partition, time_ms in times_ms.items():
        earliest, latest = bounds[partition]
        offset = found[partition]
        if offset is None or offset >= latest:
            if must_match:
                raise OptionError(
                    f"{position.option}: {partition} has no record at {time_ms} ms or later;"
                    " startingOffsetsByTimestampStrategy=latest starts at its end"
                )
            offset = latest
        offsets[partition] = max(offset, earliest)
    return offsets


def _require_exact_partitions(position: Position, partitions: Iterable[TopicPartition]) -> None:
    """Raise `OptionError` unless the position has offsets or times for exactly the partitions that are read."""
    named, read = set(position.each or ()), set(partitions)
    missing, foreign = sorted(read - named), sorted(named - read)
    if missing:
        edges = " (-2 is earliest, -1 latest)" if position.unit == "offset" else ""
        raise OptionError(
            f"{position.option}: {_describe_partitions(missing)} missing; each partition that is read needs one{edges}"
        )
    if foreign:
        raise OptionError(f"{position.option}: {_describe_partitions(foreign)} not among what is read")


def _describe_partitions(partitions: list[TopicPartition]) -> str:
    return f"{', '.join(map(str, partitions))} {'is' if len(partitions) == 1 else 'are'}"


def limit_range_to_bounds(offset_range: OffsetRange, bounds: Bounds, fail_on_data_loss: bool) -> OffsetRange:
    """Return the part of a range that still exists. Raises `DataLoss` if a part is missing and must not be."""
    partition, start, end = offset_range
    if start < bounds.earliest:
        fail_or_warn_of_loss(f"{partition}: offsets {start} to {bounds.earliest - 1} are gone", fail_on_data_loss)
        start = bounds.earliest
    last = max(start, end)
    if last > bounds.latest:
        what = f"{partition} ends at offset {bounds.latest} now, but was to be read up to {last}"
        fail_or_warn_of_loss(what, fail_on_data_loss)
        start, end = min(start, bounds.latest), min(end, bounds.latest)
    return OffsetRange(partition, start, end)


def fail_or_warn_of_loss(message: str, fail_on_data_loss: bool) -> None:
    """Raise `DataLoss`, or log a warning if lost offsets must not fail the query."""
    if fail_on_data_loss:
        raise DataLoss(f"{message}; {REMEDY}")
    log.warning("%s", message)


def make_splits(options: ReadOptions, source: LogSource, ranges: Sequence[OffsetRange]) -> list[Split]:
    """Split the ranges for tasks. Raises `DataLoss`."""
    most = options.max_records_per_partition
    pieces = [piece for each in ranges for piece in cut_range_by_size(each, most)] if most else list(ranges)
    return source.make_splits(pieces, options.min_partitions or 0) if pieces else []


def cut_range_by_size(offset_range: OffsetRange, max_size: int) -> list[OffsetRange]:
    """Return a range in as few equal pieces of at most `max_size` offsets as possible."""
    return divide_range_by_count(offset_range, -(-(offset_range.end - offset_range.start) // max_size))


def divide_range_by_count(offset_range: OffsetRange, count: int) -> list[OffsetRange]:
    """Return a range in `count` pieces whose sizes differ by at most one offset; fewer if it has fewer offsets."""
    partition, start, end = offset_range
    size = end - start
    count = max(1, min(count, size))
    edges = [start + size * piece // count for piece in range(count + 1)]
    return [OffsetRange(partition, *pair) for pair in zip(edges, edges[1:], strict=False)]


def divide_large_ranges(ranges: Sequence[OffsetRange], count_min: int) -> list[OffsetRange]:
    """Return the ranges, large ones divided, so that there are about `count_min`, as Spark's own source does it.

    Small ranges stay whole and do not count in the proportion of the others. Rounding may give a few more or less.
    """
    ranges = [each for each in ranges if each.start < each.end]
    if len(ranges) >= count_min:
        return ranges
    total = sum(each.end - each.start for each in ranges)
    small = {each for each in ranges if _compute_piece_count(each, total, count_min) == 1}
    total -= sum(each.end - each.start for each in small)
    for_large = max(count_min - len(small), 1)
    return [
        piece
        for each in ranges
        for piece in (
            [each] if each in small else divide_range_by_count(each, _compute_piece_count(each, total, for_large))
        )
    ]


def _compute_piece_count(offsets: OffsetRange, total: int, pieces: int) -> int:
    """Return into how many of `pieces` to divide a range, by its share of `total` offsets; at least 1."""
    return max(1, int((offsets.end - offsets.start) / total * pieces + 0.5))


JsonOffsets = dict[str, dict[str, int]]
FROM_NOW = Position("offset", LATEST)


def make_json_offsets(offsets: Mapping[TopicPartition, int]) -> JsonOffsets:
    """Return offsets as Spark's Kafka source writes them, `{"orders": {"0": 23}}`. Equal offsets give equal texts."""
    found: JsonOffsets = {}
    for partition, offset in sorted(offsets.items()):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return found


def parse_json_offsets(offsets: Mapping[str, Mapping[str, Any]]) -> Offsets:
    """Return the offsets in a checkpoint."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def find_initial_offsets(options: ReadOptions, source: LogSource) -> Offsets:
    """Return where a new stream begins: at the end, unless the options say otherwise. Raises `OptionError`."""
    partitions = source.list_partitions()
    bounds = source.find_bounds(partitions)
    return resolve_position(options.starting or FROM_NOW, partitions, bounds, source, options.no_match == "error")


def find_end_offsets(options: ReadOptions, source: LogSource) -> Offsets:
    """Return the end of each partition of a stream that has begun. Raises `DataLoss` if a named topic is gone."""
    try:
        partitions = source.list_partitions(missing_ok=not options.fail_on_data_loss)
    except OptionError as error:
        raise DataLoss(f"{error}; {REMEDY}") from None
    return {partition: bounds.latest for partition, bounds in source.find_bounds(partitions).items()}


def count_offsets_by_partition(start: Offsets, end: Offsets, source: LogSource) -> Offsets:
    """Return how many offsets of each partition there are to read. A new one is read from its beginning."""
    begins = start | find_earliest_offsets(end.keys() - start.keys(), source)
    return {partition: end[partition] - begins[partition] for partition in end if end[partition] > begins[partition]}


def find_earliest_offsets(partitions: set[TopicPartition], source: LogSource) -> Offsets:
    """Return the earliest offset of each partition."""
    found = source.find_bounds(sorted(partitions)) if partitions else {}
    return {partition: bounds.earliest for partition, bounds in found.items()}


def limit_end_offsets(start: Offsets, end: Offsets, count_max: int, source: LogSource) -> Offsets:
    """Return ends for about `count_max` offsets in all, each partition in proportion to what it has.

    Each partition with new records gets at least one offset, so there may be a few more.
    """
    there = count_offsets_by_partition(start, end, source)
    total = sum(there.values())
    if total <= count_max:
        return end
    shares = {partition: count_max * size / total for partition, size in there.items()}
    taken = {partition: math.ceil(share) if share < 1 else math.floor(share) for partition, share in shares.items()}
    return {
        partition: offset if partition not in there else offset - there[partition] + taken[partition]
        for partition, offset in end.items()
    }


def find_stream_ranges(options: ReadOptions, source: LogSource, start: Offsets, end: Offsets) -> list[OffsetRange]:
    """Return the ranges of one batch of a stream; none is empty. Raises `DataLoss` if offsets are gone."""
    fail = options.fail_on_data_loss
    for partition in sorted(start.keys() - end.keys()):
        fail_or_warn_of_loss(f"{partition} is gone", fail)
    there = set(source.list_partitions(missing_ok=True))
    for partition in sorted(end.keys() - there):
        fail_or_warn_of_loss(f"{partition} is gone", fail)
    read = sorted(end.keys() & there)
    bounds = source.find_bounds(read)
    found = []
    for partition in read:
        # A new partition begins at 0; if not, its first records were deleted before they could be read.
        wanted = OffsetRange(partition, start.get(partition, 0), end[partition])
        if wanted.end < wanted.start:
            fail_or_warn_of_loss(f"{partition} went back from offset {wanted.start} to {wanted.end}", fail)
            continue
        found.append(limit_range_to_bounds(wanted, bounds[partition], fail))
    return [each for each in found if each.start < each.end]
