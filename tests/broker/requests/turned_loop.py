"""A loop that the test turns by hand, and clients whose requests it reads."""

from __future__ import annotations

from pathlib import Path

from minibroker.broker.metadata.partitions import Partition
from minibroker.broker.network.framing import FrameBudget
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.produce import ProduceRequest
from tests.broker.harness import LIMIT_BYTES, Client, Harness, TopicData, frame_of
from tests.storage.support import FailingDisk, read_values

LOST = ErrorCode.KAFKA_STORAGE_ERROR
PRODUCE, FETCH, METADATA = 9, 12, 9  # the versions that are sent
Where = tuple[str, int]


class LoopClient(Client):
    """A client whose turn ends when the test says so."""

    def __init__(self, harness: Harness) -> None:
        super().__init__(harness, harness.cluster.nodes[1], "PLAINTEXT", FrameBudget(), LIMIT_BYTES)

    def read(self, *requests: tuple[int, Message, int]) -> None:
        """Let the socket read these requests, (correlation id, request, version) each, at once."""
        self._asked += [
            (request.api_key, version)
            for _, request, version in requests
            if not (isinstance(request, ProduceRequest) and request.acks == 0)
        ]
        data = b"".join(frame_of(request, version, number) for number, request, version in requests)
        scratch = memoryview(bytearray(data))
        self.connection.process_received_data(scratch, len(data))


def produce_of(batches: dict[Where, bytes], acks: int = 1) -> ProduceRequest:
    topics = [
        TopicData(
            name=name, partition_data=[TopicData.PartitionProduceData(index=index, records=memoryview(bytearray(data)))]
        )
        for (name, index), data in batches.items()
    ]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


def codes(client: Client) -> list[int]:
    """The error code of each Produce that was answered since the last time."""
    return [answer.responses[0].partition_responses[0].error_code for _, answer in client.responses()]


class Loop:
    """A harness on a disk that can be made to fail, with the topics t, of two partitions, and u."""

    def __init__(self, directory: Path) -> None:
        self.disk = FailingDisk()
        self.disk.suffix = ".log"
        self.harness = Harness(directory, disk=self.disk)
        self.harness.create_topic("t", 2)
        self.harness.create_topic("u")
        for where in (("t", 0), ("t", 1), ("u", 0)):  # the first batch of a segment is never pending
            self.harness.produce(where[0], "first", partition=where[1])

    def partition(self, where: Where) -> Partition:
        return self.harness.partition(*where)

    def end_turn(self, *clients: Client) -> None:
        """End this turn, and those that follow by themselves."""
        self.harness.end_turn()
        while any(client.outlet.soon for client in clients):
            for client in clients:
                client.outlet.run_soon()
            self.harness.end_turn()

    def values(self, where: Where = ("t", 0)) -> list[str]:
        return [(value or b"").decode() for _, value in read_values(self.partition(where).log)]

    def fail_writes(self) -> None:
        self.disk.failing = {"write"}

    def heal(self) -> None:
        self.disk.failing, self.disk.room_bytes = set(), None
