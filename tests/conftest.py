"""What the suite shares: the care for clients that leave sockets, and that the pipeline's tests need Spark."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.leaving import leaves_sockets, logging_stays

__all__ = ["leaves_sockets", "logging_stays"]

HERE = Path(__file__).parent
OF_PIPELINE = HERE / "pipeline", HERE / "cli" / "pipeline"
HAS_PIPELINE = all(map(find_spec, ("pyspark", "pyarrow", "numpy", "pandas", "pyiceberg", "deltalake")))
WITHOUT_PIPELINE = "the pipeline's tests are skipped: they need python3 -m pip install -e '.[test,spark,lake]'"


class SkippedModule(pytest.Module):
    """A file of tests that is not imported, as it could not be."""

    def collect(self) -> Iterable[pytest.Item]:
        """Skip the file."""
        pytest.skip(WITHOUT_PIPELINE, allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Skip the tests of the pipeline where Spark, which takes a gigabyte, is not installed. `.ci/run` installs it."""
    if HAS_PIPELINE or not any(module_path.is_relative_to(directory) for directory in OF_PIPELINE):
        return None
    return SkippedModule.from_parent(parent, path=module_path)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what was skipped: workers do not report files that they skip."""
    if not HAS_PIPELINE:
        terminalreporter.write_line(WITHOUT_PIPELINE)
