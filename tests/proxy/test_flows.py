"""What passes a proxy can be kept in files: exchanges to send again elsewhere, and packets for other tools."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from struct import unpack_from
from typing import cast

import pytest
from confluent_kafka import Consumer, Producer

from minibroker.client.connection_settings import Address, ClientSettings
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.headers import RequestHeader
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.proxy.flows import (
    LARGE_BYTES,
    PIECE_BYTES,
    WAITING_BYTES,
    ExchangeRecording,
    FlowError,
    encode_exchange,
    encode_exchange_in_pieces,
    encode_file_header,
    read_exchanges,
)
from minibroker.proxy.pcap_writer import PacketWriter, make_pcap_header
from minibroker.proxy.proxy import Proxy
from minibroker.proxy.replaying import ExchangeReplay, RawConnection, ReplayedRequest
from minibroker.testing import Broker
from minibroker.testing.seen.exchange import Exchange, copy_request_without_secrets
from tests.cases import for_each
from tests.proxy.upstreams import PATIENCE_S, request

pytestmark = pytest.mark.usefixtures("leaves_sockets")


def metadata_exchange(number: int = 1, connection: str = "10.0.0.1:5000") -> Exchange:
    header = RequestHeader(request_api_key=3, request_api_version=9, correlation_id=number, client_id="c")
    frame = header.encode(2) + MetadataRequest(topics=None).encode(9)
    exchange = Exchange(number, ApiKey.METADATA, 9, number, frame)
    exchange.client_id, exchange.connection, exchange.node_id = "c", connection, 2
    exchange.started_ms, exchange.duration_ms, exchange.outcome = 1_700_000_000_123, 4.5, "answered"
    exchange.answer_bytes = b"\0\0\0\1" + bytes(100_000)
    exchange.faults, exchange.ended_before = ("a fault",), number + 1
    return exchange


def test_a_saved_exchange_is_read_unchanged(tmp_path: Path) -> None:
    written = metadata_exchange()
    (tmp_path / "it").write_bytes(encode_file_header("k:1") + encode_exchange(written, "k:1"))
    (read,) = read_exchanges(tmp_path / "it")
    names = ("number", "api_key", "version", "correlation_id", "client_id", "node_id", "connection", "started_ms")
    for name in (*names, "duration_ms", "ended_before", "outcome", "request_bytes", "answer_bytes", "faults", "errors"):
        assert getattr(read, name) == getattr(written, name), name


def test_a_file_saved_by_a_journal_is_read(tmp_path: Path) -> None:
    with Broker() as broker:
        broker.journal.on()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("t", "v")
        assert producer.flush(PATIENCE_S) == 0
        count = broker.journal.save(tmp_path / "journal")
    found = list(read_exchanges(tmp_path / "journal"))
    assert len(found) == count and {"Produce", "Metadata"} <= {each.api for each in found}


@for_each(
    ("line", "reason"),
    [
        ("{}", "it has no request_hex"),
        ("[]", "it is no object"),
        ("no", "line 1: "),
        ('{"kind": "minibroker flows", "format": 99}', "its format is 99"),
        ('{"number": 1, "request_hex": "00"}', "its request has no header"),
        ('{"number": 1e999, "request_hex": "0003000900000001"}', "cannot convert float infinity"),
        ('{"number": 1, "request_hex": "0003000900000001", "duration_ms": NaN}', "it took nan ms"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_the_error_names_the_invalid_line_of_a_saved_journal(tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "it").write_text(line)
    with pytest.raises(FlowError, match=reason):
        list(read_exchanges(tmp_path / "it"))


def test_exchanges_are_omitted_if_the_disk_is_too_slow() -> None:
    exchange = metadata_exchange()
    exchange.answer_bytes = bytes(WAITING_BYTES + 1)
    file = io.BytesIO()
    recording = ExchangeRecording(file, b"head", lambda each, server: [b"x"])
    with recording._lock:
        recording._waiting_bytes = WAITING_BYTES + 1  # as if the thread had not come to it
    recording.add_exchange(exchange, "")
    assert recording.left_out == 1
    with recording._lock:
        recording._waiting_bytes = 0
    recording.add_exchange(exchange, "")
    recording.close()
    assert file.getvalue() == b"headx"


def test_a_large_exchange_is_formatted_in_pieces_in_a_thread(tmp_path: Path) -> None:
    exchange = metadata_exchange()
    exchange.answer_bytes = bytes(3 * LARGE_BYTES)
    pieces: list[bytes] = []

    def format(each: Exchange, server: str) -> Iterator[bytes]:
        for piece in encode_exchange_in_pieces(each, server):
            assert threading.current_thread() is not threading.main_thread()
            pieces.append(piece)
            yield piece

    with open(tmp_path / "it", "wb") as file:
        recording = ExchangeRecording(file, encode_file_header("k:1"), format)
        recording.add_exchange(exchange, "k:1")
        recording.close()
    (read,) = read_exchanges(tmp_path / "it")
    assert read.answer_bytes == exchange.answer_bytes and max(map(len, pieces)) <= 2 * PIECE_BYTES


def test_packets_are_written_in_the_order_of_their_exchanges() -> None:
    packets, exchange, other = PacketWriter(), metadata_exchange(), metadata_exchange()
    exchange.answer_bytes = other.answer_bytes = bytes(100_000)
    later, soon = packets.iterate_packets(exchange, "[::1]:9092"), list(packets.iterate_packets(other, "[::1]:9092"))
    in_turn = PacketWriter()
    assert b"".join([*later, *soon]) == b"".join(
        piece for each in (exchange, other) for piece in list(in_turn.iterate_packets(each, "[::1]:9092"))
    )


def test_an_unchanged_large_frame_is_kept_without_a_copy() -> None:
    data = bytearray(2 << 20)
    frame = memoryview(data)[4:]
    assert cast(memoryview, copy_request_without_secrets(ApiKey.PRODUCE, 9, frame.toreadonly())).obj is data
    assert isinstance(copy_request_without_secrets(ApiKey.PRODUCE, 9, frame), bytes)
    assert isinstance(copy_request_without_secrets(ApiKey.PRODUCE, 9, frame[: 1 << 10].toreadonly()), bytes)


def test_a_recording_is_written_without_being_closed() -> None:
    written = threading.Event()

    class Watched(io.BytesIO):
        def flush(self) -> None:
            if self.getvalue() == b"headxxx":
                written.set()

    recording = ExchangeRecording(Watched(), b"head", lambda each, server: [b"x"])
    for _ in range(3):
        recording.add_exchange(metadata_exchange(), "")
    assert written.wait(PATIENCE_S)
    recording.close()


def test_a_failed_recording_is_reported_at_the_end() -> None:
    class Full(io.BytesIO):
        def writelines(self, lines: object) -> None:
            raise OSError(28, "No space left on device")

    file = io.BytesIO()
    recording = ExchangeRecording(file, b"", lambda each, server: [b"x"])
    recording._file = Full()
    recording.add_exchange(metadata_exchange(), "")
    with pytest.raises(OSError, match="No space left"):
        recording.close()


def packets_in(data: bytes) -> list[bytes]:
    assert unpack_from("<I", data)[0] == 0xA1B2C3D4 and unpack_from("<I", data, 20)[0] == 101
    position, found = 24, []
    while position < len(data):
        size, original = unpack_from("<II", data, position + 8)
        assert size == original < 1 << 16
        found.append(data[position + 16 : position + 16 + size])
        position += 16 + size
    return found


def word_sum(data: bytes) -> int:
    total = sum(unpack_from(f">{len(data) // 2}H", data)) + (data[-1] << 8 if len(data) % 2 else 0)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@pytest.mark.parametrize(
    ("client", "server"), [("10.0.0.1:5000", "10.0.0.2:9092"), ("[::1]:5000", "10.0.0.2:9092"), ("::1:5000", "[::1]:9")]
)
def test_packets_contain_the_frames_in_order_with_right_checksums(client: str, server: str) -> None:
    packets, exchange = PacketWriter(), metadata_exchange(connection=client)
    data = make_pcap_header() + b"".join(
        [*packets.iterate_packets(exchange, server), *packets.iterate_packets(exchange, server)]
    )
    streams: dict[int, bytes] = {}
    for packet in packets_in(data):
        six = packet[0] >> 4 == 6
        head, addresses = (40, packet[8:40]) if six else (20, packet[12:20])
        segment = packet[head:]
        assert six or word_sum(packet[:20]) == 0xFFFF
        assert word_sum(addresses + len(segment).to_bytes(4) + bytes([0, 0, 0, 6]) + segment) == 0xFFFF
        port, _, sequence = unpack_from(">HHI", segment)
        if segment[20:]:
            assert sequence == 1 + len(streams.get(port, b""))  # behind the handshake
        streams[port] = streams.get(port, b"") + segment[20:]
    asked = len(exchange.request_bytes).to_bytes(4) + exchange.request_bytes
    assert streams[5000] == asked + asked
    assert streams[int(server.rpartition(":")[2])].count(exchange.answer_bytes) == 2


def replayed(exchanges: list[Exchange], servers: str) -> dict[int, ReplayedRequest]:
    return asyncio.run(_replayed(exchanges, servers))


async def _replayed(exchanges: list[Exchange], servers: str) -> dict[int, ReplayedRequest]:
    settings = ClientSettings({"bootstrap.servers": servers, "request.timeout.ms": "60000"})
    return {each.exchange.number: each async for each in ExchangeReplay(settings).replay_exchanges(exchanges)}


def session(broker: Broker, directory: Path) -> list[Exchange]:
    """What a producer and a member of a group say through a proxy, saved and read."""
    broker.create_topic("t")
    with Proxy(broker.bootstrap_servers) as proxy:
        proxy.journal.on()
        producer = Producer({"bootstrap.servers": proxy.bootstrap_servers, "enable.idempotence": True})
        for _ in range(3):
            producer.produce("t", "v")
            assert producer.flush(PATIENCE_S) == 0
        consumer = Consumer(
            {"bootstrap.servers": proxy.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["t"])
        for _ in range(3):
            assert consumer.poll(PATIENCE_S) is not None
        consumer.commit(asynchronous=False)
        consumer.close()
        lines = b"".join(encode_exchange(each, "") for each in proxy.journal.requests() if each.outcome != "open")
    (directory / "flows").write_bytes(encode_file_header("") + lines)
    return list(read_exchanges(directory / "flows"))


def test_a_replay_on_an_equal_cluster_gives_equal_responses(tmp_path: Path) -> None:
    with Broker() as recorded:
        exchanges = session(recorded, tmp_path)
    with Broker() as other:
        other.create_topic("t")
        results = replayed(exchanges, other.bootstrap_servers)
        assert len(results) == len(exchanges) > 15
        assert [record.value for record in other.records("t")] == [b"v"] * 3
        wrong = {number: each for number, each in results.items() if each.problem or each.exchange.api == "Produce"}
        assert all(not each.problem and not each.differences for each in wrong.values()), wrong
        assert {"JoinGroup", "SyncGroup", "OffsetCommit"} <= {
            each.exchange.api for each in results.values() if not each.differences
        }


def test_a_replay_names_the_fields_in_which_a_response_differs(tmp_path: Path) -> None:
    with Broker() as recorded:
        exchanges = session(recorded, tmp_path)
    with Broker(auto_create=False) as other:
        produces = [each for each in exchanges if each.api == "Produce"]
        results = replayed(produces, other.bootstrap_servers)
    said = results[produces[0].number].differences
    assert any(".error_code: 3 in the place of 0" in line or ".error_code: 100 in" in line for line in said), said


def test_a_replay_reports_requests_whose_connection_was_closed() -> None:
    frame = request(999, 0)[4:]
    exchange = Exchange(1, ApiKey.METADATA, 99, 1, frame)
    exchange.answer_bytes = b"\0\0\0\1"
    with Broker() as other:
        results = replayed([exchange], other.bootstrap_servers)
    assert results[1].problem


def test_each_line_of_a_recording_is_a_json_object() -> None:
    values = json.loads(encode_exchange(metadata_exchange(), "k:1"))
    assert (values["api"], values["server"], values["duration_ms"]) == ("Metadata", "k:1", 4.5)
    assert bytes.fromhex(values["request_hex"])[:4] == b"\0\3\0\x09"


async def test_a_replay_does_not_match_a_late_response_to_the_next_request() -> None:
    async def answer_the_first_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        late = b""
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                if await reader.readexactly(9) == b"\0\0\0\5first":
                    late = b"\0\0\0\4late"
                else:
                    writer.write(late + b"\0\0\0\4soon")
        writer.close()

    server = await asyncio.start_server(answer_the_first_late, "127.0.0.1", 0)
    async with server:
        address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        settings = {"bootstrap.servers": str(address), "request.timeout.ms": "1000"}
        line = RawConnection(address, ClientSettings(settings, "c"))
        with pytest.raises(TimeoutError):
            await line.send_and_receive(b"first", True)
        assert await line.send_and_receive(b"other", True) == b"soon"
        line.close()
