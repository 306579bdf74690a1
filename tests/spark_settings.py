"""How tests run Spark: with a JVM that starts and stops soon, and keeps what it writes in a directory of the test's.

The session of the pipeline's tests is in `tests/pipeline/conftest.py`.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
# A JVM that lives for two minutes never gets to see the optimising compiler: half the start, and half the CPU.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@cache
def short_lived() -> str:
    """Return the options of a JVM of Spark, the driver's or another, with an archive of what a session loads."""
    # Not imported where tests with Spark are skipped, as on Windows, which has no fcntl.
    import pyspark

    from tests.class_archives import archive_options

    def run_session(options: list[str]) -> None:
        command = [sys.executable, "-m", "tests.spark_session", " ".join((SHORT_LIVED, *options))]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)

    archive = ROOT / "build" / f"spark-{pyspark.__version__}" / "classes.jsa"
    return " ".join((SHORT_LIVED, *archive_options(Path(pyspark.__file__), archive, run_session)))


def settings_in(directory: Path) -> dict[str, str]:
    """The settings of such a session; a stream's trigger is to be `availableNow`."""
    return {
        "spark.driver.extraJavaOptions": f"{short_lived()} -Djava.io.tmpdir={directory}",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(directory),
        "spark.python.authenticate.socketTimeout": "120s",  # until a new worker connects; 15 s is short under load
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        # To compile a query takes longer than to interpret it for the few rows of a test.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
