"""A tree of named ranges of bytes, and the cursor with which it is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, NamedTuple

from minibroker.protocol.messages.metadata_records import METADATA_TOPIC, METADATA_TOPIC_ID
from minibroker.protocol.primitives import ZERO_UUID, read_unsigned_varint
from minibroker.protocol.records.varints import Bytes

MOST_PARTS = 100_000  # of one tree, as each takes some hundred times the memory of its bytes
MOST_DECOMPRESSED_BYTES = 16 << 20  # of one tree
HIDDEN = "(hidden)"  # in the place of a secret

TOPIC_NAMES = ("topic", "name", "topic_name")
TOPIC_ID = "topic_id"

TopicNames = Mapping[bytes, str]
NO_TOPICS: TopicNames = {METADATA_TOPIC_ID: METADATA_TOPIC}  # the only one whose id is the same in every cluster


@dataclass(slots=True)
class ExplainedPart:
    """A range of bytes, from `start` up to `end`, and what it is.

    `prefix_bytes` are its first bytes that hold its length, its count or its tag. `value` is None for null, and for
    parts with parts of their own. `meaning` is the value in words ("NONE" for error code 0). Of a field, `versions` are
    those that have it, `about` says what it is for, and `kip` is the proposal that brought it. If `payload` is set, the
    ranges of `parts` are of these (decompressed) bytes. `problem` says why nothing was read from `end` on. The bytes of
    a secret must not be shown.
    """

    name: str
    type: str
    start: int
    end: int
    prefix_bytes: int = 0
    value: Any = None
    meaning: str = ""
    versions: str = ""
    about: str = ""
    kip: int | None = None
    problem: str = ""
    parts: list[ExplainedPart] = field(default_factory=list)
    payload: bytes | None = None
    is_secret: bool = False

    def iterate_parts(self, depth: int = 0) -> Iterator[tuple[int, ExplainedPart]]:
        """Yield (depth, part) of this part and all in it, in the order of the bytes."""
        yield depth, self
        for part in self.parts:
            yield from part.iterate_parts(depth + 1)

    def iterate_problems(self) -> Iterator[ExplainedPart]:
        """Yield all parts in which reading ended early."""
        return (part for _, part in self.iterate_parts() if part.problem)


class Explanation(NamedTuple):
    """A tree, the bytes that its ranges are of, and a line for people that says where these come from."""

    part: ExplainedPart
    data: Bytes
    heading: str = ""


class UnreadablePart(Exception):
    """Bytes that cannot be what they should be. It ends in the innermost part that is `limit_cursor_to_part`."""

    is_told = False


class PartCursor:
    """A position in bytes that may be read up to `end`, and the parts that are open there.

    `topics` are the names of topics by their ids, as far as they are known. If `is_secret`, bytes that were not read
    are not shown.
    """

    def __init__(self, data: Bytes, position: int = 0, end: int | None = None, topics: TopicNames = NO_TOPICS) -> None:
        self.data = data
        self.position = position
        self.end = len(data) if end is None else end
        self.topics = topics
        self.is_secret = False
        self._open: list[ExplainedPart] = []
        self._root = self
        self._left = MOST_PARTS
        self._left_decompressed = MOST_DECOMPRESSED_BYTES

    def make_inner_cursor(self, data: Bytes, position: int = 0, end: int | None = None) -> PartCursor:
        """Return a cursor for bytes inside of a part. Its parts count towards the same limit as this cursor's."""
        inner = PartCursor(data, position, end, self.topics)
        inner.is_secret, inner._root = self.is_secret, self._root
        return inner

    @property
    def remaining_decompressed_bytes(self) -> int:
        """How many more bytes may be decompressed."""
        return self._root._left_decompressed

    def count_decompressed_bytes(self, size_bytes: int) -> None:
        """Subtract bytes that were decompressed from those that may still be."""
        self._root._left_decompressed -= size_bytes

    @property
    def left_bytes(self) -> int:
        """How many bytes may still be read."""
        return self.end - self.position

    @contextmanager
    def add_part(self, name: str, type_: str) -> Iterator[ExplainedPart]:
        """Add a part that begins here, and ends where the block ends."""
        self._root._left -= 1
        if self._root._left < 0:
            raise UnreadablePart(f"there are more than {MOST_PARTS:,} parts")
        part = ExplainedPart(name, type_, self.position, self.position)
        if self._open:
            self._open[-1].parts.append(part)
        self._open.append(part)
        try:
            yield part
        except UnreadablePart as error:
            if not error.is_told:
                error.is_told, part.problem = True, str(error)
            raise
        finally:
            part.end = self.position
            self._open.pop()

    @contextmanager
    def limit_cursor_to_part(self, part: ExplainedPart, size_bytes: int | None = None) -> Iterator[None]:
        """Let the block read the next `size_bytes` (all, if None) as parts of `part`; then move behind them.

        What is left over becomes a part of its own.
        """
        outer, self.end = self.end, self.end if size_bytes is None else self.position + size_bytes
        try:
            yield
        except UnreadablePart as error:
            if not error.is_told:
                part.problem = str(error)
        finally:
            if self.position < self.end:
                part.parts.append(make_unread_part(self.data, self.position, self.end, is_secret=self.is_secret))
                self.position = self.end
            self.end = outer

    def list_sibling_parts(self) -> list[ExplainedPart]:
        """Return the parts that are beside the open one, itself the last."""
        return self._open[-2].parts if len(self._open) > 1 else []

    def find_enclosing_topic(self) -> str | None:
        """Return the topic that an open part or one beside it names, None if none does."""
        for part in reversed(self._open):
            for each in part.parts:
                if each.name in TOPIC_NAMES and isinstance(each.value, str):
                    return each.value
                if each.name == TOPIC_ID and each.value in self.topics:
                    return self.topics[each.value]
        return None

    # --- values ---

    def require_bytes(self, size_bytes: int) -> None:
        """Raise UnreadablePart unless so many bytes are left."""
        if size_bytes > self.left_bytes:
            raise UnreadablePart(f"{size_bytes:,} bytes are needed, and {self.left_bytes:,} are left")

    def read_bytes(self, size_bytes: int) -> bytes:
        """Read so many bytes."""
        self.require_bytes(size_bytes)
        start, self.position = self.position, self.position + size_bytes
        return bytes(self.data[start : self.position])

    def read_number(self, packing: Struct) -> Any:
        """Read a value of fixed size."""
        self.require_bytes(packing.size)
        (value,) = packing.unpack_from(self.data, self.position)
        self.position += packing.size
        return value

    def read_unsigned_varint(self) -> int:
        """Read an unsigned varint (KIP-482)."""
        try:
            value, position = read_unsigned_varint(memoryview(self.data)[: self.end], self.position)
        except IndexError:
            raise UnreadablePart("the bytes end in a varint") from None
        except ValueError as error:
            raise UnreadablePart(str(error)) from None
        self.position = position
        return value


def make_unread_part(data: Bytes, start: int, end: int, *, is_secret: bool = False) -> ExplainedPart:
    """Return the part of bytes that were not read."""
    if is_secret:
        return ExplainedPart("not read", "bytes", start, end, meaning=HIDDEN, is_secret=True)
    return ExplainedPart("not read", "bytes", start, end, value=bytes(data[start:end]))


def iterate_topic_ids_and_names(part: ExplainedPart) -> Iterator[tuple[bytes, str]]:
    """Yield the id and the name of each topic that a message names with both, such as an answer to Metadata."""
    for _, each in part.iterate_parts():
        values = {field.name: field.value for field in each.parts}
        name = next((values[key] for key in TOPIC_NAMES if values.get(key)), None)
        if name and values.get(TOPIC_ID) not in (None, ZERO_UUID):
            yield values[TOPIC_ID], name
