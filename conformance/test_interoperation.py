"""What one client writes, every other reads back byte for byte: all codecs, idempotent and not."""

from __future__ import annotations

import pytest

from conformance.clients import CLIENTS, Client, run
from conformance.conftest import Broker

ADMINISTRATORS = [client for client in CLIENTS if client.administers]


def name_of(client: Client) -> str:
    return client.name


@pytest.fixture(scope="module")
def written(broker: Broker, specifications: dict[str, str]) -> list[str]:
    """By each client in turn the prefix of the topics that it has written, and the file with their records."""
    arguments = []
    for client in CLIENTS:
        of_client = [f"by-{client.name}", specifications[client.name]]
        run(client, "write", broker.bootstrap_servers, *of_client)
        arguments += of_client
    return arguments


@pytest.mark.parametrize("reader", CLIENTS, ids=name_of)
def test_a_client_consumes_what_every_client_produced(reader: Client, written: list[str], broker: Broker) -> None:
    run(reader, "read", broker.bootstrap_servers, *written)


@pytest.mark.parametrize("client", ADMINISTRATORS, ids=name_of)
def test_a_client_administers_topics(client: Client, broker: Broker) -> None:
    run(client, "admin", broker.bootstrap_servers, f"of-{client.name}")
