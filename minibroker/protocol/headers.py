"""The headers of requests and responses, and the header version for each version of an API."""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import Final

from minibroker.protocol.apis import ApiKey, get_request_class, get_response_class
from minibroker.protocol.declare import Message, field, int16, int32
from minibroker.protocol.errors import ErrorCode

_CODE: Final = Struct(">h")


class RequestHeader(Message, versions="0-2", flexible="2+", kips={2: 482}):
    """The header of every request.

    The client id has the old encoding in all versions, so that a broker can read it before it knows the version.
    """

    request_api_key: int16 = field(about="Which API is meant; it decides what the rest of the bytes are.")
    request_api_version: int16 = field(
        about="The version of the API, which decides the fields that follow, and the version of the answer."
    )
    correlation_id: int32 = field(
        about="A number the client makes up: the answer repeats it, so that it finds its request."
    )
    client_id: str | None = field(
        "1+",
        flexible="none",
        about="What the client calls itself, for logs, metrics and quotas; null if it has no name.",
    )


class ResponseHeader(Message, versions="0-1", flexible="1+", kips={1: 482}):
    """The header of every response, which names the request by its correlation id."""

    correlation_id: int32 = field(
        about="The number from the request's header: it says what is answered, and by that how to read the rest."
    )


@cache
def get_request_header_version(api_key: int, version: int) -> int:
    """Return the RequestHeader version for a version of a request. Raises ValueError for an unknown key."""
    return 2 if version in get_request_class(api_key).flexible_header else 1


@cache
def get_response_header_version(api_key: int, version: int) -> int:
    """Return the ResponseHeader version for a version of a response. Raises ValueError for an unknown key."""
    return 1 if version in get_response_class(api_key).flexible_header else 0


def find_response_version(api_key: int, version: int, frame: bytes | bytearray | memoryview, position: int) -> int:
    """Return the version of an answer, whose message begins at `position`, to a request of this version.

    A broker that does not know a version of ApiVersions answers it in version 0 (KIP-511).
    """
    refused = api_key == ApiKey.API_VERSIONS and len(frame) >= position + _CODE.size
    return 0 if refused and _CODE.unpack_from(frame, position)[0] == ErrorCode.UNSUPPORTED_VERSION else version
