"""`minibroker pipeline compact` in this process: what it prints and writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result

from minibroker.cli.pipeline.pipeline_command import pipeline
from tests.cli.conftest import runner
from tests.pipeline.jobs.logs import records, write_log


def run(*arguments: str) -> Result:
    return runner().invoke(pipeline, ["compact", *arguments])


def test_a_small_log_is_compacted_without_spark(tmp_path: Path) -> None:
    directory, out = tmp_path / "log", tmp_path / "out"
    write_log(directory, "prices", 0, records(1))
    result = run("--path", str(directory), "--out", str(out))
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[2].split() == ["prices", "0", "1", "0", "1", "0", "1", "12", "12", "0.0%"]
    assert "in this process; --engine spark uses Spark" in result.stderr
    assert [path.parent.parent.name for path in out.rglob("*.parquet")] == ["topic=prices"]
    again = run("--path", str(directory), "--out", str(out))
    assert (again.exit_code, again.stderr.splitlines()[-1]) == (2, f"minibroker: {out} exists already")


@pytest.mark.parametrize("engine", ["local", "spark", "auto"])
def test_a_directory_without_topics_is_rejected_before_spark_starts(engine: str, tmp_path: Path) -> None:
    result = run("--path", str(tmp_path), "--engine", engine)
    assert (result.exit_code, result.stderr) == (2, f"minibroker: there is no topic to read in {tmp_path}\n")


def test_the_log_to_compact_must_be_given() -> None:
    assert run().exit_code == 2
