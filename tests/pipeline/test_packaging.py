"""The archive for executors: a Python without our packages reads a log with what is in it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from click.testing import CliRunner

from minibroker.cli.pipeline.pipeline_command import pipeline
from minibroker.pipeline import packaging
from minibroker.pipeline.packaging import make_executor_settings, write_archive


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack no large libraries."""
    monkeypatch.setattr(packaging, "OPTIONAL", ())
    monkeypatch.setattr(
        packaging, "_list_required_distributions", lambda name: ["py4j", "crc32c"] if name == "minibroker" else []
    )


def test_a_python_without_our_packages_imports_them_from_the_archive(tmp_path: Path) -> None:
    path = tmp_path / "archive.tar.gz"
    (library,) = write_archive(path, [])
    assert library.startswith("crc32c ")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path / "minibroker", filter="data")
        assert not any("__pycache__" in name for name in archive.getnames())
    program = "import crc32c, minibroker.pipeline.spark_errors as module; print(crc32c.__file__, module.__file__)"
    command = [sys.executable, "-S", "-c", program]  # -S: without site-packages
    run = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": "minibroker"}, capture_output=True, text=True, check=True
    )
    assert all(str(tmp_path / "minibroker") in word for word in run.stdout.split())


def test_the_package_command_shows_how_to_ship_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaging, "LIBRARIES", ())
    monkeypatch.setattr(packaging.write_archive, "__defaults__", ((),))
    path = tmp_path / "a.tar.gz"
    result = CliRunner().invoke(pipeline, ["package", "--out", str(path)])
    assert result.exit_code == 0, result.output
    for name, value in make_executor_settings(str(path)).items():
        assert f"--conf {name}={value}" in result.stdout
    assert result.stdout.startswith(f"{path}: minibroker, crc32c ")


def test_packing_a_library_that_is_not_installed_fails(tmp_path: Path) -> None:
    with pytest.raises(PackageNotFoundError):
        write_archive(tmp_path / "a.tar.gz", ["no-such-library"])


def test_the_protobuf_library_is_packed_if_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaging, "OPTIONAL", ("protobuf", "no-such-library"))
    assert [each.partition(" ")[0] for each in write_archive(tmp_path / "a.tar.gz", [])] == ["crc32c", "protobuf"]
