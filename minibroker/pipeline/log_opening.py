"""Opens the log that a reader's options name, and reads it in this process. Nothing here needs Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa

import minibroker.pipeline.planning as planning
from minibroker.pipeline.log_source import LogSource, ReadRequest, TopicPartition
from minibroker.pipeline.options import ReadOptions
from minibroker.pipeline.schemas import BATCHES, CORRUPT, EXACT, RECORDS


def open_source(options: ReadOptions) -> LogSource:
    """Return the log to read. Raises `OptionError` for invalid settings of Kafka's client."""
    if options.path is not None:
        from minibroker.pipeline.directory.directory_source import DirectorySource

        return DirectorySource(
            options.path,
            options.selection,
            options.isolation_level,
            fail_on_data_loss=options.fail_on_data_loss,
            fail_on_damage=options.mode == "FAILFAST",
        )
    from minibroker.pipeline.brokers.broker_source import BrokerSource

    assert options.bootstrap_servers is not None
    committed = options.isolation_level == "read_committed"
    return BrokerSource(options.bootstrap_servers, options.selection, options.client_settings, committed)


def make_request(options: ReadOptions, columns: Sequence[str]) -> ReadRequest:
    """Return what a task reads of its split."""
    return ReadRequest(options.table, tuple(columns), options.mode, options.fail_on_data_loss, options.verify_crc)


def list_columns(options: ReadOptions) -> list[str]:
    """Return the columns of a query that does not name its own."""
    left_out = {*EXACT} if options.include_headers else {*EXACT, "headers"}
    if options.mode != "PERMISSIVE":
        left_out.add(CORRUPT)
    table = RECORDS if options.table == "records" else BATCHES
    return [name for name in table.names if name not in left_out]


def select_partitions(options: ReadOptions) -> Sequence[TopicPartition]:
    """Return the partitions to read, sorted. Raises what the log's source raises."""
    with closing(open_source(options)) as source:
        return source.partitions()


def count_offsets_to_read(options: ReadOptions) -> int:
    """Return the approximate number of records. Raises what the log's source raises."""
    with closing(open_source(options)) as source:
        return sum(latest - earliest for earliest, latest in source.bounds(source.partitions()).values())


def read_here(options: ReadOptions, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch query, partition by partition in the order of their offsets.

    Raises what planning and the log's source raise.
    """
    request = make_request(options, columns)
    with closing(open_source(options)) as source:
        for split in planning.make_splits(options, source, planning.batch_ranges(options, source)):
            yield from source.read(split, request)
