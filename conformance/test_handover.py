"""The script of `minibroker handover`, run with Apache Kafka's own tools, makes the same in Kafka or minibroker."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from conformance.clients import PATIENCE_S
from conformance.kafka_reference import running_kafka
from conformance.kafka_tools import Tool
from minibroker.broker.configs.valid_values import STANDARD_AUTHORIZER
from minibroker.cli.administration import connect_client
from minibroker.cli.connecting import Bootstrap
from minibroker.cli.handover.handover_state import BROKER_RESOURCE, GROUP_RESOURCE, HandoverState, collect_state
from minibroker.cli.main import main
from minibroker.cli.topics.topics_command import SET
from minibroker.client.client_errors import check_error_code
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from minibroker.testing import Broker

pytestmark = pytest.mark.minibroker_only
TOOLS = "org.apache.kafka.tools"
CLASSES = {
    "kafka-topics": f"{TOOLS}.TopicCommand",
    "kafka-configs": "org.apache.kafka.tools.ConfigCommand",
    "kafka-acls": f"{TOOLS}.AclCommand",
    "kafka-consumer-groups": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
}
# Calls a tool in the process in which all of them run.
CALL = f"""#!{sys.executable}
import json, socket, sys
with socket.create_connection(("127.0.0.1", {{port}})) as asked:
    asked.sendall(json.dumps([{{tool!r}}, *sys.argv[1:]]).encode())
    asked.shutdown(socket.SHUT_WR)
    said = asked.makefile().read()
sys.exit(said or 0)
"""
HOSTILE = 'it\'s "a" $(touch owned) `touch owned`;\n\\ ${HOME} %{x} # -x, [y]=ü'
AUTHORIZED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}


@contextmanager
def scripts(directory: Path, tool: Tool) -> Iterator[Path]:
    """Kafka's scripts, in a directory."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                asked, _ = listening.accept()
            except OSError:
                return
            with asked, asked.makefile("rw") as stream:
                name, *arguments = json.loads(stream.read())
                try:
                    tool(name, *arguments)
                except AssertionError as failed:
                    stream.write(str(failed))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with closing(listening):
        for script, tool_class in CLASSES.items():
            path = directory / f"{script}.sh"
            path.write_text(CALL.format(port=listening.getsockname()[1], tool=tool_class))
            path.chmod(0o755)
        yield directory
        listening.shutdown(socket.SHUT_RDWR)


def run(*arguments: str) -> str:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def fill(broker: Broker) -> None:
    """Put something of each kind there, with hostile names where Kafka takes any name."""
    server = ("--bootstrap-server", broker.bootstrap_servers)
    broker.create_topic("orders", partitions=3, cleanup_policy="compact,delete", retention_ms=1000)
    broker.create_topic("a.b_c-D", cleanup_policy="")
    for name in ("alice", HOSTILE):
        done = CliRunner().invoke(main, ["users", "add", name, "--iterations", "5000", *server], input="secret\n")
        assert done.exit_code == 0, done.output
    run("acls", "add", "alice", "read", "--topic", "or", "--prefixed", *server)
    run("acls", "add", "alice", "describe-configs", "--topic", "or", "--prefixed", *server)
    run("acls", "add", HOSTILE, "all", "--group", HOSTILE, "--host", "10.0.0.1", *server)
    run("acls", "add", "*", "alter", "--cluster", "--deny", *server)
    run("acls", "add", "alice", "create-tokens", "--user-principal", "bob", *server)
    run("acls", "add", "alice", "write", "--transactional-id", "--help", *server)
    run("quotas", "set", "--user", HOSTILE, "--client-id", "*", "controller_mutation_rate=1.5", *server)
    run("quotas", "set", "--client-id", "app", "consumer_byte_rate=7", "request_percentage=30", *server)
    run("quotas", "set", "--ip", "*", "connection_creation_rate=12", *server)
    run("topics", "config", "orders", "--set", "max.message.bytes=2000", *server)
    configure(broker.bootstrap_servers, BROKER_RESOURCE, "", "log.cleaner.threads", "2")
    configure(broker.bootstrap_servers, GROUP_RESOURCE, HOSTILE, "consumer.session.timeout.ms", "50000")
    produce(broker.bootstrap_servers)
    for group in ("billing", HOSTILE):
        reset = ("groups", "reset-offsets", group, "--topic", "orders", "--to-offset", "2", "--execute")
        run(*reset, *server)


def configure(server: str, kind: int, name: str, key: str, value: str) -> None:
    """Set a config of a resource."""
    of_resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = of_resource.AlterableConfig(name=key, config_operation=SET, value=value)
    request = IncrementalAlterConfigsRequest(
        resources=[of_resource(resource_type=kind, resource_name=name, configs=[config])]
    )
    with connect_client(Bootstrap(server, ())) as client:
        (answer,) = client.request(request).responses
        check_error_code(answer.error_code, key, answer.error_message)


def produce(server: str) -> None:
    """Write three records to each partition of a topic."""
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": server})
    for partition in (0, 1, 2, 0, 1, 2, 0, 1, 2):
        producer.produce("orders", b"x", key=b"k", partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def state(server: str) -> HandoverState:
    """What is there, but for where it is, and the settings."""
    with connect_client(Bootstrap(server, ())) as client:
        return collect_state(client, "")._replace(settings=[])


@contextmanager
def empty(kind: str, directory: Path) -> Iterator[str]:
    """Run the cluster that takes over; where its clients connect."""
    if kind == "minibroker":
        with Broker(AUTHORIZED) as broker:
            yield broker.bootstrap_servers
    else:
        with running_kafka(directory / "kafka", AUTHORIZED) as kafka:
            yield kafka.bootstrap_servers


@pytest.mark.parametrize("kind", ["kafka", "minibroker"])
def test_the_other_cluster_has_the_same_resources_after_the_handover(
    tmp_path: Path, kafka_tool: Tool, kind: str
) -> None:
    with empty(kind, tmp_path) as server, scripts(tmp_path, kafka_tool) as bin:
        with Broker({**AUTHORIZED, "allow.everyone.if.no.acl.found": "true"}) as broker:
            fill(broker)
            expected = state(broker.bootstrap_servers)
            (tmp_path / "handover.sh").write_text(
                run("handover", "--to", "sh", "--bootstrap-server", broker.bootstrap_servers)
            )
        environment = {
            **os.environ,
            "BOOTSTRAP_SERVER": server,
            "KAFKA_BIN": str(bin),
            "LC_ALL": "C.UTF-8",
        }

        def hand_over(*parts: str) -> None:
            command = ["sh", "handover.sh", *parts]
            passwords = "a-secret\\\nb,[secret]=\n"
            subprocess.run(
                command, cwd=tmp_path, env=environment, input=passwords, text=True, check=True, timeout=PATIENCE_S
            )

        hand_over()
        produce(server)
        hand_over("offsets")
        assert expected.configs and state(server) == expected
        assert not (tmp_path / "owned").exists()
