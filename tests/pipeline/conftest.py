"""What the tests of the pipeline share: one Spark session, and that those who use it run in one worker, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from minibroker.pipeline.session import session
from tests.conftest import uses_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM that lives for two minutes never gets to see the optimising compiler: half the start, and half the CPU.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test with Spark that is not known as one to those who deal the tests out, who see but its file."""
    here = Path(__file__).parent  # elsewhere a fixture of this name may be another one
    for item in items:
        wants_spark = item.path.is_relative_to(here) and "spark" in getattr(item, "fixturenames", ())
        if wants_spark and not uses_spark(item.path):
            raise pytest.UsageError(f"{item.nodeid}: name the type of `spark`, SparkSession; it tells the worker")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of all tests with Spark: two cores, and three attempts for each task.

    What differs from `session`'s own defaults makes it start and stop sooner; a stream's trigger is `availableNow`.
    """
    directory = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.extraJavaOptions": f"{SHORT_LIVED} -Djava.io.tmpdir={directory}",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(directory),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
    }
    spark = session("local[2,3]", **settings)
    yield spark
    spark.stop()
