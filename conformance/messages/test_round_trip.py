"""Every message in every version, read and written again by the code in Apache Kafka's jars.

Each is sent as minibroker writes it, and once more with all its tagged fields, of which Kafka then leaves out those
that have their default: so both have the same defaults.

Kafka keeps some arrays as sets: an array has one item at the most, so that there are no equal ones for it to drop.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from conformance import builds
from conformance.messages.definitions import HERE, RELEASES, Definition, definition_of, jars
from conformance.messages.interpreter import Interpreter
from conformance.messages.structs import as_struct
from minibroker.protocol.declare import Message
from minibroker.protocol.describing import list_messages

CASES = 3  # random messages for each version
PACKAGES = {
    "request": "org.apache.kafka.common.message.{}Data",
    "response": "org.apache.kafka.common.message.{}Data",
    "header": "org.apache.kafka.common.message.{}Data",
    "data": "org.apache.kafka.common.message.{}",
    "metadata": "org.apache.kafka.common.metadata.{}",
    "coordinator-key": "org.apache.kafka.coordinator.group.generated.{}",
    "coordinator-value": "org.apache.kafka.coordinator.group.generated.{}",
}
OTHER_LOGS = {  # of coordinators, by the beginning of the names of their records
    "TransactionLog": "org.apache.kafka.coordinator.transaction.generated.{}",
    "ShareSnapshot": "org.apache.kafka.coordinator.share.generated.{}",
    "ShareUpdate": "org.apache.kafka.coordinator.share.generated.{}",
}


def class_name(definition: Definition) -> str:
    name = definition.spec["name"]
    others = (package for start, package in OTHER_LOGS.items() if name.startswith(start))
    return next(others, PACKAGES[definition.spec["type"]]).format(name)


class Exchange(NamedTuple):
    """A message for Kafka, and what it should write."""

    message: str
    sent: str
    expected: str


def exchanges(release: str) -> list[Exchange]:
    """Random messages of all versions that are asked of a release."""
    found = []
    for message in list_messages():
        for version in message.versions:
            definition = definition_of(message.__name__, version)
            if definition is not None and definition.release == release:
                found += exchanges_of(message, version, definition)
    return found


def exchanges_of(message: type[Message], version: int, definition: Definition) -> Iterator[Exchange]:
    interpreter = Interpreter(definition, version, array_sizes=(0, 1))
    for _ in range(CASES):
        values = interpreter.random_message()
        written = as_struct(message, values).encode(version)
        verbose = interpreter.encode(values, explicit_defaults=True)
        assert message.decode(verbose, version).encode(version) == written
        for sent in {written, verbose}:
            yield Exchange(f"{class_name(definition)} {version}", sent.hex(), written.hex())


@pytest.mark.parametrize("release", RELEASES)
def test_kafka_reads_every_message_and_writes_the_expected_bytes(release: str) -> None:
    asked = exchanges(release)
    assert len(asked) > 100
    class_path = ":".join(str(jar) for jar in jars().glob("*.jar") if release in jar.name or "slf4j" in jar.name)
    command = [*builds.JAVA, "-cp", class_path, str(HERE / "RoundTrip.java")]
    text = "".join(f"{each.message} {each.sent}\n" for each in asked)
    result = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True)
    answers = result.stdout.splitlines()
    assert len(answers) == len(asked)
    assert [(each, answer) for each, answer in zip(asked, answers, strict=True) if answer != each.expected] == []
