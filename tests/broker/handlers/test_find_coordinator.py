"""FindCoordinator: the first one creates the topic of the groups, and every key has a node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.coordination.coordinators import find_coordinator_or_create_topic
from minibroker.broker.delayed_operations import Slicer
from minibroker.broker.requests.dispatch import Dispatcher
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.groups import FindCoordinatorRequest
from minibroker.protocol.primitives import format_uuid
from tests.broker.harness import Harness, served_versions

VERSIONS = served_versions(FindCoordinatorRequest)
SEVERAL_KEYS = 4
GROUP, TRANSACTION, SHARE = 0, 1, 2


def find(harness: Harness, key: str, key_type: int, version: int, **more: Any) -> Any:
    """The answer for one key, which stands in the response itself before version 4."""
    if version < SEVERAL_KEYS:
        return harness.request(FindCoordinatorRequest(key=key, key_type=key_type), version, **more)
    response = harness.request(FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type), version, **more)
    (found,) = response.coordinators
    assert found.key == key
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
def test_each_key_has_the_coordinator_of_its_partition(tmp_path: Path, version: int, key_type: int) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        of_transactions = key_type == TRANSACTION and version
        node = find_coordinator_or_create_topic(
            harness.cluster.transactions if of_transactions else harness.cluster.groups, "k"
        )
        for asked in (1, 2, 3):
            found = find(harness, "k", key_type, version, node=asked)
            assert (found.error_code, found.node_id) == (ErrorCode.NONE, node.node_id)
            assert (found.host, found.port) == node.endpoints["PLAINTEXT"]


def test_the_coordinator_address_is_that_of_the_clients_listener(harness: Harness) -> None:
    assert find(harness, "g", GROUP, 6, listener="INTERNAL").port == 19001


@pytest.mark.parametrize(("version", "text"), [(1, "NONE"), (3, "NONE"), (4, ""), (6, "")])
def test_a_successful_response_has_the_error_message_that_kafka_sends(
    harness: Harness, version: int, text: str
) -> None:
    assert find(harness, "g", GROUP, version).error_message == text


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_group_creates_the_offsets_topic(harness: Harness, version: int) -> None:
    assert "__consumer_offsets" not in harness.cluster.image.topics
    waiting = _on_its_way(harness, version)
    assert len(harness.cluster.image.topics["__consumer_offsets"].partitions) == 5
    assert not waiting.done, "the topic may be gone after a crash"
    harness.clock.do_aside()
    answer = waiting.response()
    (found,) = answer.coordinators if version >= SEVERAL_KEYS else [answer]
    assert (found.error_code, found.node_id) == (ErrorCode.NONE, 1)


def _on_its_way(harness: Harness, version: int) -> Any:
    harness.clock.holds_aside = True
    several = {"coordinator_keys": ["g"]} if version >= SEVERAL_KEYS else {"key": "g"}
    return harness.request(FindCoordinatorRequest(**several), version)


def test_a_transactional_id_does_not_create_the_offsets_topic(harness: Harness) -> None:
    find(harness, "tx", TRANSACTION, 6)
    assert list(harness.cluster.image.topics) == ["__transaction_state"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_coordinator_is_unavailable_if_its_topic_cannot_be_created(harness: Harness, version: int) -> None:
    harness.create_topic("_.consumer_offsets")  # collides with it in the names of metrics
    found = find(harness, "g", GROUP, version)
    assert (found.error_code, found.node_id, found.host) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "")


@pytest.mark.parametrize("version", [version for version in VERSIONS if version])
@pytest.mark.parametrize(
    ("setting", "key_type"),
    [("offsets.topic.segment.bytes", GROUP), ("transaction.state.log.segment.bytes", TRANSACTION)],
)
def test_too_small_segments_prevent_creating_but_not_using_coordinator_topics(
    tmp_path: Path, setting: str, key_type: int, version: int
) -> None:
    with Harness(tmp_path, settings={setting: "1000"}) as harness:
        assert find(harness, "k", key_type, version).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        harness.restart(settings={setting: "1048576"})
        assert find(harness, "k", key_type, version).error_code == ErrorCode.NONE
        harness.restart(settings={setting: "1000"})
        assert find(harness, "k", key_type, version).error_code == ErrorCode.NONE


def test_a_share_coordinator_key_must_end_with_a_topic_id_and_a_partition(harness: Harness) -> None:
    harness.create_topic("t")
    topic_id = format_uuid(harness.cluster.image.topics["t"].topic_id)
    keys = [f"g:{topic_id}:0", f"a:b:{topic_id}:0", f"g:{topic_id}", f"g:{topic_id}:x", f"g:{topic_id}:", "g"]
    codes = [find(harness, key, SHARE, 6).error_code for key in keys]
    assert codes == 2 * [ErrorCode.NONE] + 4 * [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
def test_find_coordinator_requests_wait_for_the_creation_of_the_topic(harness: Harness, key_type: int) -> None:
    turns: list[Callable[[], None]] = []
    harness.dispatcher = Dispatcher(harness.cluster, slicer=Slicer(turns.append, now=iter(range(1_000_000)).__next__))
    request = FindCoordinatorRequest(coordinator_keys=["k"], key_type=key_type)
    waiting = [harness.request(request) for _ in range(3)]
    state = harness.cluster.groups if key_type == GROUP else harness.cluster.transactions
    assert state.log.topic is None
    with pytest.raises(KafkaError) as raised:
        state.log.create_topic()
    assert raised.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    while turns:
        turns.pop(0)()
    found = [one.response().coordinators[0] for one in waiting]
    assert [(one.error_code, one.node_id) for one in found] == [(ErrorCode.NONE, 1)] * 3
    assert [name for name in harness.cluster.image.topics] == [state.log.name]


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= SEVERAL_KEYS])
def test_a_find_coordinator_without_keys_creates_no_topic(harness: Harness, version: int) -> None:
    assert harness.request(FindCoordinatorRequest(coordinator_keys=[]), version).coordinators == []
    assert not harness.cluster.image.topics
