"""The library of a table format that a session fetches, and what it needs besides."""

from __future__ import annotations

import pytest

from minibroker.pipeline.jobs.lake_session import LIBRARIES, LakeFormat, LakeLibraryMissing, lake_settings


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_each_lake_library_matches_its_spark_version(table_format: LakeFormat) -> None:
    for version, library in LIBRARIES[table_format].items():
        assert f"_{version}_" in library or f"-{version}_" in library
        assert lake_settings(table_format, {}, f"{version}.3")["spark.jars.packages"] == library


def test_user_settings_take_precedence() -> None:
    given = {"spark.sql.extensions": "mine", "spark.jars.packages": "org:s3:1"}
    settings = lake_settings("delta", given, "4.1.4")
    assert settings["spark.sql.extensions"] == "mine"
    assert settings["spark.jars.packages"] == f"org:s3:1,{LIBRARIES['delta']['4.1']}"
    assert "DeltaCatalog" in settings["spark.sql.catalog.spark_catalog"]


@pytest.mark.parametrize("name", ["spark.jars", "spark.jars.packages"])
def test_a_given_library_is_not_downloaded(name: str) -> None:
    given = {name: "iceberg-spark-runtime-9.9_2.13"}
    assert lake_settings("iceberg", given, "9.9.0") == given


def test_a_missing_library_for_this_spark_is_reported_with_a_remedy() -> None:
    with pytest.raises(LakeLibraryMissing, match=r"no known library for Spark 9\.9, .*'pyspark==4\.1\.\*'"):
        lake_settings("iceberg", {"spark.executor.memory": "1g"}, "9.9.1")
