"""The frames of real clients, explained and dissected by Wireshark's tshark: the same fields, at the same bytes.

Wireshark 4.0 knows Kafka's versions up to about release 2.5, which the broker emulates, so that clients speak these. It
reads the lengths in JoinGroup and SyncGroup wrongly, as it says itself, and the times of batches; these are left out.
Wireshark 4.6 knows most versions that clients speak now, but not version 13 of Metadata, nor what is in tagged fields.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID
from xml.etree import ElementTree

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

from minibroker.captures.explained_capture import CaptureExplainer, NumberedPair, number_pairs
from minibroker.captures.kafka_streams import find_conversations
from minibroker.captures.packets import Capture
from minibroker.captures.tcp_streams import collect_connections
from minibroker.captures.tshark_text import iterate_connections
from minibroker.protocol.explaining.parts import ExplainedPart, Explanation
from minibroker.protocol.records.varints import Bytes
from minibroker.testing import Broker
from minibroker.testing.seen.exchange import Exchange
from tests.captures.capturing import FIRST_TIME, Wire, pcap
from tests.captures.frames import HELLO, sized

pytestmark = pytest.mark.minibroker_only
KNOWN_RELEASE = "2.5"
MISREAD = {KNOWN_RELEASE: {"JoinGroup", "SyncGroup"}, None: {"Metadata"}}
KNOWS_NEW_VERSIONS = (4, 6)
TRUTH = ("True", "False")
WRONG_LENGTH = "kafka.pdu_length_mismatch"
NULL = "[ Null ]"


class Field(NamedTuple):
    """A field that tshark found: its name, the range of its bytes in the frame, and its value as text."""

    name: str
    start: int
    end: int
    shown: str


def sessions(address: str) -> None:
    """Let two clients produce, in a transaction too, and consume in a group."""
    asyncio.run(with_aiokafka(address))
    producer = Producer({"bootstrap.servers": address, "transactional.id": "t"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"value", key=b"key")
    producer.commit_transaction(30)
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert consumer.consume(1, timeout=30)
    consumer.commit(asynchronous=False)
    consumer.close()


async def with_aiokafka(address: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        await producer.send_and_wait("orders", b"value", key=b"key")
    consumer = AIOKafkaConsumer("orders", bootstrap_servers=address, group_id="h", auto_offset_reset="earliest")
    async with consumer:
        await consumer.getone()


def captured(exchanges: list[Exchange]) -> bytes:
    """Return a capture of the frames, a packet each."""
    wires: dict[str, Wire] = {}
    for each in exchanges:
        wire = wires.setdefault(each.connection, Wire(("127.0.0.1", 50_000 + len(wires))).open())
        wire.asks(sized(each.request_bytes), segment_bytes=60_000)
        wire.answers(sized(each.answer_bytes), segment_bytes=60_000)
    packets = [packet for wire in wires.values() for _, packet in wire.packets]
    return pcap((FIRST_TIME + number / 1000, packet) for number, packet in enumerate(packets))


def tshark(path: Path, *options: str) -> str:
    return subprocess.run(["tshark", "-r", path, *options], capture_output=True, text=True, check=True).stdout


def dissected(path: Path) -> Iterator[tuple[float, bool, list[Field]]]:
    """Yield the time of each frame, whether tshark says that it misread its length, and its fields."""
    document = tshark(path, "-d", "tcp.port==9092,kafka", "-T", "pdml")
    for packet in ElementTree.fromstring(document).iter("packet"):
        (time,) = (each.get("value") for each in packet.iter("field") if each.get("name") == "timestamp")
        for frame in (each for each in packet.iter("proto") if each.get("name") == "kafka"):
            names = {each.get("name") for each in frame.iter("field")}
            yield float(time or 0), WRONG_LENGTH in names, list(fields_of(frame))


def fields_of(frame: ElementTree.Element) -> Iterator[Field]:
    """Yield the fields of a frame that have bytes of their own, but no bits and no times."""
    base = int(frame.get("pos", 0))
    for each in frame.iter("field"):
        name, size = each.get("name", ""), int(each.get("size", 0))
        is_own = (
            not name.startswith("kafka.tagged_field")
            and each.get("value")
            and each.get("hide") != "yes"
            and each.get("unmaskedvalue") is None
        )
        if name.startswith("kafka.") and is_own and "timestamp" not in name:
            start = int(each.get("pos", 0)) - base
            yield Field(name, start, start + size, each.get("show", ""))


def ranges(part: ExplainedPart) -> Iterator[tuple[tuple[int, int], ExplainedPart]]:
    """Yield all parts with their ranges, and with those behind their lengths."""
    for _, each in part.iterate_parts():
        yield (each.start, each.end), each
        yield (each.start + each.prefix_bytes, each.end), each


def text_of(part: ExplainedPart, data: Bytes, shown: str) -> str:
    """Return a value as tshark shows it."""
    if part.parts:  # of a key or value that is explained
        return bytes(data[part.start + part.prefix_bytes : part.end]).hex(":")
    if part.value is None:
        return NULL if shown else ""
    if part.type == "uuid":
        return str(UUID(bytes=part.value))
    if shown in TRUTH:
        return str(part.value)
    if isinstance(part.value, bytes):
        return part.value.hex(":")
    if isinstance(part.value, int):
        return f"{part.value % 2**32:#010x}" if shown.startswith("0x") else str(int(part.value))
    return str(part.value)


def differences(item: Explanation, fields: list[Field]) -> Iterator[str]:
    """Yield each field of tshark that is not in the explanation."""
    known = dict(ranges(item.part))
    for field in fields:
        part = known.get((field.start, field.end))
        if part is not None and part.name == "offset_delta":
            continue  # tshark shows the offset
        if part is None or text_of(part, item.data, field.shown) != field.shown:
            yield f"{item.part.meaning}: {field}, but explained is {part and (part.name, part.value)}"


def explained(pairs: list[NumberedPair]) -> Iterator[tuple[float, str, Explanation]]:
    explainer = CaptureExplainer()
    for each in pairs:
        frames = [frame for frame in (each.pair.request, each.pair.answer) if frame]
        for frame, item in zip(frames, explainer.explain_pair(each), strict=True):
            yield frame.time or 0, each.name.split()[0], item


def version() -> tuple[int, ...]:
    """Return the version of tshark, such as (4, 0)."""
    said = subprocess.run(["tshark", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"TShark \(Wireshark\) (\d+)\.(\d+)", said)
    assert found is not None
    return tuple(map(int, found.groups()))


@pytest.mark.parametrize("release", [KNOWN_RELEASE, None])
def test_tshark_and_minibroker_decode_the_same_fields_of_client_frames(release: str | None, tmp_path: Path) -> None:
    if release is None and version() < KNOWS_NEW_VERSIONS:
        pytest.skip("this tshark does not know the versions that clients speak now")
    with Broker(emulate=release) as broker:
        broker.journal.on()
        broker.create_topic("orders", partitions=1)
        sessions(broker.bootstrap_servers)
        exchanges = [each for each in broker.requests() if each.answer_bytes]
    path = tmp_path / "session.pcap"
    path.write_bytes(captured(exchanges))
    found = find_conversations(collect_connections(Capture(path.read_bytes()).iterate_segments())).found
    ours = sorted(explained(number_pairs(found)), key=lambda each: each[0])
    theirs = list(dissected(path))
    assert len(ours) == len(theirs) == 2 * len(exchanges)
    compared, wrong, said = 0, [], set()
    for (_, api, item), (_, is_misread, fields) in zip(ours, theirs, strict=True):
        said.add(api)
        if is_misread:
            assert api in MISREAD[release]
        else:
            compared += len(fields)
            wrong += differences(item, fields)
    assert wrong == []
    assert compared > 500
    assert said >= {"ApiVersions", "Metadata", "Produce", "Fetch", "OffsetCommit", "AddPartitionsToTxn", "EndTxn"}


class Relay:
    """Stands between a client and a server, and captures what it passes on."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.wire = Wire().open()
        self._target = target
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._socket.getsockname()
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self) -> None:
        client, _ = self._socket.accept()
        with client, socket.create_connection(self._target) as server:
            back = threading.Thread(target=self._pass, args=(server, client, self.wire.answers))
            back.start()
            self._pass(client, server, self.wire.asks)
            back.join()

    def _pass(self, source: socket.socket, target: socket.socket, capture: Callable[[bytes], Wire]) -> None:
        while data := source.recv(65_536):
            capture(data)
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for thread in self._threads:
            thread.join()
        self._socket.close()


def test_tls_decrypted_by_tshark_is_explained(tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    with Broker(security="SSL") as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        relay = Relay((host, int(port)))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.keylog_filename = str(keys)
        with socket.create_connection(relay.address) as plain, context.wrap_socket(plain) as client:
            client.sendall(HELLO)
            assert client.recv(65_536)
        relay.close()
    path = tmp_path / "session.pcap"
    path.write_bytes(pcap(relay.wire.packets))
    assert len(find_conversations(collect_connections(Capture(path.read_bytes()).iterate_segments())).tls) == 1
    followed = tshark(path, "-o", f"tls.keylog_file:{keys}", "-d", "tcp.port==9092,tls", "-q", "-z", "follow,tls,raw,0")
    (pair,) = number_pairs(find_conversations(list(iterate_connections(followed))).found)
    assert pair.name == "ApiVersions 3"
    assert [item.part.meaning for item in CaptureExplainer().explain_pair(pair)] == ["ApiVersions version 3"] * 2
