"""Common parts of the jobs' commands: the choice of the log, a Spark session, and Spark's errors in one line.

Nothing of the extra `minibroker[spark]` is imported before a session is needed, so that `--help` works without it.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from minibroker.cli.connecting import Bootstrap, client_setting_options, require_connection, servers_of
from minibroker.cli.shared import assignment_of, one_line
from minibroker.pipeline.spark_errors import reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Command = TypeVar("Command", bound=Callable[..., Any])

EXTRA: Final = ("pyspark", "pyarrow", "numpy", "pandas", "kafka")
REMEDY: Final = "the pipeline needs Spark: python3 -m pip install 'minibroker[spark]'"
ALL_TOPICS: Final = ".*"
MASTER: Final = re.compile(r"local(\[[^\]]+\]|-cluster\[[^\]]+\])?|yarn|(spark|k8s)://.+")


class Cannot(click.ClickException):
    """An error of a job, with status 2; status 1 is for the findings of a job."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Source:
    """The log that a command reads: a directory or a broker, and its topics (none for all)."""

    path: str | None
    servers: str | None
    topics: tuple[str, ...]
    client: tuple[tuple[str, str], ...]

    def options(self) -> dict[str, str]:
        """Return the options for `spark.read`; without topics, all but Kafka's own are read."""
        where = {"path": self.path} if self.path else {"kafka.bootstrap.servers": self.servers or ""}
        which = {"subscribe": ",".join(self.topics)} if self.topics else {"subscribePattern": ALL_TOPICS}
        return where | which | {f"kafka.{name}": value for name, value in self.client}


def source_options(command: Command) -> Callable[..., Any]:
    """`--path` or `--bootstrap-server`, `--topic`, `--command-config` and `--client`, as one argument `source`."""

    @wraps(command)
    def with_source(
        *arguments: Any,
        path: str | None,
        servers: str | None,
        topics: tuple[str, ...],
        client: tuple[tuple[str, str], ...],
        **others: Any,
    ) -> Any:
        if (path is None) == (servers is None):
            raise click.UsageError("give one of --path and --bootstrap-server")
        if client and servers is None:
            raise click.UsageError("--client and --command-config need --bootstrap-server")
        if servers is not None:
            require_connection(Bootstrap(servers, client))
        return command(*arguments, source=Source(path, servers, topics, client), **others)

    options = (
        path_option("The log directory to read; not one that a broker is writing to."),
        click.option("--bootstrap-server", "servers", metavar="HOST:PORT", type=servers_of, help="Read any Kafka."),
        click.option("--topic", "topics", metavar="NAME", multiple=True, help="A topic, or all. Can be repeated."),
        client_setting_options,
    )
    for option in reversed(options):
        with_source = option(with_source)
    return with_source


def path_option(help: str, *, required: bool = False) -> Callable[[Command], Command]:
    """`--path`, an existing directory, as argument `path`."""
    directory = click.Path(exists=True, file_okay=False, resolve_path=True)
    return click.option("--path", metavar="DIR", type=directory, required=required, help=help)


def spark_options(command: Command) -> Command:
    """`--master` and `--conf`, as arguments `master` and `conf`, for `spark_session`."""
    command = click.option(
        "--conf",
        metavar="NAME=VALUE",
        type=assignment_of,
        multiple=True,
        help="A setting of Spark, such as spark.driver.memory=4g. Can be repeated.",
    )(command)
    return click.option(
        "--master",
        metavar="URL",
        type=master_of,
        default="local[*]",
        show_default=True,
        help="Where Spark runs; by default on all cores of this machine.",
    )(command)


def master_of(text: str) -> str:
    """Validate a Spark master. Raises click.BadParameter, as the JVM would only print a page and end."""
    if MASTER.fullmatch(text) is None:
        raise click.BadParameter(f"{text!r} is not like local[2], yarn, spark://HOST:PORT or k8s://URL")
    return text


@contextmanager
def spark_session(
    master: str = "local[*]", conf: tuple[tuple[str, str], ...] = (), *, title: str = "", progress: bool = True
) -> Iterator[SparkSession]:
    """Start a Spark session for a command, with its progress on stderr if that is a terminal; stop it at the end.

    Raises click.ClickException with status 2 if Spark or Java is missing.
    """
    session = _imported_session()
    # It would print the stack of each call that Ctrl-C interrupts.
    logging.getLogger("py4j").addHandler(logging.NullHandler())
    with TemporaryDirectory(prefix="minibroker-spark-") as scratch:
        settings = {"spark.sql.warehouse.dir": str(Path(scratch, "warehouse")), **dict(conf)}
        if master.startswith("local"):
            settings.setdefault("spark.local.dir", scratch)
        with _starting():
            spark = session(master, log_level="off", **settings)
        try:
            if progress and sys.stderr.isatty():
                from minibroker.cli.pipeline.pipeline_progress import progress_of

                with progress_of(spark, title):
                    yield spark
            else:
                yield spark
        finally:
            spark.stop()


def _starting() -> AbstractContextManager[object]:
    """Report the start of the JVM on a terminal, as it takes seconds."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status("starting Spark")


def _imported_session() -> Callable[..., SparkSession]:
    try:
        import_module("minibroker.pipeline.sources")  # what the session registers, with its imports
        from minibroker.pipeline.session import session
    except ImportError as error:
        raise explained(error) from error
    return session


def explained(error: Exception) -> Exception:
    """Raise a job's error as one line with status 2, if the user can do something about it."""
    if isinstance(error, ImportError) and (error.name or "").split(".")[0] in EXTRA:
        return cannot(REMEDY)
    if isinstance(error, BrokenPipeError):
        return error  # the reader of the output has ended: click exits silently
    if isinstance(error, OSError):
        return cannot(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
    if type(error).__module__.split(".")[0] in ("minibroker", "pyspark", "py4j"):
        return cannot(reason_of(str(error)))
    return error


def cannot(message: str) -> click.ClickException:
    """Return a job's error as one line, with status 2."""
    return Cannot(one_line(message))
