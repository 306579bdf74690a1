"""Writing the folder of the lab from the files of Pyodide, and errors where one of them is missing."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from minibroker.cli.lab_command import lab
from minibroker.lab.compiling import pack_entries
from minibroker.lab.writing import LIBRARY, PACKED, PYODIDE, WHEELS, LabError, write_lab


@pytest.fixture
def pyodide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with files of the names that Pyodide's have, without a Node.js that would run them."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    folder = tmp_path / "pyodide"
    folder.mkdir()
    for name in (*PYODIDE, LIBRARY, *PACKED, *(f"{each}-1-cp314-wasm.whl" for each in WHEELS)):
        (folder / name).write_text(name)
    return folder


def test_the_written_lab_folder_has_the_page_the_source_and_pyodide(tmp_path: Path, pyodide: Path) -> None:
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
    for name in (LIBRARY, *PACKED):
        assert gzip.decompress((folder / "pyodide" / f"{name}.gz").read_bytes()) == name.encode()
    said = json.loads((folder / "files.json").read_text())
    assert said["wheels"] == sorted(path.name for path in (folder / "pyodide").glob("*.whl"))
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert set(said["files"]) == files - {"service.js"}  # which a browser must not keep
    with zipfile.ZipFile(io.BytesIO(gzip.decompress((folder / "minibroker.zip.gz").read_bytes()))) as archive:
        names = archive.namelist()
    assert "minibroker/lab/desk.py" in names
    assert not [
        name for name in names if name.startswith(("minibroker/cli/", "minibroker/pipeline/", "minibroker/captures/"))
    ]


def test_the_version_of_the_lab_depends_only_on_its_files(tmp_path: Path, pyodide: Path) -> None:
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
        (PACKED[0], "has no pyodide.asm.wasm: give a folder with the files of the npm package pyodide"),
        ("cramjam-1-cp314-wasm.whl", "has no wheel of cramjam for Pyodide: `.ci/lab` shows how pip downloads it"),
    ],
)
def test_a_missing_file_of_pyodide_is_reported_before_anything_is_written(
    tmp_path: Path, pyodide: Path, missing: str, said: str
) -> None:
    (pyodide / missing).unlink()
    folder = tmp_path / "lab"
    with pytest.raises(LabError, match=f"^{pyodide} {said}$"):
        write_lab(folder, pyodide)
    done = CliRunner().invoke(lab, [str(folder), "--pyodide", str(pyodide)])
    assert (done.exit_code, said in done.output) == (2, True)
    assert not folder.exists()


@pytest.mark.parametrize("keeps_source", [True, False])
def test_modules_are_compiled_and_can_be_imported_without_their_source(tmp_path: Path, keeps_source: bool) -> None:
    source, target = tmp_path / "source.zip", tmp_path / "target.zip"
    modules = {
        "loaded.py": b"import this_one",
        "this_one/__init__.py": b"said = 1",
        "other.py": b"",
        "multiprocessing/a": b"",
    }
    pack_entries(str(source), modules.items())
    wrote = (
        "import sys; sys.path.insert(0, sys.argv[1]); import loaded;"
        "from minibroker.lab.compiling import compile_archive;"
        f"compile_archive(*sys.argv[1:], keeps_source={keeps_source})"
    )
    subprocess.run([sys.executable, "-c", wrote, str(source), str(target)], check=True)
    compiled = ["loaded.pyc", "this_one/__init__.pyc"]
    kept = ["loaded.py", "this_one/__init__.py"] if keeps_source else []
    assert sorted(zipfile.ZipFile(target).namelist()) == sorted([*compiled, *kept, "other.py"])
    shown = "import sys; sys.path.insert(0, sys.argv[1]); import loaded; print(loaded.this_one.said, loaded.__file__)"
    done = subprocess.run([sys.executable, "-c", shown, target], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["1", f"{target}/loaded.pyc"]
