"""DataFrames are decoded by a registry and by `_schemas`, in batches and in streams, as docs/registry.md says."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.schema_decoding import GivenSchema, decoded
from minibroker.protocol.records.record import Record
from minibroker.testing import Broker
from tests.pipeline.logs import NOW_MS, write_log
from tests.pipeline.schemas_topic import ANN, MONEY, PAGE, USER, write_schemas
from tests.test_readme import FENCED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT = (Path(__file__).parents[2] / "docs" / "registry.md").read_text()


@pytest.mark.timeout(240)
def test_values_are_decoded_with_a_registry_as_documented(spark: SparkSession) -> None:
    code, printed = (found["text"] for found in FENCED.finditer(DOCUMENT.split("\n## In Spark\n")[1].split("\n## ")[0]))
    out = io.StringIO()
    with Broker(registry=True) as broker:
        assert broker.registry.register("users-value", USER.text) == 1
        broker.create_topic("users", partitions=1)
        for value in (ANN, b"\0\0\0\0\x09?"):
            broker.produce("users", value)
        told = code.replace("http://127.0.0.1:8081", broker.registry_url)
        with redirect_stdout(out):
            exec(told.replace("127.0.0.1:9092", broker.bootstrap_servers), {})
    assert out.getvalue().strip() == printed.strip()


@pytest.mark.timeout(240)
def test_a_stream_is_decoded_with_the_schemas_of_its_directory(spark: SparkSession, tmp_path: Path) -> None:
    write_schemas(tmp_path, USER, PAGE, MONEY)
    values = [ANN, b"\0\0\0\0\2[]", b"plain", None]
    write_log(tmp_path, "users", 0, [Record(each, NOW_MS, b"k", value) for each, value in enumerate(values)])
    here = {"path": str(tmp_path)}
    records = spark.readStream.format("minibroker").options(**here, subscribe="users", startingOffsets="earliest")
    rows = decoded(records.load(), here)
    query = rows.writeStream.format("memory").queryName("decoded_users").trigger(availableNow=True).start()
    query.awaitTermination()
    user = "from_json(value_decoded, 'name string').name"
    found = spark.sql(f"SELECT {user} AS name, value_error, timestamp FROM decoded_users ORDER BY offset").collect()
    assert [row.name for row in found] == ["ann", None, None, None]
    assert [row.value_error for row in found[::3]] == [None, None]
    assert found[1].value_error is None and "names no schema" in found[2].value_error


def test_decoding_with_wrong_columns_options_or_schemas_is_rejected_immediately(
    spark: SparkSession, tmp_path: Path
) -> None:
    here = {"path": str(tmp_path)}
    rows = spark.createDataFrame([], "value string, key binary, key_error string")
    for column, words in (("offset", "key, value"), ("value", "no column value of type binary"), ("key", "key_error")):
        with pytest.raises(OptionError, match=words):
            decoded(rows, here, column=column)
    binary = spark.createDataFrame([], "value binary")
    with pytest.raises(OptionError, match="colour"):
        decoded(binary, {**here, "colour": "red"})
    for given, words in ((GivenSchema("XML", ""), "no format XML"), (GivenSchema("AVRO", "{"), "schema is invalid")):
        with pytest.raises(OptionError, match=words):
            decoded(binary, given)
