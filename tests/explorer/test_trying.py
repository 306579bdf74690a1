"""Trying requests out in the explorer: forms for all of them, bytes from fields, answers, and what is no request."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from minibroker.broker.requests.served import SERVED
from minibroker.explorer.trees import make_tree_of_parts
from minibroker.explorer.trying import ComposedRequest, _RequestForm, encode_composed_request
from minibroker.protocol.apis import ApiKey, get_api_name, get_request_class
from minibroker.protocol.explaining.messages import explain_request
from minibroker.testing import Broker
from tests.cases import for_each
from tests.explorer.asking import ask


def composed(broker: Broker, api: str, version: int, **fields: Any) -> str:
    """The hex of a request with these fields, and otherwise with the values that the form begins with."""
    values = ask(broker, f"try/form?api={api}&version={version}")["values"]
    asked = {"api": api, "version": version, "fields": values | fields}
    answer = ask(broker, "try/encode", "POST", asked)
    assert isinstance(answer, dict), answer
    return answer["hex"]


def produced(records: str) -> dict[str, Any]:
    """The body for a Produce with these records."""
    topics = [{"name": "orders", "partition_data": [{"index": 0, "records": records}]}]
    return {"api": "Produce", "version": 9, "fields": {"topic_data": topics}}


@for_each("key", SERVED)
def test_the_form_of_each_request_starts_with_valid_values(key: ApiKey) -> None:
    message = get_request_class(key)
    for version in SERVED[key].versions:
        values = _RequestForm(
            version, version in message.flexible, message.versions[-1], "orders", bytes(16)
        ).choose_values(message)
        frame = encode_composed_request(ComposedRequest(api=get_api_name(key), version=version, fields=values), 0)
        assert list(explain_request(frame).iterate_problems()) == []


def test_the_metadata_form_fills_in_the_topic_name_and_no_topic_id() -> None:
    form = _RequestForm(12, True, 13, "orders", b"i" * 16).describe_fields(get_request_class(ApiKey.METADATA))
    (topics,) = (field for field in form if field["name"] == "topics")
    assert topics["item"]["blank"] == {"name": "orders", "topic_id": "A" * 22}


def test_the_create_topics_form_leaves_the_names_of_configs_empty() -> None:
    form = _RequestForm(7, True, 7, "orders", bytes(16)).describe_fields(get_request_class(ApiKey.CREATE_TOPICS))
    (topics,) = (field for field in form if field["name"] == "topics")
    (configs,) = (field for field in topics["item"]["fields"] if field["name"] == "configs")
    assert configs["item"]["blank"] == {"name": "", "value": None}


def test_a_classic_group_member_sends_its_subscription(explored: Broker) -> None:
    explored.create_topic("orders")
    ask(explored, "try/send", "POST", {"hex": composed(explored, "FindCoordinator", 4)})
    ask(explored, "try/send", "POST", {"hex": composed(explored, "JoinGroup", 3)})
    (joined,) = explored.requests("JoinGroup")
    assert (joined.errors, joined.answer.members[0].metadata.hex()) == ((), "00000000000100066f7264657273ffffffff")


def test_a_manually_edited_produce_is_appended(explored: Broker) -> None:
    explored.create_topic("orders")
    digits = composed(explored, "Produce", 9)
    answer = ask(explored, "try/send", "POST", {"hex": digits})
    names = {row["name"]: row for row in answer["answer"]["rows"]}
    assert (names["error_code"]["meaning"], names["base_offset"]["value"]) == ("NONE", "0")
    (record,) = explored.records("orders")
    assert (record.key, record.value) == (b"key", b"hello")
    assert explored.requests("Produce")[0].client_id == "explorer"


def test_a_composed_batch_has_the_given_producer_fields(explored: Broker) -> None:
    explored.create_topic("orders")
    topics = [{"name": "orders", "partition_data": [{"index": 0, "records": "@producer 7 0 0\na\nb"}]}]
    digits = composed(explored, "Produce", 9, topic_data=topics)
    for _ in range(2):  # the second one is a repetition, which is not written
        ask(explored, "try/send", "POST", {"hex": digits})
    assert [(record.producer_id, record.sequence) for record in explored.records("orders")] == [(7, 0), (7, 1)]


def test_edited_bytes_are_explained_and_sent_unchanged(explored: Broker) -> None:
    digits = composed(explored, "ApiVersions", 3)
    changed = digits[:16] + "0000002a" + digits[24:]
    rows = ask(explored, "try/explain", "POST", {"hex": changed})["tree"]["rows"]
    assert next(row["value"] for row in rows if row["name"] == "correlation_id") == "42"
    answer = ask(explored, "try/send", "POST", {"hex": changed})["answer"]
    assert next(row["value"] for row in answer["rows"] if row["name"] == "correlation_id") == "42"


def test_invalid_request_bytes_get_no_response(explored: Broker) -> None:
    answer = ask(explored, "try/send", "POST", {"hex": "0000000affff00000000000000000000"[:28]})
    assert answer["answer"] is None
    assert "closed the connection" in answer["why"]


@for_each(
    ("body", "said"),
    [
        ({"api": "Metadata", "version": 99, "fields": {}}, "version 99"),
        ({"api": "Metadata", "version": 12, "fields": {"topix": 1}}, "no field topix"),
        ({"api": "Produce", "version": 9, "fields": {"acks": 70_000}}, "does not fit"),
        ({"api": "Produce", "version": 9, "fields": {"topic_data": 7}}, "does not fit"),
        (produced("@producer 7"), "@producer ID"),
        (produced("@nonsense"), "@producer ID"),
        (produced("@compress zip\na"), "@compress CODEC"),
        (produced("hex:0"), "hexadecimal"),
        ({"api": "Nonsense", "version": 9, "fields": {}}, "not an API"),
    ],
)
def test_invalid_values_in_a_request_form_are_rejected(explored: Broker, body: dict[str, Any], said: str) -> None:
    status, message = ask(explored, "try/encode", "POST", body)
    assert (status, said in message) == (400, True), message


def test_requests_are_not_sent_to_a_broker_with_only_tls() -> None:
    with Broker(explorer=True, security="SSL") as broker:
        status, message = ask(broker, "try/send", "POST", {"hex": "00"})
        assert (status, "without TLS" in message) == (409, True)


def test_large_requests_are_explained_outside_of_the_event_loop(
    explored: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def noted(*given: Any) -> Any:
        threads.append(threading.current_thread())
        return make_tree_of_parts(*given)

    monkeypatch.setattr("minibroker.explorer.trying.make_tree_of_parts", noted)
    digits = composed(explored, "Metadata", 9)
    ask(explored, "try/explain", "POST", {"hex": digits})
    ask(explored, "try/send", "POST", {"hex": digits})
    assert len(threads) == 3 and explored.call_on_loop(threading.current_thread) not in threads


def test_too_large_responses_and_requests_are_rejected(explored: Broker) -> None:
    explored.create_topic("orders", max_message_bytes=20 << 20)
    explored.produce("orders", b"x" * (9 << 20))
    form = ask(explored, "try/form?api=Fetch&version=12")
    topic = form["values"]["topics"][0]
    topic["partitions"][0] |= {"fetch_offset": 0, "partition_max_bytes": 20 << 20}
    values = form["values"] | {"topics": [topic | {"topic": "orders"}], "max_bytes": 20 << 20}
    frame = ask(explored, "try/encode", "POST", {"api": "Fetch", "version": 12, "fields": values})
    answer = ask(explored, "try/send", "POST", {"hex": frame["hex"]})
    assert answer["answer"] is None and "the explorer shows those of up to 8,388,608 bytes" in answer["why"]
    status, reason = ask(explored, "try/explain", "POST", {"hex": "00" * (3 << 19), "node": None, "more": "x"})
    assert (status, reason) == (413, "a request has no more than 3,145,728 bytes")


def test_a_request_is_sent_to_its_leader_or_coordinator() -> None:
    with Broker(nodes=3, explorer=True, settings={"offsets.topic.num.partitions": 3}) as broker:
        broker.create_topic("orders")

        def send(api: str, version: int, **fields: Any) -> dict[str, Any]:
            answer = ask(broker, "try/send", "POST", {"hex": composed(broker, api, version, **fields)})
            assert isinstance(answer, dict), answer
            return answer

        produce = {"topic_data": produced("a=b")["fields"]["topic_data"], "transactional_id": "payments"}
        session = {"session_id": 0, "session_epoch": 0}
        send("FindCoordinator", 4)
        for node in (3, 1, 2):
            broker.move_leader("orders", node)
            broker.move_coordinator(4 - node, group="my-group")
            assert send("Produce", 9, **produce)["node"] == node
            assert send("Fetch", 11, **session)["node"] == node
            assert send("Fetch", 11, topics=[])["node"] == node, "the session is there"
            assert send("OffsetFetch", 7)["node"] == 4 - node
            wrong = ask(broker, "try/send", "POST", {"hex": composed(broker, "Heartbeat", 4), "node": node % 3 + 1})
            assert wrong["node"] == node % 3 + 1
        assert ask(broker, "try/send", "POST", {"hex": "00000002 0003"})["answer"] is None
