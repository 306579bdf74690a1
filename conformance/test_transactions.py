"""Transactional clients of other toolchains: a topic is copied exactly once, and who has been replaced is fenced."""

from __future__ import annotations

import pytest

from conformance.clients import CLIENTS, Client, run
from conformance.conftest import Broker


@pytest.mark.parametrize(
    "client", [client for client in CLIENTS if client.transacts], ids=lambda client: str(client.name)
)
def test_a_client_copies_records_exactly_once(client: Client, broker: Broker) -> None:
    run(client, "transact", broker.bootstrap_servers, f"transactions-of-{client.name}")
