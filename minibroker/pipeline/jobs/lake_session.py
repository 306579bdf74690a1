"""What a Spark session needs for tables of Iceberg and Delta: their own Spark libraries, which are on Maven Central.

Each library is built for some versions of Spark. Where it is on the session's class path already, nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from minibroker.pipeline.log_source import PipelineError

LakeFormat = Literal["iceberg", "delta"]

ARTIFACTS: Final = {"iceberg": "iceberg-spark-runtime", "delta": "delta-spark"}
# By the version of Spark; those that are named here are tested.
LIBRARIES: Final[Mapping[str, Mapping[str, str]]] = {
    "iceberg": {
        "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
        "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    },
    "delta": {version: f"io.delta:delta-spark_{version}_2.13:4.4.0" for version in ("4.0", "4.1", "4.2")},
}
SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "iceberg": {},
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # Spark's INT96 is deprecated
    },
}
PACKAGES: Final = "spark.jars.packages"
JARS: Final = ("spark.jars", PACKAGES)


class LakeLibraryMissing(PipelineError):
    """There is no library of a format for this Spark. The message is one line."""


def lake_settings(table_format: LakeFormat, given: Mapping[str, str], spark_version: str) -> dict[str, str]:
    """Return the settings of a session for tables of a format; `given` are the user's, which come first.

    Unless these name the format's library, Spark fetches it from Maven Central. Raises `LakeLibraryMissing`.
    """
    settings = {**SETTINGS[table_format], **given}
    if not any(ARTIFACTS[table_format] in given.get(name, "") for name in JARS):
        library = _library(table_format, spark_version)
        settings[PACKAGES] = ",".join(filter(None, [given.get(PACKAGES), library]))
    return settings


def _library(table_format: LakeFormat, spark_version: str) -> str:
    known, version = LIBRARIES[table_format], ".".join(spark_version.split(".")[:2])
    if version not in known:
        raise LakeLibraryMissing(
            f"{table_format} has no known library for Spark {version}, but for {' and '.join(known)}: python3 -m pip"
            f" install 'pyspark=={max(known)}.*', or name one with --conf {PACKAGES}=GROUP:ARTIFACT:VERSION"
        )
    return known[version]
