"""Interceptors that only watch: requests that resemble earlier ones are not decoded for them, and they miss nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.requests.interceptors import Call, Interceptor
from minibroker.broker.security.operations import WRITE_TOPIC
from minibroker.broker.security.principals import Principal
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.response_errors import collect_error_codes
from tests.broker.handlers.offset_requests import codes_of, commit_request
from tests.broker.harness import Client, Harness, TopicData, batch, count_handled, frame_of
from tests.storage.support import FailingDisk

VERSION = 12
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
}


class Watcher(Interceptor):
    """Notes its calls: of `before_request` the client's id, of `alter_response` the errors, of `sent` the bytes."""

    only_watches = True

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def before_request(self, call: Call) -> None:
        self.told.append(("before", call.api_key, call.context.client_id, bytes(call.frame)))

    def alter_response(self, call: Call, response: Message) -> Message:
        self.told.append(("answer", *collect_error_codes(response)))
        return response

    def on_sent(self, call: Call, sent_bytes: int, duration_ms: float) -> None:
        self.told.append(("sent", sent_bytes))

    def on_lost(self, call: Call) -> None:
        self.told.append(("lost",))


class Changing(Interceptor):
    """Does nothing, but might."""


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with Harness(tmp_path, settings=AUTHORIZER, disk=FailingDisk()) as harness:
        harness.create_topic("t")
        yield harness


@pytest.fixture
def watcher(harness: Harness) -> Watcher:
    watcher = Watcher()
    harness.dispatcher.interceptors.append(watcher)
    return watcher


def frame(value: str) -> bytes:
    data = TopicData.PartitionProduceData(index=0, records=memoryview(batch(value)))
    topic = TopicData(name="t", partition_data=[data])
    return frame_of(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), VERSION)


def send(client: Client, value: str) -> Any:
    """The answer for the partition."""
    client._asked.append((ApiKey.PRODUCE, VERSION))
    client.send_bytes(frame(value))
    ((_, response),) = client.responses()
    return response.responses[0].partition_responses[0]


def test_interceptors_that_only_watch_do_not_cause_a_cached_produce_to_be_decoded(
    harness: Harness, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, handled = harness.client(), count_handled(harness.dispatcher, monkeypatch)
    for number in range(4):
        watcher.told.clear()
        sent_bytes = len(client.sent_bytes())
        assert send(client, str(number)).base_offset == number
        began, *answered, ended = watcher.told
        assert began == ("before", ApiKey.PRODUCE, "test", frame(str(number))[4:])
        assert ended == ("sent", len(client.sent_bytes()) - sent_bytes)
        assert answered == ([("answer",)] if number < 2 else [])
    assert len(handled) == 2


def test_a_produce_is_decoded_if_another_interceptor_may_change_it(
    harness: Harness, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, handled = harness.client(), count_handled(harness.dispatcher, monkeypatch)
    harness.dispatcher.interceptors.append(Changing())
    for number in range(4):
        assert send(client, "v").base_offset == number
    assert len(handled) == 4


def test_interceptors_that_only_watch_see_the_error_of_a_failed_write(harness: Harness, watcher: Watcher) -> None:
    client = harness.client()
    for _ in range(3):
        send(client, "v")
    watcher.told.clear()
    assert isinstance(harness.disk, FailingDisk)
    harness.disk.failing = {"write"}
    assert send(client, "v").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [each[0] for each in watcher.told] == ["before", "answer", "sent"]
    assert watcher.told[1] == ("answer", ErrorCode.KAFKA_STORAGE_ERROR)


def test_interceptors_that_only_watch_see_each_rejected_produce(
    harness: Harness, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.add_acl(WRITE_TOPIC, "t", user="bob")
    client, handled = harness.client(), count_handled(harness.dispatcher, monkeypatch)
    client.connection.principal = Principal("User", "alice")
    for _ in range(4):
        watcher.told.clear()
        assert send(client, "v").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert [each[0] for each in watcher.told] == ["before", "answer", "sent"]
        assert watcher.told[1] == ("answer", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert len(handled) == 2


def test_a_response_whose_client_leaves_in_the_same_loop_turn_is_reported_as_lost(
    harness: Harness, watcher: Watcher
) -> None:
    client = harness.client()
    for _ in range(3):
        send(client, "v")
    watcher.told.clear()
    data = bytearray(frame("v"))
    client.connection.process_received_data(memoryview(data), len(data))
    assert [each[0] for each in watcher.told] == ["before"]
    client.connection.drop_lost_client()
    harness.end_turn()
    assert [each[0] for each in watcher.told] == ["before", "lost"]
    assert harness.partition("t").log.log_end_offset == 4


def test_interceptors_that_only_watch_do_not_cause_a_cached_commit_to_be_decoded(
    harness: Harness, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.coordinator("g")
    client, handled = harness.client(), count_handled(harness.dispatcher, monkeypatch)
    for number in range(4):
        watcher.told.clear()
        client.send(commit_request("g", ("t", 0, number)), 9)
        ((_, response),) = client.responses()
        assert codes_of(response) == [ErrorCode.NONE]
        assert [each[0] for each in watcher.told if each[0] != "answer"] == ["before", "sent"]
        assert watcher.told[0][:3] == ("before", ApiKey.OFFSET_COMMIT, "test")
    assert len(handled) == 2
