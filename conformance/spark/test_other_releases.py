"""The pipeline's own tests with Spark, with the releases that it works with: 4.2, and 4.0 and 4.1 for batches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conformance import builds

ROOT = Path(__file__).parents[2]
TESTS = (
    *("sources/test_spark_reads.py", "sources/test_spark_broker.py", "test_views.py", "test_decoded_frames.py"),
    *("jobs/test_archive.py", "jobs/test_hadoop_files.py", "jobs/test_replay.py"),
    *("jobs/test_rewrite.py", "jobs/test_spark_tasks.py", "jobs/test_stats.py", "jobs/verify/test_verify_job.py"),
)
OF_STREAMS = (
    *("sources/test_spark_streams.py", "sink/test_spark_sink.py", "jobs/test_archive_run.py"),
    *("jobs/test_archive_command.py", "jobs/test_archive_batches.py"),
)
# Spark 4.0 has no limits for streams of Python sources, takes no filters, and plans a DataFrame anew each time.
NOT_OF_4_0 = ("stream", "filters_of_two_scans", "vanished_files_fail")
PATIENCE_S = 900
WITH_TABLES = "4.1"  # the tests of Iceberg and Delta have it, too

pytestmark = [pytest.mark.minibroker_only, pytest.mark.thorough, pytest.mark.timeout(2 * PATIENCE_S)]


def site_of(version: str) -> Path:
    return builds.lake_site() if version == WITH_TABLES else builds.spark_release(version)


@pytest.mark.parametrize(
    ("version", "files", "left_out"),
    [("4.0", TESTS, NOT_OF_4_0), ("4.1", TESTS, ("stream",)), ("4.2", (*TESTS, *OF_STREAMS), ())],
)
def test_our_spark_tests_pass_with_other_releases(
    version: str, files: tuple[str, ...], left_out: tuple[str, ...]
) -> None:
    options = ["-n", "0", "-q", "-k", " and ".join(f"not {name}" for name in left_out)]
    # py4j of 4.0 and 4.1 leaves sockets open
    options += ["-W", "ignore::ResourceWarning", "-o", f"cache_dir=build/spark_{version}_cache"]
    environment = {**os.environ, "PYTHONPATH": str(site_of(version))}
    command = [sys.executable, "-m", "pytest", *(f"tests/pipeline/{name}" for name in files), *options]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert run.returncode == 0, run.stdout[-10_000:] + run.stderr[-2000:]
    assert "skipped" not in run.stdout.splitlines()[-1]
