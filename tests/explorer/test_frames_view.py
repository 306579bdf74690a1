"""Frames of the explorer: the stream, a frame with its bytes and fields, what it changed, and copies of it."""

from __future__ import annotations

import base64
import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from minibroker.explorer.effects import describe_effects
from minibroker.explorer.explorer_routes import FOLDER
from minibroker.explorer.frames_view import COLUMNS, FrameFeed, list_filter_words, make_texts_to_repeat_request
from minibroker.protocol.apis import ApiKey
from minibroker.testing import Broker
from minibroker.testing.seen.exchange import Exchange
from tests.explorer.asking import ask, events

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"


def produce(broker: Broker, topic: str = "orders", *values: bytes, **config: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "shop", **config})
    for value in values or (b"first",):
        producer.produce(topic, value, key=b"key")
    assert producer.flush(30) == 0


def last(broker: Broker, api: str) -> Exchange:
    return broker.wait_for_requests(api)[-1]


def rows_until(broker: Broker, api: str, outcome: str = "answered", after: int = 0) -> list[dict[str, Any]]:
    """The rows of the stream up to the first one of an API with this outcome."""
    rows = []
    for name, data in events(broker, after):
        for values in data["rows"] if name == "frames" else ():
            rows.append(dict(zip(COLUMNS, values, strict=True)))
            if (rows[-1]["api"], rows[-1]["outcome"]) == (api, outcome):
                return rows
    raise AssertionError("the stream ended")


def portion(broker: Broker, feed: FrameFeed) -> Any:
    return broker.loop.run_on_loop(feed.take_next_portion())


def test_the_stream_of_frames_contains_past_and_new_ones(explored: Broker) -> None:
    produce(explored)
    (row,) = (row for row in rows_until(explored, "Produce") if row["api"] == "Produce")
    assert (row["client_id"], row["node"], row["topics"], row["errors"]) == ("shop", 1, {"orders": [0]}, [])
    newer = rows_until(explored, "ApiVersions", after=row["number"]) if produce(explored) is None else []
    assert min(each["number"] for each in newer) > row["number"]


def test_the_stream_sends_a_delayed_request_again_once_it_is_answered(explored: Broker) -> None:
    explored.create_topic("orders")
    config = {"bootstrap.servers": explored.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    feed = FrameFeed(explored.journal, lambda _: None, explored.journal.seen)
    consumer = Consumer(config)
    try:
        consumer.subscribe(["orders"])
        told: list[tuple[int, str]] = []
        while not any(outcome == "open" for _, outcome in told):
            consumer.poll(0.1)
            told += [(row[0], row[8]) for row in (portion(explored, feed) or {"rows": []})["rows"] if row[1] == "Fetch"]
        number = next(number for number, outcome in told if outcome == "open")
        while (number, "answered") not in told:
            consumer.poll(0.1)
            told += [(row[0], row[8]) for row in (portion(explored, feed) or {"rows": []})["rows"] if row[1] == "Fetch"]
    finally:
        consumer.close()


def test_the_stream_contains_events_of_tests(explored: Broker) -> None:
    explored.clock.advance("7 days")
    explored.faults.add(api="Fetch", delay="1 s", name="slow").remove()
    marks = next(data["marks"] for name, data in events(explored) if name == "frames")
    said = [(mark["kind"], mark["text"]) for mark in marks]
    assert said == [
        ("life", "reset"),
        ("clock", "advance 7 days"),
        ("fault", "add fault 1: slow"),
        ("fault", "remove fault 1"),
    ]


def test_a_frame_is_shown_with_each_byte_and_its_field(explored: Broker) -> None:
    produce(explored, "orders", HOSTILE.encode())
    frame = ask(explored, f"frames/{last(explored, 'Produce').number}")
    request = frame["request"]
    names = [row["name"] for row in request["rows"]]
    assert {"size", "correlation_id", "client_id", "topic_data", "crc"} <= set(names)
    data = base64.b64decode(request["blocks"][0]["base64"])
    client = request["rows"][names.index("client_id")]
    assert data[client["start"] : client["end"]].endswith(b"shop")
    value = next(row["value"] for row in request["rows"] if "script" in row.get("value", ""))
    assert "\u202e" not in value and "\x1b" not in value
    assert frame["answer"]["rows"][0]["meaning"].startswith("Produce version")


def test_compressed_records_are_shown_as_a_separate_block(explored: Broker) -> None:
    produce(explored, "orders", b"x" * 1000, **{"compression.type": "gzip"})
    request = ask(explored, f"frames/{last(explored, 'Produce').number}")["request"]
    assert len(request["blocks"]) == 2
    assert b"x" * 1000 in base64.b64decode(request["blocks"][1]["base64"])
    assert {row["block"] for row in request["rows"] if row["name"].startswith("record [")} == {1}


def test_a_discarded_frame_is_reported_as_missing(explored: Broker) -> None:
    assert ask(explored, "frames/99999") == (404, "there is no frame 99999 (any more)")


def test_a_produce_links_to_the_topic_it_changed(explored: Broker) -> None:
    produce(explored)
    assert describe_effects(last(explored, "Produce"), lambda _: None) == [
        {"text": "appended 1 record to orders-0 from offset 0 on", "place": "/topics/orders/0"}
    ]


def test_no_effects_are_shown_for_a_rejected_request(explored: Broker) -> None:
    explored.create_topic("orders")
    explored.faults.add(api="Produce", error="INVALID_TOPIC_EXCEPTION")
    producer = Producer({"bootstrap.servers": explored.bootstrap_servers})
    producer.produce("orders", b"lost")
    producer.flush(30)
    assert describe_effects(last(explored, "Produce"), lambda _: None) == []


def test_a_frame_can_be_copied_as_hex_json_python_and_kcat_commands(explored: Broker) -> None:
    produce(explored, "orders", b"it's\n")
    exchange = last(explored, "Produce")
    copies = make_texts_to_repeat_request(exchange, "127.0.0.1:9092", lambda _: None)
    assert bytes.fromhex(copies["hex"])[4:] == exchange.request_bytes
    assert copies["kcat"] == r"printf %b $'it\047s\012' | kcat -b 127.0.0.1:9092 -P -t orders -p 0 -k key"
    assert list(copies) == ["hex", "JSON", "Python", "kcat"]


def test_the_copied_python_code_runs(explored: Broker) -> None:
    explored.create_topic("orders")
    produce(explored)
    exchange = last(explored, "Metadata")
    program = make_texts_to_repeat_request(exchange, explored.bootstrap_servers, lambda _: None)["Python"]
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ran.stderr, "cluster_id" in ran.stdout) == ("", True)


def test_the_pages_frame_filters_support_each_filter_word_of_the_server(explored: Broker) -> None:
    """The page evaluates them; its grammar must know each word that the server names."""
    source = (FOLDER / "core" / "filters.js").read_text()
    assert [word for word in list_filter_words() if f"\n  {word}: (wanted" not in source] == []
    assert ask(explored, "frames/grammar")["words"] == list_filter_words()


def test_a_broker_without_an_explorer_has_no_interceptors_and_listeners() -> None:
    with Broker() as broker:
        assert (broker.interceptors, broker.event_listeners) == ([], [])


@pytest.mark.parametrize("api_key", [ApiKey.PRODUCE, ApiKey.FETCH])
def test_a_large_frame_offers_no_texts_to_copy(api_key: ApiKey) -> None:
    assert (
        make_texts_to_repeat_request(Exchange(1, api_key, 9, 1, bytes(1 << 17)), "127.0.0.1:9092", lambda _: None) == {}
    )
