"""Every message that minibroker declares, in every version, against the definitions in Apache Kafka's own jars.

The definitions of 4.4 are asked first, those of 3.9 for the versions that 4.x dropped.
"""

from __future__ import annotations

import pytest

from conformance.messages.definitions import RELEASES, Spec, definition_of, definitions
from conformance.messages.interpreter import Interpreter
from conformance.messages.structs import as_struct, snake_case
from minibroker.protocol.apis import ApiKey, get_request_class, get_response_class
from minibroker.protocol.declare import Message
from minibroker.protocol.describing import list_messages
from minibroker.protocol.fields import list_declared_fields
from tests.cases import for_each

FIRST_TAG_OF_OURS = 10000  # such fields are not Kafka's
CASES = 6  # random messages for each version
MESSAGES = list_messages()
VERSIONS = [(each, version) for each in MESSAGES for version in each.versions]


@for_each(("message", "version"), VERSIONS)
def test_messages_are_encoded_and_decoded_as_kafkas_definition_says(message: type[Message], version: int) -> None:
    definition = definition_of(message.__name__, version)
    assert definition is not None, "no release has this version"
    interpreter = Interpreter(definition, version)
    for _ in range(CASES):
        values = interpreter.random_message()
        expected = interpreter.encode(values)
        ours = as_struct(message, values)
        assert ours.encode(version) == expected
        assert message.decode(expected, version) == ours
        assert message.decode(memoryview(bytearray(expected)), version) == ours


@for_each("message", MESSAGES)
def test_field_defaults_are_those_of_kafkas_definition(message: type[Message]) -> None:
    for version in message.versions:
        definition = definition_of(message.__name__, version)
        assert definition is not None
        interpreter = Interpreter(definition, version)
        values = {f["name"]: interpreter.default(f) for f in definition.spec["fields"] if interpreter.has(f)}
        assert message().encode(version) == interpreter.encode(values)


def test_every_broker_api_is_declared_up_to_its_newest_version() -> None:
    specs = [definition for definition in definitions(RELEASES[0]).values() if definition.spec["type"] == "request"]
    expected = {each.spec["apiKey"]: each.versions[-1] for each in specs if "broker" in each.spec["listeners"]}
    assert {int(key): get_request_class(key).versions for key in ApiKey} == {
        key: range(0, newest + 1) for key, newest in expected.items()
    }


def test_request_and_response_of_an_api_have_the_same_versions() -> None:
    for key in ApiKey:
        assert get_request_class(key).versions == get_response_class(key).versions
        assert get_request_class(key).api_key == get_response_class(key).api_key == key


@for_each("message", MESSAGES)
def test_api_keys_and_names_are_those_of_kafkas_definition(message: type[Message]) -> None:
    specs = [found.spec for release in RELEASES if (found := definitions(release).get(message.__name__)) is not None]
    assert message.api_key == int(specs[0].get("apiKey", -1))
    assert {field.name for field in list_declared_fields(message) if field.facts.tag < FIRST_TAG_OF_OURS} == {
        snake_case(field["name"]) for version in message.versions for field in _present(message.__name__, version)
    }


def _present(name: str, version: int) -> list[Spec]:
    definition = definition_of(name, version)
    assert definition is not None
    return [field for field in definition.spec["fields"] if Interpreter(definition, version).has(field)]


@pytest.mark.parametrize("kind", ["metadata", "coordinator-key", "coordinator-value"])
def test_every_coordinator_and_metadata_record_of_kafka_is_declared(kind: str) -> None:
    names = {name for name, found in definitions(RELEASES[0]).items() if found.spec["type"] == kind}
    assert names <= {message.__name__ for message in MESSAGES}
