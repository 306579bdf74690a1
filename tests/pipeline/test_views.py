"""Topics as views of SQL: one each for records, batches and offsets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.views import register_views
from tests.pipeline.logs import records, write_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_each_topic_has_three_views(spark: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path, "visits.eu", 0, records(20))
    write_log(tmp_path, "visits.eu", 1, records(5))
    options = {"path": str(tmp_path), "subscribePattern": "visits", "includeHeaders": "true"}
    names = register_views(spark, options, prefix="my_")
    assert names == ["my_visits_eu", "my_visits_eu_batches", "my_visits_eu_offsets"]
    count = "SELECT (SELECT count(*) FROM my_visits_eu), (SELECT sum(recordCount) FROM my_visits_eu_batches)"
    assert tuple(spark.sql(count).collect()[0]) == (25, 25)
    offsets = spark.table("my_visits_eu_offsets").orderBy("partition").collect()
    assert [tuple(row) for row in offsets] == [("visits.eu", 0, 0, 20), ("visits.eu", 1, 0, 5)]
    write_log(tmp_path, "visits-eu", 0, records(1))
    with pytest.raises(OptionError, match="visits-eu and visits.eu would both be the view visits_eu"):
        register_views(spark, options)
