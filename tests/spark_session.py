"""A session of Spark that loads most of what tests load, so that an archive of its classes is made at its end.

python -m tests.spark_session JVM_OPTIONS
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from minibroker.pipeline.session import session
from tests.pipeline.logs import records, write_log


def use_spark(spark: SparkSession, directory: Path) -> None:
    """Read a log in a batch and as a stream, and write files and read them."""
    write_log(directory, "orders", 0, records(10, size=10))
    log = {"path": str(directory), "subscribe": "orders"}
    rows = spark.read.format("minibroker").options(**log, startingOffsets="earliest").load()
    rows.selectExpr("partition AS p", "CAST(value AS STRING) AS value").write.parquet(f"{directory}/rows")
    written = spark.read.parquet(f"{directory}/rows").groupBy("p").count()
    written.join(rows, written.p == rows.partition).orderBy("offset").collect()
    stream = spark.readStream.format("minibroker").options(**log, startingOffsets="earliest").load()
    sink = stream.writeStream.format("parquet").option("checkpointLocation", f"{directory}/checkpoint")
    sink.trigger(availableNow=True).start(f"{directory}/stream").awaitTermination()


def main(java_options: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        own = {"spark.local.dir": directory, "spark.sql.warehouse.dir": f"{directory}/warehouse"}
        spark = session("local[2]", **{"spark.driver.extraJavaOptions": java_options, **own})
        use_spark(spark, Path(directory))
        spark.stop()
        java = SparkContext._gateway.proc  # type: ignore[union-attr]
        java.stdin.close()  # it ends, and writes the archive then
        java.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
