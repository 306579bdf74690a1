"""The Spark data sources `minibroker` (records) and `minibroker-batches`: thin classes that Spark calls."""

from __future__ import annotations

from typing import Final

from pyspark.sql.datasource import DataSource

from minibroker.pipeline.sources.tables import BatchesSource, RecordsSource

SOURCES: Final[tuple[type[DataSource], ...]] = (RecordsSource, BatchesSource)
