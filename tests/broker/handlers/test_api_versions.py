"""ApiVersions: what is announced, what a client may say of itself, and versions of the future."""

from __future__ import annotations

import pytest

from minibroker.broker.handlers.api_versions import OF_TELEMETRY
from minibroker.broker.requests.served import SERVED
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from tests.broker.harness import Harness, answer_in, frame_of, served_versions
from tests.cases import for_each

VERSIONS = served_versions(ApiVersionsRequest)
WITH_SOFTWARE = 3
WITH_FEATURES = 3
WITH_LEVEL_0 = 4


def asked(name: str = "librdkafka", version: str = "2.8.0") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


@for_each("version", VERSIONS)
def test_exactly_the_apis_with_a_handler_are_announced(harness: Harness, version: int) -> None:
    answer = harness.request(asked(), version)
    assert answer.error_code == ErrorCode.NONE
    announced = {api.api_key: range(api.min_version, api.max_version + 1) for api in answer.api_keys}
    expected = {key: served.versions for key, served in SERVED.items() if key not in OF_TELEMETRY}
    assert announced == expected | {ApiKey.INIT_PRODUCER_ID: range(6)}
    assert [api.api_key for api in answer.api_keys] == sorted(announced)


def test_the_original_apis_are_served_in_all_versions(harness: Harness) -> None:
    answer = harness.request(asked())
    announced = {ApiKey(api.api_key): (api.min_version, api.max_version) for api in answer.api_keys}
    expected = {
        ApiKey.PRODUCE: (0, 13),  # served from 3 on, and announced as Kafka does
        ApiKey.FETCH: (0, 18),
        ApiKey.LIST_OFFSETS: (0, 11),
        ApiKey.METADATA: (0, 13),
        ApiKey.FIND_COORDINATOR: (0, 6),
        ApiKey.SASL_HANDSHAKE: (0, 1),
        ApiKey.SASL_AUTHENTICATE: (0, 2),
        ApiKey.API_VERSIONS: (0, 5),
        ApiKey.CREATE_TOPICS: (0, 7),
        ApiKey.DELETE_TOPICS: (0, 6),
        ApiKey.INIT_PRODUCER_ID: (0, 5),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: (0, 4),
        ApiKey.DESCRIBE_CONFIGS: (0, 4),
        ApiKey.CREATE_PARTITIONS: (0, 3),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
        ApiKey.DESCRIBE_CLUSTER: (0, 2),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    }
    assert {key: announced.get(key) for key in expected} == expected


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= WITH_FEATURES])
def test_supported_features_equal_those_of_the_metadata(harness: Harness, version: int) -> None:
    before = harness.request(asked(), version)
    supported = {one.name: (one.min_version, one.max_version) for one in before.supported_features}
    names = ("eligible.leader.replicas", "group", "kraft", "streams")
    from_0 = {f"{name}.version": (0, 1) for name in names} | {"share.version": (0, 2), "transaction.version": (0, 2)}
    from_0 = {} if version < WITH_LEVEL_0 else from_0
    assert supported == {"metadata.version": (7, 33), **from_0}
    assert [(one.name, one.min_version_level, one.max_version_level) for one in before.finalized_features] == [
        ("metadata.version", 33, 33),
        ("transaction.version", 2, 2),
        ("eligible.leader.replicas.version", 1, 1),
        ("group.version", 1, 1),
        ("share.version", 2, 2),
        ("streams.version", 1, 1),
    ]
    harness.create_topic("t")
    assert harness.request(asked(), version).finalized_features_epoch > before.finalized_features_epoch >= 0


@for_each("version", [version for version in VERSIONS if version >= WITH_SOFTWARE])
@for_each(
    ("name", "software_version"),
    [("", "1"), ("a", ""), ("a b", "1"), ("-a", "1"), ("a-", "1"), ("a", "1/2"), ("ä", "1")],
)
def test_an_invalid_client_name_is_rejected(harness: Harness, version: int, name: str, software_version: str) -> None:
    answer = harness.request(asked(name, software_version), version)
    assert (answer.error_code, answer.api_keys, answer.finalized_features_epoch) == (ErrorCode.INVALID_REQUEST, [], -1)


@pytest.mark.parametrize("name", ["a", "apache-kafka-java", "A.b-9", "confluent-kafka-python"])
def test_a_valid_client_name_is_kept_for_the_log(harness: Harness, name: str) -> None:
    client = harness.client()
    client.send(asked(name, "4.3.0"))
    assert client.connection.software == f"{name} 4.3.0"


@for_each(
    ("cluster_id", "node_id", "code"),
    [
        (None, -1, ErrorCode.NONE),
        (None, 7, ErrorCode.INVALID_REQUEST),
        ("", 1, ErrorCode.NONE),
        ("", 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", -1, ErrorCode.INVALID_REQUEST),
        ("another", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
    ],
)
def test_a_client_of_another_node_gets_rebootstrap_required(
    harness: Harness, cluster_id: str | None, node_id: int, code: ErrorCode
) -> None:
    """The empty id stands for the cluster's own."""
    request = asked()
    request.cluster_id, request.node_id = harness.cluster.cluster_id if cluster_id == "" else cluster_id, node_id
    answer = harness.request(request)
    assert (answer.error_code, bool(answer.api_keys)) == (code, code == ErrorCode.NONE)
    assert harness.request(request, 4).error_code == ErrorCode.NONE


def test_an_unknown_api_versions_version_is_answered_in_version_0(harness: Harness) -> None:
    client = harness.client()
    frame = bytearray(frame_of(asked(), 4))
    frame[6:8] = (99).to_bytes(2, "big")  # the version in the header
    client.send_bytes(bytes(frame))
    correlation_id, answer = answer_in(client.sent_bytes(), ApiKey.API_VERSIONS, 0)
    assert (correlation_id, answer.error_code) == (7, ErrorCode.UNSUPPORTED_VERSION)
    (api,) = answer.api_keys
    assert (api.api_key, api.min_version, api.max_version) == (ApiKey.API_VERSIONS, 0, 5)
    client.send(MetadataRequest(topics=[]))
    assert not client.closed


def test_bytes_after_the_request_are_ignored(harness: Harness) -> None:
    client = harness.client()
    frame = frame_of(asked(), 0) + b"\x01\x02\x03"
    client.send_bytes((len(frame) - 4).to_bytes(4, "big") + frame[4:])
    _, answer = answer_in(client.sent_bytes(), ApiKey.API_VERSIONS, 0)
    assert answer.error_code == ErrorCode.NONE
