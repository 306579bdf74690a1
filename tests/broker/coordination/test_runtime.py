"""What a coordinator's memory holds after a write of its records has failed: what its log says, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from minibroker.broker.control.elections import commit_partition_changes
from minibroker.broker.coordination.runtime import RELOAD_MS
from minibroker.broker.groups.classic.classic_states import ClassicState as GroupState
from minibroker.broker.metadata.partitions import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from minibroker.broker.transactions.transaction import TransactionState
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.groups import DeleteGroupsRequest
from minibroker.protocol.messages.metadata_records import PartitionChangeRecord
from minibroker.protocol.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest
from tests.broker.groups.classic.driving import Driver, answered
from tests.broker.handlers.offset_requests import codes_of, commit, commit_request
from tests.broker.harness import Harness, answer_in, frame_of
from tests.broker.requests.turned_loop import LoopClient
from tests.broker.transactions.producing import TransactionalProducer, fetched
from tests.storage.support import FailingDisk

OK, MOVED, LOADS = ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


class Broken(Harness):
    """A harness whose disk refuses to write the log of one topic, from `fail` until `mend`."""

    disk: FailingDisk

    def fail(self, topic: str) -> None:
        self.end_turn()
        self.disk.suffix = self.partition(topic).log.segments[-1].path + ".log"
        self.disk.failing.add("write")

    def mend(self) -> None:
        self.disk.failing.clear()

    def load(self) -> None:
        """Let the shards be loaded that are to be."""
        self.clock.advance(RELOAD_MS)

    def offsets(self) -> dict[str, dict[tuple[str, int], int]]:
        """What is committed, by group."""
        return {
            group.group_id: {where: each.offset for where, each in group.offsets.by_partition.items()}
            for group in self.cluster.groups.groups.values()
        }


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Broken]:
    with Broken(tmp_path, settings=SETTINGS, disk=FailingDisk()) as harness:
        harness.create_topic("t", 3)
        harness.coordinator("g")
        yield harness


def test_a_commit_whose_write_fails_is_rejected_and_not_applied(harness: Broken) -> None:
    assert commit(harness, "g", ("t", 0, 5), ("t", 1, 5)) == [OK, OK]
    harness.fail(GROUPS_TOPIC)
    assert commit(harness, "g", ("t", 0, 6)) == [MOVED]
    assert commit(harness, "h", ("t", 0, 6)) == [LOADS], "nobody knows yet what the log holds"
    harness.mend()
    harness.load()
    assert harness.offsets() == {"g": {("t", 0): 5, ("t", 1): 5}}
    assert commit(harness, "g", ("t", 1, 7)) == [OK]
    before = harness.offsets()
    harness.restart(crash=True)
    assert harness.offsets() == before == {"g": {("t", 0): 5, ("t", 1): 7}}


def test_a_failed_write_loses_only_the_commits_of_its_own_batch(harness: Broken) -> None:
    commit(harness, "g", ("t", 0, 5))
    client = harness.client()
    harness.fail(GROUPS_TOPIC)
    frames = [frame_of(commit_request(group, ("t", 0, 9)), 7) for group in ("g", "h", "i")]
    client.send_bytes(b"".join(frames))
    data, codes = client.sent_bytes(), []
    for start in range(0, len(data), len(data) // 3):
        _, answer = answer_in(data[start : start + len(data) // 3], ApiKey.OFFSET_COMMIT, 7)
        codes += codes_of(answer)
    assert codes == [MOVED] * 3
    harness.mend()
    harness.load()
    assert harness.offsets() == {"g": {("t", 0): 5}}


def test_a_coordinator_continues_when_a_commit_begins_while_a_loop_turn_ends(harness: Broken) -> None:
    commit(harness, "g", ("t", 0, 5))  # the first batch of a segment is written at once
    first, second, third = clients = [LoopClient(harness) for _ in range(3)]
    later = 1, commit_request("g", ("t", 1, 7)), 7
    harness.cluster.turn.add_listener(Mock(on_turn_ended=lambda: second.read(later)))
    first.read((1, commit_request("g", ("t", 0, 6)), 7))  # the coordinator is called after that listener
    harness.end_turn()
    third.read((1, commit_request("g", ("t", 2, 8)), 7))
    harness.end_turn()
    assert [codes_of(answer) for client in clients for _, answer in client.responses()] == [[OK]] * 3
    harness.restart(crash=True)
    assert harness.offsets() == {"g": {("t", 0): 6, ("t", 1): 7, ("t", 2): 8}}


def test_members_continue_in_the_last_recorded_generation_after_a_failed_write(harness: Broken) -> None:
    driver = Driver(harness)
    (member_id,) = driver.stable()
    assert driver.group.generation == 1
    joined = answered(driver.ask_join(member_id))
    harness.fail(GROUPS_TOPIC)
    synced = answered(driver.ask_sync(joined, {member_id: b"other"}))
    assert synced.error_code == MOVED
    assert driver.heartbeat(member_id, 2) == LOADS
    harness.mend()
    harness.load()
    group = driver.group
    assert (group.state, group.generation, group.members[member_id].assignment) == (GroupState.STABLE, 1, b"0")
    assert driver.heartbeat(member_id, 1) == OK
    harness.clock.advance(60_000)
    assert driver.group.members == {}, "its session goes on"


def test_a_pending_join_gets_not_coordinator_when_the_coordinator_cannot_write(harness: Broken) -> None:
    driver = Driver(harness)
    driver.stable(2)
    new, waiting = driver.new_member()
    harness.fail(GROUPS_TOPIC)
    assert commit(harness, "other", ("t", 0, 6)) == [MOVED]
    assert waiting.response().error_code == MOVED
    harness.mend()
    harness.load()
    assert len(driver.group.members) == 2 and new not in driver.group.members


def test_a_static_member_whose_rejoin_cannot_be_written_keeps_its_member_id(harness: Broken) -> None:
    driver = Driver(harness)
    joining = driver.ask_join(instance="i")
    driver.turn()
    joined = answered(joining)
    driver.ask_sync(joined, {joined.member_id: b"0"}, instance="i")
    harness.fail(GROUPS_TOPIC)
    assert answered(driver.ask_join(instance="i")).error_code == MOVED
    harness.mend()
    harness.load()
    assert driver.group.static == {"i": joined.member_id}
    assert driver.heartbeat(joined.member_id, 1, instance="i") == OK
    harness.clock.advance(9_000)
    assert driver.heartbeat(joined.member_id, 1, instance="i") == OK
    harness.clock.advance(9_000)
    assert list(driver.group.members) == [joined.member_id]


def test_a_group_whose_deletion_fails_still_exists(harness: Broken) -> None:
    commit(harness, "g", ("t", 0, 5))
    harness.fail(GROUPS_TOPIC)
    (result,) = harness.request(DeleteGroupsRequest(groups_names=["g"])).results
    assert result.error_code == MOVED
    harness.mend()
    harness.load()
    assert harness.offsets() == {"g": {("t", 0): 5}}


def test_a_transaction_end_that_cannot_be_written_is_rejected_and_can_be_retried(harness: Broken) -> None:
    producer = TransactionalProducer(harness)
    assert producer.init() == producer.send("a") == OK
    before = state(harness)
    harness.fail(TRANSACTIONS_TOPIC)
    assert producer.end() == MOVED
    assert producer.end() == LOADS
    harness.mend()
    harness.load()
    after = state(harness)
    assert (after.state, after.partitions, after.producer_epoch) == (
        TransactionState.ONGOING,
        before.partitions,
        producer.epoch,
    )
    assert producer.finish() == OK
    assert fetched(harness) == ["a"]


def test_a_complete_commit_that_cannot_be_recorded_is_recorded_after_a_reload(harness: Broken) -> None:
    producer = TransactionalProducer(harness)
    assert producer.init() == producer.send("a") == OK
    harness.cluster.transactions.markers.hold_back_markers("tx")
    assert producer.end() == OK
    harness.fail(TRANSACTIONS_TOPIC)
    harness.cluster.transactions.markers.send_held_markers("tx")
    harness.clock.advance(0)
    harness.end_turn()
    assert "tx" not in harness.cluster.transactions.transactions
    harness.mend()
    harness.load()
    harness.end_turn()
    assert state(harness).state is TransactionState.COMPLETE_COMMIT
    assert fetched(harness) == ["a"]


def test_offsets_of_an_open_transaction_are_pending_again_after_a_reload(harness: Broken) -> None:
    producer = TransactionalProducer(harness)
    assert producer.init() == producer.send_offset("g", 5) == OK
    harness.fail(GROUPS_TOPIC)
    assert producer.send_offset("g", 9, partition=1) == MOVED
    harness.mend()
    harness.load()
    offsets = harness.cluster.groups.groups["g"].offsets
    assert offsets.is_offset_unstable("t", 0) and not offsets.is_offset_unstable("t", 1)
    assert producer.finish() == OK
    assert harness.offsets() == {"g": {("t", 0): 5}}


def test_loading_an_unreadable_shard_is_retried(harness: Broken, caplog: pytest.LogCaptureFixture) -> None:
    commit(harness, "g", ("t", 0, 5))
    harness.fail(GROUPS_TOPIC)
    commit(harness, "g", ("t", 0, 6))
    harness.disk.failing.add("read")
    harness.load()
    assert commit(harness, "g", ("t", 0, 6)) == [MOVED]
    assert "cannot be read" in caplog.text
    harness.mend()
    harness.clock.advance(60_000)
    assert harness.offsets() == {"g": {("t", 0): 5}}
    assert commit(harness, "g", ("t", 0, 6)) == [OK]


def test_loading_an_unreadable_shard_is_retried_immediately_after_a_leader_change(harness: Broken) -> None:
    commit(harness, "g", ("t", 0, 5))
    harness.fail(GROUPS_TOPIC)
    commit(harness, "g", ("t", 0, 6))
    harness.disk.failing.add("read")
    harness.load()
    harness.mend()
    partition = harness.partition(GROUPS_TOPIC)
    elected = PartitionChangeRecord(partition_id=0, topic_id=partition.topic.topic_id, leader=1)
    commit_partition_changes(harness.cluster, [elected])
    harness.load()
    assert harness.offsets() == {"g": {("t", 0): 5}}


def test_a_shard_is_reloaded_although_partitions_were_added_to_its_topic(harness: Broken) -> None:
    commit(harness, "g", ("t", 0, 5))
    harness.fail(GROUPS_TOPIC)
    commit(harness, "g", ("t", 0, 6))
    harness.mend()
    grown = CreatePartitionsRequest.CreatePartitionsTopic(name=GROUPS_TOPIC, count=2, assignments=None)
    (result,) = harness.request(CreatePartitionsRequest(topics=[grown])).results
    assert result.error_code == OK
    harness.load()
    assert harness.offsets() == {"g": {("t", 0): 5}}


def test_pending_offsets_of_a_concurrently_deleted_topic_are_removed(harness: Broken) -> None:
    commit(harness, "g", ("t", 0, 5))
    harness.create_topic("u")
    commit(harness, "g", ("u", 0, 5))
    harness.fail(GROUPS_TOPIC)
    commit(harness, "g", ("t", 0, 6))
    harness.mend()
    harness.request(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="u")]))
    harness.load()
    harness.load()
    assert harness.offsets() == {"g": {("t", 0): 5}}
    harness.restart(crash=True)
    assert harness.offsets() == {"g": {("t", 0): 5}}


def test_a_coordinator_topic_deleted_before_a_reload_leaves_no_offsets(harness: Broken) -> None:
    commit(harness, "g", ("t", 0, 5))
    harness.fail(GROUPS_TOPIC)
    commit(harness, "g", ("t", 0, 6))
    harness.mend()
    harness.request(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=GROUPS_TOPIC)]))
    harness.load()
    assert harness.offsets() == {}
    harness.coordinator("g")
    assert commit(harness, "g", ("t", 0, 1)) == [OK]


def test_iterating_over_groups_skips_groups_deleted_meanwhile(harness: Broken) -> None:
    groups = harness.cluster.groups.groups
    for name in ("a", "b", "c"):
        harness.cluster.groups.find_or_make_classic_group(name)
    present = groups.iterate_present_values()
    assert next(present).group_id == "a"
    del groups["b"]
    harness.cluster.groups.find_or_make_classic_group("d")
    assert [group.group_id for group in present] == ["c"]
    groups.remove_values_of_partition(0)
    assert list(groups.iterate_present_values()) == []


def test_appending_no_coordinator_records_writes_no_batch(harness: Broken) -> None:
    harness.cluster.groups.append_entries("g", [])
    assert harness.partition(GROUPS_TOPIC).log.next_offset == 0


def test_a_response_waits_for_an_fsync_only_if_the_topic_requires_it(harness: Broken) -> None:
    groups = harness.cluster.groups
    told: list[KafkaError | None] = []
    groups.append_entries("g", [(b"k", b"v")])
    groups.call_when_durable("g", told.append)
    assert told == [None]
    kept = harness.partition(GROUPS_TOPIC).log
    kept.flush_at = 2
    harness.clock.holds_aside = True
    groups.append_entries("g", [(b"k", b"v")])
    groups.call_when_durable("g", told.append)
    harness.end_turn()
    assert told == [None]
    harness.clock.do_aside()
    assert told == [None, None]


def state(harness: Harness) -> Any:
    return harness.cluster.transactions.transactions["tx"]
