"""What Spark's users write after `kafka.`: what is passed on, and that nothing is accepted and ignored."""

from __future__ import annotations

import pickle
import socket

import pytest

from minibroker.pipeline.brokers.client_settings import ClientSettings, Settings, addresses
from minibroker.pipeline.brokers.fetching import FetchSettings
from minibroker.pipeline.log_source import OptionError

SERVER = "127.0.0.1:9092"


def test_settings_of_connections_are_passed_on() -> None:
    settings = {
        "client.id": "me",
        "request.timeout.ms": "1",
        "reconnect.backoff.max.ms": "2",
        "connections.max.idle.ms": "3",
        "receive.buffer.bytes": "65536",
        "socket.send.buffer.bytes": "0",
        "client.dns.lookup": "resolve_canonical_bootstrap_servers_only",
    }
    connection = ClientSettings(SERVER, settings, "somebody").connection()
    assert connection["client_id"] == "me" and connection["request_timeout_ms"] == 1
    assert connection["reconnect_backoff_max_ms"] == 2 and connection["connections_max_idle_ms"] == 3
    assert connection["client_dns_lookup"] == "resolve_canonical_bootstrap_servers_only"
    assert (socket.SOL_SOCKET, socket.SO_RCVBUF, 65536) in connection["socket_options"]
    assert all(option != socket.SO_SNDBUF for _, option, _ in connection["socket_options"])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("colour", "1", "unknown option kafka.colour; docs/pipeline.md lists those that there are"),
        ("request.timeout", "1", "unknown option kafka.request.timeout: is kafka.request.timeout.ms( or .*)? meant"),
        ("chek.crcs", "1", "unknown option kafka.chek.crcs: is kafka.check.crcs meant"),
        ("key.deserializer", "x", "kafka.key.deserializer cannot be set: keys are bytes: cast the column"),
        ("auto.offset.reset", "earliest", "kafka.auto.offset.reset cannot be set: use the option startingOffsets"),
        ("enable.auto.commit", "true", "kafka.enable.auto.commit cannot be set"),
        ("group.id", "mine", "kafka.group.id cannot be set: no consumer group is used"),
        ("interceptor.classes", "x", "kafka.interceptor.classes cannot be set"),
        ("check.crcs", "false", "kafka.check.crcs can only be true, not 'false'"),
        ("security.protocol", "TLS", "kafka.security.protocol must be one of PLAINTEXT, SSL, .*, not 'TLS'"),
        ("client.dns.lookup", "default", "kafka.client.dns.lookup must be one of use_all_dns_ips, .*, not 'default'"),
        ("request.timeout.ms", "soon", "kafka.request.timeout.ms must be a whole number, not 'soon'"),
        ("request.timeout.ms", "0", "kafka.request.timeout.ms must be from 1 to 2147483647, not 0"),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, value: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ClientSettings(SERVER, {name: value})


def test_what_is_in_force_anyway_may_be_said() -> None:
    ClientSettings(SERVER, {"check.crcs": "true", "allow.auto.create.topics": "False"})


def test_credentials_may_stay_when_the_protocol_needs_none() -> None:
    settings = {"security.protocol": "plaintext", "sasl.mechanism": "PLAIN", "ssl.truststore.location": "/nowhere"}
    assert ClientSettings(SERVER, settings).connection()["security_protocol"] == "PLAINTEXT"


def test_servers_are_host_and_port() -> None:
    assert addresses("a:1, [::1]:2 ,c.example:3,") == ["a:1", "[::1]:2", "c.example:3"]
    for wrong in ("", "a", "a:", ":1", "a:b", "a:0", "a:70000", "a:1,b"):
        with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
            addresses(wrong)


def test_names_that_others_have_taken_are_known_to_who_misspells_one() -> None:
    settings = Settings({"fetch.min.byte": "1", "fetch.min.bytes": "2"})
    FetchSettings.taken_from(settings)
    with pytest.raises(OptionError, match=r"is kafka\.fetch\.min\.bytes( or .*)? meant"):
        ClientSettings(SERVER, pickle.loads(pickle.dumps(settings)))
