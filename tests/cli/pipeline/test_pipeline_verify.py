"""`minibroker pipeline verify`: what it prints of the findings, and its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from minibroker.cli.pipeline.pipeline_command import pipeline
from minibroker.pipeline.verifying import log_files, verify_job
from minibroker.pipeline.verifying.findings import CHECKS, Finding
from minibroker.pipeline.verifying.log_files import DirectoryPlan, plan_verification_of_directory
from tests.cli.conftest import runner

CRC = Finding("orders", 0, "orders-0/00000000000000000000.log", 7, 61, "crc", "error", "stored 1, computed 2")
OPEN = Finding("orders", 0, "orders-0/00000000000000000000.log", 3, 0, "open-transaction", "note", "producer 1")
OF_FILE = Finding("", -1, "cleaner-offset-checkpoint", -1, -1, "checkpoint", "error", "it is not text")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return what runs the command on a directory with these findings; `asked` has how its files were asked for."""
    asked: dict[str, Any] = {}
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "prices-0").mkdir()

    def run(*arguments: str, findings: tuple[Finding, ...] = ()) -> Result:
        def plan(path: str, **options: Any) -> DirectoryPlan:
            asked.update(options, path=path)
            return plan_verification_of_directory(path, **options)

        monkeypatch.setattr(log_files, "plan_verification_of_directory", plan)
        monkeypatch.setattr(verify_job, "verify_plan", lambda *_: list(findings))
        return runner().invoke(pipeline, ["verify", "--path", str(tmp_path), "--engine", "local", *arguments])

    run.asked = asked  # type: ignore[attr-defined]
    return run


def test_verify_without_findings_ends_with_status_0(run: Any) -> None:
    result = run()
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "0 findings\n")
    assert run.asked["checks"] == list(CHECKS)


def test_verify_prints_findings_in_a_table_with_causes_first_and_ends_with_status_1(run: Any) -> None:
    result = run(findings=(OPEN, CRC, OF_FILE))
    assert result.exit_code == 1
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[3] for line in lines[2:]][1:] == ["crc", "open-transaction"]
    assert lines[2][0] == OF_FILE.file
    assert lines[3] == [CRC.file, "7", "61", "crc", "error", "stored", "1,", "computed", "2"]
    assert result.stderr == "3 findings: 1 checkpoint, 1 crc, 1 open-transaction\n"


def test_findings_of_one_kind_are_summarized_per_file_except_in_json(run: Any) -> None:
    more = tuple(CRC._replace(offset=offset, position=offset * 70) for offset in range(10, 15))
    result = run(findings=(*more, CRC))
    assert len(result.stdout.splitlines()) == 3
    assert result.stdout.rstrip().endswith("(and 5 more of this kind)")
    assert len(run("--json", findings=(*more, CRC)).stdout.splitlines()) == 6


def test_a_small_directory_is_verified_in_process_with_a_note(run: Any, tmp_path: Path) -> None:
    (tmp_path / "orders-0" / f"{0:020}.log").write_bytes(bytes(2000))
    result = run("--engine", "auto")
    assert result.stderr.splitlines()[0] == "reading 2 kB in this process; --engine spark uses Spark"


def test_notes_alone_end_with_status_0_unless_strict(run: Any) -> None:
    assert run(findings=(OPEN,)).exit_code == 0
    assert run("--strict", findings=(OPEN,)).exit_code == 1


def test_findings_are_printed_as_json(run: Any) -> None:
    result = run("--json", findings=(CRC, OF_FILE))
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert first["topic"] is first["partition"] is first["offset"] is first["position"] is None
    assert second == CRC._asdict()


def test_the_topic_and_compacted_options_are_passed_to_the_verifying_job(run: Any) -> None:
    run("--topic", "orders", "--topic", "prices", "--compacted", "prices")
    assert (run.asked["topics"], run.asked["compacted"]) == (("orders", "prices"), ("prices",))


def test_checks_can_be_selected_and_excluded(run: Any) -> None:
    run("--checks", "crc,records,offsets", "--skip", "records")
    assert run.asked["checks"] == ["offsets", "crc"]
    result = run("--skip", "colours")
    assert result.exit_code == 2
    assert "unknown check colours; the checks are layout, offsets" in result.stderr


def test_verify_warns_of_a_running_broker(run: Any, tmp_path: Path) -> None:
    in_use = f"{tmp_path} is in use: concurrent writes may look like damage"
    assert "in use" not in run().stderr
    lock = tmp_path / ".lock"
    lock.write_bytes(b"")
    assert "in use" not in run().stderr
    holder = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, 2); print(flush=True); input()"
    command = [sys.executable, "-c", holder, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        result = run()
        process.communicate(b"\n")
    assert (result.exit_code, result.stderr.splitlines()[0]) == (0, in_use)
