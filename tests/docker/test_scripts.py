"""What the image's scripts do with variables, files and the commands of start scripts."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.docker.scripts import NEEDS_LINUX, RUN, announced, environment, running, unpacked

pytestmark = NEEDS_LINUX
LAUNCH = "etc/kafka/docker/launch"
# What `launch` turns into, instead of the broker: it tells its arguments and variables.
TELLER = """#!/usr/bin/env python3
import json, os, sys
told = {name: value for name, value in os.environ.items() if name.startswith(("KAFKA_", "MINIBROKER_"))}
print(json.dumps({"arguments": sys.argv[1:], "variables": told}))
"""

Told = Callable[..., dict[str, Any]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpacked(tmp_path)


@pytest.fixture
def told(root: Path, tmp_path: Path) -> Told:
    """Run `launch` with variables, and return what it hands to the broker."""
    teller = tmp_path / "bin" / "minibroker"
    teller.parent.mkdir()
    teller.write_text(TELLER)
    teller.chmod(0o755)

    def launched(**variables: str) -> dict[str, Any]:
        env = environment(variables)
        env["PATH"] = f"{teller.parent}:{env['PATH']}"
        done = subprocess.run([str(root / LAUNCH)], env=env, capture_output=True, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return launched


def run(root: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(root / script), *arguments], env=environment({}), capture_output=True, text=True)


def test_the_default_listens_on_all_addresses_and_advertises_localhost(told: Told) -> None:
    variables = told()["variables"]
    assert variables["KAFKA_LISTENERS"] == "PLAINTEXT://0.0.0.0:9092"
    assert variables["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://localhost:9092"
    assert variables["KAFKA_LOG_DIRS"].endswith("/var/lib/kafka/data")


def test_the_broker_listens_on_the_advertised_ports(told: Told) -> None:
    found = told(KAFKA_ADVERTISED_LISTENERS="INSIDE://kafka:9092,OUTSIDE://[::1]:19092")["variables"]
    assert found["KAFKA_LISTENERS"] == "INSIDE://0.0.0.0:9092,OUTSIDE://0.0.0.0:19092"


def test_the_entrypoint_keeps_listeners_that_are_given(told: Told) -> None:
    assert "KAFKA_ADVERTISED_LISTENERS" not in told(KAFKA_LISTENERS="PLAINTEXT://:1")["variables"]
    assert "KAFKA_LISTENERS" not in told(MINIBROKER_LISTENERS="PLAINTEXT://:1")["variables"]


def test_variables_of_bitnamis_image_are_accepted(told: Told) -> None:
    found = told(
        KAFKA_CFG_ADVERTISED_LISTENERS="A://kafka:9092", KAFKA_CFG_NUM_PARTITIONS="3", KAFKA_KRAFT_CLUSTER_ID="x"
    )
    variables = found["variables"]
    assert (variables["KAFKA_LISTENERS"], variables["KAFKA_NUM_PARTITIONS"]) == ("A://0.0.0.0:9092", "3")
    assert found["arguments"][-2:] == ["--cluster-id", "x"]
    assert not any("CFG" in name or "KRAFT" in name for name in variables)


def test_a_mounted_settings_file_replaces_the_defaults(root: Path, told: Told) -> None:
    file = root / "mnt/shared/config/server.properties"
    file.write_text("listeners=PLAINTEXT://:1\nlog.dirs=/elsewhere\n")
    found = told()
    assert str(file) in found["arguments"]
    assert found["variables"] == {}


def test_secrets_are_read_from_the_named_files(root: Path, told: Told) -> None:
    (root / "etc/kafka/secrets/creds").write_text("a b\n")
    found = told(KAFKA_SSL_KEYSTORE_FILENAME="k.p12", KAFKA_SSL_KEYSTORE_CREDENTIALS="creds")["variables"]
    assert found["KAFKA_SSL_KEYSTORE_LOCATION"] == str(root / "etc/kafka/secrets/k.p12")
    assert found["KAFKA_SSL_KEYSTORE_PASSWORD"] == "a b"
    assert not {"KAFKA_SSL_KEYSTORE_FILENAME", "KAFKA_SSL_KEYSTORE_CREDENTIALS"} & set(found)


@pytest.mark.parametrize(("level", "ours"), [("DEBUG", "debug"), ("WARN", "warning"), ("OFF", "error")])
def test_the_log_level_is_set_by_kafkas_variable(told: Told, level: str, ours: str) -> None:
    found = told(KAFKA_LOG4J_ROOT_LOGLEVEL=level)
    assert found["arguments"][-2:] == ["--log-level", ours]
    assert "KAFKA_LOG4J_ROOT_LOGLEVEL" not in found["variables"]


def test_additional_options_are_given_in_a_variable(told: Told) -> None:
    found = told(MINIBROKER_OPTIONS="--control 0.0.0.0:8082 --add-scram SCRAM-SHA-512=[name=a,password=b]")
    assert found["arguments"][-4:] == ["--control", "0.0.0.0:8082", "--add-scram", "SCRAM-SHA-512=[name=a,password=b]"]
    assert "MINIBROKER_OPTIONS" not in found["variables"]


def test_the_cluster_id_is_set_by_an_environment_variable_or_the_format_command(root: Path, told: Told) -> None:
    assert told(CLUSTER_ID="4L6g3nShT-eMCtK--X86sw")["arguments"][-2:] == ["--cluster-id", "4L6g3nShT-eMCtK--X86sw"]
    scram = "SCRAM-SHA-256=[name=a,password=b]"
    storage = "opt/kafka/bin/kafka-storage"
    shutil.copy(root / "opt/kafka/bin/tool", root / storage)
    options = ["--ignore-formatted", "-t", "some-id==", "-c", "/etc/kafka/kafka.properties", "--add-scram", scram]
    assert run(root, storage, "format", *options).returncode == 0
    assert told(CLUSTER_ID="another")["arguments"][-2:] == ["--cluster-id=some-id==", f"--add-scram={scram}"]


def test_format_rejects_unsupported_options(root: Path) -> None:
    shutil.copy(root / "opt/kafka/bin/tool", root / "opt/kafka/bin/kafka-storage.sh")
    done = run(root, "opt/kafka/bin/kafka-storage.sh", "format", "--feature", "x")
    assert (done.returncode, done.stderr) == (1, "kafka-storage format: there is no option --feature in this image\n")


def test_kafkas_topic_tools_are_imitated_as_far_as_compose_files_call_them(root: Path) -> None:
    bin = root / "opt/kafka/bin"
    for name in ("kafka-topics.sh", "kafka-broker-api-versions", "cub"):
        shutil.copy(bin / "tool", bin / name)

    def topics(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run(root, "opt/kafka/bin/kafka-topics.sh", "--bootstrap-server", server, *arguments)

    with running(root, {}) as lines:
        server = announced(lines)
        assert run(root, "opt/kafka/bin/cub", "kafka-ready", "-b", server, "1", "20").returncode == 0
        assert run(root, "opt/kafka/bin/kafka-broker-api-versions", f"--bootstrap-server={server}").returncode == 0
        created = topics("--create", "--topic", "a", "--partitions", "2", "--config=cleanup.policy=compact")
        assert (created.returncode, created.stdout) == (0, "Created topic a.\n")
        assert topics("--create", "--topic=a").returncode == 1
        assert topics("--create", "--topic=a", "--if-not-exists").returncode == 0
        assert topics("--list").stdout == "a\n"
        assert topics("--delete", "--topic=b", "--if-exists").returncode == 0
        assert topics("--delete", "--topic=a").returncode == 0
        assert topics("--list").stdout == ""
    assert run(root, "opt/kafka/bin/cub", "kafka-ready", "-b", server, "1", "0").returncode == 1
    unknown = topics("--unavailable-partitions")
    assert "there is no option --unavailable-partitions" in unknown.stderr and unknown.stderr.count("\n") == 1


def test_missing_tools_name_the_replacing_command(root: Path) -> None:
    shutil.copy(root / "opt/kafka/bin/tool", root / "opt/kafka/bin/kafka-acls.sh")
    missing = run(root, "opt/kafka/bin/kafka-acls.sh", "--list")
    assert (missing.returncode, missing.stderr) == (1, "kafka-acls is not in this image; see: minibroker acls\n")


def test_random_cluster_ids_have_kafkas_form(root: Path) -> None:
    shutil.copy(root / "opt/kafka/bin/tool", root / "opt/kafka/bin/kafka-storage")
    first, second = (run(root, "opt/kafka/bin/kafka-storage", "random-uuid").stdout.strip() for _ in range(2))
    assert len(first) == len(second) == 22 and first != second
    assert not first.startswith("-")


def test_log_lines_that_other_programs_await_appear_once_clients_can_connect(root: Path) -> None:
    variables = {"CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw", "KAFKA_NODE_ID": "7", "KAFKA_SCHEMA_REGISTRY_URL": "none"}
    variables["KAFKA_HEAP_OPTS"] = "-Xmx1g"
    with running(root, variables) as lines:
        host, _, port = announced(lines).rpartition(":")
        socket.create_connection((host, int(port))).close()
        assert run(root, "etc/kafka/docker/healthy").returncode == 0
    text = "\n".join(lines)
    assert "environment variable KAFKA_HEAP_OPTS has no effect: there is no JVM" in text
    assert "KAFKA_SCHEMA_REGISTRY_URL has no effect: unknown setting schema.registry.url" in text
    assert "Transitioning from RECOVERY to RUNNING. (kafka.server.BrokerLifecycleManager)" in text
    assert "] INFO [KafkaServer id=7] started (kafka.server.KafkaServer)" in text
    assert "cluster.id=4L6g3nShT-eMCtK--X86sw" in (root / "var/lib/kafka/data/meta.properties").read_text()


def test_a_container_without_a_listening_broker_is_unhealthy(root: Path) -> None:
    assert run(root, "etc/kafka/docker/healthy").returncode != 0


def test_an_invalid_setting_in_an_argument_of_the_run_script_ends_the_container(root: Path) -> None:
    done = run(root, RUN, "KAFKA_NUM_PARTITIONS=no")
    assert done.returncode == 2
    assert "environment variable KAFKA_NUM_PARTITIONS: Invalid value no" in done.stdout
