"""A producer's identity, and its fields in batches: id, epoch, sequence, and whether in a transaction."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from minibroker.client.client_errors import ClientError
from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.encode.batch_settings import Producer
from minibroker.pipeline.log_source import TopicPartition
from minibroker.pipeline.sink.sink_errors import WriteFailed
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.transactions import InitProducerIdRequest
from minibroker.protocol.records.batch import CRC_POSITION, CRC_START, MAX_SEQUENCE
from minibroker.protocol.records.crc import crc32c

#  0 base offset 8 | length 4 | leader epoch 4 | magic 1
# 17 crc 4, of all that follows it
# 21 attributes 2 | last offset delta 4 | base timestamp 8 | max timestamp 8
# 43 producer id 8 | epoch 2 | base sequence 4
_CRC: Final = struct.Struct(">I")
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_POSITION: Final = 43
_TIMEOUT_MS: Final = 60_000  # InitProducerId requires one; it has no meaning without a transactional id


@dataclass(slots=True)
class Identity:
    """A producer's id and epoch (-1: none), and the next sequence of each partition."""

    producer_id: int = -1
    epoch: int = -1
    transactional_id: str | None = None
    sequences: dict[TopicPartition, int] = field(default_factory=dict)

    def become(self, producer_id: int, epoch: int) -> None:
        """Take another id and epoch. Sequences begin at 0 again."""
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self.sequences.clear()

    def producer(self, partition: TopicPartition) -> Producer:
        """Return the producer's fields of the next batch of a partition."""
        if self.producer_id < 0:
            return Producer()
        return Producer(
            self.producer_id, self.epoch, self.sequences.get(partition, 0), self.transactional_id is not None
        )

    def acknowledged(self, partition: TopicPartition, record_count: int) -> None:
        """Count records that a partition has accepted."""
        self.sequences[partition] = self.sequences.get(partition, 0) + record_count & MAX_SEQUENCE

    def stamp(self, data: bytes, partition: TopicPartition) -> bytes:
        """Return a batch in the form for a Produce request: offsets from 0 on, and the producer's current fields."""
        producer = self.producer(partition)
        said = (producer.producer_id, producer.epoch, producer.base_sequence)
        if _PRODUCER.unpack_from(data, _PRODUCER_POSITION) == said:
            return data if not any(data[:8]) else bytes(8) + data[8:]
        changed = bytearray(data)
        changed[:8] = bytes(8)
        _PRODUCER.pack_into(changed, _PRODUCER_POSITION, *said)
        _CRC.pack_into(changed, CRC_POSITION, crc32c(memoryview(changed)[CRC_START:]))
        return bytes(changed)


def request_producer_id(client: Client) -> tuple[int, int]:
    """Return a new producer id and epoch without a transactional id. Raises `WriteFailed`."""

    def ask() -> tuple[int, int]:
        answer = client.request(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TIMEOUT_MS))
        client.check(answer.error_code, "asking for a producer id")
        return answer.producer_id, answer.producer_epoch

    try:
        return client.retry(ask)
    except ClientError as error:
        denied = error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        remedy = "; kafka.enable.idempotence=false does without" if denied else ""
        raise WriteFailed(f"{error}{remedy}") from None
