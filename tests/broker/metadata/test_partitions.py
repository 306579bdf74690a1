"""Topics and partitions in memory: names, look-up, leader epochs."""

from __future__ import annotations

import pytest

from minibroker.broker.metadata.partitions import Partition, Topic, check_topic_name, make_metric_collision_key
from minibroker.protocol.errors import ErrorCode, KafkaError
from tests.broker.harness import Harness
from tests.cases import for_each


@for_each("name", ["t", "a.b_c-D9", "...", "x" * 249, "__mine", "-"])
def test_a_valid_topic_name_is_accepted(name: str) -> None:
    check_topic_name(name)


@for_each(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
        ("a b", "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("a/b", "'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("ü", "'ü' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("t\n", "'t\n' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
    ],
)
def test_an_invalid_topic_name_is_rejected_with_kafkas_message(name: str, reason: str) -> None:
    with pytest.raises(KafkaError) as raised:
        check_topic_name(name)
    assert raised.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert raised.value.message == f"Topic name is invalid: {reason}"


def test_names_that_differ_only_in_dots_and_underscores_collide() -> None:
    assert (
        make_metric_collision_key("a.b_c") == make_metric_collision_key("a_b.c") != make_metric_collision_key("a-b.c")
    )


@pytest.mark.parametrize(
    ("name", "internal"), [("__consumer_offsets", True), ("__transaction_state", True), ("__x", False)]
)
def test_kafkas_own_topics_are_internal(name: str, internal: bool) -> None:
    assert Topic(name, bytes(16)).internal == internal


def test_a_partition_is_found_by_its_index() -> None:
    topic = Topic("t", bytes(16))
    topic.partitions = [Partition(topic, index, [1], [1], 1) for index in range(2)]
    assert [topic.find_partition(index) for index in (0, 1)] == topic.partitions
    assert [topic.find_partition(index) for index in (-1, 2)] == [None, None]
    assert repr(topic.partitions[1]) == "t-1"


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(2, ErrorCode.FENCED_LEADER_EPOCH), (-2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_a_client_with_another_leader_epoch_is_rejected(epoch: int, code: ErrorCode) -> None:
    partition = Partition(Topic("t", bytes(16)), 0, [1], [1], 1)
    partition.leader_epoch = 3
    partition.check_leader_epoch(3)
    partition.check_leader_epoch(-1)
    with pytest.raises(KafkaError) as raised:
        partition.check_leader_epoch(epoch)
    assert raised.value.code == code


def test_all_waiters_of_a_partition_are_woken_even_if_they_leave_meanwhile() -> None:
    partition = Partition(Topic("t", bytes(16)), 0, [1], [1], 1)
    woken = []

    class Leaving:
        def count_appended_bytes(self, size_bytes: int) -> None:
            raise AssertionError("nothing was appended")

        def notify_partition_changed(self) -> None:
            woken.append(self)
            partition.waiters.discard(self)

    waiters = [Leaving(), Leaving()]
    partition.waiters.update(waiters)
    partition.wake_all_waiters()
    assert (set(woken), partition.waiters) == (set(waiters), set())


def test_an_epoch_ends_where_a_later_leader_started(harness: Harness) -> None:
    harness.create_topic("t")
    partition = harness.partition("t")
    ends = {}
    for leader_epoch in (0, 2, 5):
        partition.leader_epoch = leader_epoch
        ends[leader_epoch] = [partition.find_end_offset_of_epoch(epoch) for epoch in range(7)]
        if leader_epoch != 2:
            harness.produce("t", "a", "b")
    unknown = (-1, -1)
    assert ends[0] == [(0, 0), *[unknown] * 6]
    assert ends[2] == [(0, 2), (0, 2), (2, 2), *[unknown] * 4]
    assert ends[5] == [(0, 2), (0, 2), (0, 2), (0, 2), (0, 2), (5, 2), unknown]
