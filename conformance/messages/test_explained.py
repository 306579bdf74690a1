"""Every message in every version: explained, and printed by the JSON converters in Apache Kafka's jars, it is the same.

Kafka keeps some arrays as sets: an array has one item at the most, so that there are no equal ones for it to drop.
"""

from __future__ import annotations

import json
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from conformance import builds
from conformance.messages.definitions import HERE, RELEASES, Definition, definition_of, jars
from conformance.messages.interpreter import Interpreter
from conformance.messages.structs import as_struct, snake_case
from conformance.messages.test_round_trip import class_name
from minibroker.protocol.declare import Message
from minibroker.protocol.describing import list_messages
from minibroker.protocol.explaining.messages import explain_message
from minibroker.protocol.explaining.parts import HIDDEN, ExplainedPart
from minibroker.protocol.primitives import format_uuid

CASES = 2  # random messages for each version
SIZE = "_size_in_bytes"  # what Kafka says of records


class Sent(NamedTuple):
    """A message for Kafka."""

    message: type[Message]
    version: int
    class_name: str
    data: bytes


def messages_of(release: str) -> Iterator[Sent]:
    """Yield random messages of all versions that are asked of a release."""
    for message in list_messages():
        for version in message.versions:
            definition = definition_of(message.__name__, version)
            if definition is not None and definition.release == release:
                yield from cases_of(message, version, definition)


def cases_of(message: type[Message], version: int, definition: Definition) -> Iterator[Sent]:
    interpreter = Interpreter(definition, version, array_sizes=(0, 1))
    for _ in range(CASES):
        data = as_struct(message, interpreter.random_message()).encode(version)
        yield Sent(message, version, class_name(definition), data)


def values_of(part: ExplainedPart, data: bytes) -> dict[str, Any]:
    """Return the fields of an explained message or struct by their names."""
    found: dict[str, Any] = {}
    for each in part.parts:
        if each.type == "tags":
            found |= values_of(each, data)
        elif each.type.endswith("records") and each.meaning != "null":
            found[each.name + SIZE] = each.end - each.start - each.prefix_bytes
        else:
            found[each.name] = value_of(each, data)
    return found


def value_of(part: ExplainedPart, data: bytes) -> Any:
    """Return the value of a field as JSON has it."""
    kind = part.type.rpartition(", ")[2].removeprefix("compact ")
    if part.meaning == "null":
        return None
    if kind.startswith("[]"):
        return [value_of(each, data) for each in part.parts]
    if kind == "bytes":
        return b64encode(bytes_of(part, data)).decode()
    if kind == "uuid":
        return format_uuid(part.value)
    is_struct = part.value is None and not part.is_secret
    return values_of(part, data) if is_struct else part.value


def bytes_of(part: ExplainedPart, data: bytes) -> bytes:
    """Return the bytes of a field, which need not be its value: secrets are hidden, others are explained."""
    if part.value is None:
        assert part.parts or part.meaning == HIDDEN or part.end == part.start + part.prefix_bytes
        return data[part.start + part.prefix_bytes : part.end]
    return bytes(part.value)


def in_our_names(values: Any) -> Any:
    """Return what Kafka printed with minibroker's names."""
    if isinstance(values, dict):
        return {snake_case(name): in_our_names(value) for name, value in values.items()}
    return [in_our_names(value) for value in values] if isinstance(values, list) else values


@pytest.mark.parametrize("release", RELEASES)
def test_kafka_and_minibroker_decode_the_same_fields_of_every_message(release: str) -> None:
    asked = list(messages_of(release))
    assert len(asked) > 100
    command = [*builds.JAVA, "-cp", class_path(release), str(HERE / "JsonOfMessages.java")]
    text = "".join(f"{each.class_name} {each.version} {each.data.hex()}\n" for each in asked)
    result = subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, check=True)
    answers = result.stdout.decode().splitlines()
    assert len(answers) == len(asked)
    wrong = [difference for each, answer in zip(asked, answers, strict=True) if (difference := compared(each, answer))]
    assert wrong == []


def class_path(release: str) -> str:
    """Return the jars of a release, and what these need."""
    needed = (jar for jar in jars().glob("*.jar") if release in jar.name or jar.name.startswith(("slf4j", "jackson")))
    return ":".join(map(str, needed))


def compared(sent: Sent, answer: str) -> str | None:
    """Return how the fields that Kafka read differ from the explained ones, None if they do not."""
    explained = values_of(explain_message(sent.data, sent.message, sent.version), sent.data)
    printed = in_our_names(json.loads(answer)) if answer.startswith("{") else answer
    same = explained == printed
    return None if same else f"{sent.message.__name__} {sent.version}: {explained} but Kafka says {printed}"
