"""What would take too long or too much is refused with its limit, or ends with its client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from typing import Any
from urllib.parse import urlsplit

import pytest

from minibroker.registry.formats.comparing_budget import ComparingBudget, ComparisonTooLarge
from minibroker.registry.formats.java_json import LARGE_CHARACTERS, parse_json
from minibroker.registry.formats.schema import ParsedSchema
from minibroker.registry.state.schema_formats import SchemaFormats
from minibroker.registry.state.schema_state import SchemaState
from tests.registry.asking import Asking, record

R1 = record("R", ("a", "int"))
R2 = record("R", ("a", "int"), ("b?", "int"))


def alike(kind: str) -> list[dict[str, Any]]:
    """Return a union of so many records of one name that each has to be compared with each."""
    return [{**record("R", ("a", kind)), "namespace": f"n{number}"} for number in range(1000)]


def test_a_too_long_comparison_is_status_422_with_the_limit(registry: Asking) -> None:
    assert registry.register("x", alike("int")).status == 200
    path = "/compatibility/subjects/x/versions/latest"
    for answer in (
        registry.register("x", alike("string")),
        registry.post(f"{path}?verbose=true", alike("string")),
    ):
        assert (answer.status, answer.code) == (422, 422)
        assert answer.body["message"].endswith("too large to be compared: that takes more than 500,000 steps")
    assert registry.get("/subjects/x/versions").body == [1]


def test_schema_changes_beyond_the_limit_are_only_counted_in_the_response(registry: Asking) -> None:
    registry.register("x", record("R"))
    wide = record("R", *((f"f{number}", "int") for number in range(1500)))
    messages = registry.post("/compatibility/subjects/x/versions?verbose=true", wide).body["messages"]
    assert messages[1000] == "and 500 more" and messages[1001] == "{oldSchemaVersion: 1}"
    assert ", and 500 more, {oldSchemaVersion: 1}, " in registry.register("x", wide).body["message"]


def test_a_comparison_ends_when_its_client_disconnects(registry: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = threading.Event(), threading.Event()

    def compare(reader: ParsedSchema, writer: ParsedSchema, budget: ComparingBudget) -> list[str]:
        begun.set()
        with contextlib.suppress(ComparisonTooLarge):
            while True:
                budget.spend_steps(0)
        ended.set()
        raise ComparisonTooLarge("ended")

    registry.register("x", R1)
    monkeypatch.setattr("minibroker.registry.formats.avro.list_incompatibilities", compare)
    body = json.dumps({"schema": json.dumps(R2)}).encode()
    where = urlsplit(registry.url)
    for path in ("/subjects/x/versions", "/compatibility/subjects/x/versions/1"):
        with socket.create_connection((where.hostname, where.port)) as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            assert begun.wait(20) and not ended.is_set()
        assert ended.wait(20)
        begun.clear()
        ended.clear()
    assert registry.get("/subjects/x/versions").body == [1]


async def test_comparisons_alternate_and_end_when_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: list[ComparingBudget] = []

    def compare(reader: ParsedSchema, writer: ParsedSchema, budget: ComparingBudget) -> list[str]:
        budgets.append(budget)
        while len(budgets) == 1:
            budget.spend_steps(0)
        return []

    monkeypatch.setattr("minibroker.registry.formats.avro.list_incompatibilities", compare)
    formats = SchemaFormats()
    parsed = await formats.parse_schema(SchemaState(), "AVRO", '"int"', (), "x")
    first, second = (asyncio.ensure_future(formats.list_incompatibilities("AVRO", parsed, parsed)) for _ in range(2))
    while not budgets:
        await asyncio.sleep(0)
    assert len(budgets) == 1
    first.cancel()
    assert await second == [] and len(budgets) == 2
    with pytest.raises(ComparisonTooLarge, match="Nobody waits"):
        budgets[0].spend_steps(0)


def test_a_request_body_with_too_many_values_beside_the_schema_is_rejected(registry: Asking) -> None:
    for body in (
        b'{"a":[' + b"[]," * 100_000 + b"0]}",
        b"{" + b",".join(b'"%d":"x"' % number for number in range(100_000)) + b"}",
    ):
        refused = registry.ask("POST", "/subjects/x/versions", raw=body)
        assert (refused.status, refused.body["message"]) == (422, "The request has more than 20,000 values")
    wide = record("R", *((f"f{number}", "int") for number in range(10_000)), doc='\\"[,' * 10_000)
    assert registry.register("x", wide).status == 200


def test_large_and_small_json_texts_are_parsed_alike() -> None:
    value = {"a": [1, -2.5, 'é😀"', None, True, {}, []], "": {"b": "x" * LARGE_CHARACTERS}}
    text = json.dumps(value)
    assert parse_json(text) == value
    assert parse_json(json.dumps(value["a"])) == value["a"]
    for wrong in (text[:-1], text + "]", text.replace("-2.5", "NaN"), "[" * 100_000):
        with pytest.raises((ValueError, RecursionError)):
            parse_json(wrong)


def test_a_schema_that_needs_a_missing_library_is_refused_with_the_remedy(
    registry: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def parse(*_: object, **__: object) -> ParsedSchema:
        raise ModuleNotFoundError("No module named 'google'", name="google")

    monkeypatch.setattr(SchemaFormats, "parse_schema", parse)
    answer = registry.register("x", record("R"))
    assert (answer.status, answer.code) == (500, 50001)
    remedy = "the registry needs the extra registry: python3 -m pip install protobuf googleapis-common-protos"
    assert answer.body["message"] == f"google is missing: {remedy}"
