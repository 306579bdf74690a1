"""The table of metrics, and their text in Prometheus's format, made in slices so that the event loop stays responsive.

Most values are read from the cluster at each scrape; `request_statistics`, `measured_disk` and `cleaner_statistics`
count the others. `metrics_server` serves the text.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from minibroker import __version__
from minibroker.broker.monitoring.request_statistics import DURATION_BUCKETS_MS, ApiStatistics
from minibroker.protocol.apis import get_api_name
from minibroker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.metadata.partitions import Partition
    from minibroker.broker.monitoring.measured_disk import SyncStatistics
    from minibroker.broker.monitoring.request_statistics import RequestStatistics
    from minibroker.broker.server import Server
    from minibroker.broker.upkeep.cleaner_statistics import CleanerStatistics
    from minibroker.storage.log import Log

PREFIX = "minibroker_"
# About one millisecond of work; ten would delay other clients noticeably.
LINES_PER_SLICE = 150
KNOWN_CODES = frozenset(ErrorCode)
# Clients create topics, and each adds five lines to a scrape. `OTHERS` is no valid name of a topic.
PARTITIONS_TOLD = 10_000
LAGS_TOLD = 10_000
GROUP_CHARACTERS = 249  # the longest id that gets a series, as of a topic's name; Kafka allows 32,767
OTHER = "(other)"

MetricFamily = type[CounterMetricFamily] | type[GaugeMetricFamily] | type[HistogramMetricFamily]
Sample = tuple[tuple[str, ...], Any]  # the values of the labels, and the value


class MetricSources(NamedTuple):
    """The sources of the metrics. `started_s` is when the broker started, in seconds since 1970."""

    cluster: Broker
    server: Server
    requests: RequestStatistics
    syncs: SyncStatistics
    cleaner: CleanerStatistics
    started_s: float


class MetricRow(NamedTuple):
    """A metric. `name` lacks the prefix, and for a counter the suffix _total, which Prometheus requires."""

    name: str
    kind: MetricFamily
    labels: tuple[str, ...]
    help: str
    samples: Callable[[MetricSources], Iterable[Sample | None]]  # None makes no line, but counts as a step

    @property
    def full_name(self) -> str:
        """Return the name in a scrape."""
        return f"{PREFIX}{self.name}" + ("_total" if self.kind is CounterMetricFamily else "")

    @property
    def lines_per_sample(self) -> int:
        """Return the number of lines of a sample; a histogram has its buckets, count and sum."""
        return len(DURATION_BUCKETS_MS) + 3 if self.kind is HistogramMetricFamily else 1


async def generate_exposition(sources: MetricSources) -> bytes:
    """Return all metrics as text. They are not an atomic snapshot, as the loop serves others between slices."""
    parts = []
    for row in ROWS:
        samples = iter(row.samples(sources))
        count = max(1, LINES_PER_SLICE // row.lines_per_sample)
        piece = list(islice(samples, count))
        parts.append(_format_metric_row(row, piece))
        await asyncio.sleep(0)
        while len(piece) == count:
            piece = list(islice(samples, count))
            parts.append(_remove_help_and_type(_format_metric_row(row, piece)))
            await asyncio.sleep(0)
    return b"".join(parts)


class _MetricCollector:
    """A metric in the form that `generate_latest` takes."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


def _format_metric_row(row: MetricRow, samples: Iterable[Sample | None]) -> bytes:
    family: Any = row.kind(PREFIX + row.name, row.help, labels=row.labels)
    for labels, value in filter(None, samples):
        if row.kind is HistogramMetricFamily:
            buckets, total = value
            family.add_metric(labels, buckets=buckets, sum_value=total)
        else:
            family.add_metric(labels, value)
    return generate_latest(_MetricCollector(family))


def _remove_help_and_type(text: bytes) -> bytes:
    """Return the samples without the lines HELP and TYPE, which may occur only once."""
    return text.split(b"\n", 2)[2]


# --- what each row looks at -----------------------------------------------------------------------


def _make_sampler_by_api(value: Callable[[ApiStatistics], Any]) -> Callable[[MetricSources], Iterator[Sample]]:
    """Return a function that samples a value of the request statistics of each API."""

    def sample_apis(sources: MetricSources) -> Iterator[Sample]:
        for key, statistics in list(sources.requests.by_api.items()):
            yield (get_api_name(key),), value(statistics)

    return sample_apis


def _sample_requests(sources: MetricSources) -> Iterator[Sample]:
    for key, statistics in list(sources.requests.by_api.items()):
        for version, count in list(statistics.requests.items()):
            yield (get_api_name(key), str(version)), count


def _sample_errors(sources: MetricSources) -> Iterator[Sample]:
    for key, statistics in list(sources.requests.by_api.items()):
        for code, count in list(statistics.errors.items()):
            yield (get_api_name(key), ErrorCode(code).name if code in KNOWN_CODES else str(code)), count


def _sample_durations(statistics: ApiStatistics | SyncStatistics) -> tuple[list[tuple[str, float]], float]:
    """Return (upper bound in seconds, cumulative count) of each bucket, and the sum of the durations in seconds."""
    bounds = [*(str(bound / 1000) for bound in DURATION_BUCKETS_MS), "+Inf"]
    return list(zip(bounds, accumulate(statistics.durations), strict=True)), statistics.duration_ms / 1000


def _sample_connections(sources: MetricSources) -> Iterator[Sample]:
    counts = Counter((each.node.node_id, each.listener) for each in sources.server.list_connections())
    for node_id, listener in sources.server.accepted:
        yield (str(node_id), listener), counts[node_id, listener]


def _sample_accepted_connections(sources: MetricSources) -> Iterator[Sample]:
    for (node_id, listener), count in sources.server.accepted.items():
        yield (str(node_id), listener), count


def _make_sampler_of_authentications(name: str) -> Callable[[MetricSources], Iterator[Sample]]:
    """Return a function that samples this field of the authentication statistics of each listener."""

    def sample_authentications(sources: MetricSources) -> Iterator[Sample]:
        for (node_id, listener), statistics in list(sources.server.authentications.items()):
            yield (str(node_id), listener), getattr(statistics, name)

    return sample_authentications


def _sample_delayed_requests(sources: MetricSources) -> Iterator[Sample]:
    yield (), sum(each.has_delayed_request for each in sources.server.list_connections())


def _make_sampler_of_logs(value: Callable[[Log], int]) -> Callable[[MetricSources], Iterator[Sample | None]]:
    """Return a function that samples a value of up to `PARTITIONS_TOLD` logs, and the sum over the others."""

    def sample_logs(sources: MetricSources) -> Iterator[Sample | None]:
        for partition in _iterate_partitions(sources.cluster):
            yield (partition.topic.name, str(partition.index)), value(partition.log)

    return lambda observed: _sum_samples_beyond_limit(PARTITIONS_TOLD, sample_logs(observed))


def _sum_samples_beyond_limit(limit: int, samples: Iterable[Sample | None]) -> Iterator[Sample | None]:
    """Yield the first `limit` samples, None for each further one, and at the end their sum, labelled OTHER."""
    count, rest, others = 0, 0, None
    for sample in samples:
        if sample is None or (count < limit and sample[0][-1] != OTHER):
            count += sample is not None
            yield sample
        else:
            rest, others = rest + sample[1], (OTHER,) * len(sample[0])
            yield None
    if others is not None:
        yield others, rest


def _iterate_partitions(cluster: Cluster) -> Iterator[Partition]:
    """Yield the partitions that have a log; topics may be created and deleted meanwhile."""
    for topic in list(cluster.image.topics.values()):
        yield from (partition for partition in list(topic.partitions) if hasattr(partition, "log"))


def _sample_fetch_sessions(sources: MetricSources) -> Iterator[Sample]:
    for node_id, node in list(sources.cluster.nodes.items()):
        yield (str(node_id),), len(node.sessions)


def _count_partitions(sources: MetricSources) -> int:
    return sum(len(topic.partitions) for topic in sources.cluster.image.topics.values())


def _sample_groups(sources: MetricSources) -> Iterator[Sample | None]:
    """Count the groups by type and state; there may be many, and they come and go meanwhile."""
    counts: Counter[tuple[str, str]] = Counter()
    for group in list(sources.cluster.groups.groups.values()):
        counts[group.type.value, group.state_name] += 1
        yield None
    yield from counts.items()


def _sample_lags(sources: MetricSources) -> Iterator[Sample | None]:
    """Yield how far each group is behind in each partition that it has committed an offset of."""
    topics = sources.cluster.image.topics
    for group in list(sources.cluster.groups.groups.values()):
        yield None
        for (name, index), committed in list(group.offsets.by_partition.items()):
            topic = topics.get(name)
            partition = None if topic is None or index >= len(topic.partitions) else topic.partitions[index]
            if (
                partition is None
                or not hasattr(partition, "log")
                or not committed.may_belong_to_topic(partition.topic.topic_id)
            ):
                yield None
                continue
            lag = max(0, partition.log.high_watermark - committed.offset)
            is_told = len(group.group_id) <= GROUP_CHARACTERS
            yield (group.group_id, name, str(index)) if is_told else (OTHER, OTHER, OTHER), lag


def _sample_rebalances(sources: MetricSources) -> Iterator[Sample]:
    for type, count in list(sources.cluster.groups.rebalances.items()):
        yield (type.value,), count


def _sample_fsyncs(sources: MetricSources) -> Iterator[Sample]:
    yield (), _sample_durations(sources.syncs)


def _make_sampler_of_cleaner(name: str) -> Callable[[MetricSources], Iterator[Sample]]:
    """Return a function that samples this field of the cleaner's statistics."""
    return _make_sampler_of_value(lambda observed: getattr(observed.cleaner, name))


def _sample_client_metrics(sources: MetricSources) -> Iterator[Sample]:
    for metric in sources.cluster.telemetry.iterate_pushed_client_metrics(connected_only=True):
        attributes = ",".join(f"{name}={value}" for name, value in metric.attributes.items())
        yield (metric.client_id, metric.client_instance_id, metric.name, attributes), metric.value


def _make_sampler_of_value(value: Callable[[MetricSources], float]) -> Callable[[MetricSources], Iterator[Sample]]:
    """Return a function that samples a single value without labels."""

    def sample_value(sources: MetricSources) -> Iterator[Sample]:
        yield (), value(sources)

    return sample_value


API, VERSION, CODE, NODE, LISTENER = ("api",), ("version",), ("code",), ("node",), ("listener",)
LOG = ("topic", "partition")
GROUP = ("type", "state")
CLIENT = ("client_id", "client_instance_id", "metric", "attributes")
CLIENT_HELP = "Metrics that connected clients have pushed: the newest value, or the sum for those that count (KIP-714)."
LAG_HELP = "Records between the offset that a group has committed and the end of the partition."
DURATION_HELP = "Time from reading a request until its answer was sent; for Fetch including the wait for records."
DIRTY_HELP = "The dirty share of the dirtiest compacted log, 0 to 1, when the cleaner last looked."
UNCLEANABLE_HELP = "Partitions that are no longer compacted, because their logs cannot be read."
LOOKED_HELP = "When the cleaner last looked for dirty logs, seconds since 1970; 0 if it never has."
EXPIRED_HELP = "Connections closed because their client went on after the end of its session."
REBALANCES_HELP = "New generations of classic groups, and new epochs of the other types."
COUNTER, GAUGE, HISTOGRAM = CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

ROWS: tuple[MetricRow, ...] = (
    MetricRow("requests", COUNTER, API + VERSION, "Requests that could be read.", _sample_requests),
    MetricRow("request_errors", COUNTER, API + CODE, "Error codes in answers; each occurrence counts.", _sample_errors),
    MetricRow(
        "requests_lost",
        COUNTER,
        API,
        "Requests that failed, or whose client left before the answer.",
        _make_sampler_by_api(lambda s: s.lost),
    ),
    MetricRow(
        "request_bytes",
        COUNTER,
        API,
        "Bytes of requests that could be read.",
        _make_sampler_by_api(lambda s: s.received_bytes),
    ),
    MetricRow(
        "response_bytes", COUNTER, API, "Bytes of answers that were sent.", _make_sampler_by_api(lambda s: s.sent_bytes)
    ),
    MetricRow("request_duration_seconds", HISTOGRAM, API, DURATION_HELP, _make_sampler_by_api(_sample_durations)),
    MetricRow(
        "requests_delayed",
        GAUGE,
        (),
        "Requests that wait for something, such as a Fetch for records.",
        _sample_delayed_requests,
    ),
    MetricRow("connections", GAUGE, NODE + LISTENER, "Open connections.", _sample_connections),
    MetricRow("connections_accepted", COUNTER, NODE + LISTENER, "Accepted connections.", _sample_accepted_connections),
    MetricRow(
        "authentications",
        COUNTER,
        NODE + LISTENER,
        "Clients that authenticated.",
        _make_sampler_of_authentications("succeeded"),
    ),
    MetricRow(
        "authentication_failures",
        COUNTER,
        NODE + LISTENER,
        "Clients that failed to authenticate.",
        _make_sampler_of_authentications("failed"),
    ),
    MetricRow(
        "reauthentications",
        COUNTER,
        NODE + LISTENER,
        "Clients that authenticated again on the same connection.",
        _make_sampler_of_authentications("reauthenticated"),
    ),
    MetricRow(
        "reauthentication_failures",
        COUNTER,
        NODE + LISTENER,
        "Clients that failed to authenticate again.",
        _make_sampler_of_authentications("reauthentication_failed"),
    ),
    MetricRow(
        "expired_connections_closed",
        COUNTER,
        NODE + LISTENER,
        EXPIRED_HELP,
        _make_sampler_of_authentications("expired"),
    ),
    MetricRow("fetch_sessions", GAUGE, NODE, "Fetch sessions in the cache.", _sample_fetch_sessions),
    MetricRow("fsync_duration_seconds", HISTOGRAM, (), "Time of each fsync of a file or directory.", _sample_fsyncs),
    MetricRow(
        "fsync_failures", COUNTER, (), "Calls of fsync that failed.", _make_sampler_of_value(lambda o: o.syncs.failures)
    ),
    MetricRow("groups", GAUGE, GROUP, "Groups by type and state.", _sample_groups),
    MetricRow("group_rebalances", COUNTER, ("type",), REBALANCES_HELP, _sample_rebalances),
    MetricRow(
        "consumer_group_lag",
        GAUGE,
        ("group", *LOG),
        LAG_HELP,
        lambda observed: _sum_samples_beyond_limit(LAGS_TOLD, _sample_lags(observed)),
    ),
    MetricRow("topics", GAUGE, (), "Topics.", _make_sampler_of_value(lambda o: len(o.cluster.image.topics))),
    MetricRow("partitions", GAUGE, (), "Partitions of all topics.", _make_sampler_of_value(_count_partitions)),
    MetricRow(
        "log_size_bytes",
        GAUGE,
        LOG,
        "Size of a partition's batches.",
        _make_sampler_of_logs(lambda log: log.size_bytes),
    ),
    MetricRow(
        "log_start_offset",
        GAUGE,
        LOG,
        "First offset of a partition.",
        _make_sampler_of_logs(lambda log: log.log_start_offset),
    ),
    MetricRow(
        "log_end_offset",
        GAUGE,
        LOG,
        "Offset of a partition's next record.",
        _make_sampler_of_logs(lambda log: log.log_end_offset),
    ),
    MetricRow(
        "log_segments", GAUGE, LOG, "Segments of a partition.", _make_sampler_of_logs(lambda log: len(log.segments))
    ),
    MetricRow(
        "log_producer_ids",
        GAUGE,
        LOG,
        "Producer ids that a partition knows.",
        _make_sampler_of_logs(lambda log: len(log.producers)),
    ),
    MetricRow("cleaner_cleanings", COUNTER, (), "Completed cleanings of logs.", _make_sampler_of_cleaner("cleanings")),
    MetricRow(
        "cleaner_seconds",
        COUNTER,
        (),
        "Time that cleanings took, summed over all threads.",
        _make_sampler_of_cleaner("seconds"),
    ),
    MetricRow(
        "cleaner_last_seconds", GAUGE, (), "Time that the last cleaning took.", _make_sampler_of_cleaner("last_seconds")
    ),
    MetricRow(
        "cleaner_read_bytes", COUNTER, (), "Bytes that the cleaner has read.", _make_sampler_of_cleaner("read_bytes")
    ),
    MetricRow(
        "cleaner_written_bytes",
        COUNTER,
        (),
        "Bytes that the cleaner has written.",
        _make_sampler_of_cleaner("written_bytes"),
    ),
    MetricRow(
        "cleaner_read_records",
        COUNTER,
        (),
        "Records that the cleaner has read.",
        _make_sampler_of_cleaner("read_records"),
    ),
    MetricRow(
        "cleaner_written_records",
        COUNTER,
        (),
        "Records that the cleaner has written.",
        _make_sampler_of_cleaner("written_records"),
    ),
    MetricRow("cleaner_running", GAUGE, (), "Logs that are being cleaned.", _make_sampler_of_cleaner("running")),
    MetricRow("cleaner_max_dirty_ratio", GAUGE, (), DIRTY_HELP, _make_sampler_of_cleaner("max_dirty_ratio")),
    MetricRow("cleaner_uncleanable_partitions", GAUGE, (), UNCLEANABLE_HELP, _make_sampler_of_cleaner("uncleanable")),
    MetricRow(
        "cleaner_last_look_time_seconds",
        GAUGE,
        (),
        LOOKED_HELP,
        _make_sampler_of_value(lambda o: o.cleaner.looked_ms / 1000),
    ),
    MetricRow(
        "client_instances",
        GAUGE,
        (),
        "Connected clients that push metrics.",
        _make_sampler_of_value(lambda o: len(o.cluster.telemetry.list_connected_instances())),
    ),
    MetricRow("client_metric", GAUGE, CLIENT, CLIENT_HELP, _sample_client_metrics),
    MetricRow(
        "start_time_seconds",
        GAUGE,
        (),
        "When the broker started, seconds since 1970.",
        _make_sampler_of_value(lambda o: o.started_s),
    ),
    MetricRow(
        "info", GAUGE, VERSION, "Always 1; the label has minibroker's version.", lambda observed: [((__version__,), 1)]
    ),
)
