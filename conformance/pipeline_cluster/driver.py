"""A driver of Spark, as a program that can be killed: it does what lines of JSON say, and answers with lines of JSON.

python -m conformance.pipeline_cluster.driver MASTER NAME=VALUE...
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from minibroker.cli.pipeline.pipeline_command import pipeline
from minibroker.pipeline.session import session
from minibroker.pipeline.spark_errors import find_reason_in_spark_error

Answer = Mapping[str, Any]


class Driver:
    """What can be asked of a driver: each method is one thing, and its arguments are those of the line."""

    def __init__(self, master: str, settings: Mapping[str, str]) -> None:
        self._master = master
        self._settings = settings

    @property
    def _spark(self) -> SparkSession:
        return session(self._master, log_level="off", **self._settings)

    def command(self, arguments: list[str]) -> Answer:
        """Run a job of `minibroker pipeline` on the cluster, in the session that there is."""
        # Its session stays for the next one: executors take long to start.
        conf = [word for name, value in self._settings.items() for word in ("--conf", f"{name}={value}")]
        with patch.object(SparkSession, "stop"):
            result = CliRunner().invoke(pipeline, [*arguments, "--master", self._master, *conf])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return {"status": result.exit_code, "out": result.stdout, "err": result.stderr}

    def values(self, options: Mapping[str, str]) -> Answer:
        """Return partition, offset and value of each record of a log."""
        return {"rows": [list(row) for row in _selected(self._read(options)).collect()]}

    def count(self, options: Mapping[str, str], format: str = "minibroker") -> Answer:
        """Return the number of rows."""
        return {"count": self._spark.read.format(format).options(**options).load().count()}

    def write(self, options: Mapping[str, str], count: int, tasks: int) -> Answer:
        """Write records with the values 0 to `count`."""
        rows = self._spark.range(0, count, 1, tasks).selectExpr("CAST(id AS STRING) AS value")
        rows.write.format("minibroker").options(**options).mode("append").save()
        return {}

    def copy(self, options: Mapping[str, str], to: Mapping[str, str], checkpoint: str) -> Answer:
        """Copy a topic into another one by a stream, until all that there is now is copied."""
        source = self._spark.readStream.format("minibroker").options(**options).load()
        sink = source.select("key", "value", "partition").writeStream.format("minibroker").options(**to)
        query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
            return {"batches": len(query.recentProgress)}
        finally:
            query.stop()

    def stop(self) -> Answer:
        """Give the cores back."""
        self._spark.stop()
        return {}

    def _read(self, options: Mapping[str, str]) -> DataFrame:
        return self._spark.read.format("minibroker").options(**options).load()


def _selected(records: DataFrame) -> DataFrame:
    return records.selectExpr("partition", "offset", "CAST(value AS STRING)")


def main(master: str, *settings: str) -> None:
    driver = Driver(master, dict(each.split("=", 1) for each in settings))
    for line in sys.stdin:
        asked = json.loads(line)
        action: Callable[..., Answer] = getattr(driver, asked.pop("do"))
        try:
            answer = action(**asked)
        except Exception as error:
            answer = {"error": find_reason_in_spark_error(str(error)), "type": type(error).__name__}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
