"""The command `repair`: what it says, and that it does nothing unless told."""

from __future__ import annotations

from pathlib import Path

from tests.broker.harness import Harness
from tests.cli.conftest import Run


def damaged(tmp_path: Path) -> Path:
    """A directory whose metadata log is empty; the log's path."""
    harness = Harness(tmp_path)
    harness.create_topic("t")
    harness.stop()
    file = tmp_path / "data" / "__cluster_metadata-0" / "00000000000000000000.log"
    file.write_bytes(b"")
    return file


def test_a_dry_run_reports_repairs_without_doing_them(run: Run, tmp_path: Path) -> None:
    file = damaged(tmp_path)
    result = run("repair", str(tmp_path / "data"))
    assert result.exit_code == 0
    assert "topic t is restored with the id" in result.stdout
    assert result.stdout.endswith("nothing was changed; add --yes to do this\n")
    assert file.read_bytes() == b""


def test_repairs_are_done_with_yes(run: Run, tmp_path: Path) -> None:
    damaged(tmp_path)
    assert run("repair", str(tmp_path / "data"), "--yes").stdout.endswith("done\n")
    with Harness(tmp_path) as harness:
        assert list(harness.cluster.image.topics) == ["t"]
    assert run("repair", str(tmp_path / "data")).stdout == "there is nothing to repair\n"


def test_a_directory_that_is_not_a_log_directory_is_rejected_in_one_line_with_status_2(
    run: Run, tmp_path: Path
) -> None:
    result = run("repair", str(tmp_path))
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "is not a log directory" in result.stderr
