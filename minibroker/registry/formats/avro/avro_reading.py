"""Reads data of Avro, with the values that fastavro gives, as Confluent's client for Python uses that.

Not by fastavro: data that someone sent must neither exhaust the stack nor make a billion values of no bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any, Final
from uuid import UUID

from minibroker.registry.formats.avro.avro_types import AvroType
from minibroker.registry.formats.decoding_budget import MAXIMUM_DEPTH, DecodingBudget
from minibroker.registry.formats.schema import InvalidData

DECIMAL_BYTES: Final = 1024  # Python writes a longer number in quadratic time
EPOCH: Final = datetime(1970, 1, 1)
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")


def read_avro(schema: AvroType, data: bytes, budget: DecodingBudget | None = None) -> Any:
    """Return the value of data that was written with a schema. Raises InvalidData."""
    reader = _AvroReader(data, budget or DecodingBudget())
    value = reader.read_value(schema)
    if reader.count_remaining_bytes():
        raise InvalidData(f"{reader.count_remaining_bytes()} bytes are left over")
    return value


class _AvroReader:
    """Data, and the place in it that is read next."""

    def __init__(self, data: bytes, values: DecodingBudget) -> None:
        self._data = data
        self._place = 0
        self._depth = 0
        self._values = values
        self._plain: dict[str, Callable[[], Any]] = {
            "null": lambda: None,
            "boolean": lambda: self._read_bytes(1) != b"\0",
            "int": self._read_long,
            "long": self._read_long,
            "float": lambda: _FLOAT.unpack(self._read_bytes(4))[0],
            "double": lambda: _DOUBLE.unpack(self._read_bytes(8))[0],
            "bytes": lambda: self._read_bytes(self._read_long()),
            "string": self._read_string,
        }
        self._compound: dict[str, Callable[[AvroType], Any]] = {
            "record": lambda schema: {field.name: self.read_value(field.type) for field in schema.fields},
            "error": lambda schema: {field.name: self.read_value(field.type) for field in schema.fields},
            "enum": lambda schema: self._read_index_and_choose(schema.symbols),
            "fixed": lambda schema: self._read_bytes(schema.size),
            "union": lambda schema: self.read_value(self._read_index_and_choose(schema.branches)),
            "array": self._read_array,
            "map": self._read_map,
        }

    def count_remaining_bytes(self) -> int:
        """Return how many bytes were not read."""
        return len(self._data) - self._place

    def read_value(self, schema: AvroType) -> Any:
        """Return the next value, of this type. Raises InvalidData."""
        self._values.count_values()
        plain = self._plain.get(schema.kind)
        if plain is not None:
            value = plain()
        else:
            self._depth += 1
            if self._depth > MAXIMUM_DEPTH:
                raise InvalidData(f"values are nested more than {MAXIMUM_DEPTH} levels deep")
            value = self._compound[schema.kind](schema)
            self._depth -= 1
        return _convert_logical_value(schema, value) if "logicalType" in schema.props else value

    def _read_bytes(self, count: int) -> bytes:
        if not 0 <= count <= self.count_remaining_bytes():
            raise InvalidData("the data ends too early")
        self._place += count
        return self._data[self._place - count : self._place]

    def _read_long(self) -> int:
        """Return an integer in zigzag form, of at most ten bytes."""
        number = shift = 0
        while True:
            byte = self._read_bytes(1)[0]
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            if shift >= 70:
                raise InvalidData("an integer has more than ten bytes")

    def _read_string(self) -> str:
        try:
            return self._read_bytes(self._read_long()).decode()
        except UnicodeDecodeError as error:
            raise InvalidData(f"a string is not UTF-8: {error}") from None

    def _read_index_and_choose(self, choices: Sequence[Any]) -> Any:
        """Read an index, and return the one of the choices that has it."""
        index = self._read_long()
        if not 0 <= index < len(choices):
            raise InvalidData(f"there is no choice {index} of {len(choices)}")
        return choices[index]

    def _read_block_count(self) -> int:
        """Return how many items the next block has, 0 after the last one."""
        count = self._read_long()
        if count < 0:
            count = -count
            self._read_long()  # the size of the block in bytes
        self._values.check_value_limit(count)
        return count

    def _read_array(self, schema: AvroType) -> list[Any]:
        items: list[Any] = []
        while count := self._read_block_count():
            items += [self.read_value(schema.element) for _ in range(count)]
        return items

    def _read_map(self, schema: AvroType) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while count := self._read_block_count():
            for _ in range(count):
                name = self._read_string()
                items[name] = self.read_value(schema.element)
        return items


def _convert_logical_value(schema: AvroType, value: Any) -> Any:
    """Return the value of a logical type; a value that Python has no room for stays as it is."""
    make = _LOGICAL.get((schema.kind, schema.props["logicalType"]))
    try:
        return value if make is None else make(schema, value)
    except (ValueError, OverflowError, ArithmeticError):
        return value


def _convert_decimal(schema: AvroType, value: bytes) -> Decimal:
    if len(value) > DECIMAL_BYTES:
        raise ValueError("the number is too long")
    scale, precision = schema.props.get("scale", 0), schema.props.get("precision", 0)
    if not isinstance(scale, int) or not isinstance(precision, int):
        raise ValueError("a decimal's precision and scale are integers")
    return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, Context(prec=max(precision, 1)))


def _convert_time(microseconds: int) -> time:
    moment = EPOCH + timedelta(microseconds=microseconds)
    if moment.date() != EPOCH.date():
        raise ValueError("the time is not of one day")
    return moment.time()


def _convert_utc(microseconds: int) -> datetime:
    return EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=microseconds)


_LOGICAL: Final[dict[tuple[str, Any], Callable[[AvroType, Any], Any]]] = {
    ("bytes", "decimal"): _convert_decimal,
    ("fixed", "decimal"): _convert_decimal,
    ("int", "date"): lambda schema, value: date.fromordinal(EPOCH.toordinal() + value),
    ("int", "time-millis"): lambda schema, value: _convert_time(value * 1000),
    ("long", "time-micros"): lambda schema, value: _convert_time(value),
    ("long", "timestamp-millis"): lambda schema, value: _convert_utc(value * 1000),
    ("long", "timestamp-micros"): lambda schema, value: _convert_utc(value),
    ("long", "local-timestamp-millis"): lambda schema, value: EPOCH + timedelta(milliseconds=value),
    ("long", "local-timestamp-micros"): lambda schema, value: EPOCH + timedelta(microseconds=value),
    ("string", "uuid"): lambda schema, value: UUID(value),
}
