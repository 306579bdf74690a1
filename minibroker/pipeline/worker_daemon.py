"""Starts Spark's Python workers, as `pyspark.daemon` does, sooner and more quietly.

Spark puts archives first on the path. From a zip, Python compiles PySpark anew at each start, and each worker reads the
directory of a jar: more than half of the CPU of a worker's start. And `.show(3)` closes the socket of a worker that
still writes: PySpark then prints the stack of the BrokenPipeError. `session` names this module in
`spark.python.daemon.module`.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import SimpleNamespace


def drop_archives_of_pyspark(path: Sequence[str]) -> list[str]:
    """Return a path of imports without the zips and jars in PySpark's own directory, if that can be imported, too."""
    found = PathFinder.find_spec("pyspark", [each for each in path if not each.endswith((".zip", ".jar"))])
    if found is None or found.origin is None:
        return [*path]  # PySpark itself comes from an archive, as in a program of spark-submit
    package = Path(found.origin).parent
    return [each for each in path if not Path(each).is_relative_to(package)]


def print_stack_unless_closed() -> None:
    """Print the stack of an error that ends a worker, unless Spark has closed the socket to which it writes."""
    if not isinstance(sys.exception(), BrokenPipeError):
        traceback.print_exc()


if __name__ == "__main__":
    given, sys.path[:] = {*sys.path}, drop_archives_of_pyspark(sys.path)
    for archive in given - {*sys.path}:
        sys.path_importer_cache.pop(archive, None)  # each worker would read its directory again
    from pyspark import daemon

    quiet = SimpleNamespace(print_exc=print_stack_unless_closed, format_exc=traceback.format_exc)
    vars(daemon)["traceback"] = quiet
    daemon.manager()
