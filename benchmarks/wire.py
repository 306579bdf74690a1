"""The few requests that the benchmarks send themselves, over a blocking socket, and the topics they need.

Everything of the wire comes from minibroker's own declarations; nothing here is measured but in the start-up rows.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self, TypeVar

from minibroker.protocol import headers
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from minibroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from minibroker.protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from programs import Failed
from servers import Server

PRODUCE_VERSION = 9
FETCH_VERSION = 12
CREATE_TOPICS_VERSION = 5
DELETE_TOPICS_VERSION = 4
METADATA_VERSION = 9
API_VERSIONS_VERSION = 0
TIMEOUT_MS = 30_000
SENTINEL = 0x7E7D  # an error code that no server sends, found again in an answer that we encode

Answer = TypeVar("Answer", bound=Message)
_topic_numbers = itertools.count(1)


class Client:
    """One connection, one request at a time."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.create_connection((server.host, server.port), TIMEOUT_MS / 1000)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def create_topic(self, name: str) -> None:
        """A topic of one partition. Raises Failed."""
        asked = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[asked], timeout_ms=TIMEOUT_MS)
        answer = self._ask(request, CREATE_TOPICS_VERSION, CreateTopicsResponse)
        _check(answer.topics[0].error_code)

    def delete_topic(self, name: str) -> None:
        """Raises Failed."""
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS)
        _check(self._ask(request, DELETE_TOPICS_VERSION, DeleteTopicsResponse).responses[0].error_code)

    def wait_for_leader(self, name: str) -> None:
        """A cluster of several processes learns of a topic a little after it was created. Raises Failed."""
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
        give_up_at = time.monotonic() + TIMEOUT_MS / 1000
        while True:
            (topic,) = self._ask(request, METADATA_VERSION, MetadataResponse).topics
            if not topic.error_code and topic.partitions and not topic.partitions[0].error_code:
                return
            if time.monotonic() > give_up_at:
                _check(topic.error_code or topic.partitions[0].error_code)
            time.sleep(0.01)

    def produce(self, topic: str, batch: bytes) -> None:
        """Append one batch to partition 0 with acks=all. Raises Failed."""
        self._socket.sendall(produce_request(topic, batch))
        answer = self._answer(PRODUCE_VERSION, ProduceResponse)
        _check(answer.responses[0].partition_responses[0].error_code)

    def ask_api_versions(self) -> None:
        """What a client asks first; the answer is not looked at."""
        self._socket.sendall(_frame(ApiVersionsRequest(), API_VERSIONS_VERSION))
        self._receive()

    def _ask(self, request: Message, version: int, answer: type[Answer]) -> Answer:
        self._socket.sendall(_frame(request, version))
        return self._answer(version, answer)

    def _answer(self, version: int, answer: type[Answer]) -> Answer:
        header_version = headers.response_header_version(answer.api_key, version)
        body = self._receive()
        _, position = headers.ResponseHeader.decode_from(body, header_version)
        return answer.decode(body, version, position)

    def _receive(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            data = self._socket.recv(count - len(received))
            if not data:
                raise ConnectionError("the server closed the connection")
            received += data
        return bytes(received)


@contextmanager
def topic(server: Server) -> Iterator[str]:
    """A new topic of one partition, deleted afterwards: kfake holds everything in memory."""
    name = f"benchmark-{os.getpid()}-{next(_topic_numbers)}"
    with Client(server) as client:
        client.create_topic(name)
        client.wait_for_leader(name)
    yield name
    with Client(server) as client:
        client.delete_topic(name)


def batch(values: Sequence[bytes]) -> bytes:
    """An uncompressed batch of records without keys, stamped with the present."""
    now_ms = int(time.time() * 1000)
    return bytes(build_batch([Record(timestamp=now_ms, value=value) for value in values]))


def produce_request(topic: str, batch: bytes) -> bytes:
    """A frame that appends `batch` to partition 0 with acks=all."""
    data = ProduceRequest.TopicProduceData
    partition = data.PartitionProduceData(index=0, records=memoryview(batch))
    topics = [data(name=topic, partition_data=[partition])]
    return _frame(ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=topics), PRODUCE_VERSION)


def fetch_request(topic: str, max_bytes: int) -> bytes:
    """A frame that fetches partition 0 from its start, without a session."""
    fetched = FetchRequest.FetchTopic
    partition = fetched.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    topics = [fetched(topic=topic, partitions=[partition])]
    request = FetchRequest(max_wait_ms=1000, min_bytes=1, max_bytes=max_bytes, session_epoch=-1, topics=topics)
    return _frame(request, FETCH_VERSION)


def produce_error_at(topic: str) -> int:
    """Where the partition's error code stands in the frame that answers a produce request."""
    responses = ProduceResponse.TopicProduceResponse
    partition = responses.PartitionProduceResponse(index=0, error_code=SENTINEL)
    answer = ProduceResponse(responses=[responses(name=topic, partition_responses=[partition])])
    return _sentinel_at(answer, PRODUCE_VERSION)


def fetch_error_at(topic: str) -> int:
    """Where the partition's error code stands in the frame that answers a fetch request."""
    responses = FetchResponse.FetchableTopicResponse
    partition = responses.PartitionData(partition_index=0, error_code=SENTINEL)
    return _sentinel_at(FetchResponse(responses=[responses(topic=topic, partitions=[partition])]), FETCH_VERSION)


def _sentinel_at(answer: Message, version: int) -> int:
    header = headers.ResponseHeader().encode(headers.response_header_version(answer.api_key, version))
    return 4 + len(header) + answer.encode(version).index(SENTINEL.to_bytes(2, "big"))


def _frame(request: Message, version: int) -> bytes:
    header = headers.RequestHeader(
        request_api_key=request.api_key, request_api_version=version, correlation_id=7, client_id="benchmark"
    )
    body = header.encode(headers.request_header_version(request.api_key, version)) + request.encode(version)
    return len(body).to_bytes(4, "big") + body


def _check(code: int) -> None:
    if code:
        raise Failed(ErrorCode(code).name)
