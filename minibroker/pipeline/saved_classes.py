"""Saves the classes that Spark's JVM loads, so that later sessions start with half of the CPU.

A JVM that has such an archive (class data sharing, JEP 310) maps it, instead of reading, checking and linking 25,000
classes of 300 jars. It leaves an archive alone that is of other jars or of another Java.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from minibroker.pipeline.java import Java, JavaError, find_java
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from minibroker.storage.names import LOG_SUFFIX, log_name, segment_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUFFIX: Final = ".jsa"
TOPIC: Final = "sample"
QUIET: Final = "-Xlog:disable"  # or a JVM complains of an archive that does not fit, and of classes it cannot archive
ERRORS: Final = "-Xlog:all=error"
END_TIMEOUT_S: Final = 60


def archive_path(java: Java) -> Path:
    """Return where the archive is of this Java and of the installed Spark: in the user's directory of caches."""
    import pyspark

    installed = f"{java.program.resolve()}\n{Path(pyspark.__file__).parent}\n{sys.prefix}"
    name = f"spark-{pyspark.__version__}-java-{java.version}-{crc32(installed.encode()):08x}{SUFFIX}"
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches, "minibroker", name)


def java_options(java: Java) -> tuple[str, ...]:
    """Return the options with which a JVM uses the archive, or none if there is no archive."""
    path = archive_path(java)
    return (QUIET, f"-XX:SharedArchiveFile={path}") if path.exists() else ()


def save_classes(session: Callable[..., SparkSession]) -> Path:
    """Run Spark on a small log, and write the archive of what its JVM has loaded. The process can start no other JVM.

    `session` makes one of the pipeline's sessions. Raises `JavaError` and `OSError`.
    """
    import pyspark

    java = find_java(pyspark.__version__)
    path = archive_path(java)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="minibroker-classes-") as scratch:
        loaded, part = Path(scratch, "classes"), path.with_suffix(".part")
        class_path = _run_spark(session, Path(scratch), f"-XX:DumpLoadedClassList={loaded}")
        dump = ("-Xshare:dump", f"-XX:SharedClassListFile={loaded}", f"-XX:SharedArchiveFile={part}")
        run = subprocess.run([java.program, QUIET, ERRORS, *dump, "-cp", class_path], capture_output=True, text=True)
        if run.returncode:
            raise JavaError(f"Java writes no archive of classes: {(run.stderr or run.stdout).strip()}")
        part.replace(path)  # at once, so that no JVM sees a part of it
    return path


def _run_spark(session: Callable[..., SparkSession], scratch: Path, java_option: str) -> str:
    """Do in a session what jobs do, and end its JVM. Returns the JVM's class path."""
    from pyspark import SparkContext

    _write_log(scratch)
    settings = {
        "spark.driver.extraJavaOptions": java_option,
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    spark = session("local[2]", log_level="off", **settings)
    gateway: Any = SparkContext._gateway
    class_path: str = gateway.jvm.System.getProperty("java.class.path")
    _query(spark, scratch)
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # for which the JVM waits, before it ends and has written its list
    gateway.proc.wait(END_TIMEOUT_S)
    return class_path


def _write_log(directory: Path) -> None:
    partition = directory / log_name(TOPIC, 0)
    partition.mkdir()
    records = [Record(offset, 0, b"key", b"value", ()) for offset in range(3)]
    (partition / f"{segment_name(0)}{LOG_SUFFIX}").write_bytes(build_batch(records))


def _query(spark: SparkSession, scratch: Path) -> None:
    """Read, group, sort and write, as a batch and as a stream."""
    from pyspark.sql import functions as F

    options = {"path": str(scratch), "subscribe": TOPIC}
    batches = spark.read.format("minibroker-batches").options(**options).load()
    batches.groupBy("topic").agg(F.count("*"), F.max("sizeInBytes")).orderBy("topic").collect()
    stream = spark.readStream.format("minibroker").options(**options).load()
    writer = stream.writeStream.option("checkpointLocation", str(scratch / "checkpoint")).trigger(availableNow=True)
    query = writer.foreachBatch(lambda rows, _: rows.write.parquet(str(scratch / "rows"))).start()
    query.awaitTermination()
    rows = spark.read.parquet(str(scratch / "rows"))
    rows.mapInArrow(lambda tables: tables, rows.schema).collect()
