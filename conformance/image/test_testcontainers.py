"""The image in the place of Kafka's images, in Testcontainers of six languages.

Testcontainers of Java (also by Spring Boot), Go, Node and Python run as they are, beside an engine of our own
(`engine.py`) that makes the image from its Dockerfile. Those of .NET and Rust cannot run here: their calls are repeated
as their sources have them.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from conformance.builds import container_program
from conformance.image.engine_client import EngineClient, running_engine
from tests.certificates import Authority
from tests.running import PATIENCE_S

pytestmark = pytest.mark.minibroker_only
# What each program starts, one container after the other, and all of them at once.
KINDS = {
    "java": ("apache/kafka", "apache/kafka-native", "confluent"),
    "spring": ("apache/kafka",),
    "go": ("confluent",),
    "node": ("kraft", "zookeeper"),
    "python": ("kraft", "zookeeper"),
}
LISTENERS = "PLAINTEXT://:9092,BROKER://:9093,CONTROLLER://:9094"
PROTOCOLS = "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
KRAFT = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": PROTOCOLS,
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_BROKER_ID": "1",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
}
DOTNET = KRAFT | {
    "KAFKA_LISTENERS": LISTENERS,
    "KAFKA_NODE_ID": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}
RUST = KRAFT | {
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,BROKER://0.0.0.0:9093,CONTROLLER://0.0.0.0:9094",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092,BROKER://localhost:9092",
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The engine, as DOCKER_HOST has it."""
    with running_engine(tmp_path_factory.mktemp("engine")) as address:
        yield address


@pytest.fixture
def engine(address: str) -> EngineClient:
    return EngineClient(address)


@contextmanager
def started(address: str, command: list[str], kinds: tuple[str, ...], **more: str) -> Iterator[list[str]]:
    """Run a program until the block ends; where clients connect to the container of each kind."""
    environment = (
        os.environ
        | more
        | {
            "DOCKER_HOST": address,
            "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
            "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
            "TESTCONTAINERS_RYUK_DISABLED": "true",
        }
    )
    process = subprocess.Popen(
        [*command, *kinds], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    with process:
        try:
            servers = [process.stdout.readline().strip() for _ in kinds]
            assert all(servers), "the program ended; its stderr says why"
            yield servers
            process.stdin.close()
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


def check_written_and_read(servers: str, **login: str) -> None:
    """Check that a record comes back; clients are sent to the advertised listener in between."""
    settings = {"bootstrap.servers": servers} | {name.replace("_", "."): value for name, value in login.items()}
    producer = Producer(settings)
    producer.produce("written", b"through the container")
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer(settings | {"group.id": "readers", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["written"])
        message = consumer.poll(PATIENCE_S)
        assert message is not None and message.error() is None
        assert message.value() == b"through the container"
    finally:
        consumer.close()


@pytest.mark.parametrize("language", KINDS)
def test_testcontainers_starts_the_image_and_clients_use_the_published_port(address: str, language: str) -> None:
    with started(address, container_program(language), KINDS[language]) as servers:
        for each in servers:
            check_written_and_read(each)


def test_testcontainers_for_nodejs_creates_a_user_and_a_tls_listener(address: str, tmp_path: Path) -> None:
    authority, keystore = Authority(), tmp_path / "keystore"
    keystore.write_bytes(authority.sign().pkcs12("changeit", authority.own.certificate))
    login = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "alice"}
    login["ssl_ca_pem"] = authority.pem
    with started(address, container_program("node"), ("secured",), KEYSTORE=str(keystore)) as (servers,):
        check_written_and_read(servers, sasl_password="alice-secret", **login)


@pytest.mark.parametrize("directory", ["/etc/kafka/docker", "/etc/confluent/docker"])
def test_testcontainers_for_dotnet_recognizes_the_started_broker_by_its_log(
    engine: EngineClient, directory: str
) -> None:
    start = "/testcontainers.sh"
    wait = f"while [ ! -f {start} ]; do sleep 0.1; done; {start}"
    with engine.container(DOTNET, (9092, 9093), Entrypoint=["/bin/sh", "-c"], Cmd=[wait]) as container:
        port = engine.port(container, 9092)
        advertised = f"PLAINTEXT://127.0.0.1:{port},BROKER://127.0.0.1:9093"
        script = f"#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS={advertised}\nexec {directory}/run\n"
        engine.copy(container, start, script)
        engine.await_line(container, ".*Transitioning from RECOVERY to RUNNING.*")
        check_written_and_read(f"127.0.0.1:{port}")


def test_testcontainers_for_rust_recognizes_the_started_broker_by_stdout(engine: EngineClient) -> None:
    start = "/opt/kafka/testcontainers_start.sh"
    wait = f"while [ ! -f {start}  ]; do sleep 0.1; done; chmod 755 {start} && {start}"
    with engine.container(RUST, (9092,), Entrypoint=["bash"], Cmd=["-c", wait]) as container:
        port = engine.port(container, 9092)
        advertised = f"PLAINTEXT://127.0.0.1:{port},BROKER://localhost:9093"
        script = f"#!/usr/bin/env bash\nexport KAFKA_ADVERTISED_LISTENERS={advertised}\n/etc/kafka/docker/run \n"
        assert engine.run(container, "sh", "-c", f"echo '{script}' > {start}") == (0, "")
        engine.await_line(container, "Kafka Server started")
        check_written_and_read(f"127.0.0.1:{port}")


def test_clients_outside_and_inside_the_container_network_connect(engine: EngineClient) -> None:
    wait = "while [ ! -f /tmp/advertised ]; do sleep 0.1; done; exec /etc/kafka/docker/run $(cat /tmp/advertised)"
    with engine.container(DOTNET, (9092,), Cmd=["sh", "-c", wait]) as container:
        port, name = engine.port(container, 9092), engine.hostname(container)
        advertised = f"PLAINTEXT://127.0.0.1:{port},BROKER://{name}:9093"
        engine.copy(container, "/tmp/advertised", f"KAFKA_ADVERTISED_LISTENERS={advertised}")
        engine.await_line(container, "minibroker listens on")
        check_written_and_read(f"127.0.0.1:{port}")
        status, printed = engine.run(
            container, "minibroker", "consume", "written", "--bootstrap-server", f"{name}:9093"
        )
        assert (status, printed) == (0, "through the container\n")


def test_the_image_starts_a_healthy_broker_as_an_unprivileged_user(engine: EngineClient) -> None:
    with engine.container({"KAFKA_NUM_PARTITIONS": "4"}, ()) as container:
        engine.await_line(container, r"\[KafkaServer id=\d+\] started \(kafka.server.KafkaServer\)")
        assert engine.run(container, "/etc/kafka/docker/healthy") == (0, "")
        assert engine.run(container, "id", "-u") == (0, "1000\n")
        assert engine.run(container, "minibroker", "topics", "create", "t") == (0, "created t\n")
        assert engine.run(container, "minibroker", "topics", "describe", "t", "--json")[1].count('"partition"') == 4
        assert engine.printed(container)[2] == ""


def test_the_images_control_api_is_reached_from_outside_with_its_token(engine: EngineClient) -> None:
    variables = {"MINIBROKER_OPTIONS": "--control 0.0.0.0:8082", "MINIBROKER_CONTROL_TOKEN": "a-token-of-this-test"}
    with engine.container(variables, (8082,)) as container:
        engine.await_line(container, "is controlled at")
        request = urllib.request.Request(f"http://127.0.0.1:{engine.port(container, 8082)}/v1/journal")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=PATIENCE_S)
        refused.value.close()
        assert refused.value.code == 401
        request.add_header("Authorization", "Bearer a-token-of-this-test")
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            assert answer.status == 200


def test_the_images_registry_is_reached_from_outside(engine: EngineClient) -> None:
    with engine.container({"MINIBROKER_OPTIONS": "--registry 0.0.0.0:8081"}, (8081,)) as container:
        engine.await_line(container, "has a schema registry at")
        url = f"http://127.0.0.1:{engine.port(container, 8081)}/schemas/types"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            assert set(json.load(answer)) == {"AVRO", "JSON", "PROTOBUF"}
