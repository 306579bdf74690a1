"""Fetch that waits: for min_bytes, until max_wait, and what else ends the wait. The clock moves only when told to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.delayed_operations import DelayedOperation, Slicer
from minibroker.broker.handlers.fetch import fetch
from minibroker.broker.handlers.watching import WATCHED_MAX
from minibroker.broker.security.operations import READ_TOPIC, Right
from minibroker.broker.security.principals import Principal
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.topics import DeleteTopicsRequest
from tests.broker.handlers.fetching import LAST_BY_NAME, VERSIONS, Where, answers_in, fetch_of, values_in
from tests.broker.harness import Harness, Verdicts, Waiting, batch

WAIT_MS = 500
BATCH_BYTES = len(batch("a"))


@pytest.fixture
def topics(harness: Harness) -> Harness:
    """A topic "t" of two partitions and a topic "u" of one, all empty."""
    harness.create_topic("t", 2)
    harness.create_topic("u")
    return harness


def parked(harness: Harness, offsets: Mapping[Where, int], *, version: int = VERSIONS[-1], **more: Any) -> Waiting:
    waiting = harness.request(fetch_of(harness, offsets, **{"max_wait_ms": WAIT_MS, **more}), version)
    assert isinstance(waiting, Waiting), "answered at once"
    return waiting


def at_once(harness: Harness, offsets: Mapping[Where, int], **more: Any) -> dict[Where, Any]:
    response = harness.request(fetch_of(harness, offsets, **{"max_wait_ms": WAIT_MS, **more}))
    assert not isinstance(response, Waiting), "it waits"
    return answers_in(harness, response)


def waiters(harness: Harness, topic: str = "t", index: int = 0) -> int:
    return len(harness.partition(topic, index).waiters)


# --- woken by an append -------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_an_append_completes_a_delayed_fetch(topics: Harness, version: int) -> None:
    waiting = parked(topics, {("t", 0): 0}, version=version)
    assert not waiting.done
    topics.produce("t", "a")
    answer = answers_in(topics, waiting.response())["t", 0]
    assert (values_in(answer), answer.high_watermark) == (["a"], 1)


class FailingAuthorizer:
    def allows_operation(self, principal: Principal, host: str, right: Right, name: str) -> bool:
        if principal.name == "unlucky":
            raise ZeroDivisionError
        return True


@pytest.mark.parametrize("woken_by", ["append", "deletion", "time"])
def test_a_delayed_fetch_that_fails_closes_only_its_own_connection(
    topics: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, woken_by: str
) -> None:
    clients = [topics.client() for _ in range(3)]
    for client in clients:
        client.send(fetch_of(topics, {("t", 0): 0}, max_wait_ms=WAIT_MS), LAST_BY_NAME)
    watches: Any = topics.partition("t").waiters
    clients[1].connection.principal = Principal("User", "unlucky")
    monkeypatch.setattr(topics.cluster, "authorizer", FailingAuthorizer())
    if woken_by == "append":
        assert topics.produce("t", "a") == 0
    elif woken_by == "deletion":
        topics.request(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")]))
    else:
        topics.clock.advance(WAIT_MS)
    assert [client.closed for client in clients] == [False, True, False]
    assert [len(list(client.responses())) for client in clients] == [1, 0, 1]
    assert "closing test:1 (client id 'test'): a request failed" in caplog.text
    assert not watches


def test_an_append_to_any_of_its_partitions_completes_a_delayed_fetch(topics: Harness) -> None:
    waiting = parked(topics, {("t", 0): 0, ("t", 1): 0, ("u", 0): 0})
    topics.produce("u", "a")
    answers = answers_in(topics, waiting.response())
    assert {where: values_in(answer) for where, answer in answers.items()} == {
        ("t", 0): [],
        ("t", 1): [],
        ("u", 0): ["a"],
    }
    assert (waiters(topics), waiters(topics, "t", 1), waiters(topics, "u")) == (0, 0, 0)


def test_an_append_to_another_partition_does_not_complete_a_delayed_fetch(topics: Harness) -> None:
    waiting = parked(topics, {("t", 0): 0})
    topics.produce("t", "a", partition=1)
    topics.produce("u", "a")
    assert not waiting.done


def test_a_fetch_does_not_wait_for_more_than_fetch_max_bytes(topics: Harness) -> None:
    topics.produce("t", "a")
    topics.produce("t", "b")
    answers = at_once(topics, {("t", 0): 0}, min_bytes=1 << 20, max_bytes=BATCH_BYTES)
    assert values_in(answers["t", 0]) == ["a"]


def test_a_delayed_fetch_waits_for_no_more_than_fetch_max_bytes(topics: Harness) -> None:
    waiting = parked(topics, {("t", 0): 0}, min_bytes=1 << 20, max_bytes=BATCH_BYTES)
    topics.produce("t", "a")
    assert values_in(answers_in(topics, waiting.response())["t", 0]) == ["a"]


def test_a_fetch_waits_for_min_bytes(topics: Harness) -> None:
    topics.produce("t", "a")
    waiting = parked(topics, {("t", 0): 0, ("t", 1): 0}, min_bytes=3 * BATCH_BYTES)
    topics.produce("t", "b")
    assert not waiting.done
    topics.produce("t", "c", partition=1)
    answers = answers_in(topics, waiting.response())
    assert [values_in(answer) for answer in answers.values()] == [["a", "b"], ["c"]]


def test_bytes_beyond_the_partition_limit_do_not_count_towards_min_bytes(topics: Harness) -> None:
    waiting = parked(topics, {("t", 0): 0}, min_bytes=2 * BATCH_BYTES, partition_max_bytes=BATCH_BYTES)
    for value in "abc":
        topics.produce("t", value)
    assert not waiting.done
    topics.clock.advance(WAIT_MS)
    assert values_in(answers_in(topics, waiting.response())["t", 0]) == ["a"]


def test_two_fetches_delayed_on_one_partition_are_both_completed(topics: Harness) -> None:
    waiting = [parked(topics, {("t", 0): 0}) for _ in range(2)]
    topics.produce("t", "a")
    assert [values_in(answers_in(topics, each.response())["t", 0]) for each in waiting] == [["a"], ["a"]]


def test_read_committed_fetches_wait_for_the_last_stable_offset(topics: Harness) -> None:
    topics.produce("t", "a")
    topics.partition("t").log.last_stable_offset = 0
    parked(topics, {("t", 0): 0}, isolation_level=1)


# --- the end of the wait ------------------------------------------------------------------------


def test_a_fetch_is_answered_after_max_wait_with_available_records(topics: Harness) -> None:
    topics.produce("t", "a")
    waiting = parked(topics, {("t", 0): 0, ("t", 1): 0}, min_bytes=1 << 20)
    topics.clock.advance(WAIT_MS - 1)
    assert not waiting.done
    topics.clock.advance(1)
    answers = answers_in(topics, waiting.response())
    assert [values_in(answer) for answer in answers.values()] == [["a"], []]
    assert waiters(topics) == 0


def test_the_max_wait_timer_does_nothing_after_an_append(topics: Harness) -> None:
    waiting = parked(topics, {("t", 0): 0})
    topics.produce("t", "a")
    topics.clock.advance(10 * WAIT_MS)
    assert values_in(answers_in(topics, waiting.response())["t", 0]) == ["a"]


def test_a_disconnected_client_leaves_no_delayed_fetch(topics: Harness) -> None:
    waiting = parked(topics, {("t", 0): 0, ("u", 0): 0})
    assert (waiters(topics), waiters(topics, "u")) == (1, 1)
    waiting.go_away()
    assert (waiters(topics), waiters(topics, "u")) == (0, 0)
    topics.produce("t", "a")
    topics.clock.advance(WAIT_MS)
    assert not waiting.done


@pytest.mark.parametrize("version", [LAST_BY_NAME, VERSIONS[-1]])
def test_a_topic_deletion_completes_a_delayed_fetch(topics: Harness, version: int) -> None:
    waiting = parked(topics, {("t", 0): 0, ("t", 1): 0, ("u", 0): 0}, version=version)
    topics.request(DeleteTopicsRequest(topic_names=["t"]), 5)
    by_name = version == LAST_BY_NAME
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if by_name else ErrorCode.UNKNOWN_TOPIC_ID
    codes = [partition.error_code for topic in waiting.response().responses for partition in topic.partitions]
    assert codes == [code, code, 0]
    assert waiters(topics, "u") == 0


# --- no wait ------------------------------------------------------------------------------------


def test_a_fetch_with_enough_bytes_is_answered_immediately(topics: Harness) -> None:
    topics.produce("t", "a")
    assert values_in(at_once(topics, {("t", 1): 0, ("t", 0): 0})["t", 0]) == ["a"]


@pytest.mark.parametrize("fields", [{"min_bytes": 0}, {"max_wait_ms": 0}, {"max_wait_ms": -1}])
def test_a_fetch_without_min_bytes_or_max_wait_is_answered_immediately(topics: Harness, fields: dict[str, int]) -> None:
    assert at_once(topics, {("t", 0): 0}, **fields)["t", 0].records == b""


def test_a_fetch_with_an_offset_out_of_range_is_answered_immediately(topics: Harness) -> None:
    answers = at_once(topics, {("t", 0): 99, ("t", 1): 0})
    assert [answer.error_code for answer in answers.values()] == [ErrorCode.OFFSET_OUT_OF_RANGE, 0]


def test_a_fetch_in_a_wrong_leader_epoch_or_at_a_wrong_node_is_answered_immediately(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.create_topic("t", 2)
        both: dict[Where, int] = {("t", 0): 0, ("t", 1): 0}
        codes = {answer.error_code for answer in at_once(harness, both).values()}
        assert codes == {0, ErrorCode.NOT_LEADER_OR_FOLLOWER}
        codes = {answer.error_code for answer in at_once(harness, both, epoch=5).values()}
        assert codes == {ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_a_diverging_epoch_is_answered_immediately(topics: Harness) -> None:
    assert at_once(topics, {("t", 0): 9}, last_epoch=0)["t", 0].diverging_epoch.end_offset == 0


def test_a_fetch_of_only_unknown_partitions_is_answered_immediately(topics: Harness) -> None:
    assert at_once(topics, {("t", 9): 0})["t", 9].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_unknown_partition_does_not_complete_a_delayed_fetch(topics: Harness) -> None:
    waiting = parked(topics, {("t", 9): 0, ("t", 0): 0})
    topics.produce("t", "a")
    answers = answers_in(topics, waiting.response())
    assert answers["t", 9].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert values_in(answers["t", 0]) == ["a"]


def test_a_fetch_from_an_older_segment_does_not_wait_for_more(topics: Harness) -> None:
    topics.produce("t", "a")
    topics.partition("t").log.roll_segment_if_used()
    topics.produce("t", "b")
    assert values_in(at_once(topics, {("t", 0): 0}, min_bytes=1 << 20)["t", 0]) == ["a"]
    parked(topics, {("t", 0): 1}, min_bytes=1 << 20)


def test_later_requests_wait_for_a_delayed_fetch(topics: Harness) -> None:
    client = topics.client()
    client.send(fetch_of(topics, {("t", 0): 0}, max_wait_ms=WAIT_MS), correlation_id=1)
    client.send(fetch_of(topics, {("t", 1): 0}), correlation_id=2)
    assert list(client.responses()) == []
    topics.clock.advance(WAIT_MS)
    client.outlet.run_soon()
    assert [correlation_id for correlation_id, _ in client.responses()] == [1, 2]


# --- of many partitions -------------------------------------------------------------------------

MANY: dict[Where, int] = {("many", index): 0 for index in range(120)}


def test_the_number_of_delayed_fetches_is_limited(topics: Harness) -> None:
    topics.create_topic("many", 120)
    node = topics.cluster.nodes[1]
    node.watched = others = WATCHED_MAX - 250
    first, second = parked(topics, MANY), parked(topics, MANY)
    assert node.watched == others + 240
    assert len(at_once(topics, MANY)) == 120
    topics.produce("many", "a")
    assert first.done and second.done and node.watched == others
    third = parked(topics, {**MANY, ("many", 0): 1})
    topics.clock.advance(WAIT_MS)
    assert third.done and node.watched == others


def test_a_fetch_cancelled_while_it_starts_to_wait_leaves_no_waiter(topics: Harness) -> None:
    topics.create_topic("many", 120)
    client = topics.client()
    request = fetch_of(topics, MANY, max_wait_ms=WAIT_MS)
    context = topics.make_context(ApiKey.FETCH, VERSIONS[-1], client.connection)
    coroutine: Any = fetch(context, request)
    while not context.node.watched:
        coroutine.send(None)
    assert waiters(topics, "many") == 1
    coroutine.close()
    assert (waiters(topics, "many"), context.node.watched) == (0, 0)


class Fetching:
    """A fetch that names 120 partitions so many times, up to where it has begun to watch the first of them.

    `go_on` takes it from there, a step a turn of `soon`.
    """

    def __init__(self, topics: Harness, times: int = 1) -> None:
        topics.create_topic("many", 120)
        self.soon: list[Callable[[], None]] = []
        self.slicer = Slicer(self.soon.append, now=iter(range(1_000_000)).__next__)
        self.answers: list[Any] = []
        self.failures: list[Exception] = []
        request = fetch_of(topics, MANY, max_wait_ms=WAIT_MS)
        request.topics[0].partitions *= times
        context = topics.make_context(ApiKey.FETCH, VERSIONS[-1], slicer=self.slicer)
        self._coroutine: Any = fetch(context, request)
        while not waiters(topics, "many"):
            self._coroutine.send(None)

    def go_on(self) -> None:
        outcome = self.slicer.run_or_delay(self._coroutine, self.answers.append, self.failures.append)
        assert isinstance(outcome, DelayedOperation)
        self.take_turns()

    def take_turns(self) -> None:
        while self.soon:
            self.soon.pop(0)()


@pytest.mark.parametrize("woken_by", ["append", "deletion"])
def test_an_append_while_a_fetch_starts_to_wait_completes_it(topics: Harness, woken_by: str) -> None:
    fetching = Fetching(topics)
    other = parked(topics, {("many", 0): 0})
    if woken_by == "append":
        topics.produce("many", "a")
    else:
        topics.request(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="many")]))
    assert other.done
    fetching.go_on()
    (topic,) = fetching.answers[0].responses
    assert [partition.high_watermark for partition in topic.partitions][:2] == (
        [1, 0] if woken_by == "append" else [-1, -1]
    )
    assert topics.cluster.nodes[1].watched == 0


@pytest.mark.parametrize("woken_by", ["append", "deletion"])
def test_a_fetch_notices_an_append_during_its_incremental_scan(topics: Harness, woken_by: str) -> None:
    fetching = Fetching(topics)
    fetching.go_on()
    topics.produce("many", "a", partition=7)
    assert fetching.soon, "it has looked at all of them already"
    if woken_by == "append":
        topics.produce("many", "a")
    else:
        topics.request(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="many")]))
    fetching.take_turns()
    assert fetching.answers
    assert not topics.clock.monotonic_ms()


def test_a_partition_that_a_fetch_names_many_times_is_scanned_in_steps(
    topics: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetching, looks = Fetching(topics, times=9), []
    fetching.go_on()
    fetching.slicer.slices = 0

    def look(right: Right, name: str) -> bool:
        if right == READ_TOPIC:
            looks.append(fetching.slicer.slices)
        return True

    monkeypatch.setattr(topics.cluster, "authorizer", Verdicts(look))
    topics.produce("many", "a")
    fetching.take_turns()
    assert fetching.answers
    assert looks[:9] == list(range(1, 10))  # the others build the answer


def test_a_fetch_that_fails_during_its_scan_leaves_no_waiter(topics: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    fetching = Fetching(topics)
    monkeypatch.setattr(topics.cluster, "authorizer", Verdicts(fail))
    fetching.go_on()
    assert isinstance(fetching.failures[0], ZeroDivisionError)
    assert (waiters(topics, "many"), topics.cluster.nodes[1].watched) == (0, 0)


def fail(right: Right, name: str) -> bool:
    raise ZeroDivisionError


def test_an_append_during_the_scan_causes_another_scan(topics: Harness) -> None:
    topics.create_topic("many", 120)
    soon: list[Callable[[], None]] = []
    times = count()
    topics.dispatcher.slicer = Slicer(soon.append, now=lambda: next(times))  # a step a slice
    client = topics.client()
    client.send(fetch_of(topics, {**MANY, ("t", 0): 0}, max_wait_ms=WAIT_MS))
    turns(soon)
    (waiter,) = topics.partition("t").waiters
    waiter.notify_partition_changed()  # which has a look at the first hundred of them in its first step
    assert soon
    topics.produce("many", "a")
    turns(soon)
    ((_, answer),) = client.responses()
    assert values_in(answers_in(topics, answer)["many", 0]) == ["a"]


def turns(soon: list[Callable[[], None]]) -> None:
    while soon:
        soon.pop(0)()
