"""Bytes of TCP connections: in order, each once, with what is missing, however the packets were captured."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.captures.packets import Capture, MalformedPacket, Segment
from minibroker.captures.tcp_streams import Connection, Stream, collect_connections
from tests.captures.capturing import (
    CLIENT,
    FIRST_TIME,
    LINUX_ANY,
    LINUX_ANY_2,
    LOOPBACK,
    RAW,
    SERVER,
    Packet,
    Wire,
    pcap,
    pcapng,
)

SAID = bytes(range(256)) * 20


def captured(data: bytes) -> list[Connection]:
    return collect_connections(Capture(data).iterate_segments())


def only(packets: list[Packet]) -> Connection:
    (connection,) = captured(pcap(packets))
    return connection


def runs(stream: Stream) -> list[tuple[int, bytes]]:
    return [(run.start, run.data) for run in stream.runs]


@pytest.mark.parametrize("write", [pcap, pcapng])
def test_the_streams_of_both_directions_are_assembled(write: type) -> None:
    wire = Wire().open().asks(SAID).answers(b"yes").close()
    (connection,) = captured(write(wire.packets))
    assert (connection.client, connection.server) == (CLIENT, SERVER)
    assert str(connection) == "127.0.0.1:50000 > 127.0.0.1:9092"
    assert runs(connection.to_server) == [(0, SAID)]
    assert runs(connection.to_client) == [(0, b"yes")]
    assert connection.to_server.has_begin


@pytest.mark.parametrize("link", [LINUX_ANY, LINUX_ANY_2, LOOPBACK, RAW])
def test_packets_of_each_link_type_are_read(link: int) -> None:
    wire = Wire()
    wire.link = link
    wire.open().asks(SAID)
    (connection,) = captured(pcap(wire.packets, link))
    assert runs(connection.to_server) == [(0, SAID)]


def test_ipv6_packets_are_read() -> None:
    connection = only(Wire(("::1", 50_000), ("::1", 9092)).open().asks(SAID).packets)
    assert str(connection.client) == "[::1]:50000"
    assert runs(connection.to_server) == [(0, SAID)]


def test_the_times_of_a_stream_are_those_of_its_packets() -> None:
    (run,) = only(Wire().open().asks(SAID, segment_bytes=1000).packets).to_server.runs
    assert [run.find_time_at(position) for position in (0, 999, 1000)] == [
        pytest.approx(FIRST_TIME + number / 1000) for number in (3, 3, 4)
    ]


def test_captures_with_nanosecond_timestamps_are_read() -> None:
    (run,) = captured(pcap(Wire().open().asks(b"a").packets, nano=True))[0].to_server.runs
    assert run.find_time_at(0) == pytest.approx(FIRST_TIME + 0.003)


@pytest.mark.parametrize("isn", [1000, 2**32 - 2, 2**32 - 2000, 2**31 - 1])
def test_reordered_and_duplicate_packets_give_the_same_stream(isn: int) -> None:
    packets = Wire(isn=isn).open().asks(SAID, segment_bytes=100).packets
    order = [*packets, *packets[5:20]]
    random.Random(1).shuffle(order[3:])
    connection = only([*packets[:3], *order[3:]])
    assert runs(connection.to_server) == [(0, SAID)]
    assert connection.to_server.repeated_bytes == 15 * 100
    assert connection.to_server.missing_bytes == 0


def test_a_packet_that_was_not_captured_leaves_a_gap() -> None:
    packets = Wire().open().asks(SAID, segment_bytes=1000).packets
    stream = only([*packets[:4], *packets[5:]]).to_server
    assert runs(stream) == [(0, SAID[:1000]), (2000, SAID[2000:])]
    assert stream.missing_bytes == 1000


def test_a_stream_captured_from_its_middle_is_marked_as_without_a_beginning() -> None:
    packets = Wire().open().asks(SAID, segment_bytes=1000).packets
    connection = only(packets[5:])
    assert runs(connection.to_server) == [(0, SAID[2000:])]
    assert not connection.to_server.has_begin
    assert not connection.has_begin


def test_truncated_packets_leave_a_gap() -> None:
    packets = Wire().open().asks(SAID, segment_bytes=1000).packets
    stream = only([(time, packet[: 54 + 300]) for time, packet in packets]).to_server
    assert runs(stream)[:2] == [(0, SAID[:300]), (1000, SAID[1000:1300])]
    assert stream.missing_bytes == 5 * 700  # the last segment has 120 bytes


def test_a_reused_client_port_is_another_connection() -> None:
    first, second = Wire().open().asks(b"one").close(), Wire(isn=77_000).open().asks(b"two")
    connections = captured(pcap([*first.packets, *second.packets]))
    assert [runs(each.to_server) for each in connections] == [[(0, b"one")], [(0, b"two")]]


def test_packets_that_are_no_tcp_segments_are_counted() -> None:
    capture = Capture(pcap([(0.0, b"\xff" * 60), (0.0, b""), *Wire().open().packets]))
    assert len(list(capture.iterate_segments())) == 3
    assert capture.others == 2


@pytest.mark.parametrize("write", [pcap, pcapng])
def test_a_truncated_file_is_read_up_to_its_end(write: type) -> None:
    data = write(Wire().open().asks(SAID).packets)
    for size in (len(data) - 1, len(data) - 1000, len(data) - 1500):
        capture = Capture(data[:size])
        assert collect_connections(capture.iterate_segments())[0].to_server.size_bytes > 0


def test_a_file_that_is_not_a_capture_is_reported() -> None:
    with pytest.raises(MalformedPacket, match="no capture"):
        list(Capture(b"\x0a\x0d\x0d\x0a").iterate_segments())
    with pytest.raises(MalformedPacket, match="link type 9 are not known"):
        list(Capture(pcap([], 9)).iterate_segments())


@given(st.data())
def test_corrupt_files_never_raise_other_errors(data: st.DataObject) -> None:
    whole = bytearray(data.draw(st.sampled_from([pcap, pcapng]))(Wire().open().asks(SAID[:50]).packets))
    for _ in range(4):
        whole[data.draw(st.integers(4, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedPacket):
        collect_connections(Capture(bytes(whole)).iterate_segments())


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 255), st.binary(max_size=20)), max_size=20))
def test_arbitrary_segments_never_raise(segments: list[tuple[int, int, bytes]]) -> None:
    ends = Capture(pcap(Wire().open().packets)).iterate_segments().__next__()
    made = [Segment(0.0, ends.source, ends.target, sequence, flags, data, 0) for sequence, flags, data in segments]
    for connection in collect_connections(made):
        for run in connection.to_server.runs:
            assert run.end <= connection.to_server.end
