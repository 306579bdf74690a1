"""Three nodes in one process: every client finds each partition's leader among them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.clients import CLIENTS, Client, run
from conformance.conftest import SETTINGS
from tests.running import RunningBroker, running_broker

NODES = 3
pytestmark = pytest.mark.minibroker_only


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    with running_broker(tmp_path_factory.mktemp("cluster"), *settings, nodes=NODES) as running:
        yield running


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_produces_to_three_nodes_and_consumes_from_them(
    client: Client, cluster: RunningBroker, specifications: dict[str, str]
) -> None:
    first_node = cluster.bootstrap_servers.split(",")[0]
    run(client, "write", first_node, client.name, specifications[client.name])
    run(client, "read", first_node, client.name, specifications[client.name])
