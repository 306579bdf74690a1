"""Members of share groups for tests, and what they read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from conformance.wire.batches import batch
from conformance.wire.connection import Connection
from conformance.wire.requests import metadata_of, produce
from conformance.wire.share_members import Member, configure

NOW_MS = 1_700_000_000_000


class NewMember(Protocol):
    """Makes a member of the test's group, on a connection of its own."""

    def __call__(self) -> Member: ...


@pytest.fixture
def topic_id(connection: Connection, name: str) -> bytes:
    found: bytes = metadata_of(connection, name).topic_id
    return found


@pytest.fixture
def new_share_member(
    connect: Callable[[], Connection], connection: Connection, group: str, name: str, topic_id: bytes
) -> Iterator[NewMember]:
    configure(connection, group, auto_offset_reset="earliest", record_lock_duration_ms="15000")
    with ExitStack() as stack:
        yield lambda: Member(stack.enter_context(connect()), group, name, topic_id)


@pytest.fixture
def member(new_share_member: NewMember) -> Member:
    """A member that has joined."""
    made = new_share_member()
    made.join()
    return made


def write(connection: Connection, name: str, *sizes: int) -> None:
    """Write batches of so many records."""
    for size in sizes:
        records = batch([b"x"] * size, timestamp=NOW_MS)
        assert produce(connection, name, records).error_code == 0
