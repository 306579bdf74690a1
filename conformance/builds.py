"""Builds the client programs and fetches Apache Kafka's jars, each once and into folders that git ignores.

Running them lives in `clients` and `kafka_reference`. A file lock keeps parallel test processes from building twice.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from conformance.maven import QUICK_JAVA, run_maven
from tests.class_archives import locked

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
GO_CASES = PROGRAMS / "cases"  # what the programs in Go share
SPARK_CONNECTOR = HERE / "spark" / "connector"
CLUSTER = HERE / "pipeline_cluster"
JAVA = ("java", *QUICK_JAVA)
# Without optimising, Go builds a program and its own library in half of the CPU time.
QUICK_GO = "-gcflags=all=-N -l"
APACHE_KAFKA = os.environ.get("KAFKA_VERSION", "4.4.0")  # the release whose server is asked


@functools.cache
def apache_kafka() -> Path:
    """The folder with the jars of an Apache Kafka server."""
    command = ["mvn", f"-Dkafka.version={APACHE_KAFKA}", "dependency:copy-dependencies"]
    _build(HERE / "apache_kafka", command, APACHE_KAFKA)
    return HERE / "apache_kafka" / "target" / APACHE_KAFKA / "jars"


@functools.cache
def authorizer(version: str) -> Path:
    """The folder with the jars of Kafka's authorizer, of this release."""
    _build(HERE / "authorizer", ["mvn", f"-Dkafka.version={version}", "dependency:copy-dependencies"], version)
    return HERE / "authorizer" / "target" / version / "jars"


@functools.cache
def group_coordinator() -> Path:
    """The folder with the jars of Kafka's group coordinator."""
    _build(HERE / "assignor", ["mvn", "dependency:copy-dependencies"], "group-coordinator")
    return HERE / "assignor" / "target" / "jars"


@functools.cache
def oauth_server() -> Path:
    """The folder with the jars of an issuer of tokens."""
    _build(HERE / "oauth_server", ["mvn", "dependency:copy-dependencies"], "oauth-server")
    return HERE / "oauth_server" / "target" / "jars"


@functools.cache
def released_jars() -> Path:
    """The folder with the jars of each release that is emulated."""
    _build(HERE / "emulation", ["mvn", "dependency:copy"], "jars")
    return HERE / "emulation" / "target" / "jars"


@functools.cache
def java(version: str) -> str:
    """The class path of the program with this version of kafka-clients."""
    target = PROGRAMS / "java" / "target" / version
    command = ["mvn", f"-Dkafka.version={version}", "compile", "dependency:copy-dependencies"]
    packing = ["jar", "--create", "--file", str(target / "program.jar"), "-C", str(target / "classes"), "."]
    _build(PROGRAMS / "java", command, f"{version}.jar", after=packing)
    return f"{target / 'program.jar'}:{target / 'jars'}/*"  # no folder of classes: they would not be archived


@functools.cache
def java_admin() -> str:
    """The class path of the program that calls every method of the admin API."""
    _build(PROGRAMS / "java_admin", ["mvn", "compile", "dependency:copy-dependencies"], "java-admin")
    target = PROGRAMS / "java_admin" / "target" / "4.4.0"
    return f"{target / 'classes'}:{target / 'jars'}/*"


@functools.cache
def kafka_streams(version: str) -> str:
    """The class path of the application with this version of Kafka Streams."""
    command = ["mvn", f"-Dkafka.version={version}", "compile", "dependency:copy-dependencies"]
    _build(PROGRAMS / "kafka_streams", command, version)
    target = PROGRAMS / "kafka_streams" / "target" / version
    return f"{target / 'classes'}:{target / 'jars'}/*"


@functools.cache
def kafka_tests() -> Path:
    """The folder with Apache Kafka's own integration tests, what they need, and the harness that runs them."""
    folder = HERE / "kafka_tests"
    compiling = "javac -nowarn -d target/classes -cp 'target/jars/*:target/tests/*' src/harness/*.java"
    packing = "jar --create --file target/harness.jar --manifest manifest -C target/classes . -C resources ."
    after = ["sh", "-c", f"rm -rf target/classes && {compiling} && {packing}"]
    _build(folder, ["mvn", "generate-resources"], "kafka-tests", after=after)
    return folder / "target"


@functools.cache
def old_java(version: str) -> str:
    """The class path of the programs with this version of kafka-clients, one of those that their `pom.xml` lists."""
    command = ["mvn", "compile", "dependency:copy-dependencies"]
    _build(PROGRAMS / "old_java", command, "old-java", before=[sys.executable, "modules.py"])
    target = PROGRAMS / "old_java" / "target" / version
    return f"{target / 'classes'}:{target / 'jars'}/*"


@functools.cache
def franz_go() -> Path:
    """The program."""
    _build(PROGRAMS / "franz_go", ["go", "build", QUICK_GO, "-o", "target/franz-go", "."], "franz-go", GO_CASES)
    return PROGRAMS / "franz_go" / "target" / "franz-go"


@functools.cache
def sarama() -> Path:
    """The program."""
    _build(PROGRAMS / "sarama", ["go", "build", QUICK_GO, "-o", "target/sarama", "."], "sarama", GO_CASES)
    return PROGRAMS / "sarama" / "target" / "sarama"


@functools.cache
def kafkajs() -> Path:
    """The program, with its libraries installed beside it."""
    _build(PROGRAMS / "kafkajs", ["npm", "ci"], "node_modules")
    return PROGRAMS / "kafkajs" / "main.js"


@functools.cache
def registry_client(name: str) -> list[str]:
    """The command of the program in this folder, which asks a schema registry with other clients."""
    folder = HERE / "registry" / name
    match name:
        case "go":
            _build(folder, ["go", "build", QUICK_GO, "-o", "target/registry-client", "."], "registry-client")
            return [str(folder / "target" / "registry-client")]
        case "java":
            _build(folder, ["mvn", "compile", "dependency:copy-dependencies"], name)
            return [*JAVA, "-cp", f"{folder}/target/classes:{folder}/target/jars/*", "conformance.Main"]
        case "python":
            return _python_program(folder)
        case _:
            _build(folder, ["npm", "ci", "--ignore-scripts"], "node_modules")
            return ["node", str(folder / "main.js")]


def _python_program(folder: Path) -> list[str]:
    """The command of a program in Python, with libraries that our own environment does not have."""
    return ["env", f"PYTHONPATH={_site(folder)}", sys.executable, str(folder / "main.py")]


def _site(folder: Path) -> Path:
    """The folder into which the packages of a folder's requirements are installed."""
    _build(folder, [*get_installer("target/site"), "-r", "requirements.txt"], "site")
    return folder / "target" / "site"


def get_installer(folder: str) -> list[str]:
    """Return the start of the command that installs packages into a folder: uv's, which takes a tenth of pip's CPU."""
    if shutil.which("uv") is None:
        return [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", folder]
    return ["uv", "pip", "install", "--quiet", "--python", sys.executable, "--target", folder]


@functools.cache
def axe() -> Path:
    """The script that checks a page for accessibility."""
    _build(HERE / "explorer", ["npm", "ci"], "node_modules")
    return HERE / "explorer" / "node_modules" / "axe-core" / "axe.min.js"


@functools.cache
def spark_connector() -> list[Path]:
    """The jars of Spark's own Kafka connector: of the installed pyspark's version, or the newest that is to be had.

    A connector and a pyspark of different versions go together as long as Spark's internal interfaces stay.
    """
    from pyspark import __version__

    for connector, tokens in ((__version__, __version__), *SPARK_CONNECTORS):
        versions = [f"-Dconnector.version={connector}", f"-Dtoken.version={tokens}"]
        try:
            _build(SPARK_CONNECTOR, ["mvn", *versions, "dependency:copy-dependencies"], connector)
        except RuntimeError as error:
            missing = error
        else:
            return sorted((SPARK_CONNECTOR / "target" / connector).glob("*.jar"))
    raise missing


@functools.cache
def kafka_connect() -> Path:
    """The folder with the jars of Kafka Connect, its connectors to files, and MirrorMaker."""
    folder = HERE / "connect"
    _build(folder, ["mvn", "dependency:copy-dependencies"], "connect")
    return folder / "target" / "jars"


@functools.cache
def debezium() -> Path:
    """The folder with the jars of Debezium's connector of PostgreSQL."""
    folder = HERE / "connect" / "debezium"
    _build(folder, ["mvn", "dependency:copy-dependencies"], "debezium")
    return folder / "target" / "jars"


@functools.cache
def spark_release(version: str) -> Path:
    """The folder with another release of Spark: `4.2`."""
    return _site(HERE / "spark" / "releases" / version)


@functools.cache
def notebook() -> Path:
    """The folder with the packages of a notebook's kernel, and of a client of Spark Connect."""
    return _site(HERE / "spark" / "notebook")


@functools.cache
def hadoop(name: Literal["s3", "hadoop"]) -> list[Path]:
    """The jars of Hadoop's file system of S3, or of HDFS and YARN, of the release that is among pyspark's jars."""
    import pyspark

    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    folder = CLUSTER / name
    _build(folder, ["mvn", f"-Dhadoop.version={version}", "dependency:copy-dependencies"], version)
    return sorted((folder / "target" / version).glob("*.jar"))


@functools.cache
def hdfs_client() -> Path:
    """The folder with the packages of a client of HDFS."""
    return _site(CLUSTER / "hadoop")


@functools.cache
def moto() -> Path:
    """The folder with the packages of a server of S3."""
    return _site(CLUSTER / "s3")


@functools.cache
def container_program(language: str) -> list[str]:
    """The command of the program that starts the image by Testcontainers of this language."""
    folder = HERE / "image" / "programs" / language
    match language:
        case "java" | "spring":
            _build(folder, ["mvn", "compile", "dependency:copy-dependencies"], language)
            return [*JAVA, "-cp", f"{folder}/target/classes:{folder}/target/jars/*", "conformance.Main"]
        case "go":
            _build(folder, ["go", "build", QUICK_GO, "-o", "target/testcontainers", "."], language)
            return [str(folder / "target" / "testcontainers")]
        case "node":
            _build(folder, ["npm", "ci"], "node_modules")
            return ["node", str(folder / "main.js")]
        case _:
            return _python_program(folder)


# The version of the connector, and that of its small library for delegation tokens: not all are everywhere.
SPARK_CONNECTORS = (("4.2.0", "4.2.0"), ("4.2.0", "4.0.0"))


def _build(
    folder: Path,
    command: Sequence[str],
    name: str,
    *others: Path,
    before: Sequence[str] = (),
    after: Sequence[str] = (),
) -> None:
    """Runs the commands unless they succeeded since the last change in the folder, or in the others that they need.

    Raises RuntimeError with the output of the one that failed.
    """
    target = folder / "target"
    target.mkdir(exist_ok=True)
    with locked(target / "lock"):
        done = target / f"{name}.done"
        if done.exists() and done.stat().st_mtime > max(map(_newest_source, (folder, *others))):
            return
        for step in filter(None, (before, command, after)):
            _run(folder, step)
        done.touch()


def _run(folder: Path, command: Sequence[str]) -> None:
    if command[0] == "mvn":
        run_maven(folder, command[1:])
        return
    result = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} in {folder} failed:\n{result.stdout[-4000:]}")


def _newest_source(folder: Path) -> float:
    built = {"target", "node_modules"}
    files = (file for file in folder.rglob("*") if file.is_file() and not built & set(file.relative_to(folder).parts))
    return max(file.stat().st_mtime for file in files)
