"""What the tests of the pipeline share: one Spark session, and that those who use it run in one worker, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from conftest import SPARK, unit_of
from minibroker.cli.main import main
from tests.spark_settings import settings_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test with Spark that is not known as one to those who deal the tests out, who see but its file."""
    here = Path(__file__).parent  # elsewhere a fixture of this name may be another one
    for item in items:
        wants_spark = item.path.is_relative_to(here) and "spark" in getattr(item, "fixturenames", ())
        if wants_spark and unit_of(item.nodeid) != SPARK:
            raise pytest.UsageError(f"{item.nodeid}: name the type of `spark`, SparkSession; it tells the worker")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of all tests with Spark: two cores, and three attempts for each task."""
    from minibroker.pipeline.session import session  # not imported where all of these tests are skipped

    spark = session("local[2,3]", **settings_in(tmp_path_factory.mktemp("spark")))
    yield spark
    spark.stop()


@pytest.fixture
def job() -> Callable[..., Result]:
    """Run a command of `minibroker pipeline`. What these tests have is small, so that none starts Spark by itself."""
    return lambda *arguments: CliRunner().invoke(main, ["pipeline", *map(str, arguments)])
