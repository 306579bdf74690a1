"""The requests that `holds.py` measures: arrays of minimal items, and what has held a broker before.

Set-ups are ordinary requests. Where a row would take minutes it is smaller, and its name says what it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import hold_requests as ask
import wire
from hold_batches import bomb, headers_batch, tiny_records_batch
from machine import ROOT
from minibroker.protocol.records.compression import Compression
from servers import Server

sys.path.insert(0, str(ROOT))

from tests.protocol.array_frames import Array, all_arrays, array_frame, most_bytes, tags_frame  # noqa: E402

MB = 1_000_000
MOST_BYTES = 10 * MB
QUICK_SHARE = 10  # of what a row has, where the quick ones are wanted
PARTS = 4  # of what is too much for one request: the broker would close the connection
TOPIC = "held"
CHECKPOINTS = (
    "log.flush.offset.checkpoint.interval.ms=1000",
    "log.flush.start.offset.checkpoint.interval.ms=1000",
    "replica.high.watermark.checkpoint.interval.ms=1000",
)
COMPACTED = ("log.cleanup.policy=compact",)


def nothing(server: Server) -> None:
    """The set-up of a row that needs none."""


class Row(NamedTuple):
    """A row of requests: `set_up` prepares the server, `frames` are then sent on each of `connections`. `probes` are
    what the other client asks, ApiVersions and Metadata unless said; `settings` are the broker's, as `key=value`. With
    `stops` the broker is stopped, in place of a request."""

    kind: str
    name: str
    frames: Callable[[Server], Sequence[bytes]]
    set_up: Callable[[Server], None] = nothing
    settings: Sequence[str] = ()
    probes: Sequence[bytes] = ()
    stops: bool = False
    connections: int = 1


def array_rows(sizes_mb: Sequence[float], *, distinct: bool) -> list[Row]:
    """A row for each array of each request, and each size; a size of 0 is the most that a broker lets in."""
    rows = []
    for size_mb in sizes_mb:
        for array in all_arrays():
            size = f"{size_mb:g} MB" if size_mb else "the most"
            rows.append(Row("arrays", f"{array.name}, {size}", _array(array, size_mb, distinct)))
        if not size_mb:
            continue
        for place in ("header", "body"):
            rows.append(Row("arrays", f"unknown tags in the {place}, {size_mb:g} MB", _tags(size_mb, place)))
    return rows


def _array(array: Array, size_mb: float, distinct: bool) -> Callable[[Server], Sequence[bytes]]:
    def frames(server: Server) -> Sequence[bytes]:
        size_bytes = int(size_mb * MB) or most_bytes(array, MOST_BYTES, distinct=distinct)
        return [array_frame(array, size_bytes, distinct=distinct)]

    return frames


def _tags(size_mb: float, place: str) -> Callable[[Server], Sequence[bytes]]:
    return lambda server: [tags_frame(int(size_mb * MB), in_header=place == "header")]


def table_rows(quick: bool) -> list[Row]:
    """Return a row for each thing that has held a broker for long."""
    share = QUICK_SHARE if quick else 1
    return [
        *_topics(share),
        *_partitions(share),
        *_configs(share),
        *_groups(share),
        *_headers(share),
        *_records(share),
        *_waiting(share),
        *_pipelines(share),
    ]


def _row(
    name: str,
    frame: Callable[[], bytes],
    set_up: Callable[[Server], None] = nothing,
    settings: Sequence[str] = (),
    probes: Sequence[bytes] = (),
) -> Row:
    return Row("table", name, lambda server: [frame()], set_up, settings, probes)


def _topics(share: int) -> list[Row]:
    many, more, most = 5_000 // share, 10_000 // share, 60_000 // share
    likes = ask.names("a_b_", most)
    made = ask.names("made-", 8_000 // share)
    return [
        _row(
            f"DeleteTopics of {many:,} topics",
            lambda: ask.delete_topics(ask.names("topic-", many)),
            lambda server: ask.make_topics(server, "topic-", many),
        ),
        _row(f"Metadata that creates {len(made):,} topics", lambda: ask.metadata(made)),
        _row(f"CreateTopics of {more:,} partitions", lambda: ask.create_topics([TOPIC], more)),
        Row(
            "table",
            f"CreateTopics of {most:,} names with _, refused, in {PARTS} requests",
            lambda server: [ask.create_topics(likes[part::PARTS], 0) for part in range(PARTS)],
        ),
        _row(
            f"CreateTopics validates {more:,} names with _ beside {more:,} topics",
            lambda: ask.create_topics(likes[:more], validate_only=True),
            lambda server: ask.make_topics(server, "c_d_", more),
        ),
        Row(
            "table",
            f"an orderly stop with {more:,} topics",
            lambda server: [],
            lambda server: ask.make_topics(server, "topic-", more),
            stops=True,
        ),
    ]


def _partitions(share: int) -> list[Row]:
    some, many = 5_000 // share, 10_000 // share

    def noted(server: Server) -> None:
        ask.make_topic(server, TOPIC, many, records=True)
        ask.await_checkpoints(server)

    return [
        _row(
            f"DeleteTopics of {many:,} partitions beside checkpoints",
            lambda: ask.delete_topics([TOPIC]),
            noted,
            CHECKPOINTS,
        ),
        _row(
            f"DeleteRecords of {some:,} partitions",
            lambda: ask.delete_records(TOPIC, some),
            lambda server: ask.make_topic(server, TOPIC, some, records=True),
        ),
        Row(
            "table",
            f"WriteTxnMarkers of a producer in {some:,} partitions, 10 times",
            lambda server: [ask.write_markers(TOPIC, some, producer) for producer in range(10)],
            lambda server: ask.make_topic(server, TOPIC, some),
        ),
    ]


def _configs(share: int) -> list[Row]:
    many, times = 10_000 // share, 2_000 // share
    return [
        _row(
            f"DescribeConfigs of {many:,} topics",
            lambda: ask.describe_configs(ask.TOPIC, ask.names("topic-", many)),
            lambda server: ask.make_topics(server, "topic-", many),
        ),
        _row(
            f"DescribeConfigs of the broker {times:,} times, documented",
            lambda: ask.describe_configs(ask.BROKER, ["1"] * times, documentation=True),
        ),
    ]


def _groups(share: int) -> list[Row]:
    """A fifth of the million groups, and a tenth of the million others: more takes minutes to make."""
    groups, others, offsets, times = 200_000 // share, 100_000 // share, 5_000 // share, 3_000 // share

    def committed(server: Server) -> None:
        ask.make_topic(server, TOPIC, 1)
        ask.commit_by_groups(server, TOPIC, groups)

    def many_offsets(server: Server) -> None:
        ask.make_topic(server, TOPIC, offsets)
        ask.commit_offsets(server, "group", TOPIC, offsets)

    def producers(server: Server) -> None:
        ask.make_topic(server, TOPIC, 1)
        ask.make_producers(server, TOPIC, others)

    return [
        _row(f"DeleteTopics, {groups:,} groups have committed", lambda: ask.delete_topics([TOPIC]), committed),
        _row(f"ListGroups of {groups:,}", ask.list_groups, committed),
        _row(
            f"ListTransactions of {others:,}",
            ask.list_transactions,
            lambda server: ask.make_transactional_ids(server, others),
        ),
        _row(f"DescribeProducers of {others:,}", lambda: ask.describe_producers(TOPIC), producers),
        _row(
            f"OffsetFetch of {offsets:,} offsets {times:,} times",
            lambda: ask.fetch_offsets("group", times),
            many_offsets,
        ),
    ]


def _headers(share: int) -> list[Row]:
    headers = 20_000_000 // share

    def with_headers(server: Server) -> None:
        ask.make_topic(server, TOPIC, 1)
        with wire.Client(server) as client:
            client.exchange([ask.produce(TOPIC, [headers_batch(headers)])], None)

    def of_headers(count: int) -> Callable[[], bytes]:
        return lambda: ask.produce(TOPIC, [headers_batch(headers)] * count)

    return [
        _row(f"Produce of {headers:,} headers", of_headers(1), _topic(1)),
        _row(f"Produce of {headers:,} headers, compacted", of_headers(1), _topic(1), COMPACTED),
        _row(f"Produce of 10 x {headers:,} headers", of_headers(10), _topic(10)),
        _row(
            f"ListOffsets by time of {headers:,} headers",
            lambda: wire.list_offsets_request(TOPIC, wire.now_ms() - 3_600_000),
            with_headers,
        ),
    ]


def _records(share: int) -> list[Row]:
    tiny, refused = 1_000_000 // share, 10_000 // share
    gzips, zstds = max(1, 40 // share), max(1, 200 // share)

    def of_tiny() -> bytes:
        return ask.produce(TOPIC, [tiny_records_batch(tiny)])

    return [
        _row(f"Produce of {tiny:,} records to gzip 9", of_tiny, _topic(1), _recompressing("gzip", 9)),
        _row(f"Produce of {tiny:,} records to zstd 22", of_tiny, _topic(1), _recompressing("zstd", 22)),
        _row(f"Produce of {tiny:,} records without keys, compacted", of_tiny, _topic(1), COMPACTED),
        _row(
            f"Produce of {gzips} gzip bombs of 1 MB",
            lambda: ask.produce(TOPIC, [bomb(Compression.GZIP, 95, 900_000)] * gzips),
            _topic(gzips),
        ),
        _row(
            f"Produce of {zstds} zstd bombs of 4 kB",
            lambda: ask.produce(TOPIC, [bomb(Compression.ZSTD, 95)] * zstds),
            _topic(zstds),
        ),
        _row(
            f"Produce refused in {refused:,} partitions, client id of 32 kB",
            lambda: ask.produce("unknown", [b""] * refused, client_id="c" * 32_000),
        ),
    ]


def _topic(partitions: int) -> Callable[[Server], None]:
    return lambda server: ask.make_topic(server, TOPIC, partitions)


def _recompressing(codec: str, level: int) -> Sequence[str]:
    return (f"compression.type={codec}", f"compression.{codec}.level={level}")


def _waiting(share: int) -> list[Row]:
    entries, unknown = 50_000 // share, 50_000 // share

    def opened(server: Server) -> None:
        ask.make_topic(server, TOPIC, 1)
        ask.open_transaction(server, TOPIC)

    written = wire.produce_request(TOPIC, wire.batch([b"value"]))
    return [
        _row(
            f"Fetch of {entries:,} entries beside each Produce",
            lambda: ask.fetch_committed(TOPIC, entries, 0),
            opened,
            probes=[written],
        ),
        Row(
            "table",
            f"two fetch sessions of {unknown:,} unknown partitions",
            lambda server: [ask.session_of_unknown(unknown)] * 2,
        ),
    ]


def _pipelines(share: int) -> list[Row]:
    clients, requests = 200 // share, 500
    frames = [wire.api_versions_request()] * requests
    name = f"{clients} connections that pipeline {requests} ApiVersions each"
    return [Row("table", name, lambda server: [b"".join(frames)] + [b""] * (requests - 1), connections=clients)]
