"""Offsets that an open transaction is about to commit, when others commit, fetch and delete beside it.

Every literal is what Apache Kafka 4.4 answers.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.wire.connection import Connection
from conformance.wire.groups import NOTHING, Fetched, commit, delete, fetch_group, find_coordinator
from conformance.wire.requests import repeated
from conformance.wire.transactional import TransactionalProducer
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import DeleteGroupsRequest
from minibroker.protocol.messages.topics import DeleteTopicsRequest

UNSTABLE = Fetched(-1, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
OFFSET = 7
VERSION = 3


@pytest.fixture
def group(connection: Connection, new_name: Callable[[], str]) -> str:
    made = f"group-{new_name()}"
    find_coordinator(connection, made)
    return made


@pytest.fixture
def producer(connection: Connection, name: str, group: str) -> TransactionalProducer:
    """In its open transaction it has committed an offset for the group."""
    made = TransactionalProducer(connection)
    assert made.init() == 0
    assert made.add_offsets(group) == 0
    assert made.commit_offset(group, name, OFFSET, version=VERSION) == 0
    return made


def fetched(connection: Connection, group: str, name: str, *, stable: bool = True) -> Fetched:
    code, found = fetch_group(connection, group, (name, [0]), require_stable=stable)
    assert code == ErrorCode.NONE
    return found[name, 0]


def settled(connection: Connection, group: str, name: str) -> Fetched:
    """Return what is fetched once no transaction is open any more."""
    found: Fetched = repeated(lambda: fetched(connection, group, name), lambda seen: seen != UNSTABLE)
    return found


def test_pending_offsets_are_unstable_only_if_the_client_requires_stability(
    producer: TransactionalProducer, connection: Connection, group: str, name: str
) -> None:
    commit(connection, group, (name, 0, 3))
    assert fetched(connection, group, name) == UNSTABLE
    assert fetched(connection, group, name, stable=False) == Fetched(3)
    everything = fetch_group(connection, group, everything=True, require_stable=True)
    assert everything == (0, {(name, 0): UNSTABLE})


def test_a_pending_offset_without_a_commit_is_omitted_from_all_offsets(
    producer: TransactionalProducer, connection: Connection, group: str, name: str
) -> None:
    assert fetched(connection, group, name) == UNSTABLE
    assert fetch_group(connection, group, everything=True, require_stable=True) == (0, {})


@pytest.mark.parametrize("end", [True, False], ids=["committed", "aborted"])
def test_a_commit_during_a_transaction_overrides_its_pending_offset(
    producer: TransactionalProducer, connection: Connection, group: str, name: str, end: bool
) -> None:
    assert commit(connection, group, (name, 0, 3)) == {(name, 0): 0}
    assert producer.end(commit=end) == 0
    assert settled(connection, group, name) == Fetched(3)


def test_offset_deletion_discards_a_pending_offset(
    producer: TransactionalProducer, connection: Connection, group: str, name: str
) -> None:
    assert delete(connection, group, (name, 0)) == (0, {(name, 0): 0})
    assert fetched(connection, group, name) == NOTHING
    assert producer.end(commit=True) == 0
    assert settled(connection, group, name) == NOTHING


def test_topic_deletion_discards_a_pending_offset(
    producer: TransactionalProducer, connection: Connection, group: str, name: str
) -> None:
    deletion = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=5000)
    assert connection.ask(deletion, 6).responses[0].error_code == 0
    assert settled(connection, group, name) == NOTHING
    assert producer.end(commit=True) == 0
    assert settled(connection, group, name) == NOTHING


def test_group_deletion_discards_a_pending_offset(
    producer: TransactionalProducer, connection: Connection, group: str, name: str
) -> None:
    (result,) = connection.ask(DeleteGroupsRequest(groups_names=[group]), 2).results
    assert result.error_code == 0
    assert fetched(connection, group, name) == NOTHING
    assert producer.end(commit=True) == 0
    assert settled(connection, group, name) == NOTHING
