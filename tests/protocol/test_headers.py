"""Headers, and which version of them goes with which version of an API."""

from __future__ import annotations

import pytest

from minibroker.protocol.apis import ApiKey
from minibroker.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    find_response_version,
    get_request_header_version,
    get_response_header_version,
)
from tests.cases import for_each


@for_each(
    ("key", "version", "request_version", "response_version"),
    [
        (ApiKey.PRODUCE, 8, 1, 0),
        (ApiKey.PRODUCE, 9, 2, 1),
        (ApiKey.METADATA, 0, 1, 0),
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),  # KIP-511: a client cannot know yet which header the broker would use
        (ApiKey.API_VERSIONS, 4, 2, 0),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.SASL_AUTHENTICATE, 2, 2, 1),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 2, 1),
    ],
)
def test_header_versions_equal_those_of_kafka(
    key: ApiKey, version: int, request_version: int, response_version: int
) -> None:
    assert get_request_header_version(key, version) == request_version
    assert get_response_header_version(key, version) == response_version


def test_an_unknown_api_has_no_header_version() -> None:
    with pytest.raises(ValueError):
        get_request_header_version(4, 0)


@pytest.mark.parametrize(
    ("version", "data"),
    [(0, "0003000c00000007"), (1, "0003000c000000070002" + "6d62"), (2, "0003000c000000070002" + "6d62" + "00")],
)
def test_the_client_id_is_never_compact(version: int, data: str) -> None:
    header = RequestHeader(request_api_key=3, request_api_version=12, correlation_id=7, client_id="mb")
    assert header.encode(version).hex() == data


def test_a_null_client_id_is_accepted() -> None:
    header, end = RequestHeader.decode_from(bytes.fromhex("0003000c00000007ffff00") + b"request", 2)
    assert (header.client_id, end) == (None, 11)


def test_response_headers_are_encoded() -> None:
    assert ResponseHeader(correlation_id=7).encode(0).hex() == "00000007"
    assert ResponseHeader(correlation_id=7).encode(1).hex() == "0000000700"


def test_an_unsupported_api_versions_version_is_answered_in_version_0() -> None:
    refused, accepted = b"\0\0\0\1\0\x23\0\0\0\0", b"\0\0\0\1\0\0\0\0\0\0"
    assert find_response_version(ApiKey.API_VERSIONS, 5, refused, 4) == 0
    assert find_response_version(ApiKey.API_VERSIONS, 5, accepted, 4) == 5
    assert find_response_version(ApiKey.API_VERSIONS, 5, b"\0\0\0\1\0", 4) == 5
    assert find_response_version(ApiKey.METADATA, 5, refused, 4) == 5
