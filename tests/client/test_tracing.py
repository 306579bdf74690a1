"""What a traced client reports: names, versions, sizes and times, and nothing of what it sends."""

from __future__ import annotations

import re
import socket

import pytest

from minibroker.client.blocking import Client
from minibroker.client.client_errors import ClientError
from minibroker.client.connection_settings import ClientSettings
from minibroker.client.tracing import TracedNetwork
from minibroker.testing import Broker


def test_each_request_and_response_is_traced() -> None:
    lines: list[str] = []
    with (
        Broker() as broker,
        Client(ClientSettings({"bootstrap.servers": broker.bootstrap_servers}), TracedNetwork(lines.append)) as client,
    ):
        client.fetch_metadata(["missing"])
        place = re.escape(broker.bootstrap_servers)
    patterns = (
        rf"{place}: connected in [0-9.]+ ms",
        rf"{place}: request 0: ApiVersions [0-9]+, [0-9]+ bytes",
        rf"{place}: answer 0: ApiVersions [0-9]+, [0-9]+ bytes after [0-9.]+ ms",
        rf"{place}: request 1: Metadata [0-9]+, [0-9]+ bytes",
        rf"{place}: answer 1: Metadata [0-9]+, [0-9]+ bytes after [0-9.]+ ms, UNKNOWN_TOPIC_OR_PARTITION",
    )
    assert len(lines) == len(patterns)
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(pattern, line)


def test_a_login_is_traced_without_its_secret() -> None:
    lines: list[str] = []
    with Broker(security="SASL_PLAINTEXT") as broker:
        settings = ClientSettings({k: str(v) for k, v in broker.client_config("java", user="alice").items()})
        with Client(settings, TracedNetwork(lines.append)) as client:
            client.fetch_metadata()
    assert any("SaslAuthenticate" in line for line in lines)
    assert not any("alice" in line for line in lines)


def test_a_failed_connection_attempt_is_traced() -> None:
    lines: list[str] = []
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with (
            Client(ClientSettings({"bootstrap.servers": address}), TracedNetwork(lines.append)) as client,
            pytest.raises(ClientError),
        ):
            client.connect_to_any_node()
    assert re.fullmatch(rf"{address}: no connection after [0-9.]+ ms: Connection refused", lines[0])
