"""The Spark data sources `minibroker` (records) and `minibroker-batches`: thin classes around planning.

What a log is, how it is planned and decoded is elsewhere; here is what Spark calls, and when.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.datasource import DataSource

from minibroker.pipeline.sources.tables import BatchesSource, RecordsSource

SOURCES: Final[tuple[type[DataSource], ...]] = (RecordsSource, BatchesSource)
