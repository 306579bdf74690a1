"""Addresses in answers: they are replaced wherever a message has them, and where they could not be, nobody asks."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from minibroker.protocol.apis import ApiKey, get_response_class
from minibroker.protocol.fields import list_declared_fields
from minibroker.protocol.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from minibroker.protocol.messages.fetch import FetchResponse
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from minibroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from minibroker.proxy.rewritten_addresses import (
    FIRST_VERSIONS,
    ShownAddress,
    has_addresses_in_answer,
    list_endpoints,
    remove_unknown_versions,
    rewrite_endpoints,
)
from tests.proxy.upstreams import PATIENCE_S, answer, connected, exactly, request

# Addresses of applications, which are not behind the proxy.
OF_OTHERS = {ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE}


def structs(of: type) -> Any:
    yield of
    for field in list_declared_fields(of):
        below = (field.kind.item or field.kind).struct
        if below is not None:
            yield from structs(below)


def test_the_proxy_knows_every_message_with_an_address() -> None:
    found = set()
    for key in ApiKey:
        if any(
            {"host", "port"} <= {field.name for field in list_declared_fields(each)}
            for each in structs(get_response_class(key))
        ):
            found.add(key)
    assert found - OF_OTHERS == set(FIRST_VERSIONS)


def test_the_proxy_decodes_only_response_versions_with_addresses() -> None:
    assert not has_addresses_in_answer(ApiKey.PRODUCE, 9) and has_addresses_in_answer(ApiKey.PRODUCE, 10)
    assert not has_addresses_in_answer(ApiKey.FETCH, 15) and has_addresses_in_answer(ApiKey.FETCH, 16)
    assert not has_addresses_in_answer(999, 0)


def test_addresses_in_leader_hints_are_replaced_unless_empty() -> None:
    def show(host: str, port: int, node_id: int) -> ShownAddress:
        return ShownAddress(f"proxy-{host}", port + node_id)

    hint = FetchResponse.NodeEndpoint(node_id=3, host="k", port=9092, rack="r")
    response = FetchResponse(node_endpoints=[hint])
    rewrite_endpoints(list_endpoints(response), show)
    assert (hint.host, hint.port, hint.rack) == ("proxy-k", 9095, "r")
    assert not list_endpoints(FetchResponse())
    nobody = get_response_class(ApiKey.FIND_COORDINATOR)(host="", port=-1, node_id=-1, error_code=15)
    assert not list_endpoints(nobody)


def test_the_proxy_limits_api_versions_responses_to_versions_it_knows_only_for_apis_with_addresses() -> None:
    known = get_response_class(ApiKey.METADATA).versions[-1]
    each = ApiVersionsResponse.ApiVersion
    versions = [each(api_key=3, min_version=0, max_version=known + 1), each(api_key=8, min_version=0, max_version=99)]
    response = ApiVersionsResponse(api_keys=versions)
    assert remove_unknown_versions(response)
    assert [each.max_version for each in response.api_keys] == [known, 99]
    assert not remove_unknown_versions(response)


def test_a_node_of_a_later_release_is_limited_to_known_versions() -> None:
    known = get_response_class(ApiKey.METADATA).versions[-1]
    offered = ApiVersionsResponse.ApiVersion(api_key=3, min_version=0, max_version=known + 1)
    with connected() as (_, client, node):
        body = b"\0" + ApiVersionsRequest(client_software_name="new", client_software_version="1").encode(3)
        question = request(ApiKey.API_VERSIONS, 3, 1, body)
        client.sendall(question)
        assert exactly(node, len(question)) == question
        said = answer(1, ApiVersionsResponse(api_keys=[offered]).encode(3))
        node.sendall(said)
        offered.max_version = known
        assert exactly(client, len(said)) == answer(1, ApiVersionsResponse(api_keys=[offered]).encode(3))


def test_a_response_to_an_unsupported_api_versions_version_is_forwarded_and_decoded() -> None:
    with connected() as (proxy, client, node):
        proxy.journal.on()
        body = b"\0" + ApiVersionsRequest(client_software_name="new", client_software_version="1").encode(5)
        client.sendall(question := request(ApiKey.API_VERSIONS, 5, 1, body))
        assert exactly(node, len(question)) == question
        offered = ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=4)
        node.sendall(said := answer(1, ApiVersionsResponse(error_code=35, api_keys=[offered]).encode(0)))
        assert exactly(client, len(said)) == said
        (kept,) = proxy.wait_for_requests(error="UNSUPPORTED_VERSION", timeout=PATIENCE_S)
        assert kept.answer.api_keys == [offered]


TAG_99 = b"\1\x63\2ab"  # in the place of the empty section of tagged fields


def test_unknown_fields_are_forwarded_where_addresses_are_replaced() -> None:
    with connected() as (proxy, client, node):
        client.sendall(question := request(ApiKey.METADATA, 9, 1, b"\0" + MetadataRequest().encode(9)))
        assert exactly(node, len(question)) == question
        broker = MetadataResponse.MetadataResponseBroker(node_id=2, host="127.0.0.1", port=1, rack="r")
        bare = MetadataResponse(brokers=[broker]).encode(9)
        with_tag = MetadataResponse.decode_with_unknown_tags(bare[:-1] + TAG_99, 9, 0)[0]
        setattr(with_tag.brokers[0], "unknown_tags", [(7, b"")])  # noqa: B010, as mypy knows no such field
        node.sendall(answer(1, TAG_99 + with_tag.encode_with_unknown_tags(9)))
        (size,) = struct.unpack(">i", exactly(client, 4))
        got = exactly(client, size)
        with_tag.brokers[0].port = proxy.ports["127.0.0.1:1"]
        assert got == answer(1, TAG_99 + with_tag.encode_with_unknown_tags(9))[4:]
        assert got.endswith(TAG_99) and b"\2r\1\7\0" in got


def test_quorum_nodes_have_the_proxys_addresses() -> None:
    with connected() as (proxy, client, node):
        client.sendall(question := request(ApiKey.DESCRIBE_QUORUM, 2, 1, b"\0" + DescribeQuorumRequest().encode(2)))
        assert exactly(node, len(question)) == question
        voter = DescribeQuorumResponse.Node(node_id=3)
        for name, port in (("CONTROLLER", 9093), ("OTHER", 0)):
            voter.listeners.append(DescribeQuorumResponse.Node.Listener(name=name, host="k", port=port))
        node.sendall(answer(1, b"\0" + DescribeQuorumResponse(nodes=[voter]).encode(2)))
        (size,) = struct.unpack(">i", exactly(client, 4))
        shown = DescribeQuorumResponse.decode(exactly(client, size), 2, 5).nodes[0].listeners
        assert [(each.host, each.port) for each in shown] == [("127.0.0.1", proxy.ports["k:9093"]), ("k", 0)]


@pytest.mark.parametrize("has_journal", [False, True], ids=["plain", "journal"])
def test_a_produce_leader_hint_opens_a_new_port_of_the_proxy(has_journal: bool) -> None:
    with connected() as (proxy, client, node):
        if has_journal:
            proxy.journal.on()
        client.sendall(question := request(ApiKey.PRODUCE, 12, 7, b"\0" + ProduceRequest(acks=-1).encode(12)))
        assert exactly(node, len(question)) == question
        hint = ProduceResponse.NodeEndpoint(node_id=2, host="elsewhere.example", port=9092)
        node.sendall(answer(7, b"\0" + ProduceResponse(node_endpoints=[hint]).encode(12)))
        (size,) = struct.unpack(">i", exactly(client, 4))
        shown = ProduceResponse.decode(exactly(client, size), 12, 5).node_endpoints[0]
        assert (shown.host, shown.port) == ("127.0.0.1", proxy.ports["elsewhere.example:9092"])
