"""docs/troubleshooting.md names errors, settings and commands that exist."""

from __future__ import annotations

import re

import confluent_kafka
import kafka
import pytest
from kafka.errors import KafkaTimeoutError

from minibroker.broker.configs.listeners import make_broker_listeners
from minibroker.broker.configs.properties import parse_java_properties
from minibroker.broker.configs.settings import Settings
from minibroker.cli.main import COMMANDS
from minibroker.protocol.errors import ErrorCode
from tests.clients.ports import free_ports
from tests.test_readme import FENCED, README

DOCUMENT = README.parent / "docs" / "troubleshooting.md"
OF_CLIENTS = {"WRONG_VERSION_NUMBER", "CERTIFICATE_VERIFY_FAILED", "MSG_SIZE_TOO_LARGE", "ENOTFOUND", "ECONNREFUSED"}


def test_documented_error_codes_and_commands_exist() -> None:
    text = DOCUMENT.read_text()
    codes = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", text)) - OF_CLIENTS - {"SASL_PLAINTEXT", "SASL_SSL"}
    assert {"UNKNOWN_TOPIC_OR_PARTITION", "PRODUCER_FENCED"} <= codes
    assert codes <= {code.name for code in ErrorCode}
    commands = set(re.findall(r"`minibroker ([a-z]+)", text))
    assert "doctor" in commands and commands <= set(COMMANDS)


def test_the_documented_listeners_work_for_clients_inside_and_outside() -> None:
    (block,) = (found["text"] for found in FENCED.finditer(DOCUMENT.read_text()) if found["kind"] == "properties")
    settings = Settings({each.key: each.value for each in parse_java_properties(block)})
    listeners = make_broker_listeners(settings)
    advertised = {each.name: f"{each.advertised_host}:{each.advertised_port}" for each in listeners}
    assert advertised == {"INTERNAL": "kafka:29092", "EXTERNAL": "localhost:9092"}


def test_clients_report_the_documented_errors_without_a_listener() -> None:
    said = []
    closed = f"127.0.0.1:{free_ports()}"
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": closed, "log_level": 0, "error_cb": lambda error: said.append(str(error))}
    )
    while not any("brokers are down" in each for each in said):
        producer.poll(0.1)
    with pytest.raises(KafkaTimeoutError) as failed:
        kafka.KafkaConsumer(bootstrap_servers=closed, bootstrap_timeout_ms=200)
    said.append(str(failed.value))
    text = DOCUMENT.read_text()
    for words in ("Connection refused", "brokers are down", "Unable to bootstrap from"):
        assert f"`{words}`" in text and any(words in each for each in said)
