"""The folder of the lab: files that any server of files serves, or a documentation's site.

    index.html, lab.js, worker.js, service.js    of the lab
    bundle.js, style.css, icon.svg               the explorer's page
    minibroker.zip.gz                            this package, without what has no use there, and compiled
    pyodide/                                     Pyodide's files, of which Python's library is compiled, too, and wheels

The large files are gzip, as a server of files may not compress. `service.js` names the version: a hash of all others.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from minibroker.explorer.bundling import bundle_modules
from minibroker.lab.compiling import pack_entries

PACKAGE: Final = Path(__file__).parent.parent
EXPLORER: Final = PACKAGE / "explorer" / "static"  # `explorer_routes` has it, too, but needs the libraries of a server
PAGE: Final = "index.html"
FIRST_MODULE: Final = "app.js"
MODULE_SUFFIX: Final = ".js"
STATIC: Final = Path(__file__).parent / "static"
COMPILING: Final = Path(__file__).parent / "compiling.mjs"
PYODIDE: Final = ("pyodide.mjs", "pyodide.asm.mjs")
LIBRARY: Final = "python_stdlib.zip"
PACKED: Final = ("pyodide.asm.wasm", "pyodide-lock.json")  # which compress well
SOURCE: Final = "minibroker.zip"
WHEELS: Final = ("msgspec", "cramjam")  # without which it does not start
WITHOUT: Final = ("pipeline", "cli", "static", "captures", "__pycache__")  # folders of the package
FILES: Final = "files.json"
SERVICE: Final = "service.js"
VERSION: Final = "VERSION"
OWN_VIEWS: Final = "views/all.js"
EXPLORERS_VIEWS: Final = "views/explorer.js"


class LabError(Exception):
    """The folder cannot be written; the message says why, in one line."""


def write_lab(folder: Path, pyodide: Path) -> int:
    """Write the folder of the lab; return how many bytes its files have. Raises LabError, OSError."""
    wheels = _list_pyodide_wheels(pyodide)
    (folder / "pyodide").mkdir(parents=True, exist_ok=True)
    for name in (*PYODIDE, *(each.name for each in wheels)):
        shutil.copy(pyodide / name, folder / "pyodide" / name)
    for name in PACKED:
        _write_gzip(folder / "pyodide" / f"{name}.gz", (pyodide / name).read_bytes())
    source, library = _compile_archives(pyodide)
    _write_gzip(folder / f"{SOURCE}.gz", source)
    _write_gzip(folder / "pyodide" / f"{LIBRARY}.gz", library)
    for path in (*EXPLORER.iterdir(), *STATIC.iterdir()):
        is_script_of_explorer = path.parent == EXPLORER and path.suffix == MODULE_SUFFIX
        if path.is_file() and not is_script_of_explorer and path != EXPLORER / PAGE:
            shutil.copy(path, folder / path.name)
    (folder / "bundle.js").write_text(bundle_modules(FIRST_MODULE, _read_module), encoding="utf-8")
    _write_file_list(folder, [each.name for each in wheels])
    _write_version(folder)
    return sum(path.stat().st_size for path in _list_files(folder))


def _list_pyodide_wheels(pyodide: Path) -> list[Path]:
    """Return the wheels beside Pyodide. Raises LabError if they or other files are missing."""
    missing = [name for name in (*PYODIDE, LIBRARY, *PACKED) if not (pyodide / name).is_file()]
    if missing:
        raise LabError(f"{pyodide} has no {missing[0]}: give a folder with the files of the npm package pyodide")
    wheels = sorted(pyodide.glob("*.whl"))
    for name in WHEELS:
        if not any(each.name.startswith(f"{name}-") for each in wheels):
            raise LabError(f"{pyodide} has no wheel of {name} for Pyodide: `.ci/lab` shows how pip downloads it")
    return wheels


def _read_module(path: str) -> str:
    """Return the JavaScript of a module of the page, the lab's own or the explorer's."""
    own = STATIC / path
    if own.is_file():
        return own.read_text("utf-8")
    return (EXPLORER / (OWN_VIEWS if path == EXPLORERS_VIEWS else path)).read_text("utf-8")


def _compile_archives(pyodide: Path) -> tuple[bytes, bytes]:
    """Return the archives of the package and of Python's library, compiled if there is Node.js. Raises LabError."""
    with TemporaryDirectory() as directory:
        source, library = Path(directory, SOURCE), Path(directory, LIBRARY)
        pack_entries(str(source), _iterate_modules())
        shutil.copy(pyodide / LIBRARY, library)
        node = shutil.which("node")
        if node is not None:
            done = subprocess.run([node, COMPILING, pyodide, source, directory], capture_output=True, text=True)
            if done.returncode:
                lines = done.stderr.split("\n\n")[-1].strip().splitlines()
                raise LabError(f"Node.js cannot compile the modules: {lines[0][:500] if lines else done.returncode}")
        return source.read_bytes(), library.read_bytes()


def _iterate_modules() -> Iterator[tuple[str, bytes]]:
    """Yield the names and the contents of the package's modules, in the same order everywhere."""
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE.parent)
        if not set(place.parts) & set(WITHOUT):
            yield place.as_posix(), path.read_bytes()


def _write_gzip(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content, 9, mtime=0))


def _write_file_list(folder: Path, wheels: list[str]) -> None:
    """Write which wheels there are, and which files a browser should keep."""
    names = (path.relative_to(folder).as_posix() for path in _list_files(folder))
    said = {"wheels": wheels, "files": sorted({FILES, *names} - {SERVICE})}
    (folder / FILES).write_text(json.dumps(said), encoding="utf-8")


def _write_version(folder: Path) -> None:
    """Write a hash of all files into the service worker, by which browsers notice a new version."""
    digest = hashlib.sha256()
    for path in _list_files(folder):
        digest.update(path.read_bytes())
    service = folder / SERVICE
    service.write_text(service.read_text("utf-8").replace(VERSION, digest.hexdigest()[:16]), encoding="utf-8")


def _list_files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())
