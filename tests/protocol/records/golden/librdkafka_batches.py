"""Prints the batches of librdkafka.json: what librdkafka (confluent-kafka 2.16.1) sends. Not part of a test run.

A broker of one topic stands in for Kafka, knows just enough for a producer, and keeps the bytes that it is sent.
"""

from __future__ import annotations

import json
import socket
import threading
from struct import Struct
from typing import Any

from confluent_kafka import Producer

from minibroker.protocol.apis import get_request_class
from minibroker.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    get_request_header_version,
    get_response_header_version,
)
from minibroker.protocol.messages.cluster import ApiVersionsResponse
from minibroker.protocol.messages.metadata import MetadataResponse
from minibroker.protocol.messages.produce import ProduceResponse

T = 1700000000000
TOPIC = "golden"
SIZE = Struct(">i")
# librdkafka infers from the versions of Fetch and FindCoordinator which formats and codecs it may produce.
VERSIONS = ((0, 3, 9), (1, 4, 11), (3, 0, 9), (10, 0, 2), (18, 0, 3))
TOPICS = MetadataResponse.MetadataResponseTopic
PARTITIONS = TOPICS.MetadataResponsePartition
PRODUCED = ProduceResponse.TopicProduceResponse


class OneTopicBroker:
    """Accepts connections until the process ends; `batches` are the Records fields of all Produce requests."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while size := stream.read(SIZE.size):
                frame = stream.read(*SIZE.unpack(size))
                key, version = Struct(">hh").unpack_from(frame)
                header, position = RequestHeader.decode_from(frame, get_request_header_version(key, version))
                answer = self.answer(key, get_request_class(key).decode(frame, version, position))
                header_version = get_response_header_version(key, version)
                head = ResponseHeader(correlation_id=header.correlation_id).encode(header_version)
                body = head + answer.encode(version)
                connection.sendall(SIZE.pack(len(body)) + body)

    def answer(self, key: int, request: Any) -> Any:
        if key == 18:
            versions = [
                ApiVersionsResponse.ApiVersion(api_key=key, min_version=first, max_version=last)
                for key, first, last in VERSIONS
            ]
            return ApiVersionsResponse(api_keys=versions)
        if key == 3:
            broker = MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)
            partition = PARTITIONS(leader_id=1, replica_nodes=[1], isr_nodes=[1])
            return MetadataResponse(brokers=[broker], topics=[TOPICS(name=TOPIC, partitions=[partition])])
        self.batches.append(bytes(request.topic_data[0].partition_data[0].records))
        return ProduceResponse(
            responses=[PRODUCED(name=TOPIC, partition_responses=[PRODUCED.PartitionProduceResponse()])]
        )


def small(producer: Producer) -> None:
    producer.produce(TOPIC, b"value", b"key", 0, timestamp=T)
    producer.produce(TOPIC, b"no key", None, 0, timestamp=T + 1)
    producer.produce(TOPIC, None, b"no value", 0, timestamp=T + 2)
    headers = [("empty", b""), ("null", None), ("twice", b"1"), ("twice", b"2")]
    producer.produce(TOPIC, b"", b"", 0, timestamp=T - 5, headers=headers)
    producer.produce(TOPIC, b"x" * 300, "clé".encode(), 0, timestamp=T + 100000, headers=[("ключ", b"\x00\xff")])


def large(producer: Producer) -> None:
    for _ in range(3):
        producer.produce(TOPIC, b"minibroker " * 10000, None, 0, timestamp=T)


def main() -> None:
    broker = OneTopicBroker()
    found = {}
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        for produce in (small, large):
            if codec == "none" and produce is large:
                continue
            producer = Producer(
                {"bootstrap.servers": f"127.0.0.1:{broker.port}", "compression.codec": codec, "linger.ms": 500}
            )
            produce(producer)
            producer.flush()
            (found[f"{produce.__name__} {codec}"],) = broker.batches
            broker.batches.clear()
    print(json.dumps({name: batch.hex() for name, batch in found.items()}, indent=2))


if __name__ == "__main__":
    main()
