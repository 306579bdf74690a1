"""What `minibroker proxy --pcap` writes, `minibroker explain` reads."""

from __future__ import annotations

import pytest

from minibroker.captures.explained_capture import CaptureExplainer, number_pairs
from minibroker.captures.kafka_streams import find_conversations
from minibroker.captures.packets import Capture
from minibroker.captures.tcp_streams import collect_connections
from minibroker.protocol.apis import ApiKey
from minibroker.proxy.pcap_writer import PacketWriter, make_pcap_header
from minibroker.testing.seen.exchange import Exchange
from tests.captures.frames import heartbeat, heartbeat_answer


def exchange(number: int, group: str) -> Exchange:
    made = Exchange(number, ApiKey.HEARTBEAT, 4, number, heartbeat(number, group)[4:])
    made.answer_bytes = heartbeat_answer(number, 27)[4:]
    made.connection, made.started_ms, made.duration_ms = "10.0.0.1:5000", 1_700_000_000_000 + number, 4.5
    return made


@pytest.mark.parametrize("server", ["10.0.0.2:9092", "[::1]:9092"])
def test_exchanges_of_a_proxy_capture_are_found_with_their_times(server: str) -> None:
    packets = PacketWriter()
    exchanges = [exchange(1, "g"), exchange(2, "g" * 32_767), exchange(3, "g")]
    data = make_pcap_header() + b"".join(piece for each in exchanges for piece in packets.iterate_packets(each, server))
    found = find_conversations(collect_connections(Capture(data).iterate_segments()))
    assert [each.notes for each in found.found] == [[]]
    pairs = number_pairs(found.found)
    assert [(each.name, each.pair.duration_ms) for each in pairs] == [("Heartbeat 4", pytest.approx(4.5, abs=0.01))] * 3
    explainer = CaptureExplainer()
    for made, pair in zip(exchanges, pairs, strict=True):
        asked, said = explainer.explain_pair(pair)
        assert (asked.data[4:], said.data[4:]) == (made.request_bytes, made.answer_bytes)
        assert not [*asked.part.iterate_problems(), *said.part.iterate_problems()]
