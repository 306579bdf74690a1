"""What consumers see of a partition that has fewer replicas in sync than min.insync.replicas: nothing new (KIP-966)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.control.elections import remove_absent_nodes_from_isr, return_live_replicas_to_isr
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.log_offsets import ListOffsetsRequest
from minibroker.protocol.messages.metadata_records import TOPIC_RESOURCE
from tests.broker.handlers.fetching import answers_in, fetch, fetch_of, values_in
from tests.broker.harness import Harness, Waiting, batch

PLACE = ("t", 0)
MINIMUM = "min.insync.replicas"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    """Three nodes; the topic t has replicas on all, of which two must be in sync, and one record."""
    with Harness(tmp_path, nodes=3) as made:
        made.cluster.controller.create_topic("t", assignment=[(0, [1, 2, 3])], overrides={MINIMUM: "2"})
        made.produce("t", "a")
        yield made


def leave(harness: Harness, *nodes: int) -> None:
    remove_absent_nodes_from_isr(harness.cluster, [harness.partition("t")], absent_nodes=nodes)


def come_back(harness: Harness) -> None:
    return_live_replicas_to_isr(harness.cluster, [harness.partition("t")])


def produce(harness: Harness, value: str, acks: int = 1) -> int:
    code: int = harness.produce_batch("t", batch(value), acks=acks).error_code
    return code


def read(harness: Harness, offset: int = 0, **more: Any) -> tuple[list[str], int]:
    """The values that a consumer reads, and the high watermark."""
    answer = fetch(harness, {PLACE: offset}, **more)[PLACE]
    return values_in(answer), answer.high_watermark


def test_records_below_min_insync_replicas_are_hidden_until_replicas_return(harness: Harness) -> None:
    leave(harness, 2, 3)
    assert produce(harness, "b") == ErrorCode.NONE
    assert produce(harness, "c", acks=-1) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert read(harness) == (["a"], 1)
    assert read(harness, isolation_level=1) == (["a"], 1)
    log = harness.partition("t").log
    assert (log.log_end_offset, log.last_stable_offset) == (2, 1)
    come_back(harness)
    assert read(harness) == read(harness, isolation_level=1) == (["a", "b"], 2)
    assert produce(harness, "c", acks=-1) == ErrorCode.NONE
    assert read(harness) == (["a", "b", "c"], 3)


def test_records_are_readable_if_enough_replicas_are_in_sync(harness: Harness) -> None:
    leave(harness, 3)
    assert produce(harness, "b") == ErrorCode.NONE
    assert read(harness) == (["a", "b"], 2)


def test_records_are_readable_if_a_partition_has_fewer_replicas_than_min_isr(harness: Harness) -> None:
    harness.cluster.controller.change_config(TOPIC_RESOURCE, "t", {MINIMUM: "7"})
    assert produce(harness, "b") == ErrorCode.NONE
    assert read(harness) == (["a", "b"], 2)


def test_changing_min_insync_replicas_shows_and_hides_records(harness: Harness) -> None:
    leave(harness, 2, 3)
    assert produce(harness, "b") == ErrorCode.NONE
    harness.cluster.controller.change_config(TOPIC_RESOURCE, "t", {MINIMUM: "1"})
    assert read(harness) == (["a", "b"], 2)
    harness.cluster.controller.change_config(TOPIC_RESOURCE, "t", {MINIMUM: "2"})
    assert produce(harness, "c") == ErrorCode.NONE
    assert read(harness) == (["a", "b"], 2)


def test_a_delayed_fetch_is_woken_when_replicas_return(harness: Harness) -> None:
    leave(harness, 2, 3)
    waiting = harness.request(fetch_of(harness, {PLACE: 1}, max_wait_ms=500))
    assert isinstance(waiting, Waiting)
    assert produce(harness, "b") == ErrorCode.NONE
    assert not waiting.done
    come_back(harness)
    harness.end_turn()
    assert values_in(answers_in(harness, waiting.response())[PLACE]) == ["b"]


def test_hidden_records_do_not_count_for_the_minimum_of_a_delayed_fetch(harness: Harness) -> None:
    leave(harness, 2, 3)
    waiting = harness.request(fetch_of(harness, {PLACE: 1}, max_wait_ms=500, min_bytes=100))
    assert isinstance(waiting, Waiting)
    for value in "bcd":
        assert produce(harness, value) == ErrorCode.NONE
    harness.end_turn()
    assert not waiting.done
    harness.clock.advance(500)
    assert values_in(answers_in(harness, waiting.response())[PLACE]) == []


def test_the_latest_offset_is_the_high_watermark_below_min_isr(harness: Harness) -> None:
    leave(harness, 2, 3)
    assert produce(harness, "b") == ErrorCode.NONE
    topic = ListOffsetsRequest.ListOffsetsTopic
    wanted = topic(name="t", partitions=[topic.ListOffsetsPartition(partition_index=0, timestamp=-1)])
    answer = harness.request(ListOffsetsRequest(replica_id=-1, topics=[wanted]))
    assert answer.topics[0].partitions[0].offset == 1


def test_records_of_a_new_partition_below_min_isr_are_hidden_from_consumers(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        harness.create_topic("other")
        harness.restart(nodes=[1])
        harness.cluster.controller.create_topic("t", assignment=[(0, [1, 2, 3])], overrides={MINIMUM: "2"})
        assert produce(harness, "a") == ErrorCode.NONE
        assert read(harness) == ([], 0)
        harness.restart(nodes=[1])
        assert produce(harness, "b") == ErrorCode.NONE
        assert read(harness) == (["a"], 1), "what was there at a start is shown"
        harness.restart(nodes=[1, 2])
        assert read(harness) == (["a", "b"], 2)
