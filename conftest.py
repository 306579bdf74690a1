"""How the tests run, those of `tests` and those of `conformance`, together or alone: who gets which, with what seeds.

A worker gets whole files, so that what a file starts and builds is started and built once. Those that take long are
dealt out first: none of them is to begin when the other workers come to an end. At the end are the seeds that tests
have chosen; hypothesis chooses none, so that a run in CI is short and always the same.

Tests marked `thorough` repeat another test with more seeds, sizes or client libraries. Like the other examples of
property tests they need `--thorough`, which CI gives, so that a contributor waits minutes and not a quarter of an hour.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, find, settings
from hypothesis.strategies import just

settings.register_profile(
    "thorough",
    derandomize=True,
    max_examples=40,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("short", settings.get_profile("thorough"), max_examples=10)
settings.register_profile("long", max_examples=2000, deadline=None)

ROOT = Path(__file__).parent
BARE = str(ROOT / "tests" / "bare")
WITHOUT = ("tests/broker", "tests/storage", "tests/testing", "tests/test_operating_system.py")  # what `--bare` runs
MEMORY, MEMORY_BYTES = "/dev/shm", 4 << 30  # a file system in memory, and what has to be free there
IN_MEMORY = pytest.StashKey[str]()  # the directory there, in the process that made it
SPARK = "spark"  # all files with a Spark session, as one: it costs 20 s of CPU
KAFKA_TESTS = "conformance/kafka_tests/test_kafka_tests.py::test_apache_kafkas_own_tests_end_as_expected"
# What takes a worker half a minute or more, the longest first.
LONG = (
    KAFKA_TESTS,
    "conformance/suites/test_librdkafka.py",
    "conformance/suites/test_sarama.py",
    SPARK,
    "conformance/test_groups.py",
    "conformance/test_kafka_streams.py",
    "conformance/share/test_share_torture.py",
    "tests/clients/test_exactly_once.py",
    "conformance/spark/test_connector.py",
    "conformance/pipeline_cluster/test_standalone_cluster.py",
    "conformance/kafka_files/test_compaction.py",
    "conformance/test_formats.py",
    "conformance/security/test_clients.py",
    "conformance/kafka_files/test_verify.py",
    "conformance/test_interoperation.py",
    "conformance/test_examples.py",
    "tests/clients/test_kills.py",
    "conformance/kafka_files/test_rewritten.py",
    "conformance/test_kill.py",
    "conformance/kafka_files/test_there_and_back.py",
    "conformance/kafka_files/test_groups.py",
    "conformance/kafka_files/test_pipeline.py",
    "conformance/kafka_files/test_dump_log.py",
    "conformance/dump_log/test_dump_command.py",
    "conformance/share/test_share_consumers.py",
    "conformance/test_test_kit.py",
)


WAITING = ("tests/clients/", "tests/testing/", "tests/test_")  # their files take seconds, as they wait for processes


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that CI gives, and the one for a run without what Windows lacks."""
    parser.addoption("--thorough", action="store_true", help="run tests marked thorough, and more examples of others")
    parser.addoption("--bare", action="store_true", help="take away what Windows lacks; run what that concerns")


def pytest_cmdline_main(config: pytest.Config) -> None:
    """Begin anew for `--bare`: Python takes away what Windows lacks when it starts."""
    if not config.getoption("bare") or BARE in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        return
    if sys.platform != "linux":
        raise pytest.UsageError("--bare takes away what Linux has")
    config.pluginmanager.getplugin("capturemanager").stop_global_capturing()  # it has the descriptors of the output
    os.environ["PYTHONPATH"] = os.pathsep.join((BARE, *filter(None, [os.environ.get("PYTHONPATH")])))
    chosen = () if config.args_source is pytest.Config.ArgsSource.ARGS else WITHOUT
    os.execv(sys.executable, [*sys.orig_argv, *chosen])


def pytest_configure(config: pytest.Config) -> None:
    """Choose how many examples property tests have, and let Ctrl-C end programs that tests start.

    A shell lets what it starts with & ignore Ctrl-C, and so do its children unless they are told otherwise.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        keep_in_memory(config)
    usual = "thorough" if config.getoption("thorough") else "short"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", usual))


def keep_in_memory(config: pytest.Config) -> None:
    """Put the files of tests into memory if there is room: a run of all tests then takes a quarter less CPU time.

    CI's other suites have theirs on a disk, also with the tests of the storage and of the handlers. Workers and the
    programs that tests start inherit the directory with the environment.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < MEMORY_BYTES:
        return
    if not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:  # as in a container; some tests run what they have written
        tempfile.tempdir = os.environ["TMPDIR"] = config.stash[IN_MEMORY] = tempfile.mkdtemp(
            prefix="minibroker-tests-", dir=MEMORY
        )


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Free the memory, unless a test has failed: somebody may want to see its files."""
    if exitstatus != pytest.ExitCode.TESTS_FAILED and IN_MEMORY in session.config.stash:
        shutil.rmtree(session.config.stash[IN_MEMORY], ignore_errors=True)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let each worker import other tests first: in a new checkout, each would else compile all of them, in step."""
    worker: dict[str, Any] | None = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args_source is pytest.Config.ArgsSource.ARGS:
        return
    share = slice(int(worker["workerid"].removeprefix("gw")), None, worker["workercount"])
    files = (file for path in session.config.getini("testpaths") for file in (ROOT / path).rglob("test_*.py"))
    for file in sorted(files)[share]:
        with suppress(Exception, pytest.skip.Exception):  # which the collection will report
            import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is only for `--thorough`, unless it is named by `-m`. Put the long files first, the short last."""
    if not config.getoption("thorough") and not config.getoption("markexpr"):
        left_out = [item for item in items if item.get_closest_marker("thorough") is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("thorough") is None]
    places = {unit: place for place, unit in enumerate(LONG)}
    units = {item: unit_of(item.nodeid).partition("[")[0] for item in items}
    items.sort(key=lambda item: (places.get(units[item], len(places)), not item.nodeid.startswith(WAITING)))


def pytest_collection_finish() -> None:
    """Let no garbage collection look through all tests again: they stay, and a full one took 0.3 s with them.

    Hypothesis is used once before: it asks then who refers to its random numbers and to trio's, and to an object that
    is frozen nobody does.
    """
    find(just(None), lambda _: True)
    gc.collect()
    gc.freeze()


def unit_of(nodeid: str) -> str:
    """Return what is dealt out with a test: its file, a section of Apache Kafka's tests, or all files with Spark."""
    if nodeid.startswith(KAFKA_TESTS):
        return nodeid
    file = nodeid.partition("::")[0]
    return SPARK if uses_spark(file) else file


@cache
def uses_spark(file: str) -> bool:
    """Whether a file of the suite says that it starts Spark: by the type of the fixture, or by the mark."""
    text = (ROOT / file).read_text() if file.startswith("tests/") else ""
    return "SparkSession" in text or 'xdist_group("spark")' in text


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Two workers more than there are cores, if nobody says how many: clients wait for timers in many tests."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal out units in the order of the tests, unless another way than `--dist loadfile` is asked for."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class UnitByUnit(LoadScopeScheduling):  # type: ignore[misc, unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            """Forget the units that are done: xdist counts the tests of all that it keeps after each test."""
            super().mark_test_complete(node, item_index, duration)
            kept = self.assigned_work[node]
            for unit in [unit for unit, tests in kept.items() if all(tests.values())]:
                del kept[unit]

    config.option.loadscopereorder = False
    return UnitByUnit(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell the seeds that tests have chosen (`record_property("seed", ...)`), also of those that passed."""
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for name, value in report.user_properties:
            if name == "seed":
                terminalreporter.write_line(f"{report.nodeid}: seed {value}")
