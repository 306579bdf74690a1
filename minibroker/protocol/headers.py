"""The headers of requests and responses, and the header version for each version of an API."""

from __future__ import annotations

from functools import cache

from minibroker.protocol.apis import request_class, response_class
from minibroker.protocol.declare import Message, field, int16, int32


class RequestHeader(Message, versions="0-2", flexible="2+"):
    """The header of every request.

    The client id has the old encoding in all versions, so that a broker can read it before it knows the version.
    """

    request_api_key: int16 = field()
    request_api_version: int16 = field()
    correlation_id: int32 = field()
    client_id: str | None = field("1+", flexible="none")


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    """The header of every response, which names the request by its correlation id."""

    correlation_id: int32 = field()


@cache
def request_header_version(api_key: int, version: int) -> int:
    """Return the RequestHeader version for a version of a request. Raises ValueError for an unknown key."""
    return 2 if version in request_class(api_key).flexible_header else 1


@cache
def response_header_version(api_key: int, version: int) -> int:
    """Return the ResponseHeader version for a version of a response. Raises ValueError for an unknown key."""
    return 1 if version in response_class(api_key).flexible_header else 0
