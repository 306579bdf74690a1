"""The pipeline's own tests with Spark, with the other release that it works with, 4.2."""

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
    *("rewriting/test_rewrite.py", "sources/test_spark_streams.py", "sink/test_spark_sink.py"),
)
PATIENCE_S = 900

pytestmark = [pytest.mark.minibroker_only, pytest.mark.thorough, pytest.mark.timeout(2 * PATIENCE_S)]


@pytest.mark.parametrize("version", ["4.2"])
def test_our_spark_tests_pass_with_other_releases(version: str) -> None:
    options = ["-n", "0", "-q", "-o", f"cache_dir=build/spark_{version}_cache"]
    environment = {**os.environ, "PYTHONPATH": str(builds.spark_release(version))}
    command = [sys.executable, "-m", "pytest", *(f"tests/pipeline/{name}" for name in TESTS), *options]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert run.returncode == 0, run.stdout[-10_000:] + run.stderr[-2000:]
    assert "skipped" not in run.stdout.splitlines()[-1]
