"""ApiVersions: what is announced, and what a client may say of itself."""

from __future__ import annotations

import pytest

from minibroker.broker.handlers.api_versions import OF_TELEMETRY
from minibroker.broker.requests.served import SERVED
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from tests.broker.harness import Harness, served_versions
from tests.cases import for_each

VERSIONS = served_versions(ApiVersionsRequest)
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
    after = harness.request(asked(), version).finalized_features_epoch
    assert after > before.finalized_features_epoch >= 0
    assert after == harness.cluster.metadata_log.storage.log_end_offset - 1  # of the last record


@pytest.mark.parametrize("name", ["a", "apache-kafka-java", "A.b-9", "confluent-kafka-python"])
def test_a_valid_client_software_name_is_logged(harness: Harness, name: str) -> None:
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
def test_a_client_that_expects_another_cluster_or_node_gets_rebootstrap_required(
    harness: Harness, cluster_id: str | None, node_id: int, code: ErrorCode
) -> None:
    """The empty id stands for the cluster's own."""
    request = asked()
    request.cluster_id, request.node_id = harness.cluster.cluster_id if cluster_id == "" else cluster_id, node_id
    answer = harness.request(request)
    assert (answer.error_code, bool(answer.api_keys)) == (code, code == ErrorCode.NONE)
    assert harness.request(request, 4).error_code == ErrorCode.NONE
