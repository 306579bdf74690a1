"""Fetch in sessions (KIP-227): how much they hold, what they say of topics that change, and requests at the same time.

Which session is evicted is tested in `broker/test_fetch_sessions.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.fetch_sessions import PARTITION_BYTES
from minibroker.broker.handlers.fetch import fetch
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest
from minibroker.protocol.steps import run_all_steps
from tests.broker.delaying import steps_of
from tests.broker.handlers.fetching import LAST_BY_NAME, VERSIONS, Where, answers_in, fetch_of, values_in
from tests.broker.harness import Harness, Waiting

FULL = 0
NOT_FOUND = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class Session:
    """A client that fetches in a session. Each call is one request, and gives the values by partition, errors as codes.

    `offsets` and `forget` change what the session holds.
    """

    def __init__(self, harness: Harness, version: int = VERSIONS[-1]) -> None:
        self.harness = harness
        self.version = version
        self.session_id = 0
        self.epoch = FULL

    def __call__(
        self, offsets: Mapping[Where, int] | None = None, forget: tuple[Where, ...] = ()
    ) -> dict[Where, list[str] | int]:
        response = self.request(offsets or {}, self.session_id, self.epoch, forget=forget)
        assert response.error_code == 0
        if self.epoch == FULL:
            self.session_id = response.session_id
        self.epoch += 1
        return {
            where: answer.error_code or values_in(answer)
            for where, answer in answers_in(self.harness, response).items()
        }

    def request(self, offsets: Mapping[Where, int], session_id: int, epoch: int, **more: Any) -> Any:
        request = fetch_of(self.harness, offsets, session_id=session_id, session_epoch=epoch, **more)
        return self.harness.request(request, self.version)

    def refused(self, session_id: int, epoch: int) -> int:
        """The error of a request that asks for nothing; a refusal names no session and no topic."""
        response = self.request({}, session_id, epoch)
        assert (response.session_id, response.responses) == (0, [])
        code: int = response.error_code
        return code


@pytest.fixture
def topics(harness: Harness) -> Harness:
    """A topic "t" of three partitions with the records "a", "b" in the first and "c" in the second."""
    harness.create_topic("t", 3)
    harness.produce("t", "a")
    harness.produce("t", "b")
    harness.produce("t", "c", partition=1)
    return harness


ALL: dict[Where, int] = {("t", 0): 0, ("t", 1): 0, ("t", 2): 0}
EVERYTHING = {("t", 0): ["a", "b"], ("t", 1): ["c"], ("t", 2): []}


def test_a_fetch_session_sends_partitions_whose_log_start_offset_changed(topics: Harness) -> None:
    session = Session(topics)
    session({("t", 0): 2})
    topics.partition("t").log.delete_records_before(1)
    assert session() == {("t", 0): []}
    assert session() == {}


def test_a_fetch_session_repeats_a_partition_error_until_the_partition_recovers(topics: Harness) -> None:
    session = Session(topics)
    out_of_range = {("t", 0): ErrorCode.OFFSET_OUT_OF_RANGE}
    assert session({("t", 0): 9}) == out_of_range
    assert session() == out_of_range
    assert session({("t", 0): 2}) == {("t", 0): []}
    assert session() == {}


def test_a_session_reports_an_unknown_topic_in_each_response_until_it_exists(topics: Harness) -> None:
    session = Session(topics, LAST_BY_NAME)
    unknown = {("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert session({("nowhere", 0): 0}) == unknown
    assert session() == unknown
    topics.create_topic("nowhere")
    assert session() == {("nowhere", 0): []}


def test_clients_fetch_without_sessions_when_sessions_use_too_much_memory(topics: Harness) -> None:
    sessions = topics.cluster.nodes[1].sessions
    sessions.limit_bytes = 4 * PARTITION_BYTES
    before = Session(topics)
    assert before(ALL) == EVERYTHING
    response = topics.request(fetch_of(topics, ALL, session_epoch=FULL))
    assert response.session_id == 0
    assert {where: values_in(answer) for where, answer in answers_in(topics, response).items()} == EVERYTHING
    assert before({("t", 0): 2, ("t", 1): 1}) == {}, "the other one goes on"


def test_a_session_that_becomes_too_large_is_evicted_after_one_response(topics: Harness) -> None:
    sessions = topics.cluster.nodes[1].sessions
    session = Session(topics, LAST_BY_NAME)
    session({("t", 0): 0})
    sessions.limit_bytes = 2 * PARTITION_BYTES
    assert session({("t", 0): 1, ("t", 1): 0}) == {("t", 0): ["b"], ("t", 1): ["c"]}
    assert session.refused(session.session_id, session.epoch) == NOT_FOUND
    assert (len(sessions), sessions.held_bytes) == (0, 0)


def test_the_memory_of_sessions_with_unknown_partitions_is_limited(topics: Harness) -> None:
    sessions = topics.cluster.nodes[1].sessions
    sessions.limit_bytes = 1000 * PARTITION_BYTES
    for _ in range(5):
        topics.request(
            fetch_of(topics, {("nowhere", index): 0 for index in range(400)}, session_epoch=FULL), LAST_BY_NAME
        )
    assert len(sessions) == 2
    assert sum(len(session.partitions) for session in sessions._sessions.values()) == 800


def test_a_fetch_has_no_session_if_the_cache_is_full(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={"max.incremental.fetch.session.cache.slots": "1"}) as harness:
        harness.create_topic("t", 2)
        first, second = Session(harness), Session(harness)
        first({("t", 0): 0})
        assert second({("t", 0): 0}) == {("t", 0): []}
        assert second.session_id == 0
        second.epoch = FULL
        second({("t", 0): 0, ("t", 1): 0})
        assert second.session_id > 0, "the larger one takes the place of the smaller one"
        assert first.refused(first.session_id, 1) == NOT_FOUND


def test_each_node_has_its_own_sessions(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.create_topic("t")
        session = Session(harness)
        session({("t", 0): 0})
        request = fetch_of(harness, {}, session_id=session.session_id, session_epoch=1)
        assert harness.request(request, node=2).error_code == NOT_FOUND


# --- deleted topics, and waiting ----------------------------------------------------------------


def test_a_deleted_topic_is_an_error_until_its_name_is_recreated(topics: Harness) -> None:
    session = Session(topics, LAST_BY_NAME)
    session({("t", 0): 2})
    topics.request(DeleteTopicsRequest(topic_names=["t"]), 5)
    assert session() == {("t", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    topics.create_topic("t")
    assert session({("t", 0): 0}) == {("t", 0): []}


def test_an_incremental_fetch_waits_for_changes(topics: Harness) -> None:
    session = Session(topics)
    session(ALL)
    consumed: dict[Where, int] = {("t", 0): 2, ("t", 1): 1}
    waiting = session.request(consumed, session.session_id, 1, max_wait_ms=500)
    assert isinstance(waiting, Waiting)
    topics.produce("t", "x", partition=2)
    response = waiting.response()
    assert response.session_id == session.session_id
    assert {where: values_in(answer) for where, answer in answers_in(topics, response).items()} == {("t", 2): ["x"]}


def test_only_changed_partitions_of_many_are_sent(harness: Harness) -> None:
    harness.create_topic("t", 150)
    harness.produce("t", "x", partition=7)
    many: dict[Where, int] = {("t", index): 0 for index in range(149)} | {("t", 200): 0}
    consumed = many | {("t", 7): 1}
    first = harness.request(fetch_of(harness, many, session_epoch=0))
    assert list(answers_in(harness, first)) == list(many)

    def told(epoch: int) -> dict[Where, tuple[int, list[str]]]:
        asked = {where: offset for where, offset in consumed.items() if offset} if epoch == 1 else {}
        response = harness.request(fetch_of(harness, asked, session_id=first.session_id, session_epoch=epoch))
        answers = answers_in(harness, response)
        return {where: (answer.error_code, values_in(answer)) for where, answer in answers.items()}

    unknown = ("t", 200)
    assert told(1) == {unknown: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])}
    harness.produce("t", "y", partition=3)
    assert told(2) == {unknown: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []), ("t", 3): (0, ["y"])}
    more = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=201, assignments=None)
    harness.request(CreatePartitionsRequest(topics=[more]))
    assert told(3) == {unknown: (0, []), ("t", 3): (0, ["y"])}, "an error that is over is news"
    assert list(told(4)) == [("t", 3)], "its records are asked for again, as the client has not gone on"


def test_a_session_epoch_is_used_once_even_by_concurrent_requests(harness: Harness) -> None:
    harness.create_topic("t")
    many: dict[Where, int] = {("t", index): 0 for index in range(150)}
    session_id = harness.request(fetch_of(harness, many, session_epoch=0)).session_id
    request = fetch_of(harness, many, session_id=session_id, session_epoch=1)
    contexts = [harness.make_context(ApiKey.FETCH, VERSIONS[-1]) for _ in "ab"]
    first = steps_of(fetch(contexts[0], request))
    next(first)
    with pytest.raises(KafkaError) as refused:
        run_all_steps(steps_of(fetch(contexts[1], request)))
    assert refused.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert run_all_steps(first).session_id == session_id
    assert harness.request(fetch_of(harness, {}, session_id=session_id, session_epoch=2)).error_code == 0
