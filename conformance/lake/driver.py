"""A driver of Spark with the libraries of Iceberg and Delta: it does what lines of JSON say, and answers with JSON.

python -m conformance.lake.driver DIRECTORY JARS
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from pyspark import __version__
from pyspark.sql import DataFrame, SparkSession

from conformance.lake.readers import READERS
from minibroker.cli.pipeline import pipeline_lake
from minibroker.cli.pipeline.pipeline_command import pipeline
from minibroker.pipeline.jobs.archive import archived
from minibroker.pipeline.jobs.lake_archive import LakeArchive
from minibroker.pipeline.jobs.lake_session import LakeFormat, lake_settings
from minibroker.pipeline.jobs.lake_tables import lake_table
from minibroker.pipeline.session import session
from tests.spark_settings import settings_in

Answer = Mapping[str, Any]


class Driver:
    """What can be asked of a driver: each method is one thing, and its arguments are those of the line."""

    def __init__(self, directory: str, jars: str) -> None:
        settings = {"spark.jars": jars, "spark.databricks.delta.snapshotPartitions": "2"}
        for name in ("iceberg", "delta"):
            settings.update(lake_settings(name, settings, __version__))  # type: ignore[arg-type]
        self._spark = session("local[2]", log_level="off", **settings_in(Path(directory)), **settings)
        pipeline_lake.spark_session = self._same  # type: ignore[assignment]
        self._conf = ["--conf", f"spark.jars={jars}"]

    @contextmanager
    def _same(self, *_: Any, **__: Any) -> Iterator[SparkSession]:
        yield self._spark

    def command(self, arguments: list[str]) -> Answer:
        """Run a job of `minibroker pipeline` in the session of this driver."""
        result = CliRunner().invoke(pipeline, [*arguments, *self._conf])
        return {"status": result.exit_code, "out": result.stdout, "err": result.stderr}

    def archive_with_sizes(self, format: LakeFormat, table: str, log: str, topic_ids: Mapping[str, str]) -> Answer:
        """Archive as a later version of a program might, with one more column."""

        def rows(records: DataFrame) -> DataFrame:
            return archived(records).selectExpr("*", "octet_length(value) AS size")

        options = {"path": log, "subscribe": "orders"}
        found = lake_table(self._spark, format, table)
        archive = LakeArchive(self._spark, found, options, topic_ids=topic_ids, rows=rows)
        return {"records": sum(each.records for each in archive.run())}

    def next_without_notes(self, format: LakeFormat, table: str, log: str) -> Answer:
        """Return where a run goes on with a table whose commits have no note, as after they have expired."""
        found = lake_table(self._spark, format, table)
        found.notes = lambda: iter(())  # type: ignore[method-assign]
        options = {"path": log, "subscribe": "orders"}
        return {"next": LakeArchive(self._spark, found, options, topic_ids={}).note.offsets}

    def python(self, code: str) -> Answer:
        """Run a block of a document."""
        out = io.StringIO()
        with redirect_stdout(out):
            exec(compile(code, "a block", "exec"), {"spark": self._spark})
        return {"out": out.getvalue()}

    def rows(self, reader: str, table: str) -> Answer:
        """Return the rows as a reader other than Spark finds them, in order."""
        return {"rows": sorted(READERS[reader](table))}

    def sizes(self, format: str, table: str) -> Answer:
        """Return offset and size of each row."""
        found = self._spark.read.format(format).load(table).select("offset", "size").collect()
        return {"rows": sorted([row.offset, row.size] for row in found)}

    def files(self, format: str, table: str) -> Answer:
        """Return the number of files of the table as it is now."""
        files = self._spark.read.format(format).load(table).selectExpr("input_file_name() AS file").distinct()
        return {"count": files.count()}


def main(directory: str, jars: str) -> None:
    driver = Driver(directory, jars)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        action: Callable[..., Answer] = getattr(driver, asked.pop("do"))
        try:
            answer = action(**asked)
        except Exception as error:
            answer = {"error": str(error), "type": type(error).__name__}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
