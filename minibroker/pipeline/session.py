"""A Spark session that can read `minibroker` and `minibroker-batches`, configured for Python data sources.

In another session, call `register`. If the package is installed, even that is not needed: Spark finds the sources by
name.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import site
import sys
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from minibroker.pipeline.java import find_java, require_java_for_platform, set_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LogLevel = Literal["off", "error", "warn", "info"]

LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
LOOPBACK: Final = "127.0.0.1"
DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",  # so that times as text do not depend on the machine
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOCAL_DEFAULTS: Final = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.python.daemon.module": "minibroker.pipeline.worker_daemon",
}
HERE: Final = "local[2]"
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # in the environment of what spark-submit runs
CONNECT: Final = "sc://"  # Spark Connect
# Of an error in a query PySpark writes Java's whole stack to stderr, as a line of JSON, and raises the error, too.
QUERY_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


class SessionError(Exception):
    """A session cannot start. The message is one line."""


def session(master: str | None = None, *, log_level: LogLevel = "error", **conf: str) -> SparkSession:
    """Return a Spark session with our sources registered.

    Without `master`, it is that of spark-submit if that runs this program, else two cores of this machine. `conf` are
    Spark's own settings (`**{"spark.driver.memory": "4g"}`); they override those of spark-submit, which override ours.
    An existing session is used as it is, except for the settings of Spark SQL, as by `getOrCreate`; the log level stays
    that of the first session. Raises `minibroker.pipeline.java.JavaError` if there is no Java, and `SessionError` on
    Spark Connect.
    """
    require_java_for_platform()
    from pyspark.sql import SparkSession, is_remote

    if is_remote() or (master or "").startswith(CONNECT):
        raise SessionError("on Spark Connect, make a session of your own, and call register(spark) of this module")
    conf = {**_read_submitted_settings(), **conf}
    master = master or conf.get("spark.master", HERE)
    java = find_java()
    local = master.startswith("local")
    _prepare_workers(local, conf.get("spark.pyspark.python"))
    ours = {"spark.app.name": "minibroker", **DEFAULTS, **(LOCAL_DEFAULTS if local else {})}
    settings = {**ours, **conf, "spark.master": master}
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    with set_java_home(java, _make_log_options(log_level)):
        spark = builder.getOrCreate()
    _silence_query_loggers()
    register(spark)
    return spark


def _read_submitted_settings() -> dict[str, str]:
    """Return the settings of spark-submit, if that runs this program."""
    if SUBMITTED not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _silence_query_loggers() -> None:
    from pyspark.logger import PySparkLogger

    for name in QUERY_LOGGERS:
        PySparkLogger.getLogger(name).disabled = True


def register(spark: SparkSession) -> None:
    """Register `spark.read.format("minibroker")` and `format("minibroker-batches")` in a session."""
    from minibroker.pipeline.sources import SOURCES

    for source in SOURCES:
        spark.dataSource.register(source)


def _prepare_workers(local: bool, program: str | None = None) -> None:
    """Make Spark's Python processes use this Python and this package. Only the environment reaches all of them.

    On a cluster they use another `program`, as the setting `spark.pyspark.python` says to spark-submit only.
    """
    if local:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = _make_worker_python()
        os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    elif program:
        os.environ["PYSPARK_PYTHON"] = program
    root = str(Path(__file__).parents[2])
    roots = [] if root in (*site.getsitepackages(), site.getusersitepackages()) else [root]
    if not local and os.environ.get("PYSPARK_PYTHON", sys.executable) != sys.executable:
        # Spark plans queries on this machine with the executors' Python, which may be bare.
        roots = [root, *_list_library_roots()]
    paths = list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    if roots:
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*roots, *paths]))


@cache
def _make_worker_python() -> str:
    """Return a program that runs this Python without the archives that Spark puts first on its path.

    From a zip, Python compiles PySpark anew at each start: more than half of the CPU of a worker's start.
    """
    import pyspark

    spark = Path(pyspark.__file__).parent
    if not spark.joinpath("python", "lib", "pyspark.zip").exists():
        return sys.executable  # PySpark itself comes from an archive, as in a program of spark-submit
    directory = tempfile.mkdtemp(prefix="minibroker-python-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    program = Path(directory, "python")
    program.write_text(
        f"""#!/bin/sh
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
    case $entry in
    {shlex.quote(str(spark))}/*) ;;
    *) kept=$kept$entry: ;;
    esac
done
PYTHONPATH=${{kept%:}} exec {shlex.quote(sys.executable)} "$@"
"""
    )
    program.chmod(0o755)
    return str(program)


def _list_library_roots() -> list[str]:
    """Return the directories with the libraries that planning a query needs."""
    specs = [find_spec(name) for name in ("pyarrow", "numpy", "crc32c")]
    return [str(Path(spec.origin).parents[1]) for spec in specs if spec is not None and spec.origin is not None]


def _make_log_options(level: LogLevel) -> tuple[str, ...]:
    """Return the options of the JVM that set Spark's log level."""
    return f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}", f"-Dminibroker.spark.log.level={level}"
