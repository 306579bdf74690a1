"""OTLP's metrics: numbers with their names and attributes, whatever else is in the message, and bytes that are none."""

from __future__ import annotations

import struct

import pytest

from minibroker.protocol.otlp import FEW_FIELDS, DataPoint, MalformedMetrics, iterate_data_points
from tests.cases import for_each


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def nested(number: int, *parts: bytes | str) -> bytes:
    data = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
    return varint(number << 3 | 2) + varint(len(data)) + data


def double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def attribute(name: str, value: bytes) -> bytes:
    return nested(7, nested(1, name), nested(2, value))


def metrics(*each: bytes) -> bytes:
    return nested(1, nested(2, *(nested(2, metric) for metric in each)))


def gauge(name: str, value: float, *attributes: bytes) -> bytes:
    return nested(1, name) + nested(5, nested(1, double(4, value), *attributes))


def sum_of(name: str, value: int, temporality: int) -> bytes:
    number = varint(6 << 3 | 1) + struct.pack("<q", value)
    return nested(1, name) + nested(7, nested(1, number), varint(2 << 3) + varint(temporality), b"\x18\x01")


def points(data: bytes) -> list[DataPoint]:
    return [point for point in iterate_data_points(data) if point is not None]


def test_gauges_and_sums_are_decoded_as_numbers() -> None:
    data = metrics(gauge("a.b", 1.5), sum_of("c", -3, 1), sum_of("d", 4, 2))
    assert points(data) == [
        DataPoint("a.b", (), 1.5, False),
        DataPoint("c", (), -3, True),
        DataPoint("d", (), 4, False),
    ]
    assert points(b"") == []


def fixed64(number: int, value: int) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<Q", value)


@pytest.mark.parametrize(("kind", "attributes"), [(9, 9), (10, 1), (11, 7)])
def test_a_histogram_or_summary_is_decoded_as_count_and_sum(kind: int, attributes: int) -> None:
    label = nested(attributes, nested(1, "node"), nested(2, nested(1, "1")))
    buckets = b"".join(fixed64(6, each) for each in range(2000)) if kind == 9 else b""
    temporality = b"" if kind == 11 else varint(2 << 3) + varint(1)
    data = metrics(nested(1, "h") + nested(kind, nested(1, buckets, label, fixed64(4, 3), double(5, 7.5)), temporality))
    assert points(data) == [
        DataPoint("h.count", (("node", "1"),), 3, kind != 11),
        DataPoint("h.sum", (("node", "1"),), 7.5, kind != 11),
    ]
    assert [*iterate_data_points(data)].count(None) >= 2 + len(buckets) // 9 // 500


def test_attributes_are_decoded_as_strings_in_order() -> None:
    values = {
        "z": nested(1, "t"),
        "a": b"\x10\x01",
        "i": b"\x18" + varint((1 << 64) - 7),
        "f": double(4, 0.5),
        "l": b"",
    }
    (point,) = points(metrics(gauge("m", 0, *(attribute(name, value) for name, value in values.items()))))
    assert point.attributes == (("a", "true"), ("f", "0.5"), ("i", "-7"), ("l", ""), ("z", "t"))


def test_unknown_fields_are_skipped() -> None:
    resource = nested(1, nested(1, nested(1, "host")))
    strange = varint(90 << 3 | 5) + b"1234" + varint(91 << 3 | 1) + b"12345678" + varint(92 << 3) + varint(1 << 63)
    histogram = nested(1, "h") + nested(9, nested(1, b"\x08\x01"))
    data = nested(1, resource, strange, nested(2, nested(2, histogram), nested(2, strange, gauge("m", 2))))
    assert points(data) == [DataPoint("m", (), 2.0, False)]


@for_each(
    "data",
    [
        b"\xff" * 11,
        b"\x0a\x05abc",
        b"\x0b",
        b"\x08\x01",
        metrics(nested(1, b"\xff") + nested(5, nested(1, double(4, 1)))),
        metrics(nested(1, "m") + nested(5, nested(1, nested(4, "short")))),
        metrics(nested(1, "m") + varint(5 << 3) + b"\x01"),
        metrics(gauge("m", 0, *(attribute("a", b"") for _ in range(FEW_FIELDS + 1)))),
    ],
)
def test_bytes_that_are_no_otlp_are_malformed_metrics(data: bytes) -> None:
    with pytest.raises(MalformedMetrics):
        points(data)


def test_truncated_metrics_are_malformed_or_decoded_as_fewer_points() -> None:
    data = metrics(gauge("a", 1, attribute("n", nested(1, "v"))), sum_of("b", 2, 1))
    whole = points(data)
    for end in range(1, len(data)):
        with pytest.raises(MalformedMetrics):
            points(data[:end])
    assert len(whole) == 2


def test_long_metrics_without_numbers_are_decoded_in_steps() -> None:
    steps = list(iterate_data_points(nested(1, b"") * 1000))
    assert steps == [None] * 1000
