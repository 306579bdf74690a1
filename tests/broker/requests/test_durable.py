"""What changes the cluster's metadata is answered once it is on the disk itself, and not at all if that fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.dispatch import Dispatcher
from minibroker.broker.requests.routes import UnanswerableRequest
from minibroker.broker.requests.served import SERVED
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.metadata_records import TOPIC_RESOURCE
from minibroker.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from minibroker.protocol.messages.transactions import InitProducerIdRequest
from tests.broker.harness import Harness, Waiting
from tests.storage.support import FailingDisk

Alter = IncrementalAlterConfigsRequest.AlterConfigsResource


def created(*names: str) -> CreateTopicsRequest:
    topics = [CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics)


CHANGES: dict[str, Message] = {
    "create": created("new"),
    "delete": DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="old")]),
    "grow": CreatePartitionsRequest(
        topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="old", count=2, assignments=None)]
    ),
    "configure": IncrementalAlterConfigsRequest(
        resources=[
            Alter(
                resource_type=TOPIC_RESOURCE,
                resource_name="old",
                configs=[Alter.AlterableConfig(name="segment.ms", config_operation=0, value="1000")],
            )
        ]
    ),
    "producer id": InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
    "create on demand": MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="new")]),
}


class Durability:
    """A harness whose disk can be made to fail, with the topic old."""

    def __init__(self, directory: Path) -> None:
        self.disk = FailingDisk()
        self.harness = Harness(directory, disk=self.disk)
        self.harness.create_topic("old")

    @property
    def metadata_log(self) -> Any:
        return self.harness.cluster.metadata_log.storage


@pytest.fixture
def durability(tmp_path: Path) -> Iterator[Durability]:
    made = Durability(tmp_path)
    with made.harness:
        yield made


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_answered_once_it_is_fsynced(durability: Durability, change: str) -> None:
    harness = durability.harness
    harness.clock.holds_aside = True
    waiting = harness.request(CHANGES[change])
    log = durability.metadata_log
    assert isinstance(waiting, Waiting) and not waiting.done
    assert log.recovery_point < log.log_end_offset
    harness.clock.do_aside()
    assert waiting.done and waiting.response()
    assert log.recovery_point == log.log_end_offset


def test_a_metadata_change_of_one_record_batch_needs_one_fsync(durability: Durability) -> None:
    harness = durability.harness
    harness.clock.holds_aside = True
    harness.request(CHANGES["create"])
    assert (harness.clock.do_aside(), harness.clock.do_aside()) == (1, 0)


def test_metadata_changes_during_an_fsync_share_the_next_one(durability: Durability) -> None:
    harness = durability.harness
    harness.clock.holds_aside = True
    waiting = [harness.request(CHANGES[change]) for change in ("create", "grow", "configure")]
    harness.clock.do_aside()
    assert [each.done for each in waiting] == [True, False, False]
    harness.clock.do_aside()
    assert [each.done for each in waiting] == [True, True, True]
    assert harness.clock.do_aside() == 0


@pytest.mark.parametrize("version", [4, 7])  # with plain strings, and with compact ones
def test_a_name_of_32_kb_does_not_affect_other_responses_of_the_same_fsync(
    durability: Durability, version: int
) -> None:
    harness = durability.harness
    harness.clock.holds_aside = True
    names = [["a"], ["b"], ["c", 32_767 * "x"], ["d"], ["e"]]
    waiting = [harness.request(created(*each), version) for each in names]
    while harness.clock.do_aside():
        pass
    results = [result for each in waiting for result in each.response().topics]
    assert [result.name for result in results] == [name for each in names for name in each]
    assert [result.error_code for result in results] == [0, 0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION, 0, 0]
    assert "longer than the max allowed length 249" in results[3].error_message


def test_a_response_that_cannot_be_encoded_closes_only_its_own_connection(
    durability: Durability, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness = durability.harness
    harness.clock.holds_aside = True
    clients = [harness.client() for _ in range(4)]
    handler = SERVED[ApiKey.CREATE_TOPICS].handler
    for client in clients:
        if client is clients[2]:
            monkeypatch.setattr(SERVED[ApiKey.CREATE_TOPICS], "handler", unanswerable(handler))
            harness.dispatcher = Dispatcher(harness.cluster)
        client.send(created(f"of-{clients.index(client)}"))
        monkeypatch.undo()
        harness.dispatcher = Dispatcher(harness.cluster)
    while harness.clock.do_aside():
        pass
    assert [client.closed for client in clients] == [False, False, True, False]
    assert [len(list(client.responses())) for client in clients] == [1, 1, 0, 1]
    (line,) = [each for each in caplog.records if "a request failed" in each.message]
    assert line.message == "closing test:1 (client id 'test'): a request failed"
    assert (line.api, line.version) == ("CreateTopics", 7)  # type: ignore[attr-defined]


def unanswerable(handler: Any) -> Any:
    """The handler, with an answer of which one string is longer than the protocol's."""

    async def run(context: RequestContext, request: Any) -> Any:
        response = await handler(context, request)
        response.topics[0].error_message = 32_768 * "x"
        return response

    return run


def test_requests_without_a_change_are_answered_immediately(durability: Durability) -> None:
    harness = durability.harness
    harness.clock.holds_aside = True
    harness.request(CHANGES["producer id"])
    assert not isinstance(harness.request(CHANGES["producer id"]), Waiting)  # from the same block of ids
    assert not isinstance(harness.request(MetadataRequest(topics=None)), Waiting)


def test_a_metadata_change_whose_fsync_fails_closes_the_connection_and_rejects_later_ones(
    durability: Durability, caplog: pytest.LogCaptureFixture
) -> None:
    harness = durability.harness
    harness.clock.holds_aside = True
    client = harness.client()
    client.send(CHANGES["create"])
    client.send(MetadataRequest(topics=None))
    durability.disk.failing = {"sync"}
    harness.clock.do_aside()
    assert client.closed and not client.sent_bytes()
    assert "__cluster_metadata-0 is offline until the next start" in caplog.text
    assert "closing test:1 (client id 'test'): what was changed may be lost" in caplog.text
    durability.disk.failing = set()
    (result,) = harness.request(CHANGES["grow"]).results
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert harness.produce("old", "still served") == 0


def test_an_immediate_fsync_failure_closes_the_connection(durability: Durability) -> None:
    durability.disk.failing = {"sync"}
    with pytest.raises(UnanswerableRequest, match="what was changed may be lost"):
        durability.harness.request(CHANGES["create"])


def test_a_client_that_disconnects_during_an_fsync_affects_no_other(durability: Durability) -> None:
    harness = durability.harness
    harness.clock.holds_aside = True
    waiting = harness.request(CHANGES["create"])
    waiting.go_away()
    durability.disk.failing = {"sync"}
    harness.clock.do_aside()
    assert not waiting.done
