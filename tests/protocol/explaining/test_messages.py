"""Explained frames: each byte belongs to one field, the values are those that are read, and nothing ever raises."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.apis import ApiKey, get_request_class
from minibroker.protocol.declare import Message, Struct
from minibroker.protocol.explaining.messages import (
    explain_message,
    explain_request,
    explain_requests,
    explain_response,
)
from minibroker.protocol.explaining.parts import MOST_PARTS, ExplainedPart
from minibroker.protocol.headers import ResponseHeader
from minibroker.protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from minibroker.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from minibroker.protocol.messages.groups import HeartbeatRequest, JoinGroupRequest
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from minibroker.protocol.messages.security import SaslAuthenticateRequest
from tests.protocol.explaining.explained import check_that_each_byte_has_one_part, named, produce, request
from tests.protocol.random_messages import in_all_versions, random_message
from tests.protocol.samples import Parcel


def read_back(part: ExplainedPart, found: Any) -> None:
    """Compare a part with what the reader has made of the same bytes."""
    if isinstance(found, Struct):
        tags = [each for tagged in part.parts if tagged.type == "tags" for each in tagged.parts]
        for each in [*part.parts, *tags]:
            if each.type != "tags":
                read_back(each, getattr(found, each.name))
    elif isinstance(found, list):
        assert len(part.parts) == len(found)
        for each, item in zip(part.parts, found, strict=True):
            read_back(each, item)
    elif not isinstance(found, memoryview) and part.value is not None:
        assert part.value == found
    elif found is None:
        assert part.meaning == "null"


def check_message(message: type[Message], version: int) -> None:
    data = random_message(message, version, 1).encode(version)
    part = explain_message(data, message, version)
    assert [
        each.problem for each in part.iterate_problems() if each.type != "compact records" and each.type != "records"
    ] == []
    check_that_each_byte_has_one_part(part, 0, len(data))
    read_back(part, message.decode(data, version))


test_each_byte_of_a_message_belongs_to_one_field_with_the_value_that_is_read = in_all_versions(check_message)


def test_a_request_is_explained_as_size_header_and_body() -> None:
    data = request(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="orders")]), 9)
    frame = explain_request(data)
    assert [part.name for part in frame.parts] == ["size", "header", "body"]
    assert frame.meaning == "Metadata version 9"
    assert named(frame, "request_api_key").meaning == "Metadata"
    assert named(frame, "name").value == "orders"
    assert named(frame, "name").versions == "0+"
    check_that_each_byte_has_one_part(frame, 0, len(data))


def test_the_records_of_a_request_are_explained_down_to_their_fields() -> None:
    frame = explain_request(request(produce(), 9))
    assert named(frame, "crc").meaning == "right"
    assert named(frame, "attributes").meaning == "none, create time"
    record = named(frame, "record [0]")
    assert [part.name for part in record.parts] == [
        "length", "attributes", "timestamp_delta", "offset_delta", "key", "value", "headers"
    ]  # fmt: skip
    assert (named(record, "key").value, named(record, "value").value) == (b"k", b"v")


def test_an_explained_field_has_its_description_and_kip() -> None:
    part = explain_message(Parcel(weight=900, insured=True).encode(1), Parcel, 1)
    assert [(each.about, each.kip, each.versions) for each in part.parts] == [
        ("What the parcel weighs, in grams.", None, "0+"),
        ("Whether its loss is paid for.", 74, "1+"),
    ]


def test_a_response_is_decoded_by_its_api_and_version() -> None:
    answer = ApiVersionsResponse(api_keys=[ApiVersionsResponse.ApiVersion(api_key=3, max_version=12)])
    body = ResponseHeader(correlation_id=7).encode(0) + answer.encode(3)  # this API's header is never flexible
    frame = explain_response(len(body).to_bytes(4, "big") + body, ApiKey.API_VERSIONS, 3)
    assert not list(frame.iterate_problems())
    assert named(frame, "correlation_id").value == 7
    assert named(frame, "api_key").meaning == "Metadata"
    assert named(frame, "error_code").meaning == "NONE"


def test_an_unknown_response_is_explained_up_to_its_header() -> None:
    frame = bytes.fromhex("00000008 00000007 00000000")
    assert named(explain_response(frame, 999, 0), "correlation_id").value == 7
    assert explain_response(frame, 999, 0).problem == "there is no API 999"
    assert explain_response(frame, ApiKey.HEARTBEAT, 99).problem == "HeartbeatResponse has no version 99, only 0 to 4"


def test_a_stream_of_requests_is_split_into_frames() -> None:
    first, second = request(HeartbeatRequest(group_id="g"), 4), request(ApiVersionsRequest(), 3)
    frames = list(explain_requests(first + second + second[:10]))
    assert [(frame.start, frame.end) for frame in frames] == [
        (0, len(first)),
        (len(first), len(first) + len(second)),
        (len(first) + len(second), len(first) + len(second) + 10),
    ]
    assert [bool(list(frame.iterate_problems())) for frame in frames] == [False, False, True]


@pytest.mark.parametrize("version", [0, 8, 9, 13])
def test_a_truncated_request_is_explained_up_to_its_end(version: int) -> None:
    data = request(produce(), version)
    for size in range(len(data)):
        frame = explain_request(data[:size])
        assert list(frame.iterate_problems())
        check_that_each_byte_has_one_part(frame, 0, size)


def test_unknown_requests_are_explained_up_to_their_header() -> None:
    unknown = explain_request(bytes.fromhex("0000000a 03e7 0000 00000005 0000"))
    assert unknown.problem == "there is no API 999"
    newer = explain_request(bytes.fromhex("0000000b 000c 0063 00000005 0000 00"))
    assert newer.problem == "HeartbeatRequest has no version 99, only 0 to 4"


def test_bytes_after_a_message_are_shown_as_not_read() -> None:
    data = request(HeartbeatRequest(group_id="g"), 0)
    longer = (len(data) - 4 + 3).to_bytes(4, "big") + data[4:] + b"abc"
    frame = explain_request(longer)
    assert frame.problem == "3 bytes follow the end of the message"
    assert (frame.parts[-1].name, frame.parts[-1].value) == ("not read", b"abc")


def test_unknown_tagged_fields_are_kept_as_bytes() -> None:
    data = HeartbeatRequest(group_id="g").encode(4)[:-1] + bytes.fromhex("01 63 02 abcd")
    part = named(explain_message(data, HeartbeatRequest, 4), "unknown tag")
    assert (part.type, part.value) == ("tag 99", bytes.fromhex("abcd"))


def test_the_number_of_parts_of_an_explained_message_is_limited() -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name="")] * MOST_PARTS
    part = explain_message(MetadataRequest(topics=topics).encode(1), MetadataRequest, 1)
    assert sum(1 for _ in part.iterate_parts()) < MOST_PARTS + 10
    assert any("more than 100,000 parts" in each.problem for each in part.iterate_problems())


def test_consumer_subscriptions_and_assignments_are_explained() -> None:
    said = (1).to_bytes(2, "big") + ConsumerProtocolSubscription(topics=["orders"]).encode(1)
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=said)
    data = JoinGroupRequest(group_id="g", protocols=[protocol]).encode(5)
    metadata = named(explain_message(data, JoinGroupRequest, 5), "metadata")
    assert metadata.meaning == "ConsumerProtocolSubscription"
    assert named(metadata, "[0]").value == "orders"
    check_that_each_byte_has_one_part(metadata, metadata.start, metadata.end)


def test_metadata_of_other_protocol_types_is_shown_as_bytes() -> None:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="connect", metadata=b"\x00\x01\xff\xff\xff")
    data = JoinGroupRequest(group_id="g", protocols=[protocol]).encode(5)
    part = explain_message(data, JoinGroupRequest, 5)
    assert named(part, "metadata").value == b"\x00\x01\xff\xff\xff"
    assert not list(part.iterate_problems())


@pytest.mark.parametrize(
    "said",
    [b"\0alice\0secret", b"n,,n=alice,r=nonce", b"c=biws,r=nonce,p=secret", b"n,,\x01auth=Bearer secret\x01\x01"],
)
def test_login_secrets_are_hidden(said: bytes) -> None:
    part = explain_message(SaslAuthenticateRequest(auth_bytes=said).encode(2), SaslAuthenticateRequest, 2)
    shown = " ".join(f"{each.value} {each.meaning}" for _, each in part.iterate_parts())
    assert "secret" not in shown
    assert ("alice" in shown) == (b"alice" in said)


def test_no_meaning_is_explained_for_a_plain_number_field() -> None:
    response = MetadataResponse(controller_id=3)
    assert named(explain_message(response.encode(1), MetadataResponse, 1), "controller_id").meaning == ""


@given(st.binary(max_size=200))
def test_explaining_arbitrary_bytes_never_raises(data: bytes) -> None:
    frame = explain_request(data)
    check_that_each_byte_has_one_part(frame, 0, frame.end)
    for key in (ApiKey.FETCH, ApiKey.METADATA, ApiKey.JOIN_GROUP):
        explain_response(data, key, get_request_class(key).versions[-1])


@given(st.data())
def test_explaining_corrupt_requests_never_raises(data: st.DataObject) -> None:
    whole = bytearray(request(produce(compression=data.draw(st.integers(0, 4))), 9))
    for _ in range(3):
        whole[data.draw(st.integers(4, len(whole) - 1))] = data.draw(st.integers(0, 255))
    frame = explain_request(bytes(whole))
    check_that_each_byte_has_one_part(frame, 0, len(whole))
