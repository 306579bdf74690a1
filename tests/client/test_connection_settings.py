"""Settings by Kafka's names: what they are by default, and that nothing is accepted and ignored."""

from __future__ import annotations

import socket

import pytest

from minibroker.client.client_errors import SettingError
from minibroker.client.connection_settings import Address, ClientSettings, parse_addresses
from tests.cases import for_each

SERVER = {"bootstrap.servers": "127.0.0.1:9092"}


def test_connection_settings_are_parsed() -> None:
    given = {
        "client.id": "me",
        "request.timeout.ms": "1",
        "reconnect.backoff.max.ms": "2",
        "connections.max.idle.ms": "3",
        "receive.buffer.bytes": "65536",
        "socket.send.buffer.bytes": "0",
        "client.dns.lookup": "resolve_canonical_bootstrap_servers_only",
    }
    settings = ClientSettings({**SERVER, **given}, "somebody")
    assert (settings.client_id, settings.request_timeout_ms, settings.idle_max_ms) == ("me", 1, 3)
    assert settings.reconnect_backoff_max_ms == 2 and settings.canonical_names
    assert settings.socket_buffers == {socket.SO_RCVBUF: 65536}
    assert settings.tls is None and settings.credentials is None


def test_librdkafkas_timeout_setting_applies_if_javas_is_not_given() -> None:
    assert ClientSettings({**SERVER, "socket.timeout.ms": "7"}).request_timeout_ms == 7
    assert ClientSettings({**SERVER, "socket.timeout.ms": "7", "request.timeout.ms": "8"}).request_timeout_ms == 8


@for_each(
    ("name", "value", "message"),
    [
        ("request.timeout", "1", r"request\.timeout is not known; did you mean request\.timeout\.ms( or .*)?\?"),
        ("colour", "1", "colour is not known$"),
        ("security.protocol", "TLS", "security.protocol must be one of PLAINTEXT, SSL, .*, not 'TLS'"),
        ("client.dns.lookup", "default", "client.dns.lookup must be one of use_all_dns_ips, .*, not 'default'"),
        ("request.timeout.ms", "soon", "request.timeout.ms must be a whole number, not 'soon'"),
        ("request.timeout.ms", "0", "request.timeout.ms must be from 1 to 2147483647, not 0"),
    ],
)
def test_an_invalid_setting_is_rejected_by_name(name: str, value: str, message: str) -> None:
    with pytest.raises(SettingError, match=f"^{message}"):
        ClientSettings({**SERVER, name: value})


def test_unneeded_credentials_are_accepted_and_ignored() -> None:
    given = {"security.protocol": "plaintext", "sasl.mechanism": "PLAIN", "ssl.truststore.location": "/nowhere"}
    settings = ClientSettings({**SERVER, **given})
    assert settings.tls is None and settings.credentials is None


def test_bootstrap_servers_consist_of_host_and_port() -> None:
    found = [Address("a", 1), Address("::1", 2), Address("c.example", 3)]
    assert parse_addresses("a:1, [::1]:2 ,c.example:3,") == found
    assert list(map(str, found)) == ["a:1", "[::1]:2", "c.example:3"]
    for wrong in ("", "a", "a:", ":1", "a:b", "a:0", "a:70000", "a:1,b"):
        with pytest.raises(SettingError, match=r"^bootstrap\.servers"):
            parse_addresses(wrong)
