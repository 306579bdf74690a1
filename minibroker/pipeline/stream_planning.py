"""Plans the batches of a stream: offsets as JSON, limits that partitions share fairly, new and lost partitions.

Pure, like `planning`: a `LogSource` says which offsets exist, and the caller passes the time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from minibroker.pipeline.log_source import DataLoss, LogSource, OffsetRange, OptionError, TopicPartition
from minibroker.pipeline.options import LATEST, Position, ReadOptions
from minibroker.pipeline.planning import REMEDY, Offsets, limit_range, report_lost, resolve_position

JsonOffsets = dict[str, dict[str, int]]
FROM_NOW = Position("offset", LATEST)


def to_json(offsets: Mapping[TopicPartition, int]) -> JsonOffsets:
    """Return offsets as Spark's Kafka source writes them, `{"orders": {"0": 23}}`. Equal offsets give equal texts."""
    found: JsonOffsets = {}
    for partition, offset in sorted(offsets.items()):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return found


def from_json(offsets: Mapping[str, Mapping[str, Any]]) -> Offsets:
    """Return the offsets in a checkpoint."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def find_initial_offsets(options: ReadOptions, source: LogSource) -> Offsets:
    """Return where a new stream begins: at the end, unless the options say otherwise. Raises `OptionError`."""
    partitions = source.partitions()
    bounds = source.bounds(partitions)
    return resolve_position(options.starting or FROM_NOW, partitions, bounds, source, options.no_match == "error")


def find_latest_offsets(source: LogSource, *, missing_ok: bool = False) -> Offsets:
    """Return the end of each present partition. Raises `OptionError` if a named one is missing, unless `missing_ok`."""
    partitions = source.partitions(missing_ok=missing_ok)
    return {partition: bounds.latest for partition, bounds in source.bounds(partitions).items()}


def find_present_offsets(options: ReadOptions, source: LogSource) -> Offsets:
    """Return the end of each partition of a stream that has begun. Raises `DataLoss` if a named topic is gone."""
    try:
        return find_latest_offsets(source, missing_ok=not options.fail_on_data_loss)
    except OptionError as error:
        raise DataLoss(f"{error}; {REMEDY}") from None


def measure_sizes(start: Offsets, end: Offsets, source: LogSource) -> Offsets:
    """Return how many offsets of each partition there are to read. A new one is read from its beginning."""
    begins = start | find_beginnings(end.keys() - start.keys(), source)
    return {partition: end[partition] - begins[partition] for partition in end if end[partition] > begins[partition]}


def find_beginnings(partitions: set[TopicPartition], source: LogSource) -> Offsets:
    """Return the earliest offset of each partition."""
    found = source.bounds(sorted(partitions)) if partitions else {}
    return {partition: bounds.earliest for partition, bounds in found.items()}


def limit_ends(start: Offsets, end: Offsets, most: int, source: LogSource) -> Offsets:
    """Return ends for about `most` offsets in all, each partition in proportion to what it has.

    Each partition with new records gets at least one offset, so there may be a few more.
    """
    there = measure_sizes(start, end, source)
    total = sum(there.values())
    if total <= most:
        return end
    shares = {partition: most * size / total for partition, size in there.items()}
    taken = {partition: math.ceil(share) if share < 1 else math.floor(share) for partition, share in shares.items()}
    return {
        partition: offset if partition not in there else offset - there[partition] + taken[partition]
        for partition, offset in end.items()
    }


def stream_ranges(options: ReadOptions, source: LogSource, start: Offsets, end: Offsets) -> list[OffsetRange]:
    """Return the ranges of one batch of a stream; none is empty. Raises `DataLoss` if offsets are gone."""
    fail = options.fail_on_data_loss
    for partition in sorted(start.keys() - end.keys()):
        report_lost(f"{partition} is gone", fail)
    there = set(source.partitions(missing_ok=True))
    for partition in sorted(end.keys() - there):
        report_lost(f"{partition} is gone", fail)
    read = sorted(end.keys() & there)
    bounds = source.bounds(read)
    found = []
    for partition in read:
        # A new partition begins at 0; if not, its first records were deleted before they could be read.
        wanted = OffsetRange(partition, start.get(partition, 0), end[partition])
        if wanted.end < wanted.start:
            report_lost(f"{partition} went back from offset {wanted.start} to {wanted.end}", fail)
            continue
        found.append(limit_range(wanted, bounds[partition], fail))
    return [each for each in found if each.start < each.end]
