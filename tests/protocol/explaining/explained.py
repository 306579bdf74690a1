"""Frames to explain, and what must hold for each explanation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minibroker.protocol.declare import Message
from minibroker.protocol.explaining.parts import ExplainedPart
from minibroker.protocol.headers import RequestHeader
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record

TopicData = ProduceRequest.TopicProduceData


def leaves(part: ExplainedPart) -> Iterator[tuple[int, int]]:
    """Yield the range of each prefix, and of each part without parts, in their order."""
    inner = part.parts if part.payload is None else []
    if not inner or part.prefix_bytes:
        yield part.start, part.start + part.prefix_bytes if inner else part.end
    for each in inner:
        yield from leaves(each)


def check_that_each_byte_has_one_part(part: ExplainedPart, start: int, end: int) -> None:
    position = start
    for first, last in leaves(part):
        assert first == position
        position = last
    assert position == end


def request(message: Message, version: int, **header: Any) -> bytes:
    head = RequestHeader(request_api_key=message.api_key, request_api_version=version, client_id="me", **header)
    flexible = version in message.flexible_header
    body = head.encode(2 if flexible else 1) + message.encode(version)
    return len(body).to_bytes(4, "big") + body


def produce(**batch: Any) -> ProduceRequest:
    records = memoryview(build_batch([Record(timestamp=1_700_000_000_000, key=b"k", value=b"v")], **batch))
    return ProduceRequest(
        acks=-1,
        topic_data=[TopicData(name="t", partition_data=[TopicData.PartitionProduceData(index=0, records=records)])],
    )


def named(part: ExplainedPart, name: str) -> ExplainedPart:
    """Return the first part of this name."""
    return next(each for _, each in part.iterate_parts() if each.name == name)
