"""Answers made of errors only: for every API that is served, in every version, with all that the request asked for."""

from __future__ import annotations

import pytest

from minibroker.broker.requests.served import SERVED
from minibroker.protocol.apis import ApiKey, get_api_name, get_request_class, get_response_class
from minibroker.protocol.fields import list_declared_fields
from minibroker.protocol.messages.share_fetch import ShareFetchResponse
from minibroker.protocol.response_errors import collect_error_codes
from minibroker.testing.seen.error_places import choose_default_level, iterate_error_places, make_error_answer

CODE = 6
CASES = [(key, version) for key, served in SERVED.items() for version in served.versions]


def filled(struct: type, version: int) -> object:
    """A request with one item in each list."""
    made = struct()
    for field in list_declared_fields(struct):
        if version not in field.facts.present:
            continue
        inner = field.kind.item
        if inner is not None:
            value = filled(inner.struct, version) if inner.struct else ("a" if inner.code == "string" else 1)
            if inner.struct or inner.code == "string" or inner.is_fixed:
                setattr(made, field.name, [bytes(16) if inner.code == "16s" else value])
        elif field.kind.code == "string" and field.name in ("name", "topic", "topic_name", "group_id", "key"):
            setattr(made, field.name, "a")
    return made


@pytest.mark.parametrize(("key", "version"), CASES, ids=[f"{get_api_name(key)}-{version}" for key, version in CASES])
def test_an_error_response_with_error_codes_in_all_places_can_be_encoded(key: ApiKey, version: int) -> None:
    request = filled(get_request_class(key), version)
    response = make_error_answer(request, get_response_class(key), version)  # type: ignore[arg-type]
    places = list(iterate_error_places(response, lambda _: "a"))
    level = choose_default_level(places)
    for place in places:
        if place.level == level:
            place.set_code(CODE)
    decoded = get_response_class(key).decode(response.encode(version), version)
    if any(_has_codes(get_response_class(key), version)):
        assert CODE in collect_error_codes(decoded)


def test_both_error_codes_of_a_share_fetch_partition_are_translated_for_older_releases() -> None:
    topic = ShareFetchResponse.ShareFetchableTopicResponse
    partition = topic.PartitionData(partition_index=0, error_code=3, acknowledge_error_code=121)
    (place,) = (
        place
        for place in iterate_error_places(ShareFetchResponse(responses=[topic(partitions=[partition])]), lambda _: "a")
        if place.level == "partition"
    )
    place.translate_code(lambda code: code + 1)
    assert (partition.error_code, partition.acknowledge_error_code) == (4, 122)


def _has_codes(struct: type, version: int) -> list[bool]:
    """Whether some field of an error that a version has can be reached."""
    found = []
    for field in list_declared_fields(struct):
        if version in field.facts.present:
            inner = (field.kind.item or field.kind).struct
            found += [field.name == "error_code"] if inner is None else _has_codes(inner, version)
    return found
