"""The few requests that the benchmarks send themselves, over a blocking socket, and the topics they need.

Everything of the wire comes from minibroker's own declarations; nothing here is measured but in the start-up rows.
The socket is plain, and not `minibroker.client`'s, which would encode and decode each frame beside the server.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from minibroker.client import blocking
from minibroker.client.client_errors import ClientError
from minibroker.client.connection_settings import ClientSettings
from minibroker.protocol import headers
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.log_offsets import ListOffsetsRequest, ListOffsetsResponse
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.offsets import OffsetCommitRequest, OffsetCommitResponse
from minibroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from minibroker.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from programs import Failed
from servers import Server

PRODUCE_VERSION = 9
FETCH_VERSION = 12
CREATE_TOPICS_VERSION = 5
METADATA_VERSION = 9
LIST_OFFSETS_VERSION = 6
API_VERSIONS_VERSION = 0
COMMIT_VERSION = 7
TOPIC_RESOURCE, SET = 2, 0
TIMEOUT_MS = 30_000
SENTINEL = 0x7E7D  # an error code that no server sends, found again in an answer that we encode

CLIENT_ID = "benchmark"
AT_ONCE = 64  # requests that are on their way together: some for every turn of a server, and no full socket
NO_CONFIGS: Mapping[str, str] = {}

_topic_numbers = itertools.count(1)


class Client:
    """One connection for frames, one request at a time; and minibroker's own client for what is not measured."""

    def __init__(self, server: Server, timeout_ms: int = TIMEOUT_MS) -> None:
        self._socket = socket.create_connection((server.host, server.port), timeout_ms / 1000)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # It connects when it is first used.
        self._client = blocking.Client(ClientSettings({"bootstrap.servers": f"{server.host}:{server.port}"}, CLIENT_ID))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._client.close()

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] = NO_CONFIGS) -> None:
        """Raises Failed."""
        _check(self.ask(_creation(name, partitions, configs)).topics[0].error_code)

    def delete_topic(self, name: str) -> None:
        """Raises Failed."""
        asked = DeleteTopicsRequest.DeleteTopicState(name=name)
        request = DeleteTopicsRequest(topics=[asked], topic_names=[name], timeout_ms=TIMEOUT_MS)
        _check(self.ask(request).responses[0].error_code)

    def alter_topic(self, name: str, configs: Mapping[str, str]) -> None:
        """Set some of its configs. Raises Failed."""
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        changes = [
            resource.AlterableConfig(name=key, config_operation=SET, value=value) for key, value in configs.items()
        ]
        asked = resource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=changes)
        _check(self.ask(IncrementalAlterConfigsRequest(resources=[asked])).responses[0].error_code)

    def wait_for_coordinator(self, name: str, *, transactions: bool = False) -> None:
        """The first group, or transactional id, that is asked for has the topic of them all created. Raises Failed."""
        with _failures():
            self._client.find_coordinator("transaction" if transactions else "group", name)

    def wait_for_leader(self, name: str) -> None:
        """A cluster of several processes learns of a topic a little after it was created. Raises Failed."""

        def look() -> None:
            (topic,) = self._client.fetch_metadata([name]).topics
            for each in (topic, *topic.partitions):
                self._client.check(each.error_code, name)

        with _failures():
            self._client.retry(look)

    def exchange(self, frames: Sequence[bytes], error_at: int | None, *, at_once: int = AT_ONCE) -> None:
        """Send requests of one kind, `at_once` at a time, and read the answers.

        Raises Failed if one has an error code at `error_at`, see `produce_error_at`; None: it has no such place.
        """
        for start in range(0, len(frames), at_once):
            some = frames[start : start + at_once]
            self._socket.sendall(b"".join(some))
            for _ in some:
                body = receive(self._socket)
                if error_at is not None:
                    _check(int.from_bytes(body[error_at - 4 : error_at - 2], "big", signed=True))

    def begin(self, frame: bytes) -> None:
        """Send a request whose answer is left to `take`."""
        self._socket.sendall(frame)

    def take(self, most_bytes: int) -> int:
        """Read some of what has come; how much it was, 0 at the end."""
        return len(self._socket.recv(most_bytes))

    def produce(self, topic: str, batch: bytes) -> None:
        """Append one batch to partition 0 with acks=all. Raises Failed."""
        self.exchange([produce_request(topic, batch)], produce_error_at(topic))

    def ask_api_versions(self) -> None:
        """Ask what a client asks first; the answer is not looked at."""
        self._socket.sendall(api_versions_request())
        receive(self._socket)

    def ask(self, request: Message) -> Any:
        """Send a request to the node that may change topics, and return its answer. Raises Failed."""
        with _failures():
            return self._client.request(request, self._client.fetch_controller_id())


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        raise Failed(str(error)) from None


def receive(connection: socket.socket) -> bytes:
    """Read one answer; return what follows its size. Raises ConnectionError if the server closes the connection."""
    return _exactly(connection, int.from_bytes(_exactly(connection, 4), "big"))


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        data = connection.recv(count - len(received))
        if not data:
            raise ConnectionError("the server closed the connection")
        received += data
    return bytes(received)


@contextmanager
def topic(server: Server, partitions: int = 1, configs: Mapping[str, str] = NO_CONFIGS) -> Iterator[str]:
    """A new topic, deleted afterwards: kfake holds everything in memory."""
    name = f"benchmark-{os.getpid()}-{next(_topic_numbers)}"
    with Client(server) as client:
        client.create_topic(name, partitions, configs)
        client.wait_for_leader(name)
    yield name
    with Client(server) as client:
        client.delete_topic(name)


def now_ms() -> int:
    """The present, as timestamps have it."""
    return int(time.time() * 1000)


def batch(values: Sequence[bytes], timestamp_ms: int | None = None) -> bytes:
    """An uncompressed batch of records without keys, stamped with the present if no other time is given."""
    stamp = now_ms() if timestamp_ms is None else timestamp_ms
    return bytes(build_batch([Record(timestamp=stamp, value=value) for value in values]))


def produce_request(topic: str, batch: bytes, partition: int = 0) -> bytes:
    """A frame that appends `batch` with acks=all."""
    data = ProduceRequest.TopicProduceData
    written = data.PartitionProduceData(index=partition, records=memoryview(batch))
    topics = [data(name=topic, partition_data=[written])]
    return frame(ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=topics), PRODUCE_VERSION)


def fetch_request(
    topic: str, max_bytes: int, offset: int = 0, partition: int = 0, *, version: int = FETCH_VERSION
) -> bytes:
    """A frame that fetches from `offset` on, without a session."""
    fetched = FetchRequest.FetchTopic
    wanted = fetched.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = [fetched(topic=topic, partitions=[wanted])]
    request = FetchRequest(max_wait_ms=1000, min_bytes=1, max_bytes=max_bytes, session_epoch=-1, topics=topics)
    return frame(request, version)


def list_offsets_request(topic: str, timestamp_ms: int) -> bytes:
    """A frame that asks for the first offset at or after a time in partition 0."""
    asked = ListOffsetsRequest.ListOffsetsTopic
    partition = asked.ListOffsetsPartition(partition_index=0, timestamp=timestamp_ms)
    request = ListOffsetsRequest(replica_id=-1, topics=[asked(name=topic, partitions=[partition])])
    return frame(request, LIST_OFFSETS_VERSION)


def create_topic_request(name: str) -> bytes:
    """A frame that creates a topic of one partition."""
    return frame(_creation(name, 1, NO_CONFIGS), CREATE_TOPICS_VERSION)


def _creation(name: str, partitions: int, configs: Mapping[str, str]) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic
    overrides = [topic.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    asked = topic(name=name, num_partitions=partitions, replication_factor=1, configs=overrides)
    return CreateTopicsRequest(topics=[asked], timeout_ms=TIMEOUT_MS)


def api_versions_request() -> bytes:
    """A frame that asks what a client asks first."""
    return frame(ApiVersionsRequest(), API_VERSIONS_VERSION)


def metadata_request(topic: str) -> bytes:
    """A frame that asks for a topic with all its partitions."""
    return frame(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)]), METADATA_VERSION)


def produce_error_at(topic: str) -> int:
    """Where the partition's error code stands in the frame that answers a produce request."""
    responses = ProduceResponse.TopicProduceResponse
    partition = responses.PartitionProduceResponse(index=0, error_code=SENTINEL)
    answer = ProduceResponse(responses=[responses(name=topic, partition_responses=[partition])])
    return _sentinel_at(answer, PRODUCE_VERSION)


def fetch_error_at(topic: str, version: int = FETCH_VERSION) -> int:
    """Where the partition's error code stands in the frame that answers a fetch request."""
    responses = FetchResponse.FetchableTopicResponse
    partition = responses.PartitionData(partition_index=0, error_code=SENTINEL)
    return _sentinel_at(FetchResponse(responses=[responses(topic=topic, partitions=[partition])]), version)


def list_offsets_error_at(topic: str) -> int:
    """Where the partition's error code stands in the frame that answers a request for offsets."""
    responses = ListOffsetsResponse.ListOffsetsTopicResponse
    partition = responses.ListOffsetsPartitionResponse(partition_index=0, error_code=SENTINEL)
    answer = ListOffsetsResponse(topics=[responses(name=topic, partitions=[partition])])
    return _sentinel_at(answer, LIST_OFFSETS_VERSION)


def commit_request(group: str, topic: str, partitions: int) -> bytes:
    """A frame that commits an offset for each of the first partitions, by whoever is no member of the group."""
    asked = OffsetCommitRequest.OffsetCommitRequestTopic
    offsets = [
        asked.OffsetCommitRequestPartition(partition_index=index, committed_offset=index, committed_metadata="")
        for index in range(partitions)
    ]
    return frame(OffsetCommitRequest(group_id=group, topics=[asked(name=topic, partitions=offsets)]), COMMIT_VERSION)


def commit_error_at(topic: str, partitions: int) -> int:
    """Where the first partition's error code stands in the frame that answers a commit."""
    responses = OffsetCommitResponse.OffsetCommitResponseTopic
    answers = [responses.OffsetCommitResponsePartition(partition_index=index) for index in range(partitions)]
    answers[0].error_code = SENTINEL
    return _sentinel_at(OffsetCommitResponse(topics=[responses(name=topic, partitions=answers)]), COMMIT_VERSION)


def _sentinel_at(answer: Message, version: int) -> int:
    header = headers.ResponseHeader().encode(headers.get_response_header_version(answer.api_key, version))
    return 4 + len(header) + answer.encode(version).index(SENTINEL.to_bytes(2, "big"))


def frame(request: Message, version: int, *, client_id: str = CLIENT_ID) -> bytes:
    """A request with its header and its size."""
    header = headers.RequestHeader(
        request_api_key=request.api_key, request_api_version=version, correlation_id=7, client_id=client_id
    )
    body = header.encode(headers.get_request_header_version(request.api_key, version)) + request.encode(version)
    return len(body).to_bytes(4, "big") + body


def _check(code: int) -> None:
    if code:
        raise Failed(ErrorCode(code).name)
