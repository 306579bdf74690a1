"""The folder of the lab: files that any server of files serves, or a documentation's site.

    index.html, lab.js, worker.js, service.js    of the lab
    bundle.js, style.css, icon.svg               the explorer's page
    minibroker.tar.gz                            this package, without what has no use there, and compiled
    pyodide/                                     Pyodide's files, and wheels for it

The large files are gzip, as a server of files may not compress. `service.js` names the version: a hash of all others.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from minibroker.explorer.bundling import bundle

PACKAGE: Final = Path(__file__).parent.parent
EXPLORER: Final = PACKAGE / "explorer" / "static"  # `page_files` has it, too, but needs the libraries of a server
PAGE: Final = "index.html"
FIRST_MODULE: Final = "app.js"
MODULE_SUFFIX: Final = ".js"
STATIC: Final = Path(__file__).parent / "static"
COMPILING: Final = Path(__file__).parent / "compiling.mjs"
PYODIDE: Final = ("pyodide.mjs", "pyodide.asm.mjs", "python_stdlib.zip", "pyodide-lock.json")
PACKED: Final = "pyodide.asm.wasm"
WHEELS: Final = ("msgspec", "cramjam")  # without which it does not start
WITHOUT: Final = ("pipeline", "cli", "static", "captures", "__pycache__")  # folders of the package
VERSION: Final = "VERSION"
OWN_VIEWS: Final = "views/all.js"
EXPLORERS_VIEWS: Final = "views/explorer.js"


class LabError(Exception):
    """The folder cannot be written; the message says why, in one line."""


def write_lab(folder: Path, pyodide: Path) -> int:
    """Write the folder of the lab; return how many bytes its files have. Raises LabError, OSError."""
    wheels = _check_files(pyodide)
    (folder / "pyodide").mkdir(parents=True, exist_ok=True)
    for name in (*PYODIDE, *(each.name for each in wheels)):
        shutil.copy(pyodide / name, folder / "pyodide" / name)
    _write_gzip(folder / "pyodide" / f"{PACKED}.gz", (pyodide / PACKED).read_bytes())
    _write_gzip(folder / "minibroker.tar.gz", _compile(_pack_source(), pyodide))
    for path in (*EXPLORER.iterdir(), *STATIC.iterdir()):
        is_script_of_explorer = path.parent == EXPLORER and path.suffix == MODULE_SUFFIX
        if path.is_file() and not is_script_of_explorer and path != EXPLORER / PAGE:
            shutil.copy(path, folder / path.name)
    (folder / "bundle.js").write_text(bundle(FIRST_MODULE, _read_module), encoding="utf-8")
    (folder / "files.json").write_text(json.dumps({"wheels": [each.name for each in wheels]}), encoding="utf-8")
    _write_version(folder)
    return sum(path.stat().st_size for path in _list_files(folder))


def _check_files(pyodide: Path) -> list[Path]:
    """Return the wheels beside Pyodide. Raises LabError if something is missing."""
    missing = [name for name in (*PYODIDE, PACKED) if not (pyodide / name).is_file()]
    if missing:
        raise LabError(f"{pyodide} has no {missing[0]}: give a folder with the files of the npm package pyodide")
    wheels = sorted(pyodide.glob("*.whl"))
    for name in WHEELS:
        if not any(each.name.startswith(f"{name}-") for each in wheels):
            raise LabError(f"{pyodide} has no wheel of {name} for Pyodide: `.ci/lab` shows how pip downloads it")
    return wheels


def _read_module(path: str) -> str:
    """Return a module of the page: the lab's own, or the explorer's, whose list of views has another name there."""
    own = STATIC / path
    if own.is_file():
        return own.read_text("utf-8")
    return (EXPLORER / (OWN_VIEWS if path == EXPLORERS_VIEWS else path)).read_text("utf-8")


def _pack_source() -> bytes:
    """Return the package's source as a tar archive, which is the same for the same source."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(PACKAGE.rglob("*.py")):
            place = path.relative_to(PACKAGE.parent)
            if not set(place.parts) & set(WITHOUT):
                content = path.read_bytes()
                entry = tarfile.TarInfo(place.as_posix())
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def _compile(source: bytes, pyodide: Path) -> bytes:
    """Add what Pyodide compiles of the source. Without Node.js, the browser does that. Raises LabError."""
    node = shutil.which("node")
    if node is None:
        return source
    with TemporaryDirectory() as directory:
        given, made = Path(directory, "from.tar"), Path(directory, "to.tar")
        given.write_bytes(source)
        done = subprocess.run([node, COMPILING, pyodide, given, made], capture_output=True, text=True)
        if done.returncode:
            lines = done.stderr.split("\n\n")[-1].strip().splitlines()
            raise LabError(f"Node.js cannot compile the modules: {lines[0][:500] if lines else done.returncode}")
        return made.read_bytes()


def _write_gzip(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content, 9, mtime=0))


def _write_version(folder: Path) -> None:
    digest = hashlib.sha256()
    for path in _list_files(folder):
        digest.update(path.read_bytes())
    service = folder / "service.js"
    service.write_text(service.read_text("utf-8").replace(VERSION, digest.hexdigest()[:16]), encoding="utf-8")


def _list_files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())
