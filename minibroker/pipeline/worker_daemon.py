"""Starts Spark's Python workers, as `pyspark.daemon` does, without its complaint about queries that need no more rows.

`.show(3)` closes the socket of a worker that still writes, and PySpark prints the stack of the BrokenPipeError.
`session` names this module in `spark.python.daemon.module`.
"""

from __future__ import annotations

import sys
import traceback
from types import SimpleNamespace

from pyspark import daemon


def print_stack_unless_closed() -> None:
    """Print the stack of an error that ends a worker, unless Spark has closed the socket to which it writes."""
    if not isinstance(sys.exception(), BrokenPipeError):
        traceback.print_exc()


if __name__ == "__main__":
    quiet = SimpleNamespace(print_exc=print_stack_unless_closed, format_exc=traceback.format_exc)
    vars(daemon)["traceback"] = quiet
    daemon.manager()
