"""The headers before every request and response, and which version of them goes with which version of an API.

The length before a header belongs to the connection. Exceptions to the rules are facts of the declarations, here and in
`messages/`; no code knows them.
"""

from __future__ import annotations

from functools import cache

from minibroker.protocol.apis import request_class, response_class
from minibroker.protocol.declare import Message, field, int16, int32


class RequestHeader(Message, versions="0-2", flexible="2+"):
    """Says what the request is and to which response it leads.

    The client's name keeps its old form in all versions, so that a broker can read it whatever version follows.
    """

    request_api_key: int16 = field()
    request_api_version: int16 = field()
    correlation_id: int32 = field()
    client_id: str | None = field("1+", flexible="none")


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    """Says which request is answered."""

    correlation_id: int32 = field()


@cache
def request_header_version(api_key: int, version: int) -> int:
    """Which version of RequestHeader stands before a version of a request. Raises ValueError for an unknown key."""
    return 2 if version in request_class(api_key).flexible_header else 1


@cache
def response_header_version(api_key: int, version: int) -> int:
    """Which version of ResponseHeader stands before a version of a response. Raises ValueError for an unknown key."""
    return 1 if version in response_class(api_key).flexible_header else 0
