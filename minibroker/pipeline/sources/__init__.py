"""The Spark data sources `minibroker` (records) and `minibroker-batches`: thin classes around planning.

What a log is, how it is planned and decoded is elsewhere; here is what Spark calls, and when.
"""

from __future__ import annotations

from typing import Final

import pyarrow  # noqa: F401 - Spark's Python data sources need it, and say so late
from pyspark.sql.datasource import DataSource

SOURCES: Final[tuple[type[DataSource], ...]] = ()
