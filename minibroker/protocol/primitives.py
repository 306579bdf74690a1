"""The smallest pieces of messages: varints, UUID texts, the writer's target, and the one error of readers.

What a message consists of is said in `messages/`; how a struct becomes code is in `source.py`.
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from typing import Protocol

ZERO_UUID = bytes(16)
MAX_TAGS = 10_000  # of one tagged section, as Kafka 4.4 has it
MAX_STRING_BYTES = 32767  # Kafka refuses longer strings in every version, also where the length is a varint

ONE_BYTE = tuple(bytes([value]) for value in range(128))


class MalformedMessage(ValueError):
    """Bytes that are not the message they should be.

    `message` is the struct's name, `version` its version, `field` the path of the innermost field that failed
    ("topics.partitions.leader_id"; empty where no field is to blame, as for trailing bytes).
    """

    def __init__(self, message: str, version: int, field: str, reason: str) -> None:
        at = f", field {field}" if field else ""
        super().__init__(f"{message} v{version}{at}: {reason}")
        self.message = message
        self.version = version
        self.field = field


class Region(Protocol):
    """Bytes that lie elsewhere, for example in a file: all the writer wants to know is how many."""

    @property
    def size_bytes(self) -> int: ...


class Output(bytearray):
    """The bytes of a message that is written, and where in them a region belongs that is not copied in.

    `regions` holds (position, region) in the order of the positions.
    """

    __slots__ = ("regions",)

    def __init__(self) -> None:  # without the parent's, which adds nothing to an empty bytearray but 0.15 us
        self.regions: list[tuple[int, Region]] = []

    def cut(self, region: Region) -> None:
        """Notes that a region's bytes come next. Its length has been written already."""
        self.regions.append((len(self), region))

    def parts(self) -> list[bytes | Region]:
        """All bytes in the order they go to the wire, as runs of bytes and regions. Empty runs are left out."""
        parts: list[bytes | Region] = []
        start = 0
        with memoryview(self) as view:
            for position, region in self.regions:
                if position > start:
                    parts.append(bytes(view[start:position]))
                parts.append(region)
                start = position
            if start < len(view):
                parts.append(bytes(view[start:]))
        return parts


def uuid_text(raw: bytes) -> str:
    """A UUID's 16 bytes as Kafka prints them: URL-safe base64, 22 characters, no padding."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def uuid_from_text(text: str) -> bytes:
    """The 16 bytes of a UUID that Kafka printed. Raises ValueError for anything else."""
    raw = b64decode(text + "=" * (-len(text) % 4), altchars="-_", validate=True)
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not the base64 text of 16 bytes")
    return raw


# --- Unsigned varints (KIP-482): 7 bits a byte, lowest first, the high bit says that more follow; 5 bytes at most ---


def read_varint(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """The value and the position after it. Raises IndexError at the end of the data, ValueError after five bytes."""
    value = shift = 0
    while (byte := data[position]) > 127:
        value |= (byte & 127) << shift
        shift += 7
        position += 1
        if shift > 28:
            raise ValueError("a varint of more than five bytes")
    return value | byte << shift, position + 1


def varint(value: int) -> bytes:
    """The shortest spelling of a value that is not negative."""
    if value < 128:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


# --- What generated readers call outside the straight line ---


def read_string_length(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """The varint of a compact string's length (plus 1), where it takes more than one byte."""
    length, position = read_varint(data, position)
    if length > MAX_STRING_BYTES + 1:
        raise ValueError(f"a string of {length - 1} bytes, and {MAX_STRING_BYTES} is the most")
    return length, position


def read_tag(data: bytes | bytearray | memoryview, position: int, end: int, last: int) -> tuple[int, int, int]:
    """A tagged field's tag, where it ends, and where it begins. Tags must rise, so none comes twice."""
    tag, position = read_varint(data, position)
    if tag <= last:
        raise ValueError(f"tag {tag} after tag {last}")
    size, position = read_varint(data, position)
    if size > end - position:
        raise bad_length(size, end - position)
    return tag, position + size, position


def skip_tags(data: bytes | bytearray | memoryview, position: int, end: int, count: int) -> int:
    """The position after `count` tagged fields that no version we know has. Each takes two bytes at least."""
    if count > MAX_TAGS:
        raise too_many(count, MAX_TAGS)
    last = -1
    for _ in range(count):
        last, position, _ = read_tag(data, position, end, last)
    return position


def read_uuids(data: bytes | bytearray | memoryview, position: int, count: int) -> list[bytes]:
    """`count` UUIDs of 16 bytes each; the caller has checked that they are there."""
    return [bytes(data[start : start + 16]) for start in range(position, position + 16 * count, 16)]


def bad_length(length: int, left: int) -> ValueError:
    """The error for a length or a count that is negative where null is not allowed, or more than the data can hold."""
    if length < 0:
        return ValueError(f"length {length}, but null is not allowed")
    return ValueError(f"length {length}, but only {left} bytes are left")


def bad_tag_size(tag: int, position: int, stop: int) -> ValueError:
    """The error for a tagged field whose value takes more or fewer bytes than it announced."""
    return ValueError(
        f"tagged field {tag} ends {abs(position - stop)} bytes {'after' if position > stop else 'before'} its size"
    )


def too_many(count: int, most: int) -> ValueError:
    """The error for more items than Kafka takes."""
    return ValueError(f"{count} items, and {most} are the most")


def too_costly(count: int) -> ValueError:
    """The error for items whose objects would take memory out of proportion to their bytes."""
    return ValueError(f"{count} items, which would take too much memory for a request of this size")


def answer_too_large(size_bytes: int) -> ValueError:
    """The error for an answer that no client would take."""
    return ValueError(f"the answer has more than {size_bytes} bytes")


# --- What generated writers call outside the straight line ---


def string_length(length: int) -> bytes:
    """The varint of a compact string's length (plus 1). Raises ValueError for a string that Kafka would refuse."""
    if length > MAX_STRING_BYTES + 1:
        raise ValueError(f"a string of {length - 1} bytes, and {MAX_STRING_BYTES} is the most")
    return varint(length)
