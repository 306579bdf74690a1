"""Records are shown as their schemas say, where the broker has a registry."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from minibroker.explorer import records_view
from minibroker.testing import Broker
from tests.explorer.asking import ask

USER = {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}
SOON_SECONDS = 15
AVRO = b"\0\0\0\0\1\6ann"


@pytest.fixture(scope="module")
def served() -> Iterator[Broker]:
    with Broker(explorer=True, registry=True) as broker:
        yield broker


def listed(broker: Broker) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = ask(broker, "topics/users/0/records")["records"]
    return records


def test_a_value_is_decoded_by_its_schema(explored: Broker) -> None:
    explored.registry.register("users-value", USER)
    explored.produce("users", AVRO, key="k")
    (record,) = listed(explored)
    assert (json.loads(record["value"]["decoded"]), record["value"]["schema"]) == ({"name": "ann"}, "1")
    assert record["value"]["hex"] == AVRO.hex()
    assert not {"decoded", "undecoded"} & record["key"].keys()
    assert ask(explored, "topics/users/0/records/0")["record"]["value"] == record["value"]


def test_a_key_is_decoded_by_a_schema_that_a_header_names(explored: Broker) -> None:
    explored.registry.register("users-key", USER)
    explored.produce("users", None, key=AVRO[5:], headers={"__key_schema_id": AVRO[:5]})
    (record,) = listed(explored)
    assert (record["value"], json.loads(record["key"]["decoded"])) == (None, {"name": "ann"})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\0\0\0\0\x09x", "the registry has no schema with the id 9"),
        (AVRO[:-1], "it is not what its AVRO schema says: the data ends too early"),
        (AVRO[:5] + b"\4\xff\xff", "it is not what its AVRO schema says: a string is not UTF-8"),
    ],
)
def test_a_decoding_failure_shows_the_reason(explored: Broker, value: bytes, reason: str) -> None:
    explored.registry.register("users-value", USER)
    explored.produce("users", value)
    (record,) = listed(explored)
    assert record["value"]["undecoded"].startswith(reason) and "decoded" not in record["value"]


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode all records of a page, however slow the machine is."""
    monkeypatch.setattr(records_view, "SECONDS", 60.0)


@pytest.mark.usefixtures("patience")
def test_a_value_that_expands_excessively_is_shortened(explored: Broker) -> None:
    explored.registry.register("users-value", {"type": "array", "items": "null"})
    explored.produce("users", AVRO[:5] + b"\xc0\x84\x3d\0")  # half a million nulls
    (record,) = listed(explored)
    shown, _, told = record["value"]["decoded"].rpartition("\n")
    assert (len(shown), told) == (2_000, "… and more: only 2,000 characters are shown")
    explored.produce("users", AVRO[:5] + b"\x80\x92\xf4\1\0")  # two million
    record = listed(explored)[1]
    assert record["value"]["undecoded"].endswith("there are more than 1,000,000 values in it")


def nested_empty_records(depth: int) -> Any:
    """Return a schema whose data has no bytes, and 2 to the power of `depth` values."""
    fields = [{"name": name, "type": f"R{depth - 1}"} for name in "ab"]
    if depth == 0:
        return {"type": "record", "name": "R0", "fields": []}
    fields[0]["type"] = nested_empty_records(depth - 1)
    return {"type": "record", "name": f"R{depth}", "fields": fields}


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 900_000}


@pytest.mark.usefixtures("patience")
def test_a_decimal_that_is_too_long_is_shown_as_its_bytes(explored: Broker) -> None:
    """Python would write it for 20 s, and all threads would wait for that."""
    explored.registry.register("users-value", DECIMAL)
    explored.produce("users", AVRO[:5] + b"\x80\xea\x30" + b"\x7f" * 400_000)
    began = time.monotonic()
    value = ask(explored, "topics/users/0/records/0")["record"]["value"]
    assert (value["size"], value["decoded"][:6]) == (400_008, '"\x7f\x7f\x7f\x7f\x7f')
    assert time.monotonic() - began < SOON_SECONDS


@pytest.mark.usefixtures("patience")
def test_endlessly_nested_avro_records_are_not_decoded_completely(explored: Broker) -> None:
    explored.registry.register("users-value", nested_empty_records(40))
    explored.produce("users", AVRO[:5])
    (record,) = listed(explored)
    assert record["value"]["undecoded"].endswith("there are more than 1,000,000 values in it")


def test_decoding_of_a_record_stops_after_a_time_limit(explored: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    explored.registry.register("users-value", nested_empty_records(18))
    explored.produce("users", AVRO[:5])
    monkeypatch.setattr(records_view, "SECONDS", 0.05)
    (record,) = listed(explored)
    assert "there was no time for more than its first" in record["value"]["undecoded"]


def test_records_that_were_not_decoded_in_time_have_a_reason(explored: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    explored.registry.register("users-value", USER)
    explored.produce("users", AVRO, b"names no schema")
    monkeypatch.setattr(records_view, "SECONDS", -1.0)
    first, second = (each["value"] for each in listed(explored))
    assert first["undecoded"].startswith("those before it took too long") and "undecoded" not in second


def test_values_are_not_decoded_if_there_is_no_registry() -> None:
    with Broker(explorer=True) as broker:
        broker.produce("users", AVRO)
        assert not {"decoded", "undecoded"} & listed(broker)[0]["value"].keys()
