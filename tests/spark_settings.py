"""How tests run Spark: with a JVM that starts and stops soon, and keeps what it writes in a directory of the test's.

The session of the pipeline's tests is in `tests/pipeline/conftest.py`.
"""

from __future__ import annotations

from pathlib import Path

# A JVM that lives for two minutes never gets to see the optimising compiler: half the start, and half the CPU.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def settings_in(directory: Path) -> dict[str, str]:
    """The settings of such a session; a stream's trigger is to be `availableNow`."""
    return {
        "spark.driver.extraJavaOptions": f"{SHORT_LIVED} -Djava.io.tmpdir={directory}",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(directory),
        "spark.python.authenticate.socketTimeout": "120s",  # until a new worker connects; 15 s is short under load
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
    }
