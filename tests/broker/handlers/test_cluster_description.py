"""DescribeCluster: nodes, controller and operations, and the endpoints a broker is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import DescribeClusterRequest
from tests.broker.harness import Harness, served_versions
from tests.cases import for_each

VERSIONS = served_versions(DescribeClusterRequest)
NOT_ASKED = -2147483648


@pytest.mark.parametrize("version", VERSIONS)
def test_all_nodes_are_described(tmp_path: Path, version: int) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        harness.cluster.nodes[2].rack = "r2"
        answer = harness.request(DescribeClusterRequest(), version, node=2)
        assert (answer.error_code, answer.error_message, answer.endpoint_type) == (ErrorCode.NONE, None, 1)
        assert answer.cluster_id == harness.cluster.cluster_id
        assert answer.controller_id == 1
        assert [(broker.broker_id, broker.host, broker.port, broker.rack) for broker in answer.brokers] == [
            (1, "node1.test", 9001, None),
            (2, "node2.test", 9002, "r2"),
            (3, "node3.test", 9003, None),
        ]


def test_described_addresses_are_those_of_the_clients_listener(harness: Harness) -> None:
    (broker,) = harness.request(DescribeClusterRequest(), listener="INTERNAL").brokers
    assert broker.port == 19001


@for_each("version", VERSIONS)
@for_each(("asked", "operations"), [(False, NOT_ASKED), (True, 8096)])
def test_authorized_operations_are_included_on_request(
    harness: Harness, version: int, asked: bool, operations: int
) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=asked)
    assert harness.request(request, version).cluster_authorized_operations == operations


def test_a_running_node_is_not_described_as_fenced(harness: Harness) -> None:
    (broker,) = harness.request(DescribeClusterRequest(include_fenced_brokers=True), 2).brokers
    assert not broker.is_fenced


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("kind", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_only_the_broker_endpoint_type_is_supported(harness: Harness, version: int, kind: int, code: ErrorCode) -> None:
    answer = harness.request(DescribeClusterRequest(endpoint_type=kind), version)
    assert answer.error_code == code
    assert answer.error_message
    assert (answer.endpoint_type, answer.cluster_id, answer.controller_id, answer.brokers) == (1, "", -1, [])
