"""What the proxy reads of every request, also of those that it does not know: the same start in all versions."""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from minibroker.protocol.apis import ApiKey, get_request_class
from minibroker.protocol.headers import get_request_header_version
from minibroker.protocol.primitives import read_unsigned_varint, skip_unknown_tagged_fields

START: Final = Struct(">hhi")  # API key, API version, correlation id: the same in every request header
LENGTH: Final = Struct(">h")
HIGHEST_KEY: Final = 512  # far above Kafka's, and below the first bytes of the SASL tokens that there are
HIGHEST_VERSION: Final = 31  # PLAIN's token may begin as a request does, but then with a character as the version
FIRST_FLEXIBLE_PRODUCE: Final = 9
FIRST_TRANSACTIONAL_PRODUCE: Final = 3
_KNOWN: Final = frozenset(ApiKey)


def is_request(frame: memoryview, *, strictly: bool) -> bool:
    """Return whether a frame may be a request. `strictly` tells it from a SASL token."""
    if len(frame) < START.size:
        return False
    key, version, _ = START.unpack_from(frame)
    return not strictly or (key in range(HIGHEST_KEY + 1) and version in range(HIGHEST_VERSION + 1))


def get_known_api(number: int) -> int:
    """Return the `ApiKey` of a number, or the number itself if there is no such API."""
    return ApiKey(number) if number in _KNOWN else number


def is_known_version(api_key: int, version: int) -> bool:
    """Return whether the messages of an API and version are declared."""
    return api_key in _KNOWN and version in get_request_class(api_key).versions


def read_client_id(frame: memoryview) -> str | None:
    """Return the client id, which is in the same place in all versions, if the frame is so long."""
    try:
        (length,) = LENGTH.unpack_from(frame, START.size)
    except error:
        return None
    start = START.size + LENGTH.size
    return None if length < 0 else str(frame[start : start + length], "utf-8", "replace")


def is_answered(frame: memoryview, version: int) -> bool:
    """Return whether a Produce gets an answer, as its `acks` is not 0. The frame may be cut off behind that."""
    try:
        acks: int = LENGTH.unpack_from(frame, _find_acks_position(frame, version))[0]
    except (error, IndexError, ValueError):
        return True  # of a version that is not known
    return acks != 0


def _find_acks_position(frame: memoryview, version: int) -> int:
    length: int = LENGTH.unpack_from(frame, START.size)[0]
    position = START.size + LENGTH.size + max(length, 0)
    known = get_request_class(ApiKey.PRODUCE).versions
    if get_request_header_version(ApiKey.PRODUCE, min(version, known[-1])) > 1:
        count, position = read_unsigned_varint(frame, position)
        position = skip_unknown_tagged_fields(frame, position, len(frame), count)
    if version >= FIRST_FLEXIBLE_PRODUCE:
        length, position = read_unsigned_varint(frame, position)
        return position + max(length - 1, 0)
    if version >= FIRST_TRANSACTIONAL_PRODUCE:
        length = LENGTH.unpack_from(frame, position)[0]
        return position + LENGTH.size + max(length, 0)
    return position
