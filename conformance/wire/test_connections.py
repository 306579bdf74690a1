"""What closes a connection and what does not, ApiVersions, and the order of answers.

Every literal is what Apache Kafka 4.4 does.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from conformance.wire.conftest import Differing
from conformance.wire.connection import Connection, ConnectionClosed
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.metadata import MetadataRequest

# What Kafka 4.4 announces of the APIs that minibroker has.
ANNOUNCED = {
    ApiKey.PRODUCE: (0, 13),  # versions 0 to 2 are announced for librdkafka's sake and closed when used
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.METADATA: (0, 13),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.API_VERSIONS: (0, 5),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    ApiKey.DELETE_GROUPS: (0, 3),
    ApiKey.TXN_OFFSET_COMMIT: (0, 6),
    ApiKey.UNREGISTER_CONTROLLER: (0, 0),
}
NO_TOPICS = struct.pack(">i", 0)


def api_versions(connection: Connection, version: int, name: str = "wire", software_version: str = "1") -> Any:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
    return connection.ask(request, version)


@pytest.mark.parametrize("version", range(6))
def test_api_versions_announces_the_same_apis_as_kafka(connection: Connection, version: int) -> None:
    answer = api_versions(connection, version)
    announced = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert answer.error_code == 0
    assert ANNOUNCED.keys() <= announced.keys()
    for key, (first, last) in ANNOUNCED.items():
        assert announced[key][0] <= first and announced[key][1] == last, key.name


@pytest.mark.parametrize("version", [6, 99, 32767, -1])
def test_an_unknown_api_versions_version_is_answered_in_version_0(connection: Connection, version: int) -> None:
    correlation_id = connection.send_request(ApiKey.API_VERSIONS, version, b"\0\0\0", header_version=2)
    only_itself = struct.pack(">ihihhh", correlation_id, ErrorCode.UNSUPPORTED_VERSION, 1, ApiKey.API_VERSIONS, 0, 5)
    assert connection.frame() == only_itself
    assert api_versions(connection, 0).error_code == 0


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a b", "1"), ("a", ""), ("a", "-"), ("ü", "1")])
def test_an_invalid_client_software_name_is_rejected(connection: Connection, name: str, version: str) -> None:
    refused = api_versions(connection, 3, name, version)
    assert (refused.error_code, refused.api_keys) == (ErrorCode.INVALID_REQUEST, [])
    assert api_versions(connection, 3, "a.b-c", "1.2-rc3").error_code == 0


UNSERVED = {
    "unknown key": (1000, 0),
    "negative key": (-1, 0),
    "Metadata 99": (ApiKey.METADATA, 99),
    "Metadata -1": (ApiKey.METADATA, -1),
    "Fetch 3": (ApiKey.FETCH, 3),
    "Fetch 19": (ApiKey.FETCH, 19),
    "Produce 2": (ApiKey.PRODUCE, 2),
    "LeaderAndIsr": (4, 0),
    "Vote": (52, 0),
    "Envelope": (58, 0),
}


@pytest.mark.parametrize(("key", "version"), UNSERVED.values(), ids=UNSERVED)
def test_an_unsupported_request_closes_the_connection(connection: Connection, key: int, version: int) -> None:
    connection.send_request(key, version, NO_TOPICS)
    assert connection.is_closed()


FRAMES = {
    "size 0": struct.pack(">i", 0),
    "negative size": struct.pack(">i", -1),
    "size above socket.request.max.bytes": struct.pack(">i", 104_857_601),
    "three bytes": struct.pack(">i3s", 3, b"abc"),
    "a header without a client id": struct.pack(">ihhi", 8, ApiKey.METADATA, 1, 0),
    "a client id beyond the end": struct.pack(">ihhih", 10, ApiKey.METADATA, 1, 0, 80),
    "HTTP": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303"),
}


@pytest.mark.parametrize("data", FRAMES.values(), ids=FRAMES)
def test_bytes_that_are_no_request_close_the_connection(connection: Connection, data: bytes) -> None:
    connection.send_bytes(data)
    assert connection.is_closed()


BODIES = {
    "cut short": b"\0\0",
    "an array that cannot be": b"\x7f\xff\xff\xff",
    "a string beyond the end": struct.pack(">ih", 1, 80) + b"x",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_malformed_body_closes_the_connection(connection: Connection, body: bytes) -> None:
    connection.send_request(ApiKey.METADATA, 1, body)
    assert connection.is_closed()


def test_an_invalid_utf_8_string_closes_the_connection(connection: Connection, differing: Differing) -> None:
    connection.send_request(ApiKey.METADATA, 1, struct.pack(">ih", 1, 2) + b"\xff\xfe")
    if differing(kafka=True, minibroker=False, because="Java reads question marks; no topic has such a name"):
        assert connection.frame()
    else:
        assert connection.is_closed()


def test_a_null_client_id_is_accepted(connection: Connection) -> None:
    connection.send_frame(struct.pack(">hhih", ApiKey.METADATA, 1, 5, -1) + NO_TOPICS)
    assert connection.frame().startswith(struct.pack(">i", 5))


def test_an_unknown_tagged_field_is_ignored(connection: Connection) -> None:
    no_topics_and_a_tag = b"\1\0\0\0" + b"\1\x63\2ab"
    correlation_id = connection.send_request(ApiKey.METADATA, 9, no_topics_and_a_tag, header_version=2)
    assert connection.answer(ApiKey.METADATA, 9, correlation_id).topics == []


def test_bytes_after_a_request_body_are_ignored(connection: Connection) -> None:
    correlation_id = connection.send_request(ApiKey.METADATA, 1, NO_TOPICS + b"xx")
    assert connection.answer(ApiKey.METADATA, 1, correlation_id).topics == []


def test_responses_have_the_order_of_the_requests(connection: Connection) -> None:
    requests = [(MetadataRequest(topics=[]), 1), (ApiVersionsRequest(), 0), (MetadataRequest(topics=[]), 4)] * 20
    sent = [(request.api_key, version, connection.send(request, version)) for request, version in requests]
    for each in sent:
        connection.answer(*each)


def test_a_request_may_arrive_byte_by_byte(connection: Connection) -> None:
    request = struct.pack(">ihhih", 14, ApiKey.METADATA, 1, 9, -1) + NO_TOPICS
    for position in range(len(request)):
        connection.send_bytes(request[position : position + 1])
    assert connection.frame().startswith(struct.pack(">i", 9))


def test_requests_before_a_malformed_one_are_answered_before_the_connection_closes(connection: Connection) -> None:
    correlation_id = connection.send(MetadataRequest(topics=[]), 1)
    connection.send_request(1000, 0, b"")
    connection.answer(ApiKey.METADATA, 1, correlation_id)
    with pytest.raises(ConnectionClosed):
        connection.frame()
