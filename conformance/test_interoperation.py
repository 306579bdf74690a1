"""What one client writes, every other reads back byte for byte: all codecs, idempotent and not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.clients import CLIENTS, Client, run
from conformance.conftest import Broker

ADMINISTRATORS = [client for client in CLIENTS if client.administers]


def name_of(client: Client) -> str:
    return client.name


@pytest.fixture(scope="session")
def written(broker: Broker, specifications: dict[str, str]) -> Callable[[Client], str]:
    """Has a client write its records, once, and returns the prefix of its topics."""
    done: dict[str, str] = {}

    def write(client: Client) -> str:
        if client.name not in done:
            prefix = f"by-{client.name}"
            run(client, "write", broker.bootstrap_servers, prefix, specifications[client.name])
            done[client.name] = prefix
        return done[client.name]

    return write


@pytest.mark.parametrize("reader", CLIENTS, ids=name_of)
@pytest.mark.parametrize("writer", CLIENTS, ids=name_of)
def test_a_client_consumes_what_another_produced(
    writer: Client,
    reader: Client,
    written: Callable[[Client], str],
    broker: Broker,
    specifications: dict[str, str],
) -> None:
    run(reader, "read", broker.bootstrap_servers, written(writer), specifications[writer.name])


@pytest.mark.parametrize("client", ADMINISTRATORS, ids=name_of)
def test_a_client_administers_topics(client: Client, broker: Broker) -> None:
    run(client, "admin", broker.bootstrap_servers, f"of-{client.name}")
