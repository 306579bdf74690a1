"""A stream that copies one topic into another exactly once, in batches; as a program, a driver that can be killed.

python -m tests.pipeline.sink.copying SERVERS CHECKPOINT FORMAT ACCIDENT
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from minibroker.pipeline.session import session
from tests.pipeline.sink.failing import ACCIDENT, register
from tests.spark_settings import settings_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FROM, TO = "from", "to"
PARTITIONS = 3
ROWS = 1500
BATCH_ROWS = 600
PATIENCE_S = 200


def copy(spark: SparkSession, servers: str, checkpoint: str, sink: str = "minibroker", **options: str) -> None:
    """Copy what there is, from the checkpoint on. Raises what the query fails with."""
    source = spark.readStream.format("minibroker").options(
        **{
            "kafka.bootstrap.servers": servers,
            "subscribe": FROM,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(BATCH_ROWS),
        }
    )
    writer = source.load().selectExpr("key", "value", "partition", "timestamp").writeStream.format(sink)
    given = {"kafka.bootstrap.servers": servers, "topic": TO, "delivery": "exactly-once", **options}
    query = writer.options(checkpointLocation=checkpoint, **given).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(PATIENCE_S)
    finally:
        query.stop()


def main(servers: str, checkpoint: str, sink: str, accident: str) -> None:
    spark = session("local[2]", **settings_in(Path(checkpoint).parent))
    register(spark)
    copy(spark, servers, checkpoint, sink, **{ACCIDENT: accident})


if __name__ == "__main__":
    main(*sys.argv[1:])
