"""Requests that are nearly right: made from the declarations as pieces, and then spoilt where it hurts.

A piece knows what it is (a length, a count, a tag, a number, a text, an item of an array), so that a mutation can lie
about a length, repeat an item or let a tag come twice, and leave everything around it as it should be. All is random,
and the same for the same `random.Random`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from struct import pack
from typing import NamedTuple

from minibroker.protocol.apis import get_request_class
from minibroker.protocol.fields import FieldType
from minibroker.protocol.headers import get_request_header_version
from minibroker.protocol.layout import FieldInVersion, StructLayout, make_struct_layout
from minibroker.protocol.primitives import encode_unsigned_varint
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.record import Header, Record

BITS = {"b": 8, "h": 16, "H": 16, "i": 32, "I": 32, "q": 64}
SIGNED = "bhiq"
LONG_TEXT = 32_767
MOST_MUTATIONS = 4
LENGTHS = (-2, -1, 0, 1, 2, 127, 128, 255, 16_384, 32_767, 32_768, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
LONG_VARINTS = (b"\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff", b"\x80\x00", b"\x80")
NUMBERS = (0, 0, 0, 1, 1, -1, -1, 2, 3, 5, 100, 1_000)
TEXTS = (
    "", "fuzz", "fuzz", "fuzz-2", "group", "group", "id", "member", "consumer", "range", "User:fuzz", "ключ", "*",
    "Empty", "classic", "share", "Ongoing", "cleanup.policy", "compact", "retention.ms", "delete", "user", "client-id",
    "transaction.version", "group.version", "a\nb", "a\0b", "..", "a/b",
    "\U0001f600",
)  # fmt: skip


class Piece(NamedTuple):
    """A few bytes of a request, and what they are: "length", "count", "tags", "tag", "number", "text", "bytes".

    `compact` is whether a length is a varint; `size` is how many bytes it has if it is not.
    """

    what: str
    data: bytes
    compact: bool = False
    size: int = 0


class Known:
    """The ids that the broker made, by field."""

    def __init__(self) -> None:
        self.topic_ids: list[bytes] = []
        self.numbers: dict[str, list[int]] = {"producer_id": [], "producer_epoch": [], "session_id": []}
        self.member_ids: list[str] = []


class Requests:
    """Makes requests. `known` may grow meanwhile."""

    def __init__(self, random: Random, known: Known | None = None) -> None:
        self.random = random
        self.known = known or Known()

    def frame(self, key: int, version: int, correlation_id: int, *, mutations: int) -> bytes:
        """A request with its header and its size, with as many mutations, which are none of those three."""
        pieces = self._pieces(key, version)
        for _ in range(mutations):
            pieces = self.random.choice(MUTATIONS)(self.random, pieces)
        data = b"".join(piece.data for piece in pieces)
        if mutations and self.random.random() < 0.3:
            data = self.random.choice(BYTE_MUTATIONS)(self.random, data)
        header = self._header(key, version, correlation_id, spoilt=mutations > 0)
        return pack(">i", len(header) + len(data)) + header + data

    def _header(self, key: int, version: int, correlation_id: int, *, spoilt: bool) -> bytes:
        start = pack(">hhi", key, version, correlation_id)
        if get_request_header_version(key, version) == 1:
            return start + self._client_id(spoilt)
        tags = (
            self._unknown_tags()
            if spoilt and self.random.random() < 0.1
            else [Piece("tags", encode_unsigned_varint(0))]
        )
        return start + self._client_id(spoilt) + b"".join(piece.data for piece in tags)

    def _client_id(self, spoilt: bool) -> bytes:
        pick = self.random.random()
        if not spoilt or pick < 0.6:
            return pack(">h", 4) + b"fuzz"
        if pick < 0.7:
            return pack(">h", -1)
        if pick < 0.71:
            return pack(">h", LONG_TEXT) + b"c" * LONG_TEXT
        text = self.random.randbytes(3) if pick < 0.73 else self._text().encode()
        return pack(">h", len(text)) + text

    # --- pieces ---

    def _pieces(self, key: int, version: int) -> list[Piece]:
        message = get_request_class(key)
        pieces: list[Piece] = []
        self._struct(pieces, message, version, version in message.flexible)
        return pieces

    def _struct(self, out: list[Piece], struct: type, version: int, flexible: bool) -> None:
        shape = make_struct_layout(struct, version, flexible)
        for place in shape.body:
            self._place(out, place, version, flexible)
        if flexible:
            self._tags(out, shape, version)

    def _tags(self, out: list[Piece], shape: StructLayout, version: int) -> None:
        tagged = [place for place in shape.tagged if self.random.random() < 0.5]
        unknown = self._unknown_tags()[1:] if self.random.random() < 0.02 else []
        out.append(Piece("tags", encode_unsigned_varint(len(tagged) + len(unknown) // 3), True))
        for place in tagged:
            value: list[Piece] = []
            self._place(value, place, version, True)
            size = sum(len(piece.data) for piece in value)
            out.append(Piece("tag", encode_unsigned_varint(place.tag), True))
            out.append(Piece("length", encode_unsigned_varint(size), True))
            out += value
        out += unknown

    def _unknown_tags(self) -> list[Piece]:
        count = self.random.choice((1, 3, 200))
        pieces = [Piece("tags", encode_unsigned_varint(count), True)]
        for tag in range(20_000, 20_000 + count):
            data = self.random.randbytes(self.random.choice((0, 3)))
            pieces += [
                Piece("tag", encode_unsigned_varint(tag), True),
                Piece("length", encode_unsigned_varint(len(data)), True),
                Piece("bytes", data),
            ]
        return pieces

    def _place(self, out: list[Piece], place: FieldInVersion, version: int, flexible: bool) -> None:
        kind = place.kind
        is_null = place.nullable and self.random.random() < 0.15
        if kind.is_fixed:
            out.append(Piece("number", self._number(place.name, kind), size=kind.size_bytes))
        elif kind.struct is not None:
            if place.nullable:
                out.append(Piece("length", bytes([not is_null]) if place.tagged else b"\xff" if is_null else b"\x01"))
            if not is_null:
                self._struct(out, kind.struct, version, flexible)
        elif is_null:
            out.append(_length(-1, place.compact, kind))
        elif kind.item is not None:
            self._array(out, kind.item, place.compact, version, place.name)
        else:
            self._data(out, kind, place.compact, place.name)

    def _array(self, out: list[Piece], item: FieldType, compact: bool, version: int, name: str) -> None:
        count = self.random.choice((0, 1, 1, 1, 2, 3))
        out.append(Piece("count", encode_unsigned_varint(count + 1) if compact else pack(">i", count), compact, 4))
        for _ in range(count):
            if item.is_fixed:
                out.append(Piece("number", self._number(name, item), size=item.size_bytes))
            elif item.struct is not None:
                self._struct(out, item.struct, version, compact)
            else:
                self._data(out, item, compact, name)

    def _data(self, out: list[Piece], kind: FieldType, compact: bool, name: str) -> None:
        if kind.code == "string":
            data = self._text_for(name).encode()
        elif kind.code == "records":
            data = self._records()
        else:
            data = self.random.choice((b"", b"\0\0\0\0\0\0", self.random.randbytes(9), b"\0\1\0\0\0\1\0\4fuzz\0\0\0\0"))
        out.append(_length(len(data), compact, kind))
        out.append(Piece("text" if kind.code == "string" else "bytes", data))

    def _number(self, name: str, kind: FieldType) -> bytes:
        pick = self.random.random()
        if kind.code == "16s":
            ids = self.known.topic_ids
            return (
                self.random.choice(ids)
                if ids and pick < 0.7
                else bytes(16)
                if pick < 0.9
                else self.random.randbytes(16)
            )
        if kind.code == "?":
            return bytes([pick < 0.5])
        if kind.code == "d":
            return pack(">d", self.random.choice((0.0, 1.0, -1.0, 1e9, float("nan"), float("inf"))))
        value = self._int(name, pick)
        bits = BITS[kind.code]
        if pick > 0.95:
            value = self.random.choice((1 << bits - 1, (1 << bits - 1) - 1, self.random.getrandbits(bits)))
        return pack(f">{kind.code.upper()}", value % (1 << bits))

    def _int(self, name: str, pick: float) -> int:
        known = self.known.numbers.get(name)
        if known and pick < 0.7:
            return self.random.choice(known)
        if name.endswith("_ms") and "timestamp" not in name:
            return self.random.choice((0, 1, 50, 6_000, 10_000))
        if name == "acks":
            return self.random.choice((-1, -1, 1, 0))
        return self.random.choice(NUMBERS)

    def _text_for(self, name: str) -> str:
        if name == "member_id" and self.known.member_ids and self.random.random() < 0.7:
            return self.random.choice(self.known.member_ids)
        if name in ("name", "topic", "topics") and self.random.random() < 0.5:
            return "fuzz"
        return self._text()

    def _text(self) -> str:
        pick = self.random.random()
        return "x" * LONG_TEXT if pick < 0.003 else "x" * 250 if pick < 0.01 else self.random.choice(TEXTS)

    def _records(self) -> bytes:
        pick = self.random
        if pick.random() < 0.1:
            return pick.randbytes(pick.choice((0, 1, 61, 100)))
        headers = (Header("h", b"v"), Header("", None)) if pick.random() < 0.3 else ()
        count = pick.choice((1, 1, 3))
        key = None if pick.random() < 0.5 else b"key"
        records = [Record(0, pick.choice((-1, 0, 1_700_000_000_000)), key, b"value", headers) for _ in range(count)]
        batch = build_batch(
            records,
            compression=pick.choice(tuple(Compression)),
            producer_id=self._int("producer_id", pick.random()) if pick.random() < 0.3 else -1,
            producer_epoch=self._int("producer_epoch", pick.random()) if pick.random() < 0.3 else -1,
            base_sequence=pick.choice((-1, 0, 1)),
            transactional=pick.random() < 0.1,
            control=pick.random() < 0.03,
        )
        if pick.random() < 0.3:
            return pick.choice(BYTE_MUTATIONS)(pick, bytes(batch))
        return bytes(batch) * pick.choice((1, 1, 1, 2))


def _length(size: int, compact: bool, kind: FieldType) -> Piece:
    short = kind.code == "string"
    data = encode_unsigned_varint(size + 1) if compact else pack(">h" if short else ">i", size)
    return Piece("length", data, compact, 2 if short else 4)


# --- mutations of pieces ---

Mutation = Callable[[Random, list[Piece]], list[Piece]]


def _at(random: Random, pieces: Sequence[Piece], whats: tuple[str, ...]) -> int | None:
    """Where one of these pieces is; None: there is none."""
    places = [index for index, piece in enumerate(pieces) if piece.what in whats]
    return random.choice(places) if places else None


def lie(random: Random, pieces: list[Piece]) -> list[Piece]:
    """Another length or count."""
    at = _at(random, pieces, ("length", "count", "tags"))
    if at is None:
        return pieces
    piece = pieces[at]
    value = random.choice(LENGTHS)
    if random.random() < 0.5:
        value = max(0, int.from_bytes(piece.data, "big") + random.choice((-1, 1)))
    if piece.compact or not piece.size:
        data = encode_unsigned_varint(max(0, value) & 0xFFFFFFFF)
    else:
        data = (value % (1 << 8 * piece.size)).to_bytes(piece.size, "big")
    return [*pieces[:at], piece._replace(data=data), *pieces[at + 1 :]]


def stretch(random: Random, pieces: list[Piece]) -> list[Piece]:
    """A varint that is longer than it may be, or ends nowhere."""
    at = _at(random, pieces, ("length", "count", "tags", "tag"))
    if at is None or not pieces[at].compact:
        return pieces
    return [*pieces[:at], pieces[at]._replace(data=random.choice(LONG_VARINTS)), *pieces[at + 1 :]]


def renumber(random: Random, pieces: list[Piece]) -> list[Piece]:
    """The least or the largest number that there is in this size, or any."""
    at = _at(random, pieces, ("number",))
    if at is None:
        return pieces
    size = len(pieces[at].data)
    data = random.choice(
        (b"\x7f" + b"\xff" * (size - 1), b"\x80" + bytes(size - 1), b"\xff" * size, random.randbytes(size))
    )
    return [*pieces[:at], pieces[at]._replace(data=data), *pieces[at + 1 :]]


def reword(random: Random, pieces: list[Piece]) -> list[Piece]:
    """Other bytes in a text, of the same length: seldom UTF-8."""
    at = _at(random, pieces, ("text", "bytes"))
    if at is None:
        return pieces
    return [*pieces[:at], pieces[at]._replace(data=random.randbytes(len(pieces[at].data))), *pieces[at + 1 :]]


def retag(random: Random, pieces: list[Piece]) -> list[Piece]:
    """A tag that comes twice, or before one that is lower, or that nobody knows."""
    at = _at(random, pieces, ("tag",))
    if at is None:
        return pieces
    data = random.choice(
        (
            encode_unsigned_varint(0),
            encode_unsigned_varint(1),
            encode_unsigned_varint(10_000),
            encode_unsigned_varint(0xFFFFFFFF),
        )
    )
    return [*pieces[:at], pieces[at]._replace(data=data), *pieces[at + 1 :]]


def add_tag(random: Random, pieces: list[Piece]) -> list[Piece]:
    """A tagged section that has one more, of a tag that may be known, with bytes that may not be its."""
    at = _at(random, pieces, ("tags",))
    if at is None:
        return pieces
    data = random.randbytes(random.choice((0, 1, 5, 16)))
    tag = random.choice((0, 1, 2, 10_000, 50))
    more = [
        Piece("tag", encode_unsigned_varint(tag), True),
        Piece("length", encode_unsigned_varint(len(data)), True),
        Piece("bytes", data),
    ]
    return [
        *pieces[:at],
        pieces[at]._replace(data=encode_unsigned_varint(pieces[at].data[0] + 1)),
        *more,
        *pieces[at + 1 :],
    ]


def repeat(random: Random, pieces: list[Piece]) -> list[Piece]:
    """Some pieces twice."""
    start, stop = _range(random, pieces)
    return pieces[:stop] + pieces[start:stop] + pieces[stop:]


def drop(random: Random, pieces: list[Piece]) -> list[Piece]:
    """Some pieces fewer."""
    start, stop = _range(random, pieces)
    return pieces[:start] + pieces[stop:]


def swap(random: Random, pieces: list[Piece]) -> list[Piece]:
    """Two pieces in each other's place."""
    if len(pieces) < 2:
        return pieces
    first, second = sorted(random.sample(range(len(pieces)), 2))
    return [*pieces[:first], pieces[second], *pieces[first + 1 : second], pieces[first], *pieces[second + 1 :]]


def _range(random: Random, pieces: Sequence[Piece]) -> tuple[int, int]:
    start = random.randrange(len(pieces) + 1)
    return start, min(len(pieces), start + random.choice((1, 1, 2, 3, 8)))


MUTATIONS: tuple[Mutation, ...] = (
    lie,
    lie,
    lie,
    stretch,
    renumber,
    renumber,
    reword,
    retag,
    add_tag,
    repeat,
    drop,
    swap,
)


# --- mutations of bytes ---


def flip(random: Random, data: bytes) -> bytes:
    """One to three bits."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 3)) if out else 0):
        out[random.randrange(len(out))] ^= 1 << random.randrange(8)
    return bytes(out)


def cut(random: Random, data: bytes) -> bytes:
    """The end is missing."""
    return data[: random.randrange(len(data) + 1)]


def lengthen(random: Random, data: bytes) -> bytes:
    """More than there should be."""
    return data + random.randbytes(random.choice((1, 4, 100)))


def shuffle(random: Random, data: bytes) -> bytes:
    """A stretch of it elsewhere."""
    start, stop = sorted((random.randrange(len(data) + 1), random.randrange(len(data) + 1)))
    at = random.randrange(len(data) + 1)
    return data[:at] + data[start:stop] + data[at:]


BYTE_MUTATIONS: tuple[Callable[[Random, bytes], bytes], ...] = (flip, flip, cut, lengthen, shuffle)
