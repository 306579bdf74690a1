"""The metrics of a cluster, read back by Prometheus's own parser."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from minibroker import __version__
from minibroker.broker.groups.group import GroupType
from minibroker.broker.groups.offsets_of_group import CommittedOffset
from minibroker.broker.groups.share.share_group import ShareGroup, ShareMember
from minibroker.broker.monitoring import metrics
from minibroker.broker.monitoring.measured_disk import SyncStatistics
from minibroker.broker.monitoring.metrics import ROWS, MetricSources, generate_exposition
from minibroker.broker.monitoring.request_statistics import RequestStatistics
from minibroker.broker.network.authentication_statistics import AuthenticationStatistics
from minibroker.broker.network.connection import Connection
from minibroker.broker.requests.interceptors import Call, Interceptor
from minibroker.broker.server import Server
from minibroker.broker.upkeep.cleaner_statistics import CleanerStatistics
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.topics import DeleteTopicsRequest
from minibroker.protocol.primitives import ZERO_UUID
from tests.broker.harness import Client, Harness, batch


class Stage:
    """A cluster with statistics, and a server whose connections are the harness's clients."""

    def __init__(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.harness = harness
        self.clients: list[Client] = []
        statistics = RequestStatistics()
        harness.dispatcher.interceptors.append(statistics)
        with asyncio.Runner() as runner:
            server = Server(runner.get_loop(), harness.cluster)
        server.accepted[1, "PLAINTEXT"] = 7
        server.accepted[1, "INTERNAL"] = 0
        monkeypatch.setattr(server, "list_connections", self.connections)
        self.syncs, self.cleaner = SyncStatistics(), CleanerStatistics()
        self.observed = MetricSources(harness.cluster, server, statistics, self.syncs, self.cleaner, 1_700_000_000.5)

    def connections(self) -> list[Connection]:
        return [client.connection for client in self.clients]

    def client(self) -> Client:
        self.clients.append(self.harness.client())
        return self.clients[-1]

    def families(self) -> dict[str, Metric]:
        text = asyncio.run(generate_exposition(self.observed)).decode()
        return {family.name: family for family in text_string_to_metric_families(text)}

    def values(self, name: str) -> dict[tuple[str, ...], float]:
        """The samples of a metric by the values of their labels, in the order of the labels' names in its row."""
        (row,) = (row for row in ROWS if row.name == name)
        family = self.families()[f"minibroker_{name}"]
        return {tuple(sample.labels[label] for label in row.labels): sample.value for sample in family.samples}


@pytest.fixture
def stage(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    yield Stage(harness, monkeypatch)


def waiting_fetch(harness: Harness, topic: str) -> FetchRequest:
    partition = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = [FetchRequest.FetchTopic(topic=topic, partitions=[partition])]
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1000, session_epoch=0, topics=topics)


def test_every_metric_has_type_and_help_even_in_an_empty_cluster(stage: Stage) -> None:
    families = stage.families()
    assert [f"minibroker_{row.name}" for row in ROWS] == list(families)
    for row in ROWS:
        family = families[f"minibroker_{row.name}"]
        assert family.documentation == row.help
        assert row.kind.__name__.lower().startswith(family.type)


def test_requests_errors_and_bytes_are_counted(stage: Stage) -> None:
    client = stage.client()
    client.send(MetadataRequest(topics=[]), 9)
    client.send(MetadataRequest(topics=[]), 12)
    client.send(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="none")]), 6)
    client.sent_bytes()
    assert stage.values("requests") == {("Metadata", "9"): 1, ("Metadata", "12"): 1, ("DeleteTopics", "6"): 1}
    assert stage.values("request_errors") == {("DeleteTopics", "UNKNOWN_TOPIC_OR_PARTITION"): 1}
    assert sum(stage.values("response_bytes").values()) == len(client.sent_bytes())
    assert set(stage.values("requests_lost").values()) == {0}
    assert set(stage.values("request_bytes")) == {("Metadata",), ("DeleteTopics",)}


def test_durations_are_cumulative_histograms_in_seconds(stage: Stage) -> None:
    waits = iter((0.2, 3.0, 40.0))

    class Slow(Interceptor):
        def before_request(self, call: Call) -> None:
            stage.harness.clock.advance(next(waits))

    stage.harness.dispatcher.interceptors.append(Slow())
    for _ in range(3):
        stage.harness.request(MetadataRequest(topics=[]))
    samples = stage.families()["minibroker_request_duration_seconds"].samples
    buckets = {sample.labels["le"]: sample.value for sample in samples if sample.name.endswith("_bucket")}
    expected = {"0.00025": 1, "0.0025": 1, "0.005": 2, "0.025": 2, "0.05": 3, "30.0": 3, "+Inf": 3}
    assert {le: buckets[le] for le in expected} == expected
    (total,) = (sample.value for sample in samples if sample.name.endswith("_sum"))
    assert total == pytest.approx(0.0432)


def test_log_metrics_have_topic_and_partition_labels(stage: Stage) -> None:
    harness = stage.harness
    harness.create_topic("orders", partitions=2)
    harness.produce("orders", "a", "b", partition=1, producer_id=5, producer_epoch=0, base_sequence=0)
    harness.partition("orders", 1).log.delete_records_before(1)
    size = len(batch("a", "b"))
    assert stage.values("log_size_bytes") == {("orders", "0"): 0, ("orders", "1"): size}
    assert stage.values("log_start_offset") == {("orders", "0"): 0, ("orders", "1"): 1}
    assert stage.values("log_end_offset") == {("orders", "0"): 0, ("orders", "1"): 2}
    assert stage.values("log_segments") == {("orders", "0"): 1, ("orders", "1"): 1}
    assert stage.values("log_producer_ids") == {("orders", "0"): 0, ("orders", "1"): 1}
    assert (stage.values("topics"), stage.values("partitions")) == ({(): 1}, {(): 2})


def test_only_some_of_very_many_partitions_are_listed_and_the_others_summed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "PARTITIONS_TOLD", 3)
    harness = stage.harness
    harness.create_topic("orders", partitions=2)
    harness.create_topic("other", partitions=1)
    assert len(stage.values("log_end_offset")) == 3
    harness.create_topic("late", partitions=200)
    for partition in (0, 7, 199):
        harness.produce("late", "a", "b", partition=partition)
    told = stage.values("log_end_offset")
    assert told == {("orders", "0"): 0, ("orders", "1"): 0, ("other", "0"): 0, ("(other)", "(other)"): 6}
    assert stage.values("log_segments")["(other)", "(other)"] == 200
    assert stage.values("partitions") == {(): 203}


def test_summing_very_many_partitions_yields_to_other_work(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "PARTITIONS_TOLD", 3)
    stage.harness.create_topic("late", partitions=1000)
    row = next(row for row in ROWS if row.name == "log_end_offset")
    samples = list(row.samples(stage.observed))
    assert len(samples) == 1001 and len([sample for sample in samples if sample is not None]) == 4


def test_open_connections_and_delayed_requests_are_counted(stage: Stage) -> None:
    stage.harness.create_topic("orders")
    for _ in range(3):
        stage.client()
    stage.clients[0].send(waiting_fetch(stage.harness, "orders"), 12)
    assert stage.values("connections") == {("1", "PLAINTEXT"): 3, ("1", "INTERNAL"): 0}
    assert stage.values("connections_accepted") == {("1", "PLAINTEXT"): 7, ("1", "INTERNAL"): 0}
    assert stage.values("requests_delayed") == {(): 1}
    assert stage.values("fetch_sessions") == {("1",): 1}
    stage.harness.clock.advance(500)
    assert stage.values("requests_delayed") == {(): 0}


def test_authentications_are_counted_by_listener(stage: Stage) -> None:
    assert stage.values("authentications") == {}
    statistics = stage.observed.server.authentications[1, "SASL"] = AuthenticationStatistics()
    statistics.succeeded, statistics.failed, statistics.expired = 5, 4, 1
    statistics.reauthenticated, statistics.reauthentication_failed = 3, 2
    names = ("authentications", "authentication_failures", "reauthentications", "reauthentication_failures")
    assert [stage.values(name)["1", "SASL"] for name in names] == [5, 4, 3, 2]
    assert stage.values("expired_connections_closed") == {("1", "SASL"): 1}


def test_fsyncs_are_a_histogram_in_seconds_that_includes_failures(stage: Stage) -> None:
    for _ in range(3):
        stage.syncs.measure_sync(lambda: None)
    stage.syncs.failures = 2
    samples = {each.name: each for each in stage.families()["minibroker_fsync_duration_seconds"].samples}
    assert samples["minibroker_fsync_duration_seconds_count"].value == 3
    assert samples["minibroker_fsync_duration_seconds_bucket"].labels == {"le": "+Inf"}
    assert samples["minibroker_fsync_duration_seconds_sum"].value == pytest.approx(stage.syncs.duration_ms / 1000)
    assert stage.values("fsync_failures") == {(): 2}


def test_cleaner_statistics_are_exported(stage: Stage) -> None:
    told = {
        "cleanings": 1,
        "seconds": 2.5,
        "last_seconds": 0.5,
        "read_bytes": 3,
        "written_bytes": 4,
        "read_records": 5,
        "written_records": 6,
        "running": 7,
        "max_dirty_ratio": 0.75,
    }
    for name, value in told.items():
        setattr(stage.cleaner, name, value)
    stage.cleaner.uncleanable, stage.cleaner.looked_ms = 8, 1_700_000_000_250
    assert {name: stage.values(f"cleaner_{name}")[()] for name in told} == told
    assert stage.values("cleaner_uncleanable_partitions") == {(): 8}
    assert stage.values("cleaner_last_look_time_seconds") == {(): 1_700_000_000.25}


def test_metrics_have_the_brokers_version_and_start_time(stage: Stage) -> None:
    assert stage.values("start_time_seconds") == {(): 1_700_000_000.5}
    assert stage.values("info") == {(__version__,): 1}


def test_label_values_are_escaped(stage: Stage) -> None:
    stage.observed.server.accepted[1, 'a"b\\c\nd'] = 1
    assert ("1", 'a"b\\c\nd') in stage.values("connections_accepted")


@pytest.mark.parametrize("partitions", [1, 4, 5, 6, 23])
def test_metrics_are_complete_although_written_in_steps(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    monkeypatch.setattr(metrics, "LINES_PER_SLICE", 5)
    stage.harness.create_topic("orders", partitions=partitions)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def scrape() -> str:
        others = asyncio.ensure_future(count_turns())
        text = await generate_exposition(stage.observed)
        others.cancel()
        return text.decode()

    text = asyncio.run(scrape())
    (family,) = (each for each in text_string_to_metric_families(text) if each.name == "minibroker_log_end_offset")
    assert len(family.samples) == partitions
    assert text.count("# TYPE minibroker_log_end_offset gauge") == 1
    assert turns >= len(ROWS) - 1 + 5 * (partitions // 5)


def test_topics_may_be_deleted_while_metrics_are_written(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "LINES_PER_SLICE", 1)
    for index in range(5):
        stage.harness.create_topic(f"t{index}")

    async def scrape() -> None:
        scraping = asyncio.ensure_future(generate_exposition(stage.observed))
        for index in range(5):
            for _ in range(7):
                await asyncio.sleep(0)
            topic = stage.harness.cluster.image.topics[f"t{index}"]
            stage.harness.cluster.controller.delete_topic(topic)
        assert b"minibroker_info" in await scraping

    asyncio.run(scrape())


def commit(stage: Stage, group: str, topic: str, partition: int, offset: int, topic_id: bytes = ZERO_UUID) -> None:
    """Let a group have committed an offset."""
    groups = stage.harness.cluster.groups
    found = groups.groups.setdefault(group, ShareGroup(groups, group))
    found.offsets.apply_offset(topic, partition, CommittedOffset(offset, -1, "", 1000, topic_id=topic_id))


def test_a_groups_lag_is_the_distance_to_the_end_of_each_partition(stage: Stage) -> None:
    stage.harness.create_topic("orders", partitions=3)
    for partition in (0, 1):
        stage.harness.produce("orders", "a", "b", "c", partition=partition)
    stage.harness.end_turn()
    commit(stage, "shop", "orders", 0, 1)
    commit(stage, "shop", "orders", 1, 3)
    commit(stage, "audit", "orders", 0, 0, stage.harness.cluster.image.topics["orders"].topic_id)
    told = {("shop", "orders", "0"): 2, ("shop", "orders", "1"): 0, ("audit", "orders", "0"): 3}
    assert stage.values("consumer_group_lag") == told
    commit(stage, "shop", "orders", 9, 1)
    commit(stage, "shop", "gone", 0, 1)
    commit(stage, "shop", "orders", 2, 1, b"another topic id")
    commit(stage, "audit", "orders", 0, 5)
    assert stage.values("consumer_group_lag") == told | {("audit", "orders", "0"): 0}, "what is gone is not told"


def test_only_some_of_very_many_consumer_lags_are_listed_and_the_others_summed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "LAGS_TOLD", 2)
    stage.harness.create_topic("orders")
    stage.harness.produce("orders", "a", "b")
    stage.harness.end_turn()
    commit(stage, "g" * 250, "orders", 0, 1)
    for group in ("(other)", "g1", "g2", "g3"):
        commit(stage, group, "orders", 0, 0)
    lags = stage.values("consumer_group_lag")
    assert lags.pop(("(other)", "(other)", "(other)")) == 5
    assert len(lags) == 2 and set(lags.values()) == {2}
    row = next(row for row in ROWS if row.name == "consumer_group_lag")
    steps = list(row.samples(stage.observed))
    assert len(steps) == 5 + 5 + 1 and len([step for step in steps if step is not None]) == 3


def test_groups_are_counted_by_type_and_state(stage: Stage) -> None:
    groups = stage.harness.cluster.groups
    for group_id in ("g1", "g2", "g3"):
        groups.groups[group_id] = ShareGroup(groups, group_id)
    groups.get_share_group("g3").members["m"] = ShareMember("m")
    groups.rebalances[GroupType.SHARE] = 4
    assert stage.values("groups") == {("share", "Empty"): 2, ("share", "Stable"): 1}
    assert stage.values("group_rebalances") == {("share",): 4}
