"""What changes the cluster's metadata is answered once it is on the disk itself, and not at all if that fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.dispatch import Unanswerable
from minibroker.broker.image import TOPIC_RESOURCE
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from minibroker.protocol.messages.transactions import InitProducerIdRequest
from tests.broker.harness import Harness, Waiting
from tests.storage.support import FailingDisk

Alter = IncrementalAlterConfigsRequest.AlterConfigsResource
CHANGES: dict[str, Message] = {
    "create": CreateTopicsRequest(
        topics=[CreateTopicsRequest.CreatableTopic(name="new", num_partitions=1, replication_factor=1)]
    ),
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
def test_a_change_is_answered_once_it_is_on_the_disk_itself(durability: Durability, change: str) -> None:
    harness = durability.harness
    harness.clock.holds_aside = True
    waiting = harness.request(CHANGES[change])
    log = durability.metadata_log
    assert isinstance(waiting, Waiting) and not waiting.done
    assert log.recovery_point < log.log_end_offset
    harness.clock.do_aside()
    assert waiting.done and waiting.response()
    assert log.recovery_point == log.log_end_offset


def test_one_sync_does_for_a_change_of_one_record_batch(durability: Durability) -> None:
    harness = durability.harness
    harness.clock.holds_aside = True
    harness.request(CHANGES["create"])
    assert (harness.clock.do_aside(), harness.clock.do_aside()) == (1, 0)


def test_several_changes_share_a_sync(durability: Durability) -> None:
    harness = durability.harness
    harness.clock.holds_aside = True
    waiting = [harness.request(CHANGES[change]) for change in ("create", "grow", "configure")]
    harness.clock.do_aside()
    assert [each.done for each in waiting] == [True, False, False]
    harness.clock.do_aside()
    assert [each.done for each in waiting] == [True, True, True]
    assert harness.clock.do_aside() == 0


def test_what_changes_nothing_is_answered_at_once(durability: Durability) -> None:
    harness = durability.harness
    harness.clock.holds_aside = True
    harness.request(CHANGES["producer id"])
    assert not isinstance(harness.request(CHANGES["producer id"]), Waiting)  # from the same block of ids
    assert not isinstance(harness.request(MetadataRequest(topics=None)), Waiting)


def test_a_change_that_may_be_lost_closes_the_connection_and_later_ones_are_refused(
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
    assert "closing test:1: what it asked for may be lost" in caplog.text
    durability.disk.failing = set()
    (result,) = harness.request(CHANGES["grow"]).results
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert harness.produce("old", "still served") == 0


def test_a_failure_that_is_known_at_once_is_told_the_same_way(durability: Durability) -> None:
    durability.disk.failing = {"sync"}
    with pytest.raises(Unanswerable, match="what was changed may be lost"):
        durability.harness.request(CHANGES["create"])


def test_a_client_that_goes_away_meanwhile_harms_nobody(durability: Durability) -> None:
    harness = durability.harness
    harness.clock.holds_aside = True
    waiting = harness.request(CHANGES["create"])
    waiting.go_away()
    durability.disk.failing = {"sync"}
    harness.clock.do_aside()
    assert not waiting.done
