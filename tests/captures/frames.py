"""Requests and answers as frames, for captures."""

from __future__ import annotations

from typing import Any

from minibroker.protocol.declare import Message
from minibroker.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    get_request_header_version,
    get_response_header_version,
)
from minibroker.protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from minibroker.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse


def request(message: Message, version: int, correlation_id: int, client_id: str = "shop") -> bytes:
    header: Any = RequestHeader(
        request_api_key=message.api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return sized(header.encode(get_request_header_version(message.api_key, version)) + message.encode(version))


def answer(message: Message, version: int, correlation_id: int) -> bytes:
    header = ResponseHeader(correlation_id=correlation_id)
    return sized(header.encode(get_response_header_version(message.api_key, version)) + message.encode(version))


def sized(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def heartbeat(correlation_id: int, group: str = "g") -> bytes:
    return request(HeartbeatRequest(group_id=group), 4, correlation_id)


def heartbeat_answer(correlation_id: int, error_code: int = 0) -> bytes:
    return answer(HeartbeatResponse(error_code=error_code), 4, correlation_id)


HELLO = request(ApiVersionsRequest(client_software_name="kafka", client_software_version="4.4.0"), 3, 0)
WELCOME = answer(ApiVersionsResponse(api_keys=[ApiVersionsResponse.ApiVersion(api_key=3, max_version=12)]), 3, 0)
