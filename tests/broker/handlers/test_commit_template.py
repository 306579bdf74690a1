"""An OffsetCommit that is known by its bytes is answered, and recorded, exactly as one that is decoded."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.groups.offsets_of_group import CommittedOffset
from minibroker.broker.handlers.commit_template import OffsetCommitTemplate
from minibroker.broker.metadata.partitions import GROUPS_TOPIC
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import (
    DeleteGroupsRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from minibroker.protocol.messages.metadata_records import PartitionChangeRecord
from minibroker.protocol.messages.offsets import OffsetCommitRequest
from minibroker.protocol.records.batch import read_header
from tests.broker.handlers import cluster_changes
from tests.broker.handlers.offset_requests import BY_ID, codes_of, commit_request, committed_in
from tests.broker.harness import Client, Harness, count_handled, frame_of
from tests.storage.support import FailingDisk

SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
VERSIONS = (2, 5, 6, 7, 8, 9, 10)
FIRST_KNOWN = 6


def cluster_in(directory: Path) -> Harness:
    harness = Harness(directory, settings=SETTINGS, disk=FailingDisk())
    harness.create_topic("t", 3)
    harness.coordinator("g")
    return harness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with cluster_in(tmp_path) as harness:
        yield harness


def request(harness: Harness, version: int, first: int, partitions: int = 2, **more: Any) -> OffsetCommitRequest:
    """Return a commit of the offsets from `first` on, for as many partitions of the topic "t"."""
    topic = harness.cluster.image.topics.get("t")
    topic_id = bytes(15) + b"x" if topic is None else topic.topic_id
    name = topic_id if version >= BY_ID else "t"
    return commit_request("g", *((name, index, first + index) for index in range(partitions)), **more)


def codes(client: Client) -> list[int]:
    ((_, response),) = client.responses()
    return codes_of(response)


def offsets(harness: Harness) -> list[int]:
    return [committed.offset for _, committed in sorted(committed_in(harness, "g").by_partition.items())]


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_batch_header_made_by_a_template_equals_the_decoded_header(harness: Harness, partitions: int) -> None:
    client = harness.client()
    for number in range(2):
        client.send(request(harness, 9, number, partitions), 9)
    assert isinstance(client.connection.template, OffsetCommitTemplate)
    log = harness.partition(GROUPS_TOPIC).log
    harness.dispatcher.execute(client.connection, memoryview(frame_of(request(harness, 9, 7, partitions), 9, 7))[4:])
    written, (header,) = read_header(log.pending.data), log.pending.headers
    assert written.record_count == partitions
    assert header == written._replace(base_offset=0, partition_leader_epoch=-1)


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= FIRST_KNOWN])
@pytest.mark.parametrize("metadata", ["", None])
def test_the_third_commit_of_the_same_shape_uses_the_cached_template(
    harness: Harness, version: int, metadata: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, handled = harness.client(), count_handled(harness.dispatcher, monkeypatch)
    for number in range(0, 60, 10):
        client.send(request(harness, version, number, leader_epoch=number, metadata=metadata), version)
        assert codes(client) == [0, 0]
        assert isinstance(client.connection.template, OffsetCommitTemplate) == (number > 0)
        assert offsets(harness) == [number, number + 1]
    assert len(handled) == 2
    harness.restart(crash=True)
    assert offsets(harness) == [50, 51]


@pytest.mark.parametrize(("version", "metadata"), [(5, ""), (9, "mine")])
def test_commits_with_metadata_are_never_cached(harness: Harness, version: int, metadata: str) -> None:
    client = harness.client()
    for number in range(4):
        client.send(request(harness, version, number, metadata=metadata), version)
        assert codes(client) == [0, 0]
        assert client.connection.template is None


def test_many_commits_in_one_read_are_answered_in_order(harness: Harness) -> None:
    client = harness.client()
    client._asked += [(OffsetCommitRequest.api_key, 9)] * 5
    client.send_bytes(b"".join(frame_of(request(harness, 9, number), 9, number) for number in range(5)))
    assert [(number, codes_of(response)) for number, response in client.responses()] == [
        (number, [0, 0]) for number in range(5)
    ]
    assert offsets(harness) == [4, 5]


@pytest.mark.parametrize("version", [7, 8])
def test_a_failed_write_fails_all_commits_that_waited_for_it(harness: Harness, version: int) -> None:
    client = harness.client()
    for _ in range(2):
        client.send(request(harness, version, 0), version)
        codes(client)
    harness.disk.failing = {"write"}
    client.send(request(harness, version, 10), version)
    assert codes(client) == [ErrorCode.NOT_COORDINATOR] * 2
    harness.disk.failing = set()
    harness.clock.advance(1000)
    assert offsets(harness) == [0, 1]
    client.send(request(harness, version, 20), version)
    assert codes(client) == [0, 0]
    assert offsets(harness) == [20, 21]


def test_a_commit_is_refused_once_another_node_is_the_coordinator(tmp_path: Path) -> None:
    with Harness(tmp_path, settings=SETTINGS, nodes=2) as harness:
        harness.create_topic("t", 3)
        harness.coordinator("g")
        partition = harness.partition(GROUPS_TOPIC)
        client = harness.client(node=partition.leader_id)
        for number in range(3):
            client.send(request(harness, 7, number), 7)
            assert codes(client) == [0, 0]
        assert isinstance(client.connection.template, OffsetCommitTemplate)
        moved = PartitionChangeRecord(partition_id=0, topic_id=partition.topic.topic_id, leader=3 - partition.leader_id)
        harness.cluster.commit_metadata_records([moved])
        client.send(request(harness, 7, 10), 7)
        assert codes(client) == [ErrorCode.NOT_COORDINATOR] * 2
        assert offsets(harness) == [2, 3]


def test_a_commit_keeps_its_member_alive(harness: Harness) -> None:
    side = Side(harness, 7, knows=True)
    side.step("join", "")
    for number in range(10):
        harness.clock.advance(5_000)
        side.step("commit", 0, (number, 2, ""), "member")
    assert isinstance(side.clients[0].connection.template, OffsetCommitTemplate)
    assert not harness.cluster.groups.groups["g"].is_empty


CHANGES = (*cluster_changes.CHANGES, "join", "rejoin", "leave", "forget", "pend")
CONFIGS = (
    ("flush.messages", "1"),
    ("flush.messages", "1000000"),
    ("max.message.bytes", "100"),
    ("max.message.bytes", "1000"),
)
COMMITS = st.tuples(st.integers(0, 9), st.sampled_from((1, 2, 2, 2, 4)), st.sampled_from(("", "", "", "m")))
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("commit"), st.integers(0, 1), COMMITS, st.sampled_from(("nobody", "nobody", "member", "old"))
        ),
        st.tuples(
            st.just("commit"), st.just(0), st.tuples(st.integers(0, 9), st.just(2), st.just("")), st.just("nobody")
        ),
        st.tuples(st.sampled_from(CHANGES), st.sampled_from(CONFIGS)),
    ),
    min_size=5,
    max_size=20,
)


class Side(cluster_changes.Side):
    """A side with a group."""

    def __init__(self, harness: Harness, version: int, *, knows: bool) -> None:
        super().__init__(harness, version, GROUPS_TOPIC, knows=knows)
        self.member = ""
        self.generation = 1

    def step(self, what: str, *arguments: Any) -> Any:
        told = getattr(self, what)(*arguments)
        self.harness.end_turn()
        self.harness.clock.advance(0)
        return told

    def commit(self, client: int, wanted: tuple[int, int, str], who: str) -> bytes:
        asked = self.client(client)
        first, partitions, metadata = wanted
        more: dict[str, Any] = {}
        if who != "nobody":
            epoch = self.generation if who == "member" else 0
            more = {"member_id": self.member, "generation_id_or_member_epoch": epoch}
        before = len(asked.sent_bytes())
        made = request(self.harness, self.version, first, partitions, leader_epoch=first, metadata=metadata, **more)
        asked.send_bytes(frame_of(made, self.version))
        self.harness.clock.advance(0)
        return asked.sent_bytes()[before:]

    def join(self, _: object) -> Any:
        joined = self.rejoin(_)
        syncing = SyncGroupRequest(group_id="g", member_id=self.member, generation_id=self.generation)
        return joined, self.harness.request(syncing, 2).error_code

    def rejoin(self, _: object) -> Any:
        protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")]
        joining = JoinGroupRequest(
            group_id="g",
            member_id=self.member,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=protocols,
        )
        answer = self.harness.request(joining, 3)
        self.harness.clock.advance(0)
        answer = answer.response() if hasattr(answer, "response") else answer
        self.member, self.generation = answer.member_id, answer.generation_id
        return answer

    def leave(self, _: object) -> Any:
        return self.harness.request(LeaveGroupRequest(group_id="g", member_id=self.member), 1)

    def forget(self, _: object) -> Any:
        return self.harness.request(DeleteGroupsRequest(groups_names=["g"]))

    def pend(self, _: object) -> None:
        """An open transaction commits an offset, or one ends."""
        if self.harness.partition(GROUPS_TOPIC).log.offline:
            return
        shard = self.harness.cluster.groups.get_shard_of_coordinator_key("g")
        group = self.harness.cluster.groups.groups.get("g")
        if group is not None and group.offsets.pending:
            shard.apply_transaction_end(5, committed=True)
        else:
            shard.add_pending_offset(5, "g", "t", 1, CommittedOffset(100, -1, "", 0))


@given(st.sampled_from(VERSIONS), STEPS)
def test_cached_and_decoded_commits_give_the_same_responses_and_offsets(version: int, steps: list[Any]) -> None:
    with (
        tempfile.TemporaryDirectory() as one,
        tempfile.TemporaryDirectory() as other,
        cluster_in(Path(one)) as first,
        cluster_in(Path(other)) as second,
    ):
        knowing, decoding = Side(first, version, knows=True), Side(second, version, knows=False)
        for step in steps:
            assert knowing.step(*step) == decoding.step(*step), step
            assert state(first) == state(second), step
        assert contents(one) == contents(other)


def state(harness: Harness) -> Any:
    group = harness.cluster.groups.groups.get("g")
    return None if group is None else (group.offsets.by_partition, group.offsets.pending)


def contents(directory: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(Path(directory).glob(f"data/{GROUPS_TOPIC}-0/*.log"))]
