"""What older releases did otherwise in the same version of an API."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.groups import FindCoordinatorRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.streams_groups import StreamsGroupHeartbeatRequest
from minibroker.protocol.messages.topics import CreateTopicsRequest
from minibroker.protocol.primitives import ZERO_UUID
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from minibroker.testing import Broker
from minibroker.testing.emulation.quirks import QUIRKS
from minibroker.testing.emulation.releases import RELEASES, list_versions_of_release
from tests.sampling import sampled
from tests.testing.emulation.asking import asked

pytestmark = pytest.mark.usefixtures("leaves_sockets")


def test_each_quirk_has_known_releases_and_their_apis() -> None:
    for quirk in QUIRKS:
        until = len(RELEASES) if quirk.until is None else RELEASES.index(quirk.until)
        for release in RELEASES[RELEASES.index(quirk.since) : until]:
            assert set(quirk.apis) <= set(list_versions_of_release(release)), quirk


# --- topics made on demand ------------------------------------------------------------------------


@pytest.mark.parametrize("release", RELEASES)
def test_the_first_response_for_an_auto_created_topic_is_an_error(release: str) -> None:
    with Broker(emulate=release) as broker:
        version = list_versions_of_release(release)[ApiKey.METADATA][-1]
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name="t")], allow_auto_topic_creation=True
        )
        (first,) = asked(broker, request, version).topics
        kraft = RELEASES.index(release) >= RELEASES.index("3.3")
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if kraft else ErrorCode.LEADER_NOT_AVAILABLE
        assert (first.name, first.error_code, first.partitions, first.topic_id) == ("t", error, [], ZERO_UUID)
        (second,) = asked(broker, request, version).topics
        assert second.error_code == 0 and len(second.partitions) == 1


def test_only_auto_created_topics_are_first_unavailable_in_older_releases() -> None:
    with Broker(emulate="2.0", auto_create=False) as broker:
        broker.create_topic("there")
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in ("there", "missing")]
        answer = asked(broker, MetadataRequest(topics=topics), 1)
        codes = {topic.name: topic.error_code for topic in answer.topics}
        assert codes == {"there": 0, "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("release", ["1.1", "3.9"])
def test_producers_retry_for_an_auto_created_topic(release: str) -> None:
    with Broker(emulate=release) as broker:
        broker.journal.on()
        first = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        first.produce("a", "1")
        assert first.flush(20) == 0
        second = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        second.send("b", b"2").get(20)
        second.close()
        told = [
            (topic.name, topic.error_code)
            for exchange in broker.requests("Metadata")
            for topic in (exchange.answer.topics if exchange.answer else ())
            if topic.name in ("a", "b")
        ]
        error = ErrorCode.LEADER_NOT_AVAILABLE if release == "1.1" else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for name in ("a", "b"):
            codes = [code for topic, code in told if topic == name]
            assert (codes[0], codes[-1]) == (error, 0)


@pytest.mark.parametrize(("release", "listed"), [("0.11", True), ("3.9", True), ("4.0", False)])
def test_settings_removed_in_kafka_4_are_listed_by_older_releases(release: str, listed: bool) -> None:
    with Broker(emulate=release) as broker:
        broker.create_topic("t")
        asking = DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name="t")
        (answer,) = asked(broker, DescribeConfigsRequest(resources=[asking]), 1 if release != "0.11" else 0).results
        names = {found.name for found in answer.configs}
        older = {"message.format.version", "message.timestamp.difference.max.ms"}
        assert names & older == (older if listed else set())
        newer = {"record.attributes.elide", "max.decompressed.message.bytes", "errors.deadletterqueue.group.enable"}
        assert "retention.ms" in names and not names & newer


@pytest.mark.parametrize(("release", "listed"), [("2.4", False), ("4.3", False), ("4.4", True)])
def test_settings_new_in_4_4_are_listed_by_older_releases_only_if_set(release: str, listed: bool) -> None:
    asking = DescribeConfigsRequest.DescribeConfigsResource
    wanted = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    wanted.configs = [CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name="remote.copy.lag.ms", value="7")]
    with Broker(emulate=release) as broker:
        (made,) = asked(broker, CreateTopicsRequest(topics=[wanted]), 5).topics
        resources = [asking(resource_type=2, resource_name="t"), asking(resource_type=4, resource_name="1")]
        topic, node = asked(broker, DescribeConfigsRequest(resources=resources), 2).results
        for configs in (made.configs, topic.configs):
            names = {each.name for each in configs}
            assert {"retention.ms", "remote.copy.lag.ms"} <= names
            assert ("remote.copy.lag.bytes" in names) == listed
        names = {each.name for each in node.configs}
        assert "num.partitions" in names and ("log.remote.copy.lag.ms" in names) == listed


@pytest.mark.parametrize(("release", "metadata", "share"), [("4.3", 30, 1), ("4.4", 33, 2)])
def test_a_new_cluster_starts_with_the_feature_levels_of_its_release(release: str, metadata: int, share: int) -> None:
    with Broker(emulate=release) as broker:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        levels = {each.name: each.max_version_level for each in asked(broker, request, 4).finalized_features}
        assert (levels["metadata.version"], levels["share.version"]) == (metadata, share)


# --- coordinators ---------------------------------------------------------------------------------


def coordinator(broker: Broker, version: int, key_type: int = 0) -> tuple[int, int, str]:
    """The error code, and where the coordinator is."""
    answer = asked(broker, FindCoordinatorRequest(key="k", key_type=key_type, coordinator_keys=["k"]), version)
    (found,) = answer.coordinators if version >= 4 else [answer]
    return found.error_code, found.node_id, found.host


@pytest.mark.parametrize("release", sampled(RELEASES, every=5))
def test_the_first_find_coordinator_returns_coordinator_not_available(release: str) -> None:
    with Broker(emulate=release) as broker:
        version = list_versions_of_release(release)[ApiKey.FIND_COORDINATOR][-1]
        assert coordinator(broker, version) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "")
        assert coordinator(broker, version) == (0, broker_id(broker), "127.0.0.1")
        if version >= 1:  # transactions have a topic of their own
            assert coordinator(broker, version, 1) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "")
            assert coordinator(broker, version, 1)[0] == 0


# --- topics with the broker's defaults ------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "codes"),
    [
        ("0.10.1", {"a": ErrorCode.INVALID_PARTITIONS, "b": ErrorCode.INVALID_REPLICATION_FACTOR, "c": 0, "d": 0}),
        ("2.3", {"a": ErrorCode.INVALID_PARTITIONS, "b": ErrorCode.INVALID_REPLICATION_FACTOR, "c": 0, "d": 0}),
        ("2.4", {"a": 0, "b": 0, "c": 0, "d": 0}),
    ],
)
def test_broker_defaults_for_new_topics_are_available_since_2_4(release: str, codes: dict[str, int]) -> None:
    Topic = CreateTopicsRequest.CreatableTopic
    with Broker(emulate=release) as broker:
        placed = [Topic.CreatableReplicaAssignment(partition_index=0, broker_ids=[broker_id(broker)])]
        topics = [
            Topic(name="a", num_partitions=-1, replication_factor=1),
            Topic(name="b", num_partitions=1, replication_factor=-1),
            Topic(name="c", num_partitions=1, replication_factor=1),
            Topic(name="d", num_partitions=-1, replication_factor=-1, assignments=placed),
        ]
        answer = asked(broker, CreateTopicsRequest(topics=topics, timeout_ms=1000), 0)
        assert {topic.name: topic.error_code for topic in answer.topics} == codes


def broker_id(broker: Broker) -> int:
    version = list_versions_of_release(broker.emulated or "")[ApiKey.METADATA][0]
    (node,) = asked(broker, MetadataRequest(topics=[]), version).brokers
    found: int = node.node_id
    return found


# --- offsets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("release", "code"), [("3.2", 0), ("3.3", ErrorCode.UNSUPPORTED_VERSION), ("3.9", 35)])
def test_offsets_in_zookeeper_are_rejected_without_zookeeper(release: str, code: int) -> None:
    with Broker(emulate=release) as broker:
        broker.produce("t", "a")
        assert commit_code(broker, 0) == code
        Topic = OffsetFetchRequest.OffsetFetchRequestTopic
        request = OffsetFetchRequest(group_id="g", topics=[Topic(name="t", partition_indexes=[0])])
        (topic,) = asked(broker, request, 0).topics
        (partition,) = topic.partitions
        offset = 1 if code == 0 else -1
        assert (topic.name, partition.error_code, partition.committed_offset) == ("t", code, offset)
        assert commit_code(broker, 1) == 0


def commit_code(broker: Broker, version: int, generation_id: int = -1, member_id: str = "") -> int:
    while coordinator(broker, 0)[0] != 0:
        pass
    Topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = Topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        topics=[Topic(name="t", partitions=[partition])],
    )
    (topic,) = asked(broker, request, version).topics
    code: int = topic.partitions[0].error_code
    return code


@pytest.mark.parametrize(("release", "code"), [("0.8.2", 0), ("0.9", ErrorCode.ILLEGAL_GENERATION)])
def test_kafka_0_8_2_accepts_commits_of_unknown_consumers(release: str, code: int) -> None:
    with Broker(emulate=release) as broker:
        broker.produce("t", "a")
        assert commit_code(broker, 1, generation_id=7, member_id="consumer") == code


# --- producers ------------------------------------------------------------------------------------


def produced(
    broker: Broker, producer_id: int, base_sequence: int, partitions: tuple[int, ...] = (0,)
) -> dict[int, int]:
    """The error code by partition."""
    batch = build_batch(
        [Record(0, broker.clock.now_ms(), None, b"a")],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=base_sequence,
    )
    Data = ProduceRequest.TopicProduceData
    data = [Data.PartitionProduceData(index=index, records=memoryview(bytes(batch))) for index in partitions]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[Data(name="t", partition_data=data)])
    (topic,) = asked(broker, request, 3).responses
    return {partition.index: partition.error_code for partition in topic.partition_responses}


@pytest.mark.parametrize(
    ("release", "code"),
    [
        ("0.11", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ("1.0", ErrorCode.UNKNOWN_PRODUCER_ID),
        ("2.4", ErrorCode.UNKNOWN_PRODUCER_ID),
        ("2.5", ErrorCode.NONE),
        ("4.3", ErrorCode.NONE),
    ],
)
def test_the_error_for_a_later_sequence_of_an_unknown_producer_depends_on_the_release(
    release: str, code: ErrorCode
) -> None:
    with Broker(emulate=release) as broker:
        broker.create_topic("t", partitions=2)
        assert produced(broker, 1, 5) == {0: code}
        assert len(broker.records("t")) == (code == ErrorCode.NONE)


def test_a_producer_is_rejected_only_in_partitions_that_do_not_know_it() -> None:
    with Broker(emulate="2.0") as broker:
        broker.create_topic("t", partitions=2)
        assert produced(broker, 1, 0, (1,)) == {1: 0}
        assert produced(broker, 1, 1, (0, 1)) == {0: ErrorCode.UNKNOWN_PRODUCER_ID, 1: 0}
        assert [record.partition for record in broker.records("t")] == [1, 1]


@pytest.mark.parametrize("release", ["0.11", "2.4"])
def test_an_idempotent_producer_writes_in_emulated_releases(release: str) -> None:
    with Broker(emulate=release) as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "enable.idempotence": True}
        producer = Producer({**settings, "batch.num.messages": 1})
        for number in range(5):
            producer.produce("t", str(number))
        assert producer.flush(20) == 0
        assert [record.text for record in broker.records("t")] == ["0", "1", "2", "3", "4"]


# --- consumers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["2.1", "3.9", "4.0", "4.4"])
def test_fetches_of_zstd_topics_by_old_clients_are_rejected_before_4_0(release: str) -> None:
    with Broker(emulate=release) as broker:
        broker.create_topic("t", compression_type="zstd")
        broker.produce("t", "a")
        Topic = FetchRequest.FetchTopic
        wanted = Topic(topic="t", partitions=[Topic.FetchPartition(partition=0, partition_max_bytes=1000)])
        for version in (4, 9, 10):
            answer = asked(broker, FetchRequest(max_bytes=1000, topics=[wanted]), version).responses[0].partitions[0]
            refused = version < 10 and release in ("2.1", "3.9")
            assert answer.error_code == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if refused else 0)
            assert bool(answer.records) is not refused


# --- groups -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "until_4_3", "since_4_4"),
    [
        (
            *("streams.num.standby.replicas", "3"),
            *("less than or equal to group.streams.max.standby.replicas", "less than or equal to 2"),
        ),
        (
            *("consumer.session.timeout.ms", "44999"),
            "greater than or equal to group.consumer.min.session.timeout.ms",
            "in the range 45000 to 60000 inclusive.",
        ),
        (
            *("share.heartbeat.interval.ms", "15001"),
            "less than or equal to group.share.max.heartbeat.interval.ms",
            "in the range 5000 to 15000 inclusive.",
        ),
        (*("consumer.session.timeout.ms", "x"), "", ""),
    ],
)
def test_the_error_for_a_group_setting_beyond_its_bound_names_the_bound_before_4_4(
    name: str, value: str, until_4_3: str, since_4_4: str
) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=32, resource_name="g")
    resource.configs = [resource.AlterableConfig(name=name, config_operation=0, value=value)]
    request = IncrementalAlterConfigsRequest(resources=[resource])
    for release, expected in (("4.3", until_4_3), ("4.4", since_4_4)):
        with Broker(emulate=release) as broker:
            (answer,) = asked(broker, request, 1).responses
            assert answer.error_code == ErrorCode.INVALID_CONFIG
            message = f"{name} must be {expected}" if expected else "Invalid value x for configuration"
            assert answer.error_message.startswith(message)


# --- streams groups -------------------------------------------------------------------------------


@pytest.mark.parametrize(("release", "interval_ms"), [("4.2", 0), ("4.3", 0), ("4.4", 60_000)])
def test_streams_group_members_report_task_offsets_since_4_4(release: str, interval_ms: int) -> None:
    topology = StreamsGroupHeartbeatRequest.Topology(
        epoch=1,
        subtopologies=[StreamsGroupHeartbeatRequest.Topology.Subtopology(subtopology_id="0", source_topics=["t"])],
    )
    request = StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=1000,
        process_id="p",
        topology=topology,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    with Broker(emulate=release) as broker:
        broker.create_topic("t")
        asked(broker, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        answer = asked(broker, request, 0)
        assert (answer.error_code, answer.task_offset_interval_ms) == (ErrorCode.NONE, interval_ms)
