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
    *("sources/test_spark_reads.py", "sources/test_spark_broker.py", "test_decoded_frames.py"),
    *("archiving/test_spark_archive.py", "archiving/test_archive_job.py", "archiving/test_replay_job.py"),
    *("rewriting/test_rewrite.py", "verifying/test_verify_job.py"),
)
OF_STREAMS = (*("sources/test_spark_streams.py", "sink/test_spark_sink.py"),)
# Spark 4.0 has no limits for streams of Python sources, takes no filters, and plans a DataFrame anew each time.
NOT_OF_4_0 = ("stream", "filters_of_two_scans", "vanished_files_fail")
PATIENCE_S = 900

pytestmark = [pytest.mark.minibroker_only, pytest.mark.thorough, pytest.mark.timeout(2 * PATIENCE_S)]


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
    environment = {**os.environ, "PYTHONPATH": str(builds.spark_release(version))}
    command = [sys.executable, "-m", "pytest", *(f"tests/pipeline/{name}" for name in files), *options]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert run.returncode == 0, run.stdout[-10_000:] + run.stderr[-2000:]
    assert "skipped" not in run.stdout.splitlines()[-1]
