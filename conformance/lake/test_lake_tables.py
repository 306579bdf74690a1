"""The archive in tables of Iceberg and Delta, written by their own Spark libraries and read by others' readers.

The libraries are for Spark 4.1, which these tests install beside the newest one. That takes minutes, so all of them
need `--thorough`.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Producer

from conformance import builds
from tests.pipeline.jobs.logs import records, write_log
from tests.pipeline.sink.committed import create_topic
from tests.running import running_broker
from tests.test_readme import FENCED

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "pipeline.md").read_text()
READERS = {"iceberg": ("pyiceberg", "duckdb-iceberg"), "delta": ("deltalake", "duckdb-delta")}
PATIENCE_S = 240
POLL_S = 0.005

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(4 * PATIENCE_S)]


class RunningDriver:
    """A `driver.py`, in the environment with the other Spark."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        jars = ",".join(map(str, builds.lake_jars()))
        path = os.pathsep.join((str(builds.lake_site()), str(ROOT)))
        environment = {**os.environ, "PYTHONPATH": path}
        command = [sys.executable, "-m", "conformance.lake.driver", str(directory), jars]
        self.stderr_file = directory / "driver.stderr"
        with self.stderr_file.open("ab") as stderr:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=environment,
                cwd=directory,
                start_new_session=True,
            )
        self._answer()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer."""
        self.begin(do, **arguments)
        return self._answer()

    def begin(self, do: str, **arguments: Any) -> None:
        """Ask, without waiting for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.stderr_file.read_text()
        answer: dict[str, Any] = json.loads(line)
        assert "error" not in answer, answer
        return answer

    def kill_when(self, condition: Callable[[], bool]) -> None:
        """End the driver as soon as a condition holds, and before it answers."""
        assert self.process.stdout is not None
        give_up_at = monotonic() + PATIENCE_S
        while not condition():
            assert not select([self.process.stdout], [], [], POLL_S)[0], self._answer()
            assert monotonic() < give_up_at, self.stderr_file.read_text()
        self.kill()

    def kill(self) -> None:
        """End the driver, its JVM and Spark's workers, as a crash of the machine would."""
        os.killpg(self.process.pid, signal.SIGKILL)


@contextmanager
def driving(directory: Path) -> Iterator[RunningDriver]:
    driver = RunningDriver(directory)
    try:
        yield driver
    finally:
        driver.kill()
        with driver.process:
            pass


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDriver]:
    with driving(tmp_path_factory.mktemp("driver")) as driver:
        yield driver


def expected(count: int, partition: int = 0) -> list[list[Any]]:
    """Rows as `readers` return them."""
    return [
        [
            "orders",
            partition,
            record.offset,
            None if record.key is None else record.key.hex(),
            None if record.value is None else record.value.hex(),
            record.timestamp,
            [[name, (value or b"").hex()] for name, value in record.headers] or None,
        ]
        for record in records(count)
    ]


def archive(driver: RunningDriver, table_format: str, log: Path, table: Path, *more: str) -> dict[str, Any]:
    where = ["--path", str(log), "--out", str(table), "--format", table_format, "--json"]
    answer = driver.ask("command", arguments=["archive", *where, *more])
    assert answer["status"] == 0, answer
    found: dict[str, Any] = json.loads(answer["out"])
    return found


@pytest.mark.parametrize("table_format", READERS)
def test_other_readers_find_the_log_in_the_table(driver: RunningDriver, tmp_path: Path, table_format: str) -> None:
    log, table = tmp_path / "log", tmp_path / "table"
    write_log(log, "orders", 0, records(60))
    write_log(log, "orders", 1, records(20))
    first = archive(driver, table_format, log, table, "--batch-offsets", "40")
    assert [row["records"] for row in first["written"]["partitions"]] == [60, 20]
    write_log(log, "orders", 0, records(10, start=60))
    assert archive(driver, table_format, log, table)["written"]["partitions"][0]["records"] == 10
    files = driver.ask("files", format=table_format, table=str(table))["count"]
    assert archive(driver, table_format, log, table, "--compact")["in_all"] == {"records": 90}
    assert driver.ask("files", format=table_format, table=str(table))["count"] < files
    for reader in READERS[table_format]:
        assert driver.ask("rows", reader=reader, table=str(table))["rows"] == expected(70) + expected(20, partition=1)
    assert archive(driver, table_format, log, table)["written"] == {"partitions": []}


@pytest.mark.parametrize("table_format", READERS)
def test_a_table_gets_the_columns_of_later_rows(driver: RunningDriver, tmp_path: Path, table_format: str) -> None:
    log, table = tmp_path / "log", tmp_path / "table"
    write_log(log, "orders", 0, records(4))
    archive(driver, table_format, log, table)
    write_log(log, "orders", 0, records(4, start=4, size=3))
    identity = {"orders": f"the one in {log}"}
    answer = driver.ask("archive_with_sizes", format=table_format, table=str(table), log=str(log), topic_ids=identity)
    assert answer["records"] == 4
    sizes = driver.ask("sizes", format=table_format, table=str(table))["rows"]
    assert sizes == [[0, None], [1, None], [2, None], [3, None], [4, 3], [5, 3], [6, 3], [7, None]]
    write_log(log, "orders", 0, records(1, start=8))
    archive(driver, table_format, log, table)  # an earlier version, without the column
    assert driver.ask("sizes", format=table_format, table=str(table))["rows"][-1] == [8, None]


@pytest.mark.parametrize("table_format", READERS)
def test_lost_progress_is_recovered_from_the_rows(driver: RunningDriver, tmp_path: Path, table_format: str) -> None:
    log, table = tmp_path / "log", tmp_path / "table"
    write_log(log, "orders", 0, records(4))
    archive(driver, table_format, log, table)
    answer = driver.ask("next_without_notes", format=table_format, table=str(table), log=str(log))
    assert answer == {"next": {"orders": {"0": 4}}}


@pytest.mark.parametrize("left", ["1", None])
def test_a_version_hint_left_by_a_killed_commit_is_repaired(
    driver: RunningDriver, tmp_path: Path, left: str | None
) -> None:
    log, table = tmp_path / "log", tmp_path / "table"
    write_log(log, "orders", 0, records(4))
    archive(driver, "iceberg", log, table)
    for path in table.glob("metadata/*version-hint*"):
        path.unlink()
    if left is not None:
        (table / "metadata" / "version-hint.text").write_text(left)
    assert archive(driver, "iceberg", log, table)["written"] == {"partitions": []}
    for reader in READERS["iceberg"]:
        assert driver.ask("rows", reader=reader, table=str(table))["rows"] == expected(4)


@pytest.mark.parametrize("table_format", READERS)
def test_an_incompatible_table_is_rejected(driver: RunningDriver, tmp_path: Path, table_format: str) -> None:
    log, table = tmp_path / "log", tmp_path / "table"
    write_log(log, "orders", 0, records(4))
    table.mkdir()
    (table / "file").touch()
    arguments = ["archive", "--path", str(log), "--out", str(table), "--format", table_format]
    answer = driver.ask("command", arguments=arguments)
    assert (answer["status"], answer["err"]) == (
        2,
        f"minibroker: {table} is not a table of this format, and not empty\n",
    )


@pytest.mark.parametrize("table_format", READERS)
def test_a_table_is_replayed(driver: RunningDriver, tmp_path: Path, table_format: str) -> None:
    log, table = tmp_path / "log", tmp_path / "table"
    write_log(log, "orders", 0, records(12))
    archive(driver, table_format, log, table)
    with running_broker(tmp_path) as broker:
        servers = broker.bootstrap_servers
        arguments = ["replay", "--from", str(table), "--format", table_format, "--bootstrap-server", servers, "--json"]
        for written in (12, 0):
            answer = driver.ask("command", arguments=arguments)
            assert answer["status"] == 0, answer
            assert [row["written"] for row in json.loads(answer["out"])["partitions"]] == [written]


def test_each_documented_code_block_runs(driver: RunningDriver, tmp_path: Path) -> None:
    section = DOCUMENT.split("\n### archive to Iceberg and Delta\n")[1].split("\n### ")[0]
    printed = []
    with running_broker(tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for topic in ("orders", "prices"):
            create_topic(broker.bootstrap_servers, topic, 1)
            for number in range(3):
                producer.produce(topic, b"%d" % number)
        assert producer.flush(60) == 0
        (driver.directory / "minibroker-data").symlink_to(tmp_path / "data")
        for found in FENCED.finditer(section.replace("127.0.0.1:9092", broker.bootstrap_servers)):
            if found["kind"] == "python":
                printed += driver.ask("python", code=found["text"])["out"].split()
                continue
            for line in found["text"].splitlines():
                answer = driver.ask("command", arguments=shlex.split(line)[2:])
                assert answer["status"] == 0, (line, answer)
    assert printed == ["3", "1", "3"]


@pytest.mark.parametrize("table_format", READERS)
def test_kills_cause_no_loss_or_duplicates(tmp_path: Path, table_format: str) -> None:
    log, table = tmp_path / "log", tmp_path / "table"
    write_log(log, "orders", 0, records(60))
    where = ["--path", str(log), "--out", str(table), "--format", table_format, "--batch-offsets", "10"]
    for new_files in (1, 4, 11):
        with driving(tmp_path) as driver:
            wanted = len(files_in(table)) + new_files
            driver.begin("command", arguments=["archive", *where])
            driver.kill_when(lambda wanted=wanted: len(files_in(table)) >= wanted)
    with driving(tmp_path) as driver:
        assert archive(driver, table_format, log, table)["in_all"] == {"records": 60}
        for reader in READERS[table_format]:
            assert driver.ask("rows", reader=reader, table=str(table))["rows"] == expected(60)


def files_in(table: Path) -> list[Path]:
    """All files, whatever they are: the driver may be killed between any two of them."""
    return [path for path in table.rglob("*") if path.is_file()] if table.exists() else []
