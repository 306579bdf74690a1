"""Fetch: parts of logs, limits, and the answers of the wrong node.

How a request waits is in `test_fetch_waiting.py`, sessions are in `test_fetch_sessions.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode
from tests.broker.handlers.fetching import VERSIONS, fetch, fetch_of, values_in
from tests.broker.harness import Harness, batch

FIRST_WITH_CURRENT_LEADER = 12
FIRST_WITH_ENDPOINTS = 16
BATCH_BYTES = len(batch("a"))


@pytest.fixture
def filled(harness: Harness) -> Harness:
    """A topic "t" of two partitions: the first has batches at the offsets 0, 1, 2 to 4, and 5; the second is empty."""
    harness.create_topic("t", 2)
    for values in ("a", "b", "cde", "f"):
        harness.produce("t", *values)
    return harness


def refused(answer: Any) -> tuple[int, int, int, int]:
    """Return what an answer without records says: the code, and three offsets."""
    assert answer.records == b""
    return answer.error_code, answer.high_watermark, answer.last_stable_offset, answer.log_start_offset


# --- records ------------------------------------------------------------------------------------


def test_committed_reads_end_at_the_last_stable_offset(filled: Harness) -> None:
    filled.partition("t").log.last_stable_offset = 2
    committed = fetch(filled, {("t", 0): 0}, isolation_level=1)["t", 0]
    assert (values_in(committed), committed.high_watermark, committed.last_stable_offset) == (["a", "b"], 6, 2)
    assert committed.aborted_transactions == []
    assert values_in(fetch(filled, {("t", 0): 0})["t", 0]) == list("abcdef")


def test_records_above_the_high_watermark_are_not_fetched(filled: Harness) -> None:
    filled.partition("t").log.high_watermark = 5
    assert values_in(fetch(filled, {("t", 0): 0})["t", 0]) == list("abcde")


# --- limits -------------------------------------------------------------------------------------


def test_only_the_first_partition_with_records_may_exceed_the_byte_limit_of_a_fetch(filled: Harness) -> None:
    filled.create_topic("u", 3)
    filled.produce("u", "x", partition=1)
    filled.produce("u", "y", partition=2)
    answers = fetch(filled, {("u", 0): 0, ("u", 1): 0, ("u", 2): 0, ("t", 0): 0}, max_bytes=1)
    assert [values_in(answer) for answer in answers.values()] == [[], ["x"], [], []]
    answers = fetch(filled, {("u", 1): 0, ("u", 2): 0}, partition_max_bytes=1)
    assert [values_in(answer) for answer in answers.values()] == [["x"], []]


def test_the_partitions_of_a_fetch_share_its_max_bytes(filled: Harness) -> None:
    filled.produce("t", "x", partition=1)
    answers = fetch(filled, {("t", 0): 0, ("t", 1): 0}, max_bytes=3 * BATCH_BYTES, partition_max_bytes=2 * BATCH_BYTES)
    assert [values_in(answer) for answer in answers.values()] == [["a", "b"], ["x"]]


def test_the_brokers_fetch_max_bytes_limits_a_fetch(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={"fetch.max.bytes": "1024"}) as harness:
        harness.create_topic("t")
        for _ in range(3):
            harness.produce("t", "x" * 400)
        assert len(values_in(fetch(harness, {("t", 0): 0})["t", 0])) == 2


def test_a_read_ends_at_the_segment_boundary_and_the_next_continues(harness: Harness) -> None:
    harness.create_topic("t")
    harness.produce("t", "a")
    harness.partition("t").log.roll_segment_if_used()
    harness.produce("t", "b")
    assert values_in(fetch(harness, {("t", 0): 0})["t", 0]) == ["a"]
    assert values_in(fetch(harness, {("t", 0): 1})["t", 0]) == ["b"]


# --- refused ------------------------------------------------------------------------------------


def test_a_fenced_client_gets_the_current_leader(filled: Harness) -> None:
    filled.partition("t").leader_epoch = 3
    response = filled.request(fetch_of(filled, {("t", 0): 0}, epoch=2))
    leader = response.responses[0].partitions[0].current_leader
    assert (leader.leader_id, leader.leader_epoch) == (1, 3)
    assert [node.node_id for node in response.node_endpoints] == [1]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_node_that_is_not_the_leader_returns_the_leader_and_its_address(tmp_path: Path, version: int) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.create_topic("t", 2)
        mine = next(index for index in range(2) if harness.partition("t", index).leader_id == 1)
        request = fetch_of(harness, {("t", mine): 0, ("t", 1 - mine): 0})
        response = harness.request(request, version, node=1, listener="INTERNAL")
        here, there = response.responses[0].partitions
        assert (here.error_code, here.current_leader) == (0, None)
        assert refused(there) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1, -1)
        if version >= FIRST_WITH_CURRENT_LEADER:
            assert (there.current_leader.leader_id, there.current_leader.leader_epoch) == (2, 0)
        endpoints = [(node.node_id, node.host, node.port) for node in response.node_endpoints]
        assert endpoints == ([(2, "node2.test", 19002)] if version >= FIRST_WITH_ENDPOINTS else [])


# --- diverging epochs (KIP-320) -----------------------------------------------------------------


def test_a_fetch_whose_last_epoch_is_unknown_gets_the_diverging_epoch_before_it(filled: Harness) -> None:
    filled.partition("t").leader_epoch = 3
    filled.produce("t", "g")
    answer = fetch(filled, {("t", 0): 7}, last_epoch=2)["t", 0]
    assert (answer.error_code, answer.records) == (0, b"")
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 6)


# --- many partitions ----------------------------------------------------------------------------


def test_a_large_fetch_is_answered_for_every_partition_of_every_topic(filled: Harness) -> None:
    filled.create_topic("u", 1)
    filled.produce("u", "g")
    answers = fetch(filled, {(name, index): 0 for name in ("t", "u", "absent") for index in range(500)})
    assert len(answers) == 1500
    assert (values_in(answers["t", 0]), values_in(answers["u", 0])) == ([*"abcdef"], ["g"])
    assert {answer.error_code for (name, _), answer in answers.items() if name == "?"} == {ErrorCode.UNKNOWN_TOPIC_ID}
