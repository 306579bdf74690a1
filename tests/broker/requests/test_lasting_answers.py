"""The same question gets the same bytes until something changes, and the answer of now after that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.requests import dispatch
from minibroker.broker.requests.dispatch import Dispatcher
from minibroker.broker.requests.served import SERVED
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.metadata import MetadataRequest
from tests.broker.harness import Harness

Asked = MetadataRequest.MetadataRequestTopic


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with Harness(tmp_path, settings={"auto.create.topics.enable": "false"}) as harness:
        harness.create_topic("t", 3)
        yield harness


@pytest.fixture
def runs(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Each request that reaches the handler."""
    seen: list[Any] = []
    handler = SERVED[ApiKey.METADATA].handler

    def counted(context: Any, request: Any) -> Any:
        seen.append(request)
        return handler(context, request)

    monkeypatch.setattr(SERVED[ApiKey.METADATA], "handler", counted)
    harness.dispatcher = Dispatcher(harness.cluster)
    return seen


def of(*names: str) -> MetadataRequest:
    return MetadataRequest(topics=[Asked(name=name) for name in names], allow_auto_topic_creation=False)


def test_a_repeated_request_uses_the_cached_response(harness: Harness, runs: list[Any]) -> None:
    first = harness.request(of("t"), client_id="one")
    assert harness.request(of("t"), client_id="another") == first
    assert len(runs) == 1
    assert [partition.partition_index for partition in first.topics[0].partitions] == [0, 1, 2]


@pytest.mark.parametrize(
    "other", [{"version": 9}, {"listener": "INTERNAL"}, {"request": of("t", "t2")}], ids=["version", "listener", "body"]
)
def test_a_different_request_has_its_own_cached_response(
    harness: Harness, runs: list[Any], other: dict[str, Any]
) -> None:
    harness.request(of("t"))
    asked = {"request": of("t"), **other}
    harness.request(asked.pop("request"), **asked)
    assert len(runs) == 2


def test_a_metadata_change_invalidates_cached_responses_immediately(harness: Harness, runs: list[Any]) -> None:
    everything = MetadataRequest(topics=None)
    assert [topic.name for topic in harness.request(everything).topics] == ["t"]
    harness.create_topic("new")
    assert [topic.name for topic in harness.request(everything).topics] == ["t", "new"]
    assert len(runs) == 2


def test_a_log_going_offline_invalidates_cached_responses_immediately(harness: Harness, runs: list[Any]) -> None:
    assert harness.request(of("t")).topics[0].partitions[1].error_code == ErrorCode.NONE
    harness.partition("t", 1).log.take_offline("of a test")
    assert harness.request(of("t")).topics[0].partitions[1].error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_a_response_about_a_missing_topic_is_not_cached(harness: Harness, runs: list[Any]) -> None:
    for _ in range(2):
        assert harness.request(of("missing")).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(runs) == 2


def test_cached_responses_are_limited_in_number(
    harness: Harness, runs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "MAX_LASTING_BYTES", 1000)
    names = [f"x{number}" for number in range(30)]
    for name in names:
        harness.create_topic(name)
    for name in names:
        harness.request(of(name))
    kept = harness.dispatcher._lasting
    assert 0 < sum(map(len, kept._answers.values())) < 1500
    harness.request(MetadataRequest(topics=None))
    harness.request(MetadataRequest(topics=None))
    assert len(runs) == 32  # the answer about all is larger than the limit
