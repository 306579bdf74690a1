"""OTLP's metrics, which clients push (KIP-714), as numbers that are read in steps.

A gauge or a sum is one number. A histogram or a summary is two: its count and its sum, with `.count` and `.sum` behind
the name; buckets and quantiles are left out.

The messages are those of opentelemetry/proto/metrics/v1/metrics.proto. This reads them by hand, as only a few fields
matter: the library needs the runtime of protobuf, a dependency of every broker, and decodes a payload in one piece,
which would keep other clients waiting. Unknown fields are skipped, as protobuf requires.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.steps import Steps

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # protobuf's wire types
GAUGE, SUM = 5, 7  # fields of Metric
ATTRIBUTES_OF_TOTALS = {9: 9, 10: 1, 11: 7}  # by the field of Metric: Histogram, ExponentialHistogram, Summary
DELTA = 1  # AggregationTemporality
VARINT_BYTES = 10
FEW_FIELDS = 100  # in a message, besides repeated ones: no request may block others
_SIZES = {FIXED64: 8, FIXED32: 4}
_DOUBLE, _INT64, _UINT64 = Struct("<d"), Struct("<q"), Struct("<Q")

Field = tuple[int, Any]  # its number, and an int, or a view of its bytes


class MalformedMetrics(ValueError):
    """Bytes that are not OTLP."""


class DataPoint(NamedTuple):
    """A number of a metric. `is_delta` says that it counts since the client's last push, and not since its start."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_delta: bool


def iterate_data_points(data: bytes | memoryview) -> Iterator[DataPoint | None]:
    """Yield the numbers in a MetricsData; None is a pause. Raises MalformedMetrics."""
    for resource in _iterate_nested_messages(memoryview(data), 1):
        yield None
        for scope in _iterate_nested_messages(resource, 2):
            yield None
            for metric in _iterate_nested_messages(scope, 2):
                yield None
                yield from _iterate_points_of_metric(metric)


def _iterate_points_of_metric(metric: memoryview) -> Iterator[DataPoint | None]:
    """Yield the numbers in one metric; None is a pause."""
    fields = dict(_iterate_limited_fields(metric))
    name = _decode_text(fields.get(1, memoryview(b"")))
    for number in GAUGE, SUM:
        if number in fields:
            points = _require_bytes(fields[number])
            is_delta = number == SUM and (yield from _has_delta_temporality(points))
            for point in _iterate_nested_messages(points, 1):
                yield _parse_point(name, point, is_delta=is_delta)
    for number, attributes in ATTRIBUTES_OF_TOTALS.items():
        if number in fields:
            points = _require_bytes(fields[number])
            is_delta = yield from _has_delta_temporality(points)
            for point in _iterate_nested_messages(points, 1):
                yield from _iterate_count_and_sum(name, point, attributes, is_delta=is_delta)


def _has_delta_temporality(points: memoryview) -> Steps[bool]:
    """Return whether a sum or histogram has delta temporality; the field follows the points."""
    for index, field in enumerate(_iterate_fields(points)):
        if field == (2, DELTA):
            return True
        if index % 500 == 0:
            yield
    return False


def _parse_point(name: str, point: memoryview, *, is_delta: bool) -> DataPoint:
    """Return the number in a point of a gauge or sum."""
    value, attributes = 0.0, []
    for number, field in _iterate_limited_fields(point):
        if number == 4:
            value = _unpack_number(_DOUBLE, field)
        elif number == 6:
            value = _unpack_number(_INT64, field)
        elif number == 7:
            attributes.append(_parse_attribute(_require_bytes(field)))
    return DataPoint(name, tuple(sorted(attributes)), value, is_delta)


def _iterate_count_and_sum(
    name: str, point: memoryview, attributes_field: int, *, is_delta: bool
) -> Iterator[DataPoint | None]:
    """Yield the count and the sum of a histogram's or summary's point. The sum is optional in a histogram."""
    totals: dict[str, float] = {}
    attributes = []
    for index, (number, field) in enumerate(_iterate_fields(point)):
        if number == attributes_field:
            attributes.append(_parse_attribute(_require_bytes(field)))
            _increment_field_count(len(attributes))
        elif number == 4:
            totals[".count"] = _unpack_number(_UINT64, field)
        elif number == 5:
            totals[".sum"] = _unpack_number(_DOUBLE, field)
        if index % 500 == 499:
            yield None  # buckets may stand one by one
    for suffix, value in totals.items():
        yield DataPoint(name + suffix, tuple(sorted(attributes)), value, is_delta)


def _parse_attribute(key_and_value: memoryview) -> tuple[str, str]:
    found = dict(_iterate_limited_fields(key_and_value))
    return _decode_text(found.get(1, memoryview(b""))), _parse_any_value(_require_bytes(found.get(2, memoryview(b""))))


def _parse_any_value(data: memoryview) -> str:
    """Return a string, bool, int or double as text; arrays and the like have none."""
    for number, field in _iterate_limited_fields(data):
        if number == 1:
            return _decode_text(field)
        if number == 2:
            return "true" if field else "false"
        if number == 3 and isinstance(field, int):
            return str(field - (1 << 64) if field >= 1 << 63 else field)
        if number == 4:
            return repr(_unpack_number(_DOUBLE, field))
    return ""


def _iterate_nested_messages(data: memoryview, field_number: int) -> Iterator[memoryview]:
    """Yield the messages in the field `field_number`, of which there may be many."""
    others = 0
    for number, value in _iterate_fields(data):
        if number == field_number:
            yield _require_bytes(value)
        else:
            others = _increment_field_count(others)


def _iterate_limited_fields(data: memoryview) -> Iterator[Field]:
    """Yield the fields of a message. Raises MalformedMetrics if there are too many."""
    count = 0
    for field in _iterate_fields(data):
        count = _increment_field_count(count)
        yield field


def _increment_field_count(count: int) -> int:
    """Return `count` + 1. Raises MalformedMetrics if those are too many fields."""
    if count >= FEW_FIELDS:
        raise MalformedMetrics(f"a message of OTLP has more than {FEW_FIELDS} fields")
    return count + 1


def _unpack_number(packing: Struct, value: Any) -> float:
    if len(_require_bytes(value)) != packing.size:
        raise MalformedMetrics(f"a number of OTLP has {len(value)} bytes")
    number: float = packing.unpack(value)[0]
    return number


def _require_bytes(value: Any) -> memoryview:
    if not isinstance(value, memoryview):
        raise MalformedMetrics("a field of OTLP has another type")
    return value


def _decode_text(value: Any) -> str:
    try:
        return bytes(_require_bytes(value)).decode()
    except UnicodeDecodeError as error:
        raise MalformedMetrics(f"a text of OTLP is not UTF-8: {error}") from error


def _iterate_fields(data: memoryview) -> Iterator[Field]:
    """Yield the fields of a message. Raises MalformedMetrics."""
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == VARINT:
            value, position = _read_varint(data, position)
            yield number, value
            continue
        if wire_type == BYTES:
            size, position = _read_varint(data, position)
        else:
            size = _SIZES.get(wire_type, -1)
        if not 0 <= size <= len(data) - position:
            raise MalformedMetrics(f"a field of OTLP has type {wire_type} and {size} bytes")
        yield number, data[position : position + size]
        position += size


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """Return the unsigned varint at `position`, and the position after it. Raises MalformedMetrics."""
    value = shift = 0
    for byte in data[position : position + VARINT_BYTES]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position + shift // 7
    raise MalformedMetrics("a number of OTLP does not end")
