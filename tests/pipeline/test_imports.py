"""What the processes that only plan a read import: Spark starts three of them for each query."""

from __future__ import annotations

import subprocess
import sys

PLANNING = """
import sys
import minibroker.pipeline.sources.tables, minibroker.pipeline.directory.directory_source
import minibroker.pipeline.brokers.broker_source
print(*({"pandas"} & sys.modules.keys()))
"""


def test_planning_does_not_import_pandas() -> None:
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", PLANNING], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""
