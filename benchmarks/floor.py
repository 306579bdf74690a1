"""The floor below other rows: a bare uvloop protocol that knows the answers.

What it takes, the loop, the kernel, the client's own pace and one Python call for each read take in every server on
uvloop. Run as a program, this file is that server: `floor.py same REQUEST_BYTES ANSWER` (in hexadecimal) gives each
request the same answer; `floor.py recorded PORT HOST BROKER_PORT` forwards what comes to PORT to a broker until some
transactions are done, and then gives the broker's answers itself.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import cast

import uvloop

import programs
import servers
import wire
from exchanges import RATE_COLUMNS, pinged
from groups import new_group
from machine import on_one_core
from relay import Connector, End
from report import Case, Sample, Section
from servers import Server, Target
from transactions import SHAPES, TRANSACTION_COLUMNS, commit_transactions, name_shape

END_TXN = 26
FORWARDED = 50  # transactions
ONE_CORE = ", all on one core"
BATCH_START = bytes(8)  # the base offset in a Produce request; librdkafka's version 10 has the size before it
SIZE_BYTES = 2  # of that size, up to 16 KB

MakeRequest = Callable[[Server, str], tuple[bytes, int]]  # the frame, and where its answer has a code


def sections(seconds: float) -> list[Section]:
    """Rows of `seconds` each, named as those of the ping-pong, the commits and the transactions."""
    one = "1 connection"
    pings = [(one, 1, 1), (one + ONE_CORE, 1, 1), ("50 connections", 50, 1), (f"{one}, 16 in flight", 1, 16)]
    return [
        Section(
            "floor",
            "The floor: the same requests to a bare uvloop protocol, which knows the answer",
            RATE_COLUMNS,
            [
                *(_same_answer_case(name, make_produce, 1, count, depth, seconds) for name, count, depth in pings),
                _same_answer_case("50 connections, commits", make_commit_of(1), 1, 50, 1, seconds),
                _same_answer_case("1 connection, commits of 100 partitions", make_commit_of(100), 100, 1, 1, seconds),
            ],
        ),
        Section(
            "floor-transactions",
            "The floor of transactions: the same, with what a broker answered to the first of them",
            TRANSACTION_COLUMNS,
            [_recorded_case(records, partitions, seconds) for records, partitions in SHAPES],
        ),
    ]


def make_produce(_: Server, topic: str) -> tuple[bytes, int]:
    """Return the request of the ping-pong."""
    return wire.produce_request(topic, wire.batch([b"x" * 100])), wire.produce_error_at(topic)


def make_commit_of(partitions: int) -> MakeRequest:
    """Return what makes a commit of so many partitions."""

    def make_commit(server: Server, topic: str) -> tuple[bytes, int]:
        return wire.commit_request(new_group(server), topic, partitions), wire.commit_error_at(topic, partitions)

    return make_commit


def _must_be_ours(target: Target) -> None:
    if target.name != "minibroker":
        raise programs.Unavailable("its loop is another one")


def _same_answer_case(
    name: str, make_request: MakeRequest, partitions: int, connections: int, depth: int, seconds: float
) -> Case:
    def measure(target: Target) -> Sample:
        _must_be_ours(target)
        with wire.topic(target.server, partitions) as topic:
            request, error_at = make_request(target.server, topic)
            with socket.create_connection((target.server.host, target.server.port)) as client:
                client.sendall(request)
                answer = wire.receive(client)
            answer = len(answer).to_bytes(4, "big") + answer
            command = [sys.executable, __file__, "same", str(len(request)), answer.hex()]
            with servers.process(command) as server, on_one_core(server.pid) if ONE_CORE in name else nullcontext():
                return pinged(server, request, error_at, seconds, connections, depth)

    return Case(name, measure)


def _recorded_case(records: int, partitions: int, seconds: float) -> Case:
    def measure(target: Target) -> Sample:
        _must_be_ours(target)
        port, own_port = servers.free_port(), servers.free_port()
        listeners = f"listeners=PLAINTEXT://127.0.0.1:{port}"
        settings = [listeners, f"advertised.listeners=PLAINTEXT://127.0.0.1:{own_port}"]
        between = [sys.executable, __file__, "recorded", str(own_port), "127.0.0.1", str(port)]
        with (
            servers.data_directory() as folder,
            servers.minibroker_on(folder, settings=settings),
            servers.process(between) as server,
        ):
            return commit_transactions(server, records, partitions, seconds, warm_up=2 * FORWARDED)

    return Case(name_shape(records, partitions), measure)


class SameAnswer(asyncio.Protocol):
    """Answers each request of a connection with the same bytes. All requests have the same size."""

    def __init__(self, request_bytes: int, answer: bytes) -> None:
        self.request_bytes = request_bytes
        self.answer = answer
        self.left_bytes = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        count, self.left_bytes = divmod(self.left_bytes + len(data), self.request_bytes)
        if count and self.transport is not None:
            self.transport.write(self.answer * count)


class Recording:
    """What a broker answered last to each request, and whether enough transactions are done to answer in its place."""

    def __init__(self) -> None:
        self.answers: dict[bytes, tuple[bytes, bytes]] = {}  # before and after the correlation id
        self.left = FORWARDED


class BrokerEnd(End):
    """The broker's end of a connection. `asked` has the requests without an answer, by correlation id."""

    def __init__(self, recording: Recording, asked: dict[bytes, bytes]) -> None:
        super().__init__()
        self.recording = recording
        self.asked = asked
        self.rest = b""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        frames, self.rest = split_frames(self.rest + data)
        for frame in frames:
            self.recording.answers[self.asked.pop(frame[4:8])] = frame[:4], frame[8:]


class ClientEnd(BrokerEnd):
    """The client's end of it."""

    def data_received(self, data: bytes) -> None:
        frames, self.rest = split_frames(self.rest + data)
        for frame in frames:
            key, correlation_id = frame[4:8] + frame[12 : frame.find(BATCH_START, 12) - SIZE_BYTES], frame[8:12]
            self.recording.left -= int.from_bytes(frame[4:6], "big") == END_TXN
            answer = self.recording.answers.get(key)
            if self.recording.left < 0 and answer is not None and self.transport is not None:
                self.transport.write(answer[0] + correlation_id + answer[1])
            else:
                self.asked[correlation_id] = key
                End.data_received(self, frame)


def split_frames(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the whole frames at the start, with their sizes, and the rest."""
    frames, position = [], 0
    while (end := position + 4 + int.from_bytes(data[position : position + 4], "big")) <= len(data):
        frames.append(data[position:end])
        position = end
    return frames, data[position:]


async def serve(make_protocol: Callable[[], asyncio.Protocol], port: int = 0) -> None:
    """Answer until the process ends."""
    server = await asyncio.get_running_loop().create_server(make_protocol, "127.0.0.1", port)
    print(f"answering on 127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


async def serve_recorded(port: int, host: str, broker_port: int) -> None:
    """Answer until the process ends, at first with a broker's help."""
    recording, connector = Recording(), Connector(host, broker_port)

    def accept() -> End:
        asked: dict[bytes, bytes] = {}
        return connector.connect(ClientEnd(recording, asked), BrokerEnd(recording, asked))

    await serve(accept, port)


def main() -> None:
    """Be one of both servers."""
    kind, first, *others = sys.argv[1:]
    if kind == "same":
        answer = bytes.fromhex(others[0])
        uvloop.run(serve(lambda: SameAnswer(int(first), answer)))
    else:
        uvloop.run(serve_recorded(int(first), others[0], int(others[1])))


if __name__ == "__main__":
    main()
