"""The sentence on each field: all have one, and each is one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from minibroker.protocol.apis import ApiKey, get_request_class, get_response_class
from minibroker.protocol.declare import Message
from minibroker.protocol.describing import ABOUT, find_field_background, list_messages
from minibroker.protocol.fields import Field, list_declared_fields
from minibroker.protocol.record_fields import STRUCTS

MOST_CHARACTERS = 110
SMALL_WORDS = {"a", "an", "the", "of", "in", "is", "for", "this", "its", "it", "to"}


def fields_of(message: type[Message]) -> Iterator[tuple[str, Field, type]]:
    """Yield the path of each field of a message, the field, and the struct that has it."""

    def visit(struct: type, path: str, seen: tuple[type, ...]) -> Iterator[tuple[str, Field, type]]:
        for field in list_declared_fields(struct):
            yield f"{path}.{field.name}", field, struct
            nested = (field.kind.item or field.kind).struct
            if nested is not None and nested not in seen:
                yield from visit(nested, f"{path}.{field.name}", (*seen, nested))

    return visit(message, message.__name__, (message,))


def sentences() -> Iterator[tuple[str, str, str]]:
    """Yield (where it is, name of the field, sentence) of all fields that have one."""
    for message in list_messages():
        for path, field, _ in fields_of(message):
            if field.facts.about:
                yield path, field.name, field.facts.about
    for name, about in ABOUT.items():
        yield f"shared.{name}", name, about
    for struct in STRUCTS:
        for each in struct.fields:
            yield f"{struct.type}.{each.name}", each.name, each.about


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.lower())) - SMALL_WORDS


def test_every_field_of_every_message_has_a_description() -> None:
    silent = [
        path
        for message in list_messages()
        for path, field, struct in fields_of(message)
        if not find_field_background(field.name, struct, message).about
    ]
    assert silent == []


def test_each_field_description_is_one_short_sentence() -> None:
    wrong = [
        (path, text)
        for path, _, text in sentences()
        if len(text) > MOST_CHARACTERS or text[0].islower() or not text.endswith(".") or ". " in text
    ]
    assert wrong == []


def test_no_description_only_repeats_the_name() -> None:
    assert [path for path, name, text in sentences() if words(text) <= words(name)] == []


def test_a_field_without_its_own_versions_has_the_version_and_kip_of_its_struct() -> None:
    """Most fields are declared without versions, also in structs that only later versions have."""
    request = get_request_class(ApiKey.ADD_PARTITIONS_TO_TXN)
    told = {path: find_field_background(field.name, struct, request) for path, field, struct in fields_of(request)}
    verify_only = told["AddPartitionsToTxnRequest.transactions.verify_only"]
    assert (verify_only.versions, verify_only.kip) == ("4+", 890)
    assert told["AddPartitionsToTxnRequest.v3_and_below_topics.name"].versions == "0+"


def test_a_tagged_field_may_have_its_own_kip() -> None:
    response = get_response_class(ApiKey.API_VERSIONS)
    told = {
        path: find_field_background(field.name, struct, response).kip for path, field, struct in fields_of(response)
    }
    assert told["ApiVersionsResponse.zk_migration_ready"] == 866
    assert told["ApiVersionsResponse.supported_features.name"] == 584


def test_a_field_that_is_not_kafkas_has_no_kip() -> None:
    request = get_request_class(ApiKey.FETCH)
    told = {path: find_field_background(field.name, struct, request).kip for path, field, struct in fields_of(request)}
    assert told["FetchRequest.records_without_attributes"] is None
    assert told["FetchRequest.topics.partitions.last_fetched_epoch"] == 595


def test_kips_are_given_for_existing_versions() -> None:
    assert [message for message in list_messages() if not set(message.kips) <= set(message.versions)] == []
