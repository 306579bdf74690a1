"""The basic parts of messages: varints, UUIDs, the output of writers, and the error of readers."""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import random

ZERO_UUID: Final = bytes(16)
BASE64_DASH = 62
MAX_TAGS = 10_000  # in one tagged section, as in Kafka 4.4
MAX_STRING_BYTES = 32767  # Kafka refuses longer strings in every version, even if the length is a varint

ONE_BYTE = tuple(bytes([value]) for value in range(128))


class MalformedMessage(ValueError):
    """Bytes that are not the message they should be.

    `message` is the struct's name, `version` its version, `field` the path of the innermost field that is wrong
    ("topics.partitions.leader_id"; empty if there is none, as for trailing bytes).
    """

    def __init__(self, message: str, version: int, field: str, reason: str) -> None:
        at = f", field {field}" if field else ""
        super().__init__(f"{message} v{version}{at}: {reason}")
        self.message = message
        self.version = version
        self.field = field


class Region(Protocol):
    """Bytes outside of memory, for example in a file. A writer only needs their number."""

    @property
    def size_bytes(self) -> int: ...


class Output(bytearray):
    """The bytes of a written message, and the places of regions, which are not copied.

    `regions` are (position, region) in the order of the positions.
    """

    __slots__ = ("regions",)

    def __init__(self) -> None:  # does not call the parent's, which only takes 0.15 us for an empty bytearray
        self.regions: list[tuple[int, Region]] = []

    @property
    def size_bytes(self) -> int:
        """Return the number of all bytes, those of the regions included."""
        size_bytes = len(self)
        for _, region in self.regions:
            size_bytes += region.size_bytes
        return size_bytes

    def put_region(self, region: Region) -> None:
        """Append a region, whose length was written before."""
        self.regions.append((len(self), region))

    def list_bytes_and_regions(self) -> list[bytearray | Region]:
        """Return all bytes in wire order, as runs of bytes and regions. Empty runs are left out."""
        parts: list[bytearray | Region] = []
        start = 0
        for position, region in self.regions:
            if position > start:
                parts.append(self[start:position])
            parts.append(region)
            start = position
        if start < len(self):
            parts.append(self[start:])
        return parts


def make_uuid(source: random.Random) -> bytes:
    """Return a random id of 16 raw bytes that is not reserved by Kafka and whose text does not begin with a dash."""
    while True:
        raw = source.randbytes(16)
        if raw[0] >> 2 != BASE64_DASH and any(raw[:15]):
            return raw


def format_uuid(raw: bytes) -> str:
    """Return a UUID's 16 bytes as Kafka prints them: URL-safe base64, 22 characters, no padding."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def parse_uuid(text: str) -> bytes:
    """Return the 16 bytes of a UUID in Kafka's notation. Raises ValueError for anything else."""
    raw = b64decode(text + "=" * (-len(text) % 4), altchars="-_", validate=True)
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not the base64 text of 16 bytes")
    return raw


# --- Unsigned varints (KIP-482): 7 bits in a byte, lowest first; the high bit says that more follow; up to 5 bytes ---


def read_unsigned_varint(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Return the value and the position after it. Raises IndexError at the end of data, ValueError after five bytes."""
    value = shift = 0
    while (byte := data[position]) > 127:
        value |= (byte & 127) << shift
        shift += 7
        position += 1
        if shift > 28:
            raise ValueError("a varint of more than five bytes")
    return value | byte << shift, position + 1


def encode_unsigned_varint(value: int) -> bytes:
    """Encode a value that is not negative, in as few bytes as possible."""
    if value < 128:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


# --- Called by generated readers in rarer cases ---


def read_string_length(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Return a compact string's length (plus 1), a varint of several bytes, and the position after it."""
    length, position = read_unsigned_varint(data, position)
    if length > MAX_STRING_BYTES + 1:
        raise ValueError(f"a string of {length - 1} bytes, and {MAX_STRING_BYTES} is the most")
    return length, position


def read_tag_and_field_extent(
    data: bytes | bytearray | memoryview, position: int, end: int, last_tag: int
) -> tuple[int, int, int]:
    """Return a tagged field's tag, its end and its beginning. Tags must increase, so that none comes twice."""
    tag, position = read_unsigned_varint(data, position)
    if tag <= last_tag:
        raise ValueError(f"tag {tag} after tag {last_tag}")
    size, position = read_unsigned_varint(data, position)
    if size > end - position:
        raise make_bad_length_error(size, end - position)
    return tag, position + size, position


def skip_unknown_tagged_fields(data: bytes | bytearray | memoryview, position: int, end: int, count: int) -> int:
    """Return the position after `count` unknown tagged fields. Each takes at least two bytes."""
    if count > MAX_TAGS:
        raise make_too_many_items_error(count, MAX_TAGS)
    last = -1
    for _ in range(count):
        last, position, _ = read_tag_and_field_extent(data, position, end, last)
    return position


def read_unknown_tagged_fields(
    data: bytes | bytearray | memoryview, position: int, end: int, count: int
) -> tuple[list[tuple[int, bytes]], int]:
    """Return `count` unknown tagged fields, each a tag with its bytes, and the position after them."""
    if count > MAX_TAGS:
        raise make_too_many_items_error(count, MAX_TAGS)
    tagged: list[tuple[int, bytes]] = []
    last = -1
    for _ in range(count):
        last, stop, start = read_tag_and_field_extent(data, position, end, last)
        tagged.append((last, bytes(data[start:stop])))
        position = stop
    return tagged, position


def read_uuids(data: bytes | bytearray | memoryview, position: int, count: int) -> list[bytes]:
    """Read `count` UUIDs of 16 bytes each. The caller has checked that the data contains them."""
    return [bytes(data[start : start + 16]) for start in range(position, position + 16 * count, 16)]


def make_bad_length_error(length: int, bytes_left: int) -> ValueError:
    """Return the error for a length or count that is negative where null is not allowed, or larger than the data."""
    if length < 0:
        return ValueError(f"length {length}, but null is not allowed")
    return ValueError(f"length {length}, but only {bytes_left} bytes are left")


def make_bad_tag_size_error(tag: int, position: int, stop_position: int) -> ValueError:
    """Return the error for a tagged field whose value does not have the announced size."""
    relation = "after" if position > stop_position else "before"
    return ValueError(f"tagged field {tag} ends {abs(position - stop_position)} bytes {relation} its size")


def make_too_many_items_error(count: int, limit: int) -> ValueError:
    """Return the error for more items than Kafka accepts."""
    return ValueError(f"{count} items, and {limit} are the most")


def make_too_much_memory_error(count: int) -> ValueError:
    """Return the error for items whose objects would take far more memory than their bytes."""
    return ValueError(f"{count} items, which would take too much memory for a request of this size")


class AnswerTooLarge(ValueError):
    """A response that no client would accept. `long_arrays` are those of its arrays that take long to free."""

    def __init__(self, limit_bytes: int, long_arrays: list[list[Any]]) -> None:
        super().__init__(f"an answer of more than {limit_bytes} bytes")
        self.long_arrays = long_arrays


# --- Called by generated writers in rarer cases ---


def encode_unknown_tags_between(unknown: list[tuple[int, bytes]], after_tag: int, before_tag: int) -> bytes:
    """Encode the unknown tagged fields whose tags are between two others."""
    found = (
        encode_unsigned_varint(tag) + encode_unsigned_varint(len(data)) + data
        for tag, data in unknown
        if after_tag < tag < before_tag
    )
    return b"".join(found)


def encode_string_length(length: int) -> bytes:
    """Encode a compact string's length (plus 1) as a varint. Raises ValueError for a string that Kafka would refuse."""
    if length > MAX_STRING_BYTES + 1:
        raise ValueError(f"a string of {length - 1} bytes, and {MAX_STRING_BYTES} is the most")
    return encode_unsigned_varint(length)
