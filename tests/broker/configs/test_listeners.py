"""`listeners` and the settings beside it, read by Kafka's rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.configs.listeners import (
    Listener,
    list_controller_listeners,
    make_broker_listeners,
    shift_listeners_to_node,
)
from minibroker.broker.configs.settings import Settings, SettingsError
from tests.cases import for_each


def listeners(value: str, **more: str) -> tuple[Listener, ...]:
    others = {name.replace("_", "."): text for name, text in more.items()}
    return make_broker_listeners(Settings({"listeners": value, **others}))


def test_the_default_is_one_plaintext_listener_on_the_loopback_address() -> None:
    assert make_broker_listeners(Settings()) == (
        Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 9092),
    )


def test_a_listener_can_advertise_another_host_and_port() -> None:
    (listener,) = listeners("PLAINTEXT://0.0.0.0:9092", advertised_listeners="PLAINTEXT://kafka.example:19092")
    assert (listener.host, listener.port) == ("0.0.0.0", 9092)
    assert (listener.advertised_host, listener.advertised_port) == ("kafka.example", 19092)


def test_each_of_several_listeners_has_its_own_advertised_name() -> None:
    inner, outer = listeners(
        "INSIDE://127.0.0.1:0, OUTSIDE://127.0.0.2:9094",
        advertised_listeners="OUTSIDE://outside:1,INSIDE://inside:0",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    )
    assert inner == Listener("INSIDE", "PLAINTEXT", "127.0.0.1", 0, "inside", 0)
    assert outer == Listener("OUTSIDE", "PLAINTEXT", "127.0.0.2", 9094, "outside", 1)


def test_listener_names_are_case_insensitive_as_in_kafka() -> None:
    (listener,) = listeners("plaintext://a:1", advertised_listeners="Plaintext://b:2")
    assert (listener.name, listener.advertised_host) == ("PLAINTEXT", "b")


@pytest.mark.parametrize(("text", "host"), [("PLAINTEXT://[::1]:9", "::1"), ("PLAINTEXT://:9", "")])
def test_a_host_can_be_an_ipv6_address_or_empty(text: str, host: str) -> None:
    (listener,) = listeners(text)
    assert (listener.host, listener.port) == (host, 9)


def test_the_controller_listener_is_not_opened() -> None:
    settings = Settings(
        {
            "listeners": "PLAINTEXT://a:1,CONTROLLER://a:2",
            "controller.listener.names": "controller",
            "advertised.listeners": "PLAINTEXT://b:1",
        }
    )
    assert [listener.name for listener in make_broker_listeners(settings)] == ["PLAINTEXT"]
    assert list_controller_listeners(settings) == ("CONTROLLER",)


@for_each(
    ("value", "more", "complaint"),
    [
        ("127.0.0.1:9092", {}, "listeners: '127.0.0.1:9092' is not of the form NAME://host:port"),
        ("PLAINTEXT://a", {}, "listeners: 'PLAINTEXT://a' is not of the form"),
        ("PLAINTEXT://a:65536", {}, "has no port between 0 and 65535"),
        ("PLAINTEXT://a:-1", {}, "has no port between 0 and 65535"),
        ("PLAINTEXT://a:1,plaintext://a:2", {}, "PLAINTEXT is there twice"),
        ("INSIDE://a:1", {}, "INSIDE has no protocol in listener.security.protocol.map"),
        ("PLAINTEXT://a:1", {"listener_security_protocol_map": "PLAINTEXT:TLS"}, "'PLAINTEXT:TLS' is not of the form"),
        ("PLAINTEXT://a:1", {"listener_security_protocol_map": "PLAINTEXT"}, "'PLAINTEXT' is not of the form"),
        ("PLAINTEXT://0.0.0.0:1", {}, "no client can connect to 0.0.0.0: set advertised.listeners"),
        ("PLAINTEXT://a:1", {"advertised_listeners": "PLAINTEXT://[::]:1"}, "no client can connect to ::"),
        ("PLAINTEXT://a:1", {"advertised_listeners": "OTHER://b:1"}, "advertised.listeners: OTHER is not among"),
        ("PLAINTEXT://a:1", {"controller_listener_names": "PLAINTEXT"}, "no listener for clients"),
        ("PLAINTEXT://a:1", {"inter_broker_listener_name": "INSIDE"}, "listener.name: INSIDE is not among"),
        ("", {}, "configuration listeners: must not be empty"),
    ],
)
def test_invalid_listeners_are_rejected(value: str, more: dict[str, str], complaint: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        listeners(value, **more)
    assert complaint in str(refusal.value)


MAP = "A:PLAINTEXT,B:PLAINTEXT"


def test_the_name_of_the_inter_broker_listener_is_case_insensitive() -> None:
    first = listeners("A://a:1,B://a:2", listener_security_protocol_map=MAP, inter_broker_listener_name="b")
    assert [listener.name for listener in first] == ["A", "B"]


def test_a_listener_without_an_advertised_address_is_rejected() -> None:
    with pytest.raises(SettingsError, match="without B no client could use"):
        listeners("A://a:1,B://a:2", advertised_listeners="A://a:1", listener_security_protocol_map=MAP)


@pytest.mark.parametrize("value", ["A://a:1,B://b:1", "A://:1,B://127.0.0.1:1"])
def test_two_listeners_cannot_share_a_port(value: str) -> None:
    with pytest.raises(SettingsError, match="have the same port"):
        listeners(value, listener_security_protocol_map=MAP)


@pytest.mark.parametrize("value", ["A://127.0.0.1:1,B://[::1]:1", "A://a:0,B://a:0"])
def test_listeners_on_ipv4_and_ipv6_or_on_port_0_may_share_a_port(value: str) -> None:
    assert len(listeners(value, listener_security_protocol_map=MAP)) == 2


def test_additional_nodes_listen_on_consecutive_ports() -> None:
    first = listeners("A://a:10,B://a:0", advertised_listeners="A://x:20,B://x:0", listener_security_protocol_map=MAP)
    assert shift_listeners_to_node(first, 0) == first
    third = shift_listeners_to_node(first, 2)
    assert [(listener.port, listener.advertised_port) for listener in third] == [(12, 22), (0, 0)]


def test_a_node_whose_port_exceeds_the_maximum_is_rejected() -> None:
    with pytest.raises(SettingsError, match="65536"):
        shift_listeners_to_node(listeners("PLAINTEXT://a:65535"), 1)


@given(st.text(st.sampled_from("AB:/[].,-_019 %xé")))
def test_any_listener_text_is_parsed_or_rejected_with_a_message(value: str) -> None:
    try:
        opened = listeners(value, listener_security_protocol_map=MAP)
    except SettingsError as refusal:
        assert "\n" not in str(refusal)
    else:
        assert all(0 <= listener.port <= 65_535 for listener in opened)
