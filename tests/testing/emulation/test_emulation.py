"""A broker as each release of Kafka from 0.8.2 on: what it announces, serves and refuses, and how clients take it."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from minibroker.protocol.apis import ApiKey, get_request_class
from minibroker.protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse, UpdateFeaturesRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.transactions import InitProducerIdRequest
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Record
from minibroker.testing import Broker
from minibroker.testing.emulation.emulation import list_highest_feature_levels
from minibroker.testing.emulation.releases import RELEASES, list_versions_of_release
from tests.sampling import sampled
from tests.testing.emulation.asking import asked

pytestmark = pytest.mark.usefixtures("leaves_sockets")

SINCE_API_VERSIONS = [release for release in RELEASES if ApiKey.API_VERSIONS in list_versions_of_release(release)]


@pytest.mark.parametrize("release", SINCE_API_VERSIONS)
def test_a_release_announces_its_versions_that_are_served(release: str) -> None:
    with Broker(emulate=release) as broker:
        versions = list_versions_of_release(release)
        newest = versions[ApiKey.API_VERSIONS][-1]
        answer = asked(broker, ApiVersionsRequest(client_software_name="a", client_software_version="1"), newest)
        assert answer.error_code == 0
        for api in answer.api_keys:
            announced = versions[ApiKey(api.api_key)]
            assert announced[0] <= api.min_version <= api.max_version <= announced[-1]
        told = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        for key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.OFFSET_COMMIT):
            assert told[key] == (versions[key][0], versions[key][-1])
        finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        assert set(finalized) <= set(list_highest_feature_levels(release))
        assert ("eligible.leader.replicas.version" in finalized) == (RELEASES.index(release) >= RELEASES.index("4.1"))


@pytest.mark.parametrize("release", RELEASES)
def test_a_metadata_request_version_above_the_releases_newest_is_not_answered(release: str) -> None:
    with Broker(emulate=release) as broker:
        newest = list_versions_of_release(release)[ApiKey.METADATA][-1]
        assert asked(broker, MetadataRequest(topics=[]), newest).brokers
        if newest < max(MetadataRequest.versions):
            assert asked(broker, MetadataRequest(topics=[]), newest + 1) is None


@pytest.mark.parametrize(("release", "enabled", "newest"), [("4.0", True, 5), ("4.3", False, 5), ("4.3", True, 6)])
def test_unreleased_versions_are_served_if_enabled(release: str, enabled: bool, newest: int) -> None:
    with Broker(emulate=release, settings={"unstable.api.versions.enable": str(enabled).lower()}) as broker:
        answer = asked(broker, ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
        told = {api.api_key: api.max_version for api in answer.api_keys}
        assert told[ApiKey.INIT_PRODUCER_ID] == newest
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        assert asked(broker, request, newest).error_code == 0
        if newest == 5:
            assert asked(broker, request, 6) is None


@pytest.mark.parametrize(
    ("release", "enabled", "level"), [("4.3", "true", 31), ("4.3", "false", 30), ("4.4", "true", 33)]
)
def test_an_unreleased_feature_level_is_offered_if_enabled(release: str, enabled: str, level: int) -> None:
    with Broker(emulate=release, settings={"unstable.feature.versions.enable": enabled}) as broker:
        update = UpdateFeaturesRequest.FeatureUpdateKey(feature="metadata.version", max_version_level=level)
        assert asked(broker, UpdateFeaturesRequest(feature_updates=[update]), 1).error_code == 0
        answer = asked(broker, ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
        supported = {each.name: each.max_version for each in answer.supported_features}
        finalized = {each.name: each.max_version_level for each in answer.finalized_features}
        assert (supported["metadata.version"], finalized["metadata.version"]) == (level, level)


@pytest.mark.parametrize("release", SINCE_API_VERSIONS)
def test_a_newer_version_of_api_versions_is_answered_in_version_0(release: str) -> None:
    with Broker(emulate=release) as broker:
        newest = list_versions_of_release(release)[ApiKey.API_VERSIONS][-1]
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        for version in (newest + 1, 99):  # 99 is known to no release
            answer = asked(broker, request, version, read_as=0)
            assert isinstance(answer, ApiVersionsResponse) and answer.error_code == 35
            told = {api.api_key: api.max_version for api in answer.api_keys}
            if RELEASES.index(release) >= RELEASES.index("2.4"):
                assert told == {ApiKey.API_VERSIONS: newest}
            else:
                assert told == {}


@pytest.mark.parametrize("release", ["0.8.2", "0.9"])
def test_releases_without_api_versions_close_the_connection(release: str) -> None:
    with Broker(emulate=release) as broker:
        assert asked(broker, ApiVersionsRequest(), 0) is None
        assert asked(broker, ApiVersionsRequest(), 99, read_as=0) is None


@pytest.mark.parametrize("release", ["4.0", "4.1", "4.2", "4.3", "4.4"])
def test_kafka_4_announces_produce_from_version_0_on_and_does_not_answer_it_below_version_3(release: str) -> None:
    with Broker(emulate=release) as broker:
        told = {api.api_key: api.min_version for api in asked(broker, ApiVersionsRequest(), 0).api_keys}
        assert told[ApiKey.PRODUCE] == 0
        for version in (0, 2):
            assert asked(broker, ProduceRequest(acks=1, timeout_ms=100), version) is None
        assert asked(broker, ProduceRequest(acks=1, timeout_ms=100), 3) is not None


@pytest.mark.parametrize(
    ("release", "magic"), [("0.8.2", 0), ("0.9", 0), ("0.10.0", 1), ("0.10.2", 1), ("0.11", 2), ("2.8", 2), ("4.3", 2)]
)
def test_the_message_format_on_disk_is_the_releases(release: str, magic: int) -> None:
    with Broker(emulate=release) as broker:
        broker.produce("t", "a")
        assert broker.records("t")[0].magic == magic


@pytest.mark.parametrize("release", sampled(SINCE_API_VERSIONS, every=5))
def test_librdkafka_produces_and_consumes(release: str) -> None:
    """librdkafka 2.16 speaks to no release before 0.10.0."""
    with Broker(emulate=release) as broker:
        broker.create_topic("t")
        settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
        producer = Producer(settings)
        producer.produce("t", "a", "k")
        assert producer.flush(20) == 0
        consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        (message,) = consumer.consume(1, 20)
        assert (message.key(), message.value()) == (b"k", b"a")
        consumer.close()


@pytest.mark.parametrize("release", ["0.9", "0.10.0", "0.11", "1.1", "2.4", "3.3", "3.9", "4.0", "4.4"])
def test_kafka_python_produces_and_consumes(release: str) -> None:
    version = tuple(map(int, release.split(".")))
    told = {"api_version": version} if version < (0, 10) else {}  # without ApiVersions it cannot find out
    with Broker(emulate=release) as broker:
        broker.create_topic("t")
        where = {"bootstrap_servers": broker.bootstrap_servers, **told}
        producer = KafkaProducer(enable_idempotence=version >= (0, 11), **where)
        producer.send("t", b"a").get(20)
        producer.close()
        consumer = KafkaConsumer("t", auto_offset_reset="earliest", group_id="g", **where)
        assert next(consumer).value == b"a"
        consumer.close()


def test_a_client_of_0_8_2_produces_and_consumes() -> None:
    with Broker(emulate="0.8.2") as broker:
        broker.produce("t", "first")
        Data = ProduceRequest.TopicProduceData
        messages = bytes(build_message_set([Record(0, -1, b"k", b"a")], magic=0))
        partition = Data.PartitionProduceData(index=0, records=memoryview(messages))
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[Data(name="t", partition_data=[partition])])
        assert asked(broker, request, 0).responses[0].partition_responses[0].base_offset == 1
        Topic = FetchRequest.FetchTopic
        wanted = Topic.FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000)
        fetch = FetchRequest(max_wait_ms=100, min_bytes=1, topics=[Topic(topic="t", partitions=[wanted])])
        (answer,) = asked(broker, fetch, 0).responses[0].partitions
        assert bytes(answer.records)[8:] == messages[8:]
        assert asked(broker, fetch, 1) is None


def test_settings_override_the_defaults_of_a_release() -> None:
    with Broker({"log.message.format.version": "0.9.0"}, emulate="4.3") as broker:
        broker.produce("t", "a")
        assert broker.records("t")[0].magic == 0


def test_an_unknown_release_is_an_error() -> None:
    with pytest.raises(ValueError, match="'5.0' is not a known release"):
        Broker(emulate="5.0")


def test_the_journal_contains_requests_to_an_emulated_broker() -> None:
    with Broker(emulate="2.0") as broker:
        broker.create_topic("t")
        broker.journal.on()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        producer.produce("t", "a")
        assert producer.flush(20) == 0
        (exchange,) = broker.wait_for_requests("Produce")
        assert exchange.version == 6
        assert get_request_class(ApiKey.PRODUCE) is type(exchange.request)
