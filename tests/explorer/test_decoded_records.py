"""Records are shown as their schemas say, where the broker has a registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from minibroker.testing import Broker
from tests.explorer.asking import ask

USER = {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}
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


def test_keys_and_headers_may_name_a_schema(explored: Broker) -> None:
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


def test_a_value_that_expands_excessively_is_cut(explored: Broker) -> None:
    explored.registry.register("users-value", {"type": "array", "items": "null"})
    explored.produce("users", AVRO[:5] + b"\xc0\x84\x3d\0")  # half a million nulls
    (record,) = listed(explored)
    shown, _, told = record["value"]["decoded"].rpartition("\n")
    assert (len(shown), told) == (2_000, "… and more: only 2,000 characters are shown")
    explored.produce("users", AVRO[:5] + b"\x80\x92\xf4\1\0")  # two million
    record = listed(explored)[1]
    assert record["value"]["undecoded"].endswith("there are more than 1,000,000 values in it")


def test_values_are_not_decoded_if_there_is_no_registry() -> None:
    with Broker(explorer=True) as broker:
        broker.produce("users", AVRO)
        assert not {"decoded", "undecoded"} & listed(broker)[0]["value"].keys()
