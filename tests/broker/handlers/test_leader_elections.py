"""ElectLeaders: who leads afterwards, what the answer lists, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from minibroker.broker.metadata.partitions import NO_LEADER
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.replicas import ElectLeadersRequest
from tests.broker.harness import Harness, batch, served_versions

PREFERRED, UNCLEAN = 0, 1
VERSIONS = served_versions(ElectLeadersRequest)
NOT_NEEDED = (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")

Results = dict[tuple[str, int], tuple[int, str | None]]


def elect(
    harness: Harness, topics: dict[str, Sequence[int]] | None, kind: int = PREFERRED, version: int | None = None
) -> Results:
    """Return what is answered for each partition."""
    asked = None
    if topics is not None:
        shape = ElectLeadersRequest.TopicPartitions
        asked = [shape(topic=name, partitions=list(partitions)) for name, partitions in topics.items()]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=asked)
    response = harness.request(request, version, node=min(harness.cluster.nodes))
    assert response.error_code == ErrorCode.NONE
    return {
        (topic.topic, result.partition_id): (result.error_code, result.error_message)
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


def create(harness: Harness, *assignment: list[int]) -> None:
    harness.cluster.controller.create_topic("t", assignment=list(enumerate(assignment)))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_returning_preferred_leader_is_elected_in_a_new_epoch(tmp_path: Path, version: int) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        create(harness, [1, 2], [2, 1])
        harness.produce("t", "a")
        harness.restart(nodes=[2])
        harness.restart(nodes=[1, 2])
        assert elect(harness, {"t": [0, 1]}, version=version) == {("t", 0): (0, None), ("t", 1): NOT_NEEDED}
        partition = harness.partition("t")
        assert (partition.leader_id, partition.leader_epoch) == (1, 2)
        assert harness.produce("t", "b") == 1
        assert partition.log.leader_epoch == 2
        harness.restart(crash=True)
        assert harness.partition("t").leader_id == 1


def test_an_election_of_null_partitions_elects_all_and_lists_only_changed_ones(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        create(harness, [1, 2], [2, 1])
        harness.create_topic("u", 2)
        harness.restart(nodes=[2])
        harness.restart(nodes=[1, 2])
        assert elect(harness, None) == {("t", 0): (0, None)}
        assert elect(harness, None) == {}


def test_a_preferred_leader_on_an_offline_node_is_not_available(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        create(harness, [1, 2], [1, 2])
        harness.restart(nodes=[2])
        message = "The preferred leader was not available."
        refused = (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)
        assert elect(harness, {"t": [0, 1]}) == {("t", 0): refused, ("t", 1): refused}
        assert harness.partition("t").leader_id == 2


def test_an_unclean_election_takes_any_replica_that_is_online(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        create(harness, [1, 2, 3], [2, 1, 3])
        harness.cluster.controller.create_topic("u", assignment=[(0, [1])])
        out_of_sync = harness.partition("t").topic.topic_id
        harness.cluster.commit_metadata_records(
            [records.PartitionChangeRecord(partition_id=0, topic_id=out_of_sync, isr=[1])]
        )
        harness.restart(nodes=[2, 3])
        assert harness.partition("t").leader_id == NO_LEADER
        message = "Eligible topic partition leaders are not available."
        assert elect(harness, {"t": [0, 1], "u": [0]}, UNCLEAN) == {
            ("t", 0): (0, None),
            ("t", 1): NOT_NEEDED,
            ("u", 0): (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, message),
        }
        assert (harness.partition("t").leader_id, harness.partition("t").isr) == (2, [2, 3])
        assert harness.produce("t", "v") == 0


def test_no_leader_is_elected_for_a_partition_whose_log_is_offline(harness: Harness) -> None:
    create(harness, [1])
    harness.partition("t").log.offline = "t-0 is offline"
    assert elect(harness, {"t": [0]})["t", 0][0] == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(harness, {"t": [0]}, UNCLEAN)["t", 0][0] == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_a_fetch_delayed_at_the_old_leader_is_told_the_new_one(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        create(harness, [1, 2])
        harness.restart(nodes=[2])
        harness.restart(nodes=[1, 2])
        shape = FetchRequest.FetchTopic
        epoch = harness.partition("t").leader_epoch
        partition = shape.FetchPartition(partition=0, partition_max_bytes=100, current_leader_epoch=epoch)
        asked = shape(topic="t", partitions=[partition])
        request = FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=100, session_epoch=-1, topics=[asked])
        waiting = harness.request(request, 12, node=2)
        assert not waiting.done
        elect(harness, {"t": [0]})
        harness.end_turn()
        ((answer,),) = (topic.partitions for topic in waiting.response().responses)
        assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH  # it follows now, and may serve who knows that
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (1, 2)


def test_an_election_that_cannot_be_recorded_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")

    with Harness(tmp_path, nodes=2) as harness:
        create(harness, [1, 2])
        harness.restart(nodes=[2])
        harness.restart(nodes=[1, 2])
        monkeypatch.setattr(harness.cluster.metadata_log, "append_messages", fail)
        request = ElectLeadersRequest(topic_partitions=None)
        assert harness.request(request).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert harness.partition("t").leader_id == 2
        assert harness.produce_batch("t", batch("a")).error_code == ErrorCode.NONE
