"""Requests of the journal, explained byte by byte and in a line."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from minibroker.protocol.apis import ApiKey
from minibroker.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from minibroker.testing import Broker
from minibroker.testing.seen.exchange import Exchange
from minibroker.testing.seen.explained_requests import GIST_CHARACTERS, Exchanges, explain_exchanges, summarize_exchange
from tests.captures.frames import answer, request

ID = bytes(range(16))


def heartbeat(number: int = 1) -> Exchange:
    frame = request(HeartbeatRequest(group_id="g", generation_id=3), 4, 7)[4:]
    exchange = Exchange(number, ApiKey.HEARTBEAT, 4, 7, frame)
    exchange.answer_bytes = answer(HeartbeatResponse(error_code=27), 4, 7)[4:]
    return exchange


def test_each_byte_of_a_clients_requests_is_explained(kafka_broker: Broker) -> None:
    broker = kafka_broker
    broker.reset()
    broker.journal.on()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "shop"})
    producer.produce("orders", b"tea")
    assert producer.flush(30) == 0
    found = broker.wait_for_requests("Produce")
    lines = found.explain().splitlines()
    assert lines[0] == str(found[0])
    assert any(line.endswith('bytes  "tea"') for line in lines)
    assert f"#{found[0].number} answer" in lines


def test_a_response_is_explained_in_the_version_of_its_request() -> None:
    asked, said = explain_exchanges([heartbeat()])
    assert (asked.part.meaning, said.part.meaning) == ("Heartbeat version 4", "Heartbeat version 4")
    assert not [*asked.part.iterate_problems(), *said.part.iterate_problems()]
    assert (len(asked.data), said.heading) == (len(heartbeat().request_bytes) + 4, "#1 answer")


def test_a_request_without_a_response_is_explained_alone() -> None:
    exchange = heartbeat()
    exchange.answer_bytes = b""
    assert len(list(explain_exchanges([exchange]))) == 1
    assert "answer" not in Exchanges([exchange]).explain().splitlines()[-1]


def test_topic_ids_are_shown_with_the_names_from_responses() -> None:
    topic = MetadataResponse.MetadataResponseTopic(name="orders", topic_id=ID)
    asked = request(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(topic_id=ID, name=None)]), 12, 1)[4:]
    exchange = Exchange(1, ApiKey.METADATA, 12, 1, asked)
    exchange.answer_bytes = answer(MetadataResponse(topics=[topic]), 12, 1)[4:]
    text = Exchanges([exchange, exchange]).explain()
    assert text.count("AAECAwQFBgcICQoLDA0ODw, orders") == 2  # not yet in the first request and its answer


def test_a_summary_has_the_fields_that_differ_from_defaults() -> None:
    assert summarize_exchange(heartbeat(4)) == "#4 Heartbeat 4 (group_id g, generation_id 3) > (error_code 27)"


def test_the_summary_of_a_request_is_one_short_printable_line_for_any_names() -> None:
    frame = request(HeartbeatRequest(group_id="\x1b[31m\n" * 1000), 4, 7)[4:]
    line = summarize_exchange(Exchange(1, ApiKey.HEARTBEAT, 4, 7, frame))
    assert line.isprintable()
    assert len(line) < GIST_CHARACTERS * 10


@pytest.mark.parametrize("count", [3, 5])
def test_long_lists_are_summarized_by_their_number_of_items(count: int) -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name=f"t{number}") for number in range(count)]
    frame = request(MetadataRequest(topics=topics), 9, 1)[4:]
    line = summarize_exchange(Exchange(1, ApiKey.METADATA, 9, 1, frame))
    assert ("2 more" in line) == (count == 5)
