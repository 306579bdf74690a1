"""The extra `arrow` alone is enough for the jobs here: no pyspark, no library of tables, not even pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.logs import records, write_log
from tests.running import running_broker

OTHERS = ("pyspark", "py4j", "pandas", "pyiceberg", "sqlalchemy", "deltalake", "duckdb", "polars", "fastavro", "google")
PROGRAM = f"""
import sys
class Refusing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {OTHERS}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refusing)
from minibroker.__main__ import main
main()
"""


def run_with_arrow_alone(*arguments: str) -> str:
    """Run a command of minibroker's without all other libraries. Return what it prints."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert run.returncode == 0, run.stdout
    return run.stdout


@pytest.fixture
def log(tmp_path: Path) -> str:
    write_log(tmp_path / "log", "orders", 0, records(20))
    return str(tmp_path / "log")


def test_archive_verify_and_rewrite_need_only_the_extra_arrow(log: str, tmp_path: Path) -> None:
    archive = run_with_arrow_alone(
        "pipeline", "archive", "--path", log, "--out", str(tmp_path / "archive"), "--decode", "log"
    )
    assert "20 records written" in archive
    assert "0 findings" in run_with_arrow_alone("pipeline", "verify", "--path", log, "--skip", "checkpoints")
    rewritten = run_with_arrow_alone("pipeline", "rewrite", "--path", log, "--output", str(tmp_path / "new"))
    assert "is complete" in rewritten


def test_replay_and_consume_to_a_file_need_only_the_extra_arrow(log: str, tmp_path: Path) -> None:
    archive = str(tmp_path / "archive")
    run_with_arrow_alone("pipeline", "archive", "--path", log, "--out", archive, "--engine", "local")
    with running_broker(tmp_path) as broker:
        servers = ("--bootstrap-server", broker.bootstrap_servers)
        replay = run_with_arrow_alone("pipeline", "replay", "--from", archive, *servers)
        assert ["orders", "0", "orders", "20", "20", "0"] in [line.split() for line in replay.splitlines()]
        out = str(tmp_path / "orders.parquet")
        assert "20 records" in run_with_arrow_alone("consume", "orders", *servers, "--from", "earliest", "--out", out)
