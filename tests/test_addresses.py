"""Addresses of servers: their text, whether others reach them, and what cannot be listened on."""

from __future__ import annotations

import pytest

from minibroker.addresses import (
    LOOPBACK,
    HostPort,
    bind_address,
    find_reason_to_refuse_request,
    is_loopback,
    parse_host_port,
)
from tests.cases import for_each


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8082", HostPort(LOOPBACK, 8082)),
        (":0", HostPort(LOOPBACK, 0)),
        ("0.0.0.0:80", HostPort("0.0.0.0", 80)),
        ("[::1]:65535", HostPort("::1", 65_535)),
    ],
)
def test_an_address_of_host_and_port_is_parsed(text: str, address: HostPort) -> None:
    assert parse_host_port(text) == address
    assert parse_host_port(str(address)) == address


@for_each("text", ["", "localhost", "localhost:", "x:65536", "x:-1", "x:http"])
def test_invalid_addresses_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT or PORT is expected"):
        parse_host_port(text)


def test_a_local_host_is_recognized_by_address_or_name() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.3.4.5", "::1", "localhost", "a.localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "", "192.168.0.1", "localhost.example.com", "notlocalhost")))


def test_a_port_in_use_is_reported_in_one_line() -> None:
    with bind_address(HostPort()) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"^cannot listen on 127\.0\.0\.1:{port}: "):
            bind_address(HostPort(port=port))


def test_a_port_is_reserved_and_then_listened_on() -> None:
    with bind_address(HostPort(), listens=False, shares_port=True) as reserved:
        address = HostPort(*reserved.getsockname())
        with bind_address(address, shares_port=True) as listening:
            assert listening.getsockname() == address


@pytest.mark.parametrize("host", ["127.0.0.1:80", "localhost", "[::1]:9", "a.localhost:1", None])
def test_a_private_server_accepts_host_names_of_this_machine(host: str | None) -> None:
    assert find_reason_to_refuse_request({} if host is None else {"host": host}, is_private=True) is None


@pytest.mark.parametrize("host", ["evil.example:80", "localhost.evil.example", "", "[", "10.0.0.1"])
def test_a_private_server_rejects_other_host_names(host: str) -> None:
    assert find_reason_to_refuse_request({"host": host}, is_private=True) == f"{host} is not a name of this machine"
    assert find_reason_to_refuse_request({"host": host}, is_private=False) is None


@pytest.mark.parametrize("is_private", [False, True])
def test_a_page_of_another_site_is_rejected(is_private: bool) -> None:
    headers = {"host": "localhost:80", "origin": "http://localhost:80"}
    assert find_reason_to_refuse_request(headers, is_private=is_private) is None
    for origin in ("http://evil.example", "http://localhost:81", "null"):
        refusal = find_reason_to_refuse_request({**headers, "origin": origin}, is_private=is_private)
        assert refusal == f"a page of {origin} asks, and not one of this server"
