"""The connection without I/O: frames in any pieces, answers in their order, and brokers that send nonsense."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.client.client_connection import Connection
from minibroker.client.client_errors import ProtocolError, UnsupportedVersion
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.headers import ResponseHeader, get_response_header_version
from minibroker.protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from minibroker.protocol.messages.metadata import MetadataRequest

MAX_BYTES = 40 << 20


def connection(**versions: range) -> Connection:
    made = Connection("me", MAX_BYTES)
    made.versions = {ApiKey[name]: known for name, known in versions.items()}
    return made


def answer(message: Message, version: int, correlation_id: int) -> bytes:
    header = ResponseHeader(correlation_id=correlation_id)
    frame = header.encode(get_response_header_version(message.api_key, version)) + message.encode(version)
    return struct.pack(">i", len(frame)) + frame


def give(made: Connection, data: bytes) -> None:
    """Hand bytes over as a socket does: as many at a time as there is room for."""
    while data:
        with made.get_buffer() as buffer:
            count = min(len(buffer), len(data))
            assert count > 0
            buffer[:count] = data[:count]
        made.process_received_bytes(count)
        data = data[count:]


def test_a_request_is_sent_as_a_frame_with_a_header() -> None:
    made = connection()
    first, data = made.encode_request(HeartbeatRequest(group_id="g", member_id="m"), 0)
    second, _ = made.encode_request(HeartbeatRequest(), 0)
    assert data == bytes.fromhex("00000016 000c 0000 00000000 0002 6d65 0001 67 00000000 0001 6d")
    assert (first, second) == (0, 1)


@given(st.data())
def test_responses_are_decoded_however_the_received_bytes_are_split(data: st.DataObject) -> None:
    made = connection()
    codes = data.draw(st.lists(st.integers(0, 131), min_size=1, max_size=5))
    ids = [made.encode_request(HeartbeatRequest(), 4)[0] for _ in codes]
    stream = b"".join(
        answer(HeartbeatResponse(error_code=code), 4, number) for number, code in zip(ids, codes, strict=True)
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        give(made, stream[start:end])
    assert [made.answers[number].error_code for number in ids] == codes and not made.pending


@pytest.mark.parametrize("size", [0, 16 << 10, 3 << 20, 20 << 20])
def test_a_large_response_is_received_completely_before_the_next(size: int) -> None:
    made = connection()
    topic = FetchResponse.FetchableTopicResponse
    records = bytes(range(256)) * (size // 256)
    full = FetchResponse(responses=[topic(topic="t", partitions=[topic.PartitionData(records=records)])])
    large, _ = made.encode_request(FetchRequest(), 12)
    small, _ = made.encode_request(HeartbeatRequest(), 4)
    give(made, answer(full, 12, large) + answer(HeartbeatResponse(error_code=7), 4, small))
    assert bytes(made.answers[large].responses[0].partitions[0].records) == records
    assert made.answers[small].error_code == 7


def test_records_of_a_response_stay_valid_when_more_is_received() -> None:
    made = connection()
    topic = FetchResponse.FetchableTopicResponse
    for letter in (b"a", b"b"):
        full = FetchResponse(responses=[topic(topic="t", partitions=[topic.PartitionData(records=letter * 100)])])
        give(made, answer(full, 12, made.encode_request(FetchRequest(), 12)[0]))
    assert [bytes(made.answers[each].responses[0].partitions[0].records)[:1] for each in (0, 1)] == [b"a", b"b"]


@pytest.mark.parametrize("size", [0, -1, MAX_BYTES + 1, 0x7FFFFFFF, -0x80000000])
def test_an_invalid_length_is_rejected_before_memory_is_allocated(size: int) -> None:
    made = connection()
    made.encode_request(HeartbeatRequest(), 4)
    with pytest.raises(ProtocolError, match=f"a frame of {size} bytes"):
        give(made, struct.pack(">i", size))
    assert len(made.get_buffer()) < 1 << 20


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (answer(HeartbeatResponse(), 4, 5), "an answer to request 5, not to 0"),
        (bytes.fromhex("00000003 000000"), "ResponseHeader"),
        (bytes.fromhex("00000005 00000000 00"), "HeartbeatResponse"),
        (bytes.fromhex("0000000d 00000000 00 00000000 0000 00 21"), "follow its end"),
    ],
    ids=["another request's", "cut header", "cut body", "too long"],
)
def test_a_malformed_response_is_rejected(data: bytes, message: str) -> None:
    made = connection()
    made.encode_request(HeartbeatRequest(), 4)
    with pytest.raises(ProtocolError, match=message):
        give(made, data)


def test_a_response_without_a_request_is_rejected() -> None:
    with pytest.raises(ProtocolError, match="an answer without a request"):
        give(connection(), answer(HeartbeatResponse(), 4, 0))


def test_a_rejection_of_the_api_versions_version_is_decoded_in_version_0() -> None:
    made = connection()
    number, _ = made.encode_request(ApiVersionsRequest(), 4)
    give(made, answer(ApiVersionsResponse(error_code=35), 0, number))
    assert made.answers[number].error_code == 35


def test_the_client_uses_the_newest_api_version_that_both_sides_support() -> None:
    made = connection(METADATA=range(0, 8), FETCH=range(4, 100), HEARTBEAT=range(3, 5))
    assert made.choose_version(MetadataRequest) == 7
    assert made.choose_version(MetadataRequest, highest=3) == 3
    assert made.choose_version(FetchRequest) == FetchRequest.versions[-1]
    for request, lowest, highest, words in (
        (MetadataRequest, 8, 100, "the broker supports versions 0 to 7 of Metadata, but we need 8 or newer"),
        (HeartbeatRequest, 0, 2, "the broker supports versions 3 to 4 of Heartbeat"),
        (ApiVersionsRequest, 0, 100, "the broker does not support ApiVersions"),
    ):
        with pytest.raises(UnsupportedVersion, match=words):
            made.choose_version(request, lowest, highest)
