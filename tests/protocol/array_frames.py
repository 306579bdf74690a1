"""Requests that are one array: for every array of every request that is served, a frame filled with its least items.

The bytes are made from the layouts alone, without an object an item, so that a frame of 10 MB costs nothing to make.
What a broker does with them is measured in `benchmarks/holds.py` and counted in `tests/broker/test_array_frames.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice, product
from struct import pack
from typing import NamedTuple

from minibroker.broker.requests.routes import ALLOWED_BYTES, ALLOWED_BYTES_A_BYTE, LARGE_FRAME_BYTES
from minibroker.broker.requests.served import SERVED
from minibroker.protocol.apis import ApiKey, get_api_name, get_request_class
from minibroker.protocol.fields import Field, FieldType, get_default_value
from minibroker.protocol.headers import RequestHeader, get_request_header_version
from minibroker.protocol.layout import FieldInVersion, StructLayout, make_struct_layout, measure_smallest_item_bytes
from minibroker.protocol.primitives import MalformedMessage, encode_unsigned_varint
from minibroker.protocol.steps import run_all_steps

LETTERS = b"abcdefghijklmnopqrstuvwxyz0123456789"
NAME_BYTES = 5  # of an item that shall differ from all others: 60 million names
UNKNOWN_TAG = 1000  # and above: no message has them
CLIENT_ID = "arrays"
SAID = {"acks": -1}  # where the default would have no answer


class Array(NamedTuple):
    """An array of a request: `path` names the fields that lead to it, and `item_bytes` the size of its least item."""

    key: int
    version: int
    path: tuple[str, ...]
    item_bytes: int

    @property
    def name(self) -> str:
        return f"{get_api_name(self.key)} {self.version} {'.'.join(self.path)}"


def all_arrays() -> list[Array]:
    """Every array in every shape that it has, each in the newest version with this shape."""
    newest: dict[tuple[object, ...], Array] = {}
    for key, served in sorted(SERVED.items()):
        for version in served.versions:
            for array in _arrays_of(key, version):
                newest[key, array.path, array.item_bytes] = array
    return list(newest.values())


def array_frame(array: Array, size_bytes: int, *, distinct: bool = False) -> bytes:
    """A frame of about `size_bytes`, its size first, in which everything but one array is as small as it can be.

    `distinct` gives each item a name of its own where it has a text, and a number where it is one.
    """
    message = get_request_class(array.key)
    flexible = array.version in message.flexible
    return _frame(array, _Writer(array.version, flexible, size_bytes, distinct).struct(message, array.path))


def most_bytes(array: Array, limit_bytes: int, *, distinct: bool = False) -> int:
    """For `array_frame`: the largest size up to a limit that a broker reads, and does not refuse for its many items."""
    fewest, most = 0, limit_bytes
    while most - fewest > max(64, fewest // 50):
        middle = (fewest + most) // 2
        if _is_let_in(array, array_frame(array, middle, distinct=distinct)):
            fewest = middle
        else:
            most = middle
    return fewest


def _is_let_in(array: Array, frame: bytes) -> bool:
    if len(frame) <= LARGE_FRAME_BYTES:
        return True
    _, position = RequestHeader.decode_from(frame, get_request_header_version(array.key, array.version), 4)
    allowed_bytes = ALLOWED_BYTES + ALLOWED_BYTES_A_BYTE * len(frame)
    try:
        run_all_steps(
            get_request_class(array.key).decode_in_steps(memoryview(frame), array.version, position, allowed_bytes)
        )
    except MalformedMessage:
        return False
    return True


def tags_frame(size_bytes: int, *, in_header: bool) -> bytes:
    """An ApiVersions request of about `size_bytes` with tagged fields that nobody knows, in its header or its body."""
    newest = get_request_class(ApiKey.API_VERSIONS).versions[-1]
    body = _least_struct(get_request_class(ApiKey.API_VERSIONS), newest, True)
    if in_header:
        return _frame(Array(ApiKey.API_VERSIONS, newest, (), 0), body, _unknown_tags(size_bytes))
    return _frame(Array(ApiKey.API_VERSIONS, newest, (), 0), body[:-1] + _unknown_tags(size_bytes))


def _frame(array: Array, body: bytes, header_tags: bytes = b"") -> bytes:
    """The request with its header and its size; `header_tags` take the place of the header's own."""
    header = RequestHeader(
        request_api_key=array.key, request_api_version=array.version, correlation_id=7, client_id=CLIENT_ID
    ).encode(get_request_header_version(array.key, array.version))
    if header_tags:
        header = header[:-1] + header_tags
    return pack(">i", len(header) + len(body)) + header + body


def _arrays_of(key: int, version: int) -> Iterator[Array]:
    message = get_request_class(key)
    flexible = version in message.flexible
    for path, item, compact in _paths(message, version, flexible):
        yield Array(key, version, path, measure_smallest_item_bytes(item, version, compact))


def _paths(struct: type, version: int, flexible: bool) -> Iterator[tuple[tuple[str, ...], FieldType, bool]]:
    shape = make_struct_layout(struct, version, flexible)
    for place in (*shape.body, *shape.tagged):
        item = place.kind.item
        if item is not None:
            yield (place.name,), item, place.compact
        inner = place.kind.struct if item is None else item.struct
        if inner is not None:
            for path, inner_item, compact in _paths(inner, version, flexible):
                yield (place.name, *path), inner_item, compact


class _Writer:
    """Writes structs along a path that ends in the array to fill."""

    def __init__(self, version: int, flexible: bool, size_bytes: int, distinct: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._size_bytes = size_bytes
        self._distinct = distinct

    def struct(self, struct: type, path: tuple[str, ...]) -> bytes:
        """A struct whose field `path[0]` leads to the array."""
        shape = make_struct_layout(struct, self._version, self._flexible)
        out = b"".join(self._place(place, path) for place in shape.body)
        return out + (self._tags(shape, path) if self._flexible else b"")

    def _tags(self, shape: StructLayout, path: tuple[str, ...]) -> bytes:
        for place in shape.tagged:
            if place.name == path[0]:
                value = self._place(place, path)
                return (
                    encode_unsigned_varint(1)
                    + encode_unsigned_varint(place.tag)
                    + encode_unsigned_varint(len(value))
                    + value
                )
        return encode_unsigned_varint(0)

    def _place(self, place: FieldInVersion, path: tuple[str, ...]) -> bytes:
        if place.name != path[0]:
            return _least(place, self._version, self._flexible)
        kind = place.kind
        if kind.item is None:
            assert kind.struct is not None
            present = b"" if not place.nullable else b"\x01"
            return present + self.struct(kind.struct, path[1:])
        if path[1:]:
            assert kind.item.struct is not None
            return _count(1, place.compact) + self.struct(kind.item.struct, path[1:])
        return self._filled(kind.item, place.compact)

    def _filled(self, item: FieldType, compact: bool) -> bytes:
        least = _least_item(item, self._version, compact)
        count = max(1, self._size_bytes // len(least))
        if not self._distinct:
            return _count(count, compact) + least * count
        if item.is_fixed:
            width = item.size_bytes
            numbers = range(min(count, 256**width // 2))
            return _count(len(numbers), compact) + b"".join([each.to_bytes(width, "big") for each in numbers])
        return self._named(item, compact, least)

    def _named(self, item: FieldType, compact: bool, least: bytes) -> bytes:
        """Items that differ in their first text."""
        at = 0 if item.struct is None else _text_at(item.struct, self._version, self._flexible)
        if at is None:
            count = max(1, self._size_bytes // len(least))
            return _count(count, compact) + least * count
        length = encode_unsigned_varint(NAME_BYTES + 1) if compact else pack(">h", NAME_BYTES)
        before, after = least[:at] + length, least[at + len(length) :]
        count = max(1, self._size_bytes // (len(least) + NAME_BYTES))
        names = islice(product(LETTERS, repeat=NAME_BYTES), count)
        return _count(count, compact) + b"".join([before + bytes(name) + after for name in names])


def _text_at(struct: type, version: int, flexible: bool) -> int | None:
    """Where the first text of a struct begins when all fields are as small as they can be; None: it has none."""
    at = 0
    for place in make_struct_layout(struct, version, flexible).body:
        if place.kind.code == "string":
            return at
        at += len(_least(place, version, flexible))
    return None


@cache
def _least_struct(struct: type, version: int, flexible: bool) -> bytes:
    body = b"".join(_least(place, version, flexible) for place in make_struct_layout(struct, version, flexible).body)
    return body + (encode_unsigned_varint(0) if flexible else b"")


def _least(place: FieldInVersion, version: int, flexible: bool) -> bytes:
    kind = place.kind
    if kind.is_fixed:
        return _number(place.field)
    if kind.struct is not None:
        return b"\xff" if place.nullable else _least_struct(kind.struct, version, flexible)
    is_null = place.nullable and get_default_value(place.field) is None and kind.item is None
    return _no_text(kind, place.compact, is_null)


def _least_item(item: FieldType, version: int, compact: bool) -> bytes:
    if item.is_fixed:
        return bytes(item.size_bytes)
    if item.struct is not None:
        return _least_struct(item.struct, version, compact)
    return _no_text(item, compact, False)


def _number(field: Field) -> bytes:
    """A field's default, which is what a client sends that has nothing to say."""
    value = SAID.get(field.name, get_default_value(field))
    return bytes(value) if field.kind.code == "16s" else pack(f">{field.kind.code}", value)


def _no_text(kind: FieldType, compact: bool, is_null: bool) -> bytes:
    if compact:
        return encode_unsigned_varint(0 if is_null else 1)
    return pack(">h" if kind.code == "string" else ">i", -1 if is_null else 0)


def _count(count: int, compact: bool) -> bytes:
    return encode_unsigned_varint(count + 1) if compact else pack(">i", count)


def _unknown_tags(size_bytes: int) -> bytes:
    """Tagged fields without a value, whose tags rise as they must."""
    tags: list[bytes] = []
    tag, size = UNKNOWN_TAG, 0
    while size < size_bytes:
        tags.append(encode_unsigned_varint(tag) + encode_unsigned_varint(0))
        size += len(tags[-1])
        tag += 1
    return encode_unsigned_varint(len(tags)) + b"".join(tags)
