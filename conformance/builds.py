"""Builds the client programs and fetches Apache Kafka's jars, each once and into folders that git ignores.

Running them lives in `clients` and `kafka_reference`. A file lock keeps parallel test processes from building twice.
"""

from __future__ import annotations

import fcntl
import functools
import subprocess
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
SPARK_CONNECTOR = HERE / "spark" / "connector"
APACHE_KAFKA = "4.3.1"  # the release whose server is asked


@functools.cache
def apache_kafka() -> Path:
    """The folder with the jars of an Apache Kafka server."""
    command = [*MAVEN, f"-Dkafka.version={APACHE_KAFKA}", "dependency:copy-dependencies"]
    _build(HERE / "apache_kafka", command, APACHE_KAFKA)
    return HERE / "apache_kafka" / "target" / APACHE_KAFKA / "jars"


@functools.cache
def authorizer(version: str) -> Path:
    """The folder with the jars of Kafka's authorizer, of this release."""
    _build(HERE / "authorizer", [*MAVEN, f"-Dkafka.version={version}", "dependency:copy-dependencies"], version)
    return HERE / "authorizer" / "target" / version / "jars"


@functools.cache
def oauth_server() -> Path:
    """The folder with the jars of an issuer of tokens."""
    _build(HERE / "oauth_server", [*MAVEN, "dependency:copy-dependencies"], "oauth-server")
    return HERE / "oauth_server" / "target" / "jars"


@functools.cache
def released_jars() -> Path:
    """The folder with the jars of each release that is emulated."""
    _build(HERE / "emulation", [*MAVEN, "dependency:copy"], "jars")
    return HERE / "emulation" / "target" / "jars"


@functools.cache
def java(version: str) -> str:
    """The class path of the program with this version of kafka-clients."""
    command = [*MAVEN, f"-Dkafka.version={version}", "compile", "dependency:copy-dependencies"]
    _build(PROGRAMS / "java", command, version)
    target = PROGRAMS / "java" / "target" / version
    return f"{target / 'classes'}:{target / 'jars'}/*"


@functools.cache
def java_admin() -> str:
    """The class path of the program that calls every method of the admin API."""
    _build(PROGRAMS / "java_admin", [*MAVEN, "compile", "dependency:copy-dependencies"], "java-admin")
    target = PROGRAMS / "java_admin" / "target" / "4.4.0"
    return f"{target / 'classes'}:{target / 'jars'}/*"


@functools.cache
def old_java(version: str) -> str:
    """The class path of the programs with this version of kafka-clients, 0.8.2.2 or newer."""
    command = [*MAVEN, f"-Dkafka.version={version}", "compile", "dependency:copy-dependencies"]
    if version.startswith("0.8."):
        command += ["-Dkafka.artifact=kafka_2.11", "-Dreader=OldReader"]
    _build(PROGRAMS / "old_java", command, version)
    target = PROGRAMS / "old_java" / "target" / version
    return f"{target / 'classes'}:{target / 'jars'}/*"


@functools.cache
def franz_go() -> Path:
    """The program."""
    _build(PROGRAMS / "franz_go", ["go", "build", "-o", "target/franz-go", "."], "franz-go")
    return PROGRAMS / "franz_go" / "target" / "franz-go"


@functools.cache
def sarama() -> Path:
    """The program."""
    _build(PROGRAMS / "sarama", ["go", "build", "-o", "target/sarama", "."], "sarama")
    return PROGRAMS / "sarama" / "target" / "sarama"


@functools.cache
def kafkajs() -> Path:
    """The program, with its libraries installed beside it."""
    _build(PROGRAMS / "kafkajs", ["npm", "ci"], "node_modules")
    return PROGRAMS / "kafkajs" / "main.js"


@functools.cache
def spark_connector() -> list[Path]:
    """The jars of Spark's own Kafka connector: of the installed pyspark's version, or the newest that is to be had.

    A connector and a pyspark of different versions go together as long as Spark's internal interfaces stay.
    """
    from pyspark import __version__

    for connector, tokens in ((__version__, __version__), *SPARK_CONNECTORS):
        versions = [f"-Dconnector.version={connector}", f"-Dtoken.version={tokens}"]
        try:
            _build(SPARK_CONNECTOR, [*MAVEN, *versions, "dependency:copy-dependencies"], connector)
        except RuntimeError as error:
            missing = error
        else:
            return sorted((SPARK_CONNECTOR / "target" / connector).glob("*.jar"))
    raise missing


# The version of the connector, and that of its small library for delegation tokens: not all are everywhere.
SPARK_CONNECTORS = (("4.2.0", "4.2.0"), ("4.2.0", "4.0.0"))
MAVEN = ["mvn", "-q", "-B"]


def _build(folder: Path, command: Sequence[str], name: str) -> None:
    """Runs the command unless it succeeded since the last change in the folder. Raises RuntimeError with its output."""
    target = folder / "target"
    target.mkdir(exist_ok=True)
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = target / f"{name}.done"
        if done.exists() and done.stat().st_mtime > _newest_source(folder):
            return
        result = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} in {folder} failed:\n{result.stdout[-4000:]}")
        done.touch()


def _newest_source(folder: Path) -> float:
    built = {"target", "node_modules"}
    files = (file for file in folder.rglob("*") if file.is_file() and not built & set(file.relative_to(folder).parts))
    return max(file.stat().st_mtime for file in files)
