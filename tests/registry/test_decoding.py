"""Decoded values are written as JSON, as far as they have room."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from minibroker.cli.consume.consume_lines import make_schema_formatter
from minibroker.client.record_fetching import FetchedRecord
from minibroker.protocol.records.record import Record
from minibroker.registry import decoding
from minibroker.registry.decoding import DecodingError, MissingLibrary, WireSchema, format_json


def test_decoded_bytes_and_decimals_are_strings_in_json() -> None:
    assert format_json({"a": b"\xff", "b": Decimal("1.50"), "c": "\ud800"}) == '{"a": "ÿ", "b": "1.50", "c": "\\ud800"}'


def test_json_beyond_the_length_limit_is_cut_with_a_note() -> None:
    assert format_json(["a", "b"], max_length=10) == '["a", "b"]'
    assert format_json(["a", "b"], max_length=9) == '["a", "b"\n… and more: only 9 characters are shown'


def test_too_deeply_nested_values_do_not_fail_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    value: Any = 1
    for _ in range(200_000):  # the C of Python 3.12 and later nests deeper than its code
        value = [value]
    with pytest.raises(DecodingError, match="nested too deep"):
        format_json(value)

    class Source:
        def find_schema(self, named: int | str) -> WireSchema:
            return WireSchema("JSON", "{}", {})

    line = make_schema_formatter(Source(), lambda found: b"as it is\n", as_json=False)  # type: ignore[arg-type]
    for depth in (*range(800, 1000), 200_000):
        data = b"[" * depth + b"]" * depth
        written = line(FetchedRecord(("t", 0), Record(7, 0, None, b"\0\0\0\0\1" + data, ())))
        assert written == b"as it is\n" or json.loads(written) == json.loads(data)
    assert "t-0 at 7: it is" in capsys.readouterr().err


def test_a_missing_library_of_a_format_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'google'", name="google")

    monkeypatch.setattr(decoding, "parse_schema", missing)
    told = "PROTOBUF needs the extra registry: python3 -m pip install protobuf googleapis-common-protos"
    with pytest.raises(MissingLibrary, match=told):
        decoding._parse_schema(WireSchema("PROTOBUF", 'syntax = "proto3";', {}))
