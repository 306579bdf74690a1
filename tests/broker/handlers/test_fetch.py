"""Fetch: which batches come, within which limits, and what is answered for partitions that cannot be read.

How a request waits is in `test_fetch_waiting.py`, sessions are in `test_fetch_sessions.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode
from tests.broker.handlers.fetching import FIRST_BY_ID, VERSIONS, Where, fetch, fetch_of, id_of, values_in
from tests.broker.harness import Harness, batch
from tests.cases import for_each

FIRST_WITH_ISOLATION = 4
FIRST_WITH_LOG_START = 5
FIRST_WITH_LEADER_EPOCHS = 9
FIRST_WITH_CURRENT_LEADER = 12
FIRST_WITH_ENDPOINTS = 16
OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE
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


@for_each("version", VERSIONS)
def test_every_fetch_version_returns_batches_and_offsets(filled: Harness, version: int) -> None:
    answers = fetch(filled, {("t", 0): 0, ("t", 1): 0}, version=version)
    first, second = answers["t", 0], answers["t", 1]
    assert values_in(first) == list("abcdef")
    assert (first.error_code, first.high_watermark) == (0, 6)
    assert first.last_stable_offset == (6 if version >= FIRST_WITH_ISOLATION else -1)
    assert first.log_start_offset == (0 if version >= FIRST_WITH_LOG_START else -1)
    assert (second.error_code, second.high_watermark, second.records) == (0, 0, b"")
    if version >= FIRST_WITH_ISOLATION:
        assert first.aborted_transactions is None


def test_fetched_bytes_are_those_of_the_log(filled: Harness) -> None:
    region = filled.partition("t").log.read(0, 1 << 20)
    assert region is not None
    assert fetch(filled, {("t", 0): 0})["t", 0].records == region.read()


@for_each(
    ("offset", "expected"), [(0, "abcdef"), (1, "bcdef"), (2, "cdef"), (3, "cdef"), (4, "cdef"), (5, "f"), (6, "")]
)
def test_the_batch_that_contains_the_offset_comes_first(filled: Harness, offset: int, expected: str) -> None:
    answer = fetch(filled, {("t", 0): offset})["t", 0]
    assert (answer.error_code, "".join(values_in(answer))) == (0, expected)


def test_responses_by_topic_id_contain_the_topic_id(filled: Harness) -> None:
    (topic,) = filled.request(fetch_of(filled, {("t", 0): 0})).responses
    assert topic.topic_id == id_of(filled, "t")


def test_committed_reads_end_at_the_last_stable_offset(filled: Harness) -> None:
    filled.partition("t").log.last_stable_offset = 2
    committed = fetch(filled, {("t", 0): 0}, isolation_level=1)["t", 0]
    assert (values_in(committed), committed.high_watermark, committed.last_stable_offset) == (["a", "b"], 6, 2)
    assert committed.aborted_transactions == []
    assert values_in(fetch(filled, {("t", 0): 0})["t", 0]) == list("abcdef")


def test_records_above_the_high_watermark_are_not_fetched(filled: Harness) -> None:
    filled.partition("t").log.high_watermark = 5
    assert values_in(fetch(filled, {("t", 0): 0})["t", 0]) == list("abcde")


def test_an_empty_fetch_has_an_empty_response(harness: Harness) -> None:
    assert fetch(harness, {}, max_wait_ms=60_000) == {}


# --- limits -------------------------------------------------------------------------------------


@for_each("limit", [0, 1, BATCH_BYTES])
@for_each("which", ["max_bytes", "partition_max_bytes"])
def test_one_batch_is_returned_whatever_the_limit(filled: Harness, which: str, limit: int) -> None:
    answer = fetch(filled, {("t", 0): 0}, **{which: limit})["t", 0]
    assert values_in(answer) == ["a"]


@pytest.mark.parametrize("which", ["max_bytes", "partition_max_bytes"])
def test_negative_limits_return_no_batch(filled: Harness, which: str) -> None:
    answers = fetch(filled, {("t", 0): 0, ("t", 1): 0}, **{which: -1})
    assert [values_in(answer) for answer in answers.values()] == [[], []]


@pytest.mark.parametrize("which", ["max_bytes", "partition_max_bytes"])
def test_limits_cut_responses_between_batches(filled: Harness, which: str) -> None:
    assert values_in(fetch(filled, {("t", 0): 0}, **{which: 2 * BATCH_BYTES})["t", 0]) == ["a", "b"]
    assert values_in(fetch(filled, {("t", 0): 0}, **{which: 2 * BATCH_BYTES + 1})["t", 0]) == ["a", "b"]


def test_only_the_first_partition_with_records_may_exceed_the_limit(filled: Harness) -> None:
    filled.create_topic("u", 3)
    filled.produce("u", "x", partition=1)
    filled.produce("u", "y", partition=2)
    answers = fetch(filled, {("u", 0): 0, ("u", 1): 0, ("u", 2): 0, ("t", 0): 0}, max_bytes=1)
    assert [values_in(answer) for answer in answers.values()] == [[], ["x"], [], []]
    answers = fetch(filled, {("u", 1): 0, ("u", 2): 0}, partition_max_bytes=1)
    assert [values_in(answer) for answer in answers.values()] == [["x"], []]


def test_the_partitions_share_the_limit_of_the_request(filled: Harness) -> None:
    filled.produce("t", "x", partition=1)
    answers = fetch(filled, {("t", 0): 0, ("t", 1): 0}, max_bytes=3 * BATCH_BYTES, partition_max_bytes=2 * BATCH_BYTES)
    assert [values_in(answer) for answer in answers.values()] == [["a", "b"], ["x"]]


def test_the_brokers_own_limit_applies(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={"fetch.max.bytes": "1024"}) as harness:
        harness.create_topic("t")
        for _ in range(3):
            harness.produce("t", "x" * 400)
        assert len(values_in(fetch(harness, {("t", 0): 0})["t", 0])) == 2


def test_a_read_ends_at_the_segment_boundary_and_the_next_continues(harness: Harness) -> None:
    harness.create_topic("t")
    harness.produce("t", "a")
    harness.partition("t").log.roll()
    harness.produce("t", "b")
    assert values_in(fetch(harness, {("t", 0): 0})["t", 0]) == ["a"]
    assert values_in(fetch(harness, {("t", 0): 1})["t", 0]) == ["b"]


# --- refused ------------------------------------------------------------------------------------


@for_each("version", VERSIONS)
def test_unknown_topics_and_partitions_are_rejected_individually(filled: Harness, version: int) -> None:
    wanted: dict[Where, int] = {("nowhere", 0): 0, ("t", 0): 0, ("t", 7): 0, ("t", -1): 0}
    by_id = version >= FIRST_BY_ID
    topic, *others = fetch(filled, wanted, version=version).values()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refused(topic) == (ErrorCode.UNKNOWN_TOPIC_ID if by_id else unknown, -1, -1, -1)
    assert [answer.error_code for answer in others] == [0, unknown, unknown]
    assert values_in(others[0]) == list("abcdef")
    assert topic.aborted_transactions == []


@pytest.mark.parametrize("offset", [7, -1, 1 << 62])
def test_an_offset_beyond_the_log_end_is_out_of_range(filled: Harness, offset: int) -> None:
    answers = fetch(filled, {("t", 0): offset, ("t", 1): 0})
    assert refused(answers["t", 0]) == (OUT_OF_RANGE, -1, -1, -1)
    assert answers["t", 1].error_code == 0


def test_an_offset_before_the_log_start_is_out_of_range(filled: Harness) -> None:
    filled.partition("t").log.delete_before(2)
    assert refused(fetch(filled, {("t", 0): 1})["t", 0]) == (OUT_OF_RANGE, -1, -1, -1)
    answer = fetch(filled, {("t", 0): 2})["t", 0]
    assert (answer.log_start_offset, values_in(answer)) == (2, list("cdef"))


@for_each("version", [version for version in VERSIONS if version >= FIRST_WITH_LEADER_EPOCHS])
def test_leader_epochs_are_validated_before_the_offset(filled: Harness, version: int) -> None:
    partition = filled.partition("t")
    partition.leader_epoch = 3
    for epoch, code in ((2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        assert refused(fetch(filled, {("t", 0): 99}, epoch=epoch, version=version)["t", 0]) == (code, -1, -1, -1)
    for epoch in (3, -1):
        assert fetch(filled, {("t", 0): 0}, epoch=epoch, version=version)["t", 0].error_code == 0


def test_a_fenced_client_gets_the_current_leader(filled: Harness) -> None:
    filled.partition("t").leader_epoch = 3
    response = filled.request(fetch_of(filled, {("t", 0): 0}, epoch=2))
    leader = response.responses[0].partitions[0].current_leader
    assert (leader.leader_id, leader.leader_epoch) == (1, 3)
    assert [node.node_id for node in response.node_endpoints] == [1]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_wrong_node_answers_with_the_leader_and_its_address(tmp_path: Path, version: int) -> None:
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


def test_a_fetch_with_the_same_epoch_history_continues(filled: Harness) -> None:
    answer = fetch(filled, {("t", 0): 2}, last_epoch=0)["t", 0]
    assert (values_in(answer), answer.diverging_epoch) == (list("cdef"), None)


def test_a_fetch_beyond_the_end_of_its_epoch_gets_the_diverging_offset(filled: Harness) -> None:
    answer = fetch(filled, {("t", 0): 99}, last_epoch=0)["t", 0]
    assert (answer.error_code, answer.records, answer.high_watermark) == (0, b"", 6)
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 6)


def test_a_fetch_with_an_unknown_epoch_gets_the_epoch_before(filled: Harness) -> None:
    filled.partition("t").leader_epoch = 3
    filled.produce("t", "g")
    answer = fetch(filled, {("t", 0): 7}, last_epoch=2)["t", 0]
    assert (answer.error_code, answer.records) == (0, b"")
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 6)


def test_a_future_fetch_epoch_is_out_of_range(filled: Harness) -> None:
    assert refused(fetch(filled, {("t", 0): 2}, last_epoch=5)["t", 0]) == (OUT_OF_RANGE, -1, -1, -1)
