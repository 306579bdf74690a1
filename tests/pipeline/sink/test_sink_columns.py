"""Columns are checked as Spark's own sink checks them, and become rows of one form."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.schemas import HEADERS, TIMESTAMP
from minibroker.pipeline.sink.sink_transaction import RecordRefused
from minibroker.pipeline.sink.task import ROWS, RowsConverter, check_columns
from tests.cases import for_each

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_900, UTC)
NOW_MS = int(NOW.timestamp() * 1000)


@for_each(
    ("types", "topic", "why"),
    [
        ({"value": "string"}, None, "topic option required when no 'topic' attribute is present"),
        ({"key": "string"}, "t", "required attribute 'value' not found"),
        ({"value": "bigint"}, "t", "value attribute unsupported type bigint: value must be a.* string or binary"),
        ({"value": "string", "topic": "int"}, None, "topic attribute unsupported type int"),
        ({"value": "string", "partition": "bigint"}, "t", "partition attribute unsupported type bigint"),
        ({"value": "string", "headers": "map<string,binary>"}, "t", "headers attribute unsupported type"),
        ({"value": "string", "timestamp": "bigint"}, "t", "timestamp attribute unsupported type bigint"),
    ],
)
def test_missing_columns_or_wrong_types_are_rejected(types: dict[str, str], topic: str | None, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        check_columns(types, topic)


def test_unknown_columns_are_ignored() -> None:
    types = {"value": "binary", "key": "string", "topic": "string", "offset": "bigint", "timestampType": "int"}
    check_columns(types, None)
    check_columns(types | {"topic": "int"}, "t")  # the option stands above the column


def test_a_dataframe_is_converted_to_the_columns_of_the_sink() -> None:
    headers = [None, [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]]
    batch = pa.record_batch(
        {
            "ignored": pa.array([1, 2]),
            "key": pa.array(["k", None]),
            "value": pa.array([b"v", None]),
            "topic": pa.array(["t", "u"]),
            "partition": pa.array([3, None], pa.int32()),
            "timestamp": pa.array([NOW, NOW], TIMESTAMP),
            "headers": pa.array(headers, HEADERS),
        }
    )
    rows = RowsConverter(None)
    rows.convert_rows(batch)
    made = rows.convert_rows(batch)
    assert made.schema == ROWS
    first = {"topic": "t", "partition": 3, "key": b"k", "value": b"v", "timestamp": NOW_MS, "headers": None, "row": 2}
    second = {"topic": "u", "partition": None, "key": None, "value": None, "headers": headers[1], "row": 3}
    assert made.to_pylist() == [first, first | second]


def test_the_topic_option_overrides_the_column() -> None:
    batch = pa.record_batch({"value": ["v"], "topic": ["column"]})
    assert RowsConverter("option").convert_rows(batch).column("topic").to_pylist() == ["option"]


@pytest.mark.parametrize(
    "column",
    [pa.nulls(1, TIMESTAMP), pa.array([None], pa.float64()), None],
)
def test_a_row_without_a_timestamp_gets_the_current_time(column: pa.Array | None) -> None:
    batch = pa.record_batch({"value": ["v"]} | ({} if column is None else {"timestamp": column}))
    before = int(time.time() * 1000)
    assert before <= RowsConverter("t").convert_rows(batch).column("timestamp")[0].as_py() <= int(time.time() * 1000)


def test_options_keep_missing_timestamps_or_replace_given_ones_by_the_current_time() -> None:
    none = pa.record_batch({"value": ["v"], "timestamp": pa.nulls(1, TIMESTAMP)})
    assert RowsConverter("t", keep_none=True).convert_rows(none).column("timestamp").to_pylist() == [-1]
    given = pa.record_batch({"value": ["v"], "timestamp": pa.array([NOW], TIMESTAMP)})
    assert RowsConverter("t", keep_timestamps=False).convert_rows(given).column("timestamp")[0].as_py() > NOW_MS


def test_a_timestamp_column_of_doubles_is_in_seconds() -> None:
    batch = pa.record_batch({"value": ["v"], "timestamp": pa.array([1.5])})
    assert RowsConverter("t").convert_rows(batch).column("timestamp").to_pylist() == [1500]


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"topic": pa.array(["t", None])}, "row 1: null topic present in the data"),
        ({"topic": ["t", "t"], "partition": pa.array([0, -1], pa.int32())}, "row 1: partition -1 is below 0"),
        ({"topic": ["t", "t"], "timestamp": pa.array([0, -1], TIMESTAMP)}, "row 1: timestamp .* is below 0"),
        (
            {"topic": ["t", "t"], "headers": pa.array([[{"key": "a"}], [{"key": None, "value": b"v"}]], HEADERS)},
            "row 1: a header has no key",
        ),
    ],
)
def test_the_error_for_an_invalid_row_says_which_row_it_is(columns: dict[str, object], why: str) -> None:
    with pytest.raises(RecordRefused, match=why):
        RowsConverter(None).convert_rows(pa.record_batch({"value": ["a", "b"]} | columns))
