"""Messages declared for tests: small ones, with each kind of field that Kafka's have."""

from __future__ import annotations

from minibroker.protocol.declare import (
    Message,
    Records,
    RecordsOrRegion,
    Struct,
    Uuid,
    field,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint16,
    uint32,
)


class Fixed(Message, versions="0"):
    """All kinds of fixed size."""

    flag: bool = field()
    tiny: int8 = field()
    small: int16 = field()
    port: uint16 = field()
    number: int32 = field()
    hash: uint32 = field()
    offset: int64 = field()
    ratio: float64 = field()
    id: Uuid = field()


class Order(Message, api_key=9000, versions="0-3", flexible="2+"):
    """Old and compact lengths, fields that come and go, arrays of each kind, nulls and tags."""

    name: str = field()
    note: str | None = field("1+", nullable="1+", default=None)
    lines: list[Line] = field()
    old: int32 = field("0-1", default=-1)
    numbers: list[int32] | None = field("0+")
    ids: list[Uuid] = field("2+")
    words: list[str] = field("1+")
    payload: bytes | None = field("1+", nullable="2+")
    buyer: Buyer | None = field("3+", default=None)
    priority: int16 = field("2+", tag=1, default=5)
    labels: list[str] = field("2+", tag=0)
    shop: Shop | None = field("3+", nullable="none", tag=3)
    gift: Buyer | None = field("3+", tag=4, default=None)

    class Line(Struct):
        article: str = field()
        count: int32 = field()
        records: Records | None = field("2+")

    class Buyer(Struct):
        id: int64 = field()
        city: str = field()

    class Shop(Struct):
        id: int32 = field(default=-1)


class Answer(Message, versions="0-1", flexible="1+"):
    """Records that may lie elsewhere, twice, with a field after them."""

    parts: list[Part] = field()
    code: int16 = field()

    class Part(Struct):
        records: RecordsOrRegion | None = field()


class Twins(Message, versions="0-1", flexible="1+"):
    """Structs of the same class next to each other, and with nothing but fixed sizes between."""

    first: Twin = field()
    second: Twin = field()
    third: Twin | None = field(default=None)
    code: int16 = field()
    fourth: Twin = field()

    class Twin(Struct):
        number: int32 = field()


class Nothing(Message, versions="0-1", flexible="1+"):
    """No field at all."""


class Parcel(Message, versions="0-2", flexible="2+", kips={1: 74}):
    """Its fields say what they are for, and who brought them."""

    weight: int32 = field(about="What the parcel weighs, in grams.")
    insured: bool = field("1+", about="Whether its loss is paid for.")
    fragile: bool = field("2+")
