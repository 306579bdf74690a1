"""`minibroker pipeline compact`: which records it asks Spark for, and what it prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result

from minibroker.cli.pipeline import pipeline_compact
from minibroker.cli.pipeline.pipeline_command import pipeline
from minibroker.pipeline.jobs import compact as job
from tests.cli.conftest import runner
from tests.pipeline.jobs.logs import records, write_log


class Partition(tuple[Any, ...]):
    """A row as Spark gives it."""

    def asDict(self) -> dict[str, Any]:
        names = ("topic", "partition", "records", "keyless", "keys", "tombstones", "keptRecords", "bytes", "keptBytes")
        return dict(zip((*names, "savedShare"), self, strict=True))


ROWS = [
    Partition(("prices", 0, 100, 0, 10, 1, 9, 1000, 125, 0.875)),
    Partition(("prices", 1, 0, 0, 0, 0, 0, 0, 0, None)),
]


class Reader:
    """Stands in for Spark: notes what is read, written and asked for."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}
        self.read = self

    def format(self, name: str) -> Reader:
        return self

    def options(self, **options: str) -> Reader:
        self.asked |= options
        return self

    def load(self) -> Reader:
        return self

    def select(self, *names: str) -> Reader:
        return self

    def orderBy(self, *names: str) -> SimpleNamespace:
        return SimpleNamespace(collect=lambda: ROWS)


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Reader:
    reader = Reader()

    @contextmanager
    def session(*args: Any, **options: Any) -> Iterator[Reader]:
        yield reader

    def savings(records: Reader, *, tombstones: bool) -> Reader:
        reader.asked["tombstones"] = tombstones
        return records

    monkeypatch.setattr(pipeline_compact, "spark_session", session)
    monkeypatch.setattr(job, "savings", savings)
    monkeypatch.setattr(job, "compact", lambda records, *, tombstones: ("compacted", tombstones))
    monkeypatch.setattr(job, "write_compacted", lambda *written: reader.asked.update(written=written))
    return reader


def run(*arguments: str) -> Result:
    return runner().invoke(pipeline, ["compact", *arguments])


@pytest.fixture
def directory(tmp_path: Path) -> str:
    """A log directory with one record of a topic."""
    write_log(tmp_path / "log", "prices", 0, records(1))
    return str(tmp_path / "log")


def test_what_would_be_saved_is_a_table(spark: Reader, directory: str) -> None:
    result = run("--path", directory, "--topic", "prices", "--engine", "spark")
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[2:] == [
        ["prices", "0", "100", "0", "10", "1", "9", "1000", "125", "87.5%"],
        ["prices", "1", "0", "0", "0", "0", "0", "0", "0"],
    ]
    assert spark.asked["isolation.level"] == "read_committed"
    assert spark.asked["tombstones"] is True
    assert "written" not in spark.asked


def test_the_results_are_printed_as_json_and_written(spark: Reader, directory: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    options = ("--json", "--out", out, "--no-tombstones", "--uncommitted", "--engine", "spark")
    result = run("--path", directory, *options)
    assert [json.loads(line)["savedShare"] for line in result.stdout.splitlines()] == [0.875, None]
    assert spark.asked["isolation.level"] == "read_uncommitted"
    assert spark.asked["written"] == (("compacted", False), out)


def test_a_small_log_needs_no_spark(directory: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run("--path", directory, "--out", str(out))
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[2].split() == ["prices", "0", "1", "0", "1", "0", "1", "12", "12", "0.0%"]
    assert "in this process; --engine spark uses Spark" in result.stderr
    assert [path.parent.parent.name for path in out.rglob("*.parquet")] == ["topic=prices"]
    again = run("--path", directory, "--out", str(out))
    assert (again.exit_code, again.stderr.splitlines()[-1]) == (2, f"minibroker: {out} exists already")


@pytest.mark.parametrize("engine", ["local", "spark", "auto"])
def test_a_directory_without_topics_is_refused_before_spark_starts(engine: str, tmp_path: Path) -> None:
    result = run("--path", str(tmp_path), "--engine", engine)
    assert (result.exit_code, result.stderr) == (2, f"minibroker: there is no topic to read in {tmp_path}\n")


def test_which_log_has_to_be_said() -> None:
    assert run().exit_code == 2
