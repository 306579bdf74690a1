"""The folder of the lab is written from the files of Pyodide, and what is missing is told."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from minibroker.cli.lab_command import lab
from minibroker.lab.writing import PACKED, PYODIDE, WHEELS, LabError, write_lab


@pytest.fixture
def pyodide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with files of the names that Pyodide's have, without a Node.js that would run them."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    folder = tmp_path / "pyodide"
    folder.mkdir()
    for name in (*PYODIDE, PACKED, *(f"{each}-1-cp314-wasm.whl" for each in WHEELS)):
        (folder / name).write_text(name)
    return folder


def test_the_folder_has_the_page_the_source_and_pyodide(tmp_path: Path, pyodide: Path) -> None:
    folder = tmp_path / "lab"
    size_bytes = write_lab(folder, pyodide)
    assert size_bytes == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    for name in (
        "index.html",
        "lab.js",
        "worker.js",
        "bundle.js",
        "style.css",
        *(f"pyodide/{each}" for each in PYODIDE),
    ):
        assert (folder / name).is_file(), name
    assert gzip.decompress((folder / "pyodide" / f"{PACKED}.gz").read_bytes()) == PACKED.encode()
    wheels = json.loads((folder / "files.json").read_text())["wheels"]
    assert wheels == sorted(path.name for path in (folder / "pyodide").glob("*.whl"))
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress((folder / "minibroker.tar.gz").read_bytes()))) as archive:
        names = archive.getnames()
    assert "minibroker/lab/desk.py" in names
    assert not [
        name for name in names if name.startswith(("minibroker/cli/", "minibroker/pipeline/", "minibroker/captures/"))
    ]


def test_the_version_follows_from_the_files_alone(tmp_path: Path, pyodide: Path) -> None:
    def write(name: str) -> str:
        write_lab(tmp_path / name, pyodide)
        return (tmp_path / name / "service.js").read_text()

    first = write("first")
    assert "lab-VERSION" not in first
    assert write("second") == first == write("first")
    (pyodide / PYODIDE[0]).write_text("another")
    assert write("third") != first


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (PACKED, "has no pyodide.asm.wasm: give a folder with the files of the npm package pyodide"),
        ("cramjam-1-cp314-wasm.whl", "has no wheel of cramjam for Pyodide: `.ci/lab` shows how pip downloads it"),
    ],
)
def test_what_is_missing_is_told_before_anything_is_written(
    tmp_path: Path, pyodide: Path, missing: str, said: str
) -> None:
    (pyodide / missing).unlink()
    folder = tmp_path / "lab"
    with pytest.raises(LabError, match=f"^{pyodide} {said}$"):
        write_lab(folder, pyodide)
    done = CliRunner().invoke(lab, [str(folder), "--pyodide", str(pyodide)])
    assert (done.exit_code, said in done.output) == (2, True)
    assert not folder.exists()
