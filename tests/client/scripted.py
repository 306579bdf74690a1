"""Nodes of a cluster that answer as a test says: for what a real broker does only on a bad day.

They speak over sockets, with TLS if asked to. Who holds the client to what it should do is each test.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from minibroker.protocol.apis import ApiKey, get_request_class
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    get_request_header_version,
    get_response_header_version,
)
from minibroker.protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.log_offsets import ListOffsetsRequest, ListOffsetsResponse
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse

Answer = FetchResponse.FetchableTopicResponse.PartitionData
VERSIONS = {
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 7,
    ApiKey.METADATA: 12,
    ApiKey.API_VERSIONS: 3,
    ApiKey.SASL_HANDSHAKE: 1,
    ApiKey.SASL_AUTHENTICATE: 1,
}


class Hang(Exception):
    """Raised by an answer that is never to come: the connection is closed instead."""


def partition_data(
    records: bytes | None = b"",
    *,
    error: ErrorCode = ErrorCode.NONE,
    end: int = 0,
    stable: int | None = None,
    aborted: Sequence[tuple[int, int]] = (),
) -> Answer:
    """A partition's part of an answer to Fetch; `end` is the high watermark, `stable` the last stable offset."""
    return Answer(
        partition_index=0,
        error_code=error,
        high_watermark=end,
        last_stable_offset=end if stable is None else stable,
        aborted_transactions=[Answer.AbortedTransaction(producer_id=pid, first_offset=at) for pid, at in aborted],
        records=records,
    )


@dataclass
class Script:
    """The answers of the nodes for partition 0 of `topic`. What was asked is kept in `fetched`: (node, request)."""

    fetch: Callable[[int, int], Answer] = lambda node, offset: partition_data()  # of (node, offset)
    bounds: tuple[int, int] = (0, 0)  # earliest and latest, as ListOffsets tells
    leader: int = 1
    epoch: int = 0
    topic: str = "t"
    exists: bool = True
    versions: dict[int, int] = field(default_factory=lambda: dict(VERSIONS))
    others: dict[int, Callable[[Any], Message]] = field(default_factory=dict)  # answers to further APIs
    fetched: list[tuple[int, FetchRequest]] = field(default_factory=list)

    @property
    def offsets(self) -> list[int]:
        """The offsets that were asked for."""
        return [request.topics[0].partitions[0].fetch_offset for _, request in self.fetched]


class ScriptedNodes:
    """Nodes 1 to n, listening on 127.0.0.1, each connection in a thread of its own."""

    def __init__(self, script: Script, count: int, tls: ssl.SSLContext | None) -> None:
        self.script = script
        self._tls = tls
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
        self.ports = [listener.getsockname()[1] for listener in self._listeners]
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        for node, listener in enumerate(self._listeners, 1):
            self._start(self._accept, node, listener)

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"

    def hang_up(self) -> None:
        """Close the connections that there are."""
        for each in self._connections:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close all sockets, and wait for the threads."""
        for each in [*self._listeners, *self._connections]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(20)

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self, node: int, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                self._start(self._serve, node, connection)

    def _serve(self, node: int, connection: socket.socket) -> None:
        with suppress(OSError, Hang), connection:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            self._connections.append(connection)
            with connection:
                while True:
                    self._exchange(node, connection)

    def _exchange(self, node: int, connection: socket.socket) -> None:
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        frame = _exactly(connection, size)
        key, version = struct.unpack_from(">hh", frame)
        header, position = RequestHeader.decode_from(frame, get_request_header_version(key, version))
        request = get_request_class(ApiKey(key)).decode(frame, version, position)
        answer = ResponseHeader(correlation_id=header.correlation_id).encode(get_response_header_version(key, version))
        answer += bytes(self._answer(node, request).encode(version))
        connection.sendall(struct.pack(">i", len(answer)) + answer)

    def _answer(self, node: int, request: Any) -> Message:
        if isinstance(request, ApiVersionsRequest):
            return self._versions()
        if isinstance(request, MetadataRequest):
            return self._metadata()
        if getattr(request, "replica_id", -1) != -1:
            raise Hang  # a replica is asked for other things than a consumer
        if isinstance(request, ListOffsetsRequest):
            return self._bounds(request)
        if isinstance(request, FetchRequest):
            return self._fetched(node, request)
        return self.script.others[request.api_key](request)

    def _versions(self) -> ApiVersionsResponse:
        version = ApiVersionsResponse.ApiVersion
        known = [version(api_key=key, min_version=0, max_version=last) for key, last in self.script.versions.items()]
        return ApiVersionsResponse(error_code=0, api_keys=known)

    def _metadata(self) -> MetadataResponse:
        broker, topic = MetadataResponse.MetadataResponseBroker, MetadataResponse.MetadataResponseTopic
        partition = topic.MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=self.script.leader,
            leader_epoch=self.script.epoch,
            replica_nodes=[1],
            isr_nodes=[1],
        )
        error = ErrorCode.NONE if self.script.exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = [partition] if self.script.exists else []
        return MetadataResponse(
            brokers=[broker(node_id=node, host="127.0.0.1", port=port) for node, port in enumerate(self.ports, 1)],
            topics=[topic(error_code=error, name=self.script.topic, partitions=partitions)],
        )

    def _bounds(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        answer = ListOffsetsResponse.ListOffsetsTopicResponse
        earliest, latest = self.script.bounds
        found = earliest if request.topics[0].partitions[0].timestamp == -2 else latest
        partition = answer.ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=found)
        return ListOffsetsResponse(topics=[answer(name=self.script.topic, partitions=[partition])])

    def _fetched(self, node: int, request: FetchRequest) -> FetchResponse:
        self.script.fetched.append((node, request))
        partition = self.script.fetch(node, request.topics[0].partitions[0].fetch_offset)
        topic = FetchResponse.FetchableTopicResponse(topic=self.script.topic, partitions=[partition])
        return FetchResponse(error_code=0, responses=[topic])


@contextmanager
def scripted(script: Script, nodes: int = 1, tls: ssl.SSLContext | None = None) -> Iterator[ScriptedNodes]:
    """The nodes for the length of a block."""
    running = ScriptedNodes(script, nodes, tls)
    try:
        yield running
    finally:
        running.close()


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise Hang
        data += piece
    return data
