"""How our objects reach Spark's executors: with a function that says in one line what is missing there.

Spark pickles readers, writers and functions by the names of their modules. An executor without this package would raise
ModuleNotFoundError from within Spark. The functions of this file are pickled by value, and so run on any executor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pyspark import cloudpickle


class Shipped:
    """A base of objects that Spark sends to its executors."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the object as bytes that `unpack_shipped_object` opens."""
        return unpack_shipped_object, (cloudpickle.dumps((type(self), self.__dict__)),)  # type: ignore[no-untyped-call]


def unpack_shipped_object(data: bytes) -> Any:
    """Return the object of a `Shipped`. Raises `ImportError` with one line if a package is missing here."""
    kind, fields = unpickle(data)
    found = kind.__new__(kind)
    found.__dict__.update(fields)
    return found


def unpickle(data: bytes) -> Any:
    """Unpickle data. Raises `ImportError` with one line if a package is missing here."""
    import pickle
    import socket
    import sys

    try:
        return pickle.loads(data)
    except ImportError as error:
        missing = (error.name or str(error)).partition(".")[0]
        raise ImportError(
            f"the executor on {socket.gethostname()} has no {missing} for its Python, {sys.executable}:"
            " `minibroker pipeline package` makes an archive for spark-submit --archives, see docs/pipeline.md"
        ) from None


def ship_task(task: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function for Spark's tasks, which does the same."""
    data = cloudpickle.dumps(task)  # type: ignore[no-untyped-call]

    def run(rows: Any) -> Any:
        return unpickle(data)(rows)

    return run


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
