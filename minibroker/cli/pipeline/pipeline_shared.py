"""What the jobs' commands share: which log, a Spark session, its progress on stderr, and Spark's errors in one line.

Nothing of the extra `minibroker[spark]` is imported before a session is asked for, so that `--help` works without it.
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

from minibroker.cli.shared import assignment_of, one_line, require_connection, servers_of
from minibroker.pipeline.spark_errors import reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Command = TypeVar("Command", bound=Callable[..., Any])

EXTRA: Final = ("pyspark", "pyarrow", "numpy", "pandas", "kafka")
REMEDY: Final = "the pipeline needs Spark: python3 -m pip install 'minibroker[spark]'"
ALL_TOPICS: Final = ".*"
MASTER: Final = re.compile(r"local(\[[^\]]+\]|-cluster\[[^\]]+\])?|yarn|(spark|k8s)://.+")


class Cannot(click.ClickException):
    """An error of a job that cannot be done; status 1 is for what a job finds to be wrong."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Source:
    """The log that a command reads: a directory or a broker, and which topics of it (none: all)."""

    path: str | None
    servers: str | None
    topics: tuple[str, ...]
    client: tuple[tuple[str, str], ...]

    def options(self) -> dict[str, str]:
        """The options for `spark.read`; where no topic is named, all are read but Kafka's own."""
        where = {"path": self.path} if self.path else {"kafka.bootstrap.servers": self.servers or ""}
        which = {"subscribe": ",".join(self.topics)} if self.topics else {"subscribePattern": ALL_TOPICS}
        return where | which | {f"kafka.{name}": value for name, value in self.client}


def source_options(command: Command) -> Callable[..., Any]:
    """`--path` or `--bootstrap-server`, `--topic` and `--client`, as one argument `source`."""

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
            raise click.UsageError("--client is for --bootstrap-server")
        if servers is not None:
            require_servers(servers)
        return command(*arguments, source=Source(path, servers, topics, client), **others)

    options = (
        path_option("The log directory to read; not one that a broker is writing to."),
        click.option("--bootstrap-server", "servers", metavar="HOST:PORT", type=servers_of, help="Read any Kafka."),
        click.option("--topic", "topics", metavar="NAME", multiple=True, help="A topic, or all. Can be repeated."),
        client_option(),
    )
    for option in reversed(options):
        with_source = option(with_source)
    return with_source


def require_servers(servers: str) -> None:
    """Raise click.ClickException, status 2, if nobody listens there: before a JVM is started and a minute is waited."""
    try:
        require_connection(servers)
    except click.ClickException as error:
        raise cannot(error.message) from None


def path_option(help: str, *, required: bool = False) -> Callable[[Command], Command]:
    """`--path`, an existing directory, as argument `path`."""
    directory = click.Path(exists=True, file_okay=False, resolve_path=True)
    return click.option("--path", metavar="DIR", type=directory, required=required, help=help)


def client_option() -> Callable[[Command], Command]:
    """`--client`, as argument `client`: pairs of a name and a value."""
    return click.option(
        "--client",
        "client",
        metavar="NAME=VALUE",
        type=assignment_of,
        multiple=True,
        help="A setting of Kafka's Java client, as for TLS and SASL. Can be repeated.",
    )


def spark_options(command: Command) -> Command:
    """`--master` and `--conf`, as arguments `master` and `conf`, for `spark_session`."""
    command = click.option(
        "--conf",
        metavar="NAME=VALUE",
        type=assignment_of,
        multiple=True,
        help="A setting of Spark, as spark.driver.memory=4g. Can be repeated.",
    )(command)
    return click.option(
        "--master",
        metavar="URL",
        type=master_of,
        default="local[*]",
        show_default=True,
        help="Where Spark runs; all cores here.",
    )(command)


def master_of(text: str) -> str:
    """Where Spark runs, as it writes that. Raises click.BadParameter: the JVM would print a page and end."""
    if MASTER.fullmatch(text) is None:
        raise click.BadParameter(f"{text!r} is not like local[2], yarn, spark://HOST:PORT or k8s://URL")
    return text


@contextmanager
def spark_session(
    master: str = "local[*]", conf: tuple[tuple[str, str], ...] = (), *, title: str = "", progress: bool = True
) -> Iterator[SparkSession]:
    """A Spark session for one command, with its progress on stderr if that is a terminal; stopped at the end.

    Raises click.ClickException with status 2 where Spark or Java is missing.
    """
    session = _imported_session()
    # It would print the stack of every call that Ctrl-C interrupts.
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
    """Say on a terminal what is waited for: the start of a JVM takes seconds."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status("starting Spark")


def _imported_session() -> Callable[..., SparkSession]:
    try:
        import_module("minibroker.pipeline.sources")  # what the session registers, and all that it needs
        from minibroker.pipeline.session import session
    except ImportError as error:
        raise explained(error) from error
    return session


def explained(error: Exception) -> Exception:
    """An error of a job as one line with status 2, if it is one that its user can do something about."""
    if isinstance(error, ImportError) and (error.name or "").split(".")[0] in EXTRA:
        return cannot(REMEDY)
    if isinstance(error, BrokenPipeError):
        return error  # who read our output has enough: click ends without a word
    if isinstance(error, OSError):
        return cannot(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
    if type(error).__module__.split(".")[0] in ("minibroker", "pyspark", "py4j"):
        return cannot(reason_of(str(error)))
    return error


def cannot(message: str) -> click.ClickException:
    """Return the error for what a job cannot do, in one line, status 2."""
    return Cannot(one_line(message))
