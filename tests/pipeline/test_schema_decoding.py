"""Columns are decoded by the schemas that they name; what cannot be decoded has a reason beside it."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from minibroker.pipeline.schema_decoding import CannotDecode, DecodingTask, GivenSchema, RegistryUnavailable, Unknown
from minibroker.pipeline.schemas import HEADERS
from minibroker.registry.formats.format_decoding import KEY_HEADER, VALUE_HEADER
from minibroker.registry.state import schema_formats
from minibroker.registry.state.schema_records import StoredSchema
from tests.pipeline.schemas_topic import ANN, BAD, MONEY, OWNED, PAGE, USER, write_schemas

Headers = Mapping[str, bytes | None]


def decoded(
    root: Path, *data: bytes | None, column: str = "value", headers: Headers | None = None, unknown: Unknown = "keep"
) -> list[tuple[str | None, str | None]]:
    """What a task makes of values or keys: JSON, and reasons."""
    arrays: dict[str, Any] = {column: pa.array(data, pa.binary()), "offset": pa.array(range(len(data)), pa.int64())}
    if headers is not None:
        each = [{"key": name, "value": value} for name, value in headers.items()]
        arrays["headers"] = pa.array([each] * len(data), HEADERS)
    task = DecodingTask((("path", str(root)),), column, unknown)
    (batch,) = task([pa.RecordBatch.from_pydict(arrays)])
    assert batch.schema.names == [*arrays, f"{column}_decoded", f"{column}_error"]
    assert batch.column("offset").to_pylist() == [*range(len(data))]
    return [*zip(*(found.to_pylist() for found in batch.columns[-2:]), strict=True)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_schemas(tmp_path, USER, PAGE, MONEY, OWNED, BAD)
    return tmp_path


def test_all_three_schema_formats_are_decoded_to_json(root: Path) -> None:
    found = decoded(root, ANN, b'\0\0\0\0\2{"url": "/\xc3\xa9"}', b"\0\0\0\0\3\0\x08\x07", b"\0\0\0\0\4\6bob", None)
    assert [error for _, error in found] == [None] * 5
    assert [text and json.loads(text) for text, _ in found] == [
        {"name": "ann"},
        {"url": "/é"},
        {"cents": 7},
        {"owner": {"name": "bob"}},
        None,
    ]


def test_undecodable_records_have_a_reason(root: Path) -> None:
    found = decoded(root, b"plain", b"", ANN[:-1], b"\0\0\0\0\x09?", b"\0\0\0\0\5?", b"\0\0\0\0\2{", ANN)
    assert [text for text, _ in found] == [None] * 6 + ['{"name": "ann"}']
    for (_, error), words in zip(
        found,
        ("names no schema", "names no schema", "not what its AVRO", "no schema with the id 9", "invalid", "no JSON"),
        strict=False,
    ):
        assert error is not None and words in error


def test_deeply_nested_json_fails_no_task(root: Path) -> None:
    limit = sys.getrecursionlimit()
    found = decoded(root, *(b"\0\0\0\0\2" + b"[" * depth + b"]" * depth for depth in range(limit // 2, limit + 2)))
    assert found[0][1] is None and found[-1][0] is None


def test_keys_and_values_are_decoded_by_schemas_that_headers_name(root: Path) -> None:
    headers = {VALUE_HEADER: b"\1" + bytes.fromhex(USER.guid.replace("-", "")), KEY_HEADER: b"\0\0\0\0\2"}
    assert decoded(root, ANN[5:], headers=headers) == [('{"name": "ann"}', None)]
    assert decoded(root, b"7", column="key", headers=headers) == [("7", None)]
    assert decoded(root, ANN, headers={"other": None}) == [('{"name": "ann"}', None)]


def test_a_missing_schema_fails_the_query_on_request(root: Path) -> None:
    assert decoded(root, b"plain", ANN, unknown="fail")[1] == ('{"name": "ann"}', None)
    for data, words in ((b"\0\0\0\0\x09?", "no schema with the id 9"), (b"\0\0\0\0\5?", "its schema is invalid")):
        with pytest.raises(CannotDecode, match=words):
            decoded(root, data, unknown="fail")


def test_an_unreachable_registry_is_an_error() -> None:
    with socket.socket() as reserved, pytest.raises(RegistryUnavailable) as caught:
        reserved.bind(("127.0.0.1", 0))
        task = DecodingTask(f"http://ann:secret@127.0.0.1:{reserved.getsockname()[1]}", "value", "keep")
        list(task([pa.RecordBatch.from_pydict({"value": [ANN]})]))
    assert "refused" in str(caught.value) and "secret" not in str(caught.value)


def test_a_missing_library_is_an_error_and_not_an_undecodable_record(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_formats, "import_module", lambda name: __import__("no_such_library"))
    with pytest.raises(CannotDecode, match="PROTOBUF needs the extra registry: python3 -m pip install"):
        decoded(root, b"\0\0\0\0\3\0\x08\x07")


@pytest.mark.parametrize(
    "schema, data, text",
    [(USER, ANN[5:], '{"name": "ann"}'), (PAGE, b"[1]", "[1]"), (MONEY, b"\x08\x07", '{"cents": 7}')],
)
def test_data_without_a_schema_id_is_decoded_with_a_given_schema(schema: StoredSchema, data: bytes, text: str) -> None:
    task = DecodingTask(GivenSchema(schema.kind, schema.text), "value", "fail")
    (batch,) = task([pa.RecordBatch.from_pydict({"value": pa.array([data, b"\xff", None], pa.binary())})])
    assert batch.column("value_decoded").to_pylist() == [text, None, None]
    good, bad, null = batch.column("value_error").to_pylist()
    assert good is null is None and f"not what its {schema.kind} schema says" in bad


def test_decoding_no_rows_returns_no_rows(root: Path) -> None:
    assert decoded(root) == []
