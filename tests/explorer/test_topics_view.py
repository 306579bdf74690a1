"""Topics of the explorer: partitions, configs, and records with search, transactions and the bytes of their batch."""

from __future__ import annotations

import base64

import pytest
from confluent_kafka import Producer

from minibroker.explorer.log_pages import RecordQuery, find_records, get_full_size
from minibroker.explorer.topics_view import find_partition
from minibroker.testing import Broker
from tests.explorer.asking import ask, page


def test_partitions_are_shown_with_their_offsets_and_leader(explored: Broker) -> None:
    explored.create_topic("orders", 2, cleanup_policy="compact")
    explored.produce("orders", "a", "b", key="k", partition=1)
    topic = ask(explored, "topics/orders")
    assert (topic["count"], topic["offsets"], topic["cleanup"]) == (2, 2, "compact")
    assert [(each["start"], each["high_watermark"], each["leader"]) for each in topic["partitions"]] == [
        (0, 0, 1),
        (0, 2, 1),
    ]
    assert [each["name"] for each in ask(explored, "topics")["topics"]] == ["orders"]


def test_configs_are_shown_with_their_source(explored: Broker) -> None:
    explored.create_topic("orders", retention_ms=1000)
    configs = {each["name"]: each for each in ask(explored, "topics/orders/configs")}
    assert (configs["retention.ms"]["value"], configs["retention.ms"]["source"]) == ("1000", "dynamic topic")
    assert configs["compression.type"]["source"] == "default"


def test_a_topic_is_deleted_in_the_topics_view(explored: Broker) -> None:
    explored.create_topic("orders")
    assert ask(explored, "topics/orders", "DELETE") is None
    assert ask(explored, "topics/orders") == (409, "there is no topic orders")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", [0, 1, 2, 3]),
        ("?first=2", [2, 3]),
        ("?count=1", [0]),
        ("?text=NEEDLE", [1, 2, 3]),
        ("?text=needle&where=key", [2]),
        ("?text=needle&where=header", [3]),
        ("?text=nowhere", []),
    ],
)
def test_records_are_searched_by_key_value_and_headers(explored: Broker, query: str, found: list[int]) -> None:
    explored.produce("orders", "hay")
    explored.produce("orders", "a needle")
    explored.produce("orders", "hay", key="needle")
    explored.produce("orders", "hay", headers={"where": "needle"})
    records = ask(explored, f"topics/orders/0/records{query}")["records"]
    assert [each["offset"] for each in records] == found


def test_a_partial_search_returns_where_to_continue(explored: Broker) -> None:
    explored.produce("orders", *"abcdef")
    answer = ask(explored, "topics/orders/0/records?count=4")
    assert (answer["next"], answer["end"]) == (4, 6)
    assert ask(explored, "topics/orders/0/records?first=4")["next"] == 6


def test_records_are_listed_from_a_timestamp(explored: Broker) -> None:
    explored.produce("orders", "old", timestamp_ms=1_000)
    explored.produce("orders", "new", timestamp_ms=5_000)
    assert ask(explored, "topics/orders/0/offset-at?time_ms=2000") == {"offset": 1}
    assert ask(explored, "topics/orders/0/offset-at?time_ms=9000") == {"offset": 2}


def test_keys_and_values_are_shown_as_text_json_or_hex(explored: Broker) -> None:
    explored.produce("orders", b'{"b":1}', key=b"\xff\x00")
    (listed,) = ask(explored, "topics/orders/0/records")["records"]
    assert (listed["value"]["text"], "json" in listed["value"]) == ('{"b":1}', False)
    record = ask(explored, "topics/orders/0/records/0")["record"]
    assert (record["value"]["json"], record["value"]["text"]) == ('{\n  "b": 1\n}', '{"b":1}')
    assert (record["key"]["hex"], "text" in record["key"]) == ("ff00", False)


def test_large_values_are_cut_and_too_deep_json_stays_text(explored: Broker) -> None:
    explored.produce("orders", "[" * 100_000)
    (record,) = ask(explored, "topics/orders/0/records")["records"]
    assert (record["value"]["size"], len(record["value"]["text"])) == (100_000, 2_000)
    whole = ask(explored, "topics/orders/0/records/0")["record"]
    assert (len(whole["value"]["text"]), "json" in whole["value"]) == (100_000, False)


def test_json_that_grows_excessively_by_indentation_stays_text(explored: Broker) -> None:
    nested = "[" * 400 + ",".join(["0"] * 500) + "]" * 400
    explored.produce("orders", nested)
    value = ask(explored, "topics/orders/0/records/0")["record"]["value"]
    assert (value["text"], "json" in value) == (nested, False)


def test_a_record_is_shown_with_the_bytes_of_its_batch(explored: Broker) -> None:
    explored.produce("orders", "first", "second")
    answer = ask(explored, "topics/orders/0/records/1")
    assert answer["record"]["value"]["text"] == "second"
    assert b"first" in base64.b64decode(answer["batch"]["blocks"][0]["base64"])
    assert ask(explored, "topics/orders/0/records/9")[0] == 409


def test_records_are_marked_with_the_state_of_their_transaction(explored: Broker) -> None:
    producer = Producer({"bootstrap.servers": explored.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions()
    for end in (producer.commit_transaction, producer.abort_transaction, producer.flush):
        producer.begin_transaction()
        producer.produce("orders", b"value", partition=0)
        producer.flush()  # what was not sent yet, an abort drops
        end()
    records = ask(explored, "topics/orders/0/records")["records"]
    assert [each["transaction"] for each in records] == ["committed", "aborted", "open"]
    marker = ask(explored, "topics/orders/0/records/1")
    assert marker["record"] is None
    assert "COMMIT" in str(marker["batch"]["rows"])


async def test_found_records_keep_only_the_beginning_of_large_values(explored: Broker) -> None:
    await explored.aproduce("orders", *["x" * 400_000] * 2)
    partition = explored.call_on_loop(lambda: find_partition(explored, "orders", 0))
    found = (await find_records(partition, RecordQuery(0, 10, most_bytes=2_000))).records
    assert [len(each.value or b"") for each in found] == [2_000] * 2
    assert [get_full_size(each.value or b"") for each in found] == [400_000] * 2


def test_a_large_value_is_cut_and_can_be_saved_completely(explored: Broker) -> None:
    explored.create_topic("orders", max_message_bytes=20 << 20)
    explored.produce("orders", b"a" * (10 << 20) + b"END", key="k")
    shown = ask(explored, "topics/orders/0/records/0")["record"]["value"]
    assert (shown["size"], len(shown["hex"])) == ((10 << 20) + 3, 2 << 20)
    status, headers, content = page(explored, "api/topics/orders/0/records/0/value")
    assert (status, headers["content-disposition"], len(content)) == (200, "attachment", (10 << 20) + 3)
    assert headers["content-type"] == "application/octet-stream" and content.endswith(b"aEND")
    assert page(explored, "api/topics/orders/0/records/0/key")[2] == b"k"
    assert ask(explored, "topics/orders/0/records/1/value") == (404, "orders-0 has no value at offset 1")
    assert len(ask(explored, "topics/orders/0/records?text=aend")["records"]) == 1
    assert ask(explored, "topics/orders/0/records?text=b")["records"] == []
