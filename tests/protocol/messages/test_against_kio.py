"""All messages that kio has, in all its versions, with random values: the same bytes, and the same meaning of them.

kio names some fields otherwise and gives some a richer type (a duration, an enum of errors), but keeps their order, so
fields are matched by position.
"""

from __future__ import annotations

import datetime
import random
from dataclasses import fields as dataclass_fields
from io import BytesIO
from pkgutil import resolve_name
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer

from minibroker.protocol.declare import Message
from minibroker.protocol.describing import list_messages
from minibroker.protocol.fields import Field, FieldType, list_declared_fields
from minibroker.protocol.primitives import ZERO_UUID
from tests.cases import for_each

CASES = 4
MANY = 18  # items; within each of them arrays are small, as 18 * 18 * 18 structs would show nothing more
TEXTS = "abz019-._ äß漢😀"
RANGES = {"b": 8, "h": 16, "i": 32, "q": 64}
ERRORS = list(ErrorCode)
EPOCH = datetime.datetime.fromtimestamp(0, tz=datetime.UTC)
DATETIMES_MS = 4_102_444_800_000  # until 2100: kio makes a float of a time, which rounds later ones
DURATIONS_MS = 10**14

FIRST_TAG_OF_OURS = 10000  # such fields are not Kafka's


def shared_versions() -> dict[str, dict[int, str]]:
    """The versions that both have by the message's name, each with the path of kio's class."""
    ours = {message.__name__: message for message in list_messages()}
    found: dict[str, dict[int, str]] = {}
    for versions in schema_name_map.values():
        for version, paths in versions.items():
            for path in paths.values():
                name = path.rpartition(":")[2]
                if name in ours and version in ours[name].versions:
                    found.setdefault(name, {})[version] = path
    return found


SHARED_VERSIONS = shared_versions()


class Values:
    """Makes a random struct twice: as ours and as kio's."""

    def __init__(self, seed: str, version: int) -> None:
        self._random = random.Random(seed)
        self._version = version
        self._is_within_many = False

    def struct(self, ours: Any, theirs: Any) -> tuple[Any, Any]:
        present = [
            field
            for field in list_declared_fields(ours)
            if self._version in field.facts.present and field.facts.tag < FIRST_TAG_OF_OURS
        ]
        our_values, their_values = {}, {}
        for field, other in zip(present, dataclass_fields(theirs), strict=True):
            our_values[field.name], their_values[other.name] = self._field(field, other)
        return ours(**our_values), theirs(**their_values)

    def _field(self, field: Field, other: Any) -> tuple[Any, Any]:
        their_type, optional = without_none(other.type)
        nullable = field.optional and self._version in field.facts.nullable
        is_tagged = self._version in field.facts.tagged
        if nullable and optional and self._random.random() < 0.25 and (not is_tagged or field.facts.default is None):
            return None, None
        if get_origin(their_type) is tuple:
            item_type, _ = without_none(get_args(their_type)[0])
            return self._items(field.kind, item_type, other.metadata.get("kafka_type", ""))
        values = self._one(field.kind, their_type, other.metadata.get("kafka_type", ""))
        if is_tagged and field.kind.struct is not None and values[0] == field.kind.struct():
            return None, values[1]  # a default is not on the wire, and what is not is None
        return values

    def _items(self, kind: FieldType, their_type: Any, kafka_type: str) -> tuple[Any, Any]:
        assert kind.item is not None
        count = self._random.choice((0, 1, 2) if self._is_within_many else (0, 1, 2, MANY))
        outside, self._is_within_many = self._is_within_many, self._is_within_many or count == MANY
        made = [self._one(kind.item, their_type, kafka_type) for _ in range(count)]
        self._is_within_many = outside
        return [ours for ours, _ in made], tuple(theirs for _, theirs in made)

    def _one(self, kind: FieldType, their_type: Any, kafka_type: str) -> tuple[Any, Any]:
        if kind.struct is not None:
            return self.struct(kind.struct, their_type)
        value = self._special(kafka_type) or self._plain(kind)
        return value if isinstance(value, tuple) else (value, value)

    def _special(self, kafka_type: str) -> tuple[Any, Any] | None:
        pick = self._random
        match kafka_type:
            case "uuid":
                raw = pick.choice((ZERO_UUID, pick.randbytes(16)))
                return raw, UUID(bytes=raw) if any(raw) else None
            case "error_code":
                code = pick.choice(ERRORS)
                return code.value, code
            case "timedelta_i32" | "timedelta_i64":
                most = 2**31 - 1 if kafka_type.endswith("32") else DURATIONS_MS
                milliseconds = pick.choice((0, 1, -1, pick.randint(-most, most)))
                return milliseconds, datetime.timedelta(milliseconds=milliseconds)
            case "datetime_i64":
                milliseconds = pick.randint(0, DATETIMES_MS)
                return milliseconds, EPOCH + datetime.timedelta(milliseconds=milliseconds)
        return None

    def _plain(self, kind: FieldType) -> Any:
        pick = self._random
        match kind.code:
            case "string":
                return "".join(pick.choices(TEXTS, k=pick.choice((0, 1, 9, 60, 150))))
            case "bytes" | "records":
                return pick.randbytes(pick.choice((0, 1, 126, 127, 300)))
            case "?":
                return pick.random() < 0.5
            case "d":
                return pick.uniform(-1e9, 1e9)
            case "H" | "I":
                return pick.randint(0, 2 ** (16 if kind.code == "H" else 32) - 1)
        half = 2 ** (RANGES[kind.code] - 1)
        return pick.choice((-half, half - 1, 0, -1, pick.randint(-half, half - 1)))


def without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) in (Union, UnionType):
        return next(each for each in get_args(annotation) if each is not NoneType), True
    return annotation, False


@for_each("message", [message for message in list_messages() if message.__name__ in SHARED_VERSIONS])
def test_encoded_bytes_and_fields_equal_those_of_kio(message: type[Message]) -> None:
    for version, path in SHARED_VERSIONS[message.__name__].items():
        check_version(message, version, resolve_name(path))


def check_version(message: type[Message], version: int, theirs_type: Any) -> None:
    write, read = entity_writer(theirs_type), entity_reader(theirs_type)
    for case in range(CASES):
        ours, theirs = Values(f"{message.__name__} {version} {case}", version).struct(message, theirs_type)
        out = BytesIO()
        write(out, theirs)
        encoded = ours.encode(version)
        assert encoded == out.getvalue()
        assert message.decode(encoded, version) == ours
        assert read(encoded, 0)[0] == theirs


def test_all_broker_messages_of_kio_are_compared() -> None:
    assert len(SHARED_VERSIONS) > 150
    assert {"ProduceRequest", "FetchResponse", "ResponseHeader", "VotersRecord"} <= SHARED_VERSIONS.keys()
