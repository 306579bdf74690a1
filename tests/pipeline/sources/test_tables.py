"""The columns of a query: those of Spark's own Kafka source, or fewer by a schema of its own."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from minibroker.pipeline.log_source import OptionError, Table
from minibroker.pipeline.options import ReadOptions, parse_options
from minibroker.pipeline.schemas import BATCHES, EXACT, RECORDS, choose_columns
from minibroker.pipeline.sources.tables import get_column_names, make_default_schema

NOT_EXACT = [name for name in BATCHES.names if name not in EXACT]
OF_KAFKA = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def options(table: Table = "records", **others: str) -> ReadOptions:
    return parse_options({"path": "/", "subscribe": "a"} | others, table)


def refusal(schema: StructType, **others: str) -> str:
    with pytest.raises(OptionError) as caught:
        get_column_names(schema, options(**others))
    return str(caught.value)


def test_the_columns_are_those_of_sparks_own_kafka_source() -> None:
    types = [BinaryType(), BinaryType(), StringType(), IntegerType(), LongType(), TimestampType(), IntegerType()]
    fields = [StructField(name, of, True) for name, of in zip(OF_KAFKA, types, strict=True)]
    assert make_default_schema(options()) == StructType(fields)
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    assert make_default_schema(options(includeHeaders="true")) == StructType(
        [*fields, StructField("headers", ArrayType(header))]
    )


def test_permissive_mode_adds_a_damage_column() -> None:
    assert make_default_schema(options(mode="PERMISSIVE")).names == [*OF_KAFKA, "_corrupt"]
    assert make_default_schema(options("batches", mode="PERMISSIVE")).names == NOT_EXACT
    assert make_default_schema(options("batches")).names == NOT_EXACT[:-1]


@pytest.mark.parametrize("table", ["records", "batches"])
def test_rows_have_exactly_the_schema_that_spark_expects(table: Table) -> None:
    schema = make_default_schema(
        options(table, mode="PERMISSIVE", **({"includeHeaders": "true"} if table == "records" else {}))
    )
    given = choose_columns({"records": RECORDS, "batches": BATCHES}[table], schema.names)
    assert to_arrow_schema(schema, timezone="UTC").equals(given)


def test_a_schema_selects_columns_in_its_order() -> None:
    schema = StructType([StructField("timestamp", TimestampType()), StructField("key", BinaryType())])
    assert get_column_names(schema, options()) == ("timestamp", "key")


def test_headers_can_be_selected_without_an_option() -> None:
    schema = StructType([make_default_schema(options(includeHeaders="true"))["headers"]])
    assert get_column_names(schema, options()) == ("headers",)


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        (StructField("ofset", LongType()), "schema: records has no column ofset; there are key, value,"),
        (StructField("offset", IntegerType()), "schema: column offset is bigint, not int"),
        (StructField("key", StringType()), "schema: column key is binary, not string"),
        (StructField("key", BinaryType(), False), "schema: column key must be nullable, and so must its elements"),
        (StructField("_corrupt", StringType()), "schema: column _corrupt exists only with mode=PERMISSIVE"),
    ],
)
def test_an_unknown_column_is_rejected(field: StructField, complaint: str) -> None:
    assert refusal(StructType([field])).startswith(complaint)


def test_a_schema_has_at_least_one_column_and_no_duplicates() -> None:
    key = StructField("key", BinaryType())
    assert "at least one column is needed, each only once" in refusal(StructType([key, key]))
    assert "at least one column is needed" in refusal(StructType([]))
