"""What an executor says that lacks a package: one line with its name, its Python and the remedy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from pyspark import cloudpickle

from minibroker.pipeline.log_source import ReadRequest
from minibroker.pipeline.options import parse_options
from minibroker.pipeline.sources.arrival import ship_task
from minibroker.pipeline.sources.tables import BatchReader
from tests.pipeline.stand_in import StandIn

HIDDEN = """
import sys
sys.modules[{hidden!r}] = None
from pyspark import cloudpickle
found = cloudpickle.loads(sys.stdin.buffer.read())
print(found(None) if callable(found) else type(found).__name__)
"""


def arrives(data: bytes, hidden: str) -> subprocess.CompletedProcess[bytes]:
    """Unpickle data in a process that lacks a package."""
    command = [sys.executable, "-c", HIDDEN.format(hidden=hidden)]
    return subprocess.run(command, input=data, capture_output=True)


def reader() -> BatchReader:
    options = parse_options({"path": "/", "subscribepattern": "."}, "records", "batch")
    return BatchReader(options, ReadRequest("records", ("offset",)), StandIn({"a-0": (2, 5)}))


def task(rows: object) -> str:
    return "done"


@pytest.mark.parametrize("make", [reader, lambda: ship_task(task)])
def test_a_missing_package_is_reported_in_one_line(make: Callable[[], object]) -> None:
    data = cloudpickle.dumps(make())
    run = arrives(data, "none of ours")
    assert run.stdout.strip() in (b"BatchReader", b"done"), run.stderr
    module = "minibroker" if b"BatchReader" in run.stdout else "tests"
    last = arrives(data, module).stderr.decode().splitlines()[-1]
    assert last.startswith("ImportError: the executor on ")
    assert f"has no {module} for its Python, {sys.executable}: `minibroker pipeline package` makes" in last
