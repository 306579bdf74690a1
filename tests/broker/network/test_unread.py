"""What clients leave unread: a little is free, the rest has a bound, and those go who take nothing."""

from __future__ import annotations

import pytest

from minibroker.broker.network.unread import OWN_UNREAD_BYTES, ReadingClient, UnreadBytes
from tests.broker.manual_clock import ManualClock

LARGE = 10 * OWN_UNREAD_BYTES


class FakeClient:
    """A client that takes what the test says it takes."""

    def __init__(self, peer: str, untaken_bytes: int = 0) -> None:
        self.peer = peer
        self.untaken = untaken_bytes
        self.closed = ""

    def count_unread_bytes(self) -> int:
        return self.untaken

    def abort(self) -> None:
        self.closed = "at once"

    def abort_soon(self) -> None:
        self.closed = "soon"


class Crowd:
    """Some clients, and a clock that stands still."""

    def __init__(self, limit_bytes: int = 10 * LARGE) -> None:
        self.clock = ManualClock()
        self.unread = UnreadBytes(self.clock.monotonic_ms, limit_bytes)

    def client(self, peer: str, held_bytes: int = LARGE) -> FakeClient:
        """A client for whom so much waits, all of it written."""
        client = FakeClient(peer, held_bytes)
        self.unread.set_unread_bytes(client, held_bytes)
        return client


def stalled(crowd: Crowd, limit_ms: float) -> list[ReadingClient]:
    return crowd.unread.list_stalled_clients(limit_ms)


def test_a_small_unread_response_is_not_counted_as_memory() -> None:
    crowd = Crowd()
    crowd.client("a", OWN_UNREAD_BYTES)
    crowd.clock.advance(1e9)
    assert crowd.unread.held_bytes == 0
    assert stalled(crowd, 1) == []


def test_a_clients_new_count_of_unread_bytes_replaces_its_previous_one_in_the_sum() -> None:
    crowd = Crowd()
    client = crowd.client("a", LARGE)
    crowd.unread.set_unread_bytes(client, 2 * LARGE)
    assert crowd.unread.held_bytes == 2 * LARGE
    crowd.unread.set_unread_bytes(client, 1)
    assert crowd.unread.held_bytes == 0
    crowd.unread.remove_client(client)
    assert crowd.unread.held_bytes == 0


def test_only_clients_that_read_nothing_count_as_stalled() -> None:
    crowd = Crowd()
    silent, slow = crowd.client("silent"), crowd.client("slow")
    for _ in range(6):
        crowd.clock.advance(5_000)
        slow.untaken -= 1
        assert stalled(crowd, 30_000) in ([], [silent])
    assert stalled(crowd, 30_000) == [silent]
    assert stalled(crowd, 30_001) == []


def test_a_response_queued_behind_unread_ones_does_not_count_as_progress_of_the_client() -> None:
    crowd = Crowd()
    client = crowd.client("a")
    crowd.clock.advance(20_000)
    crowd.unread.set_unread_bytes(client, 2 * LARGE)
    crowd.clock.advance(10_000)
    assert stalled(crowd, 30_000) == [client]


def test_the_longest_stalled_clients_are_disconnected_beyond_the_limit_of_unread_bytes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    crowd = Crowd(limit_bytes=4 * LARGE)
    first, second, reading = crowd.client("first"), crowd.client("second"), crowd.client("reading", 2 * LARGE)
    crowd.clock.advance(1_000)
    second.untaken -= 1
    crowd.unread.set_unread_bytes(second, LARGE)
    crowd.clock.advance(1_000)
    reading.untaken -= 1
    newest = crowd.client("newest")
    assert (first.closed, second.closed, reading.closed, newest.closed) == ("at once", "", "", "")
    assert crowd.unread.held_bytes == 4 * LARGE
    another = crowd.client("another", 2 * LARGE)
    assert (second.closed, reading.closed, newest.closed, another.closed) == ("at once", "at once", "", "")
    assert crowd.unread.held_bytes == 3 * LARGE
    assert caplog.messages[0].startswith(f"closing first: it leaves {LARGE} bytes of answers unread")


def test_the_largest_of_equally_stalled_clients_is_disconnected() -> None:
    crowd = Crowd(limit_bytes=4 * LARGE)
    small = crowd.client("small", 2 * LARGE)
    large = crowd.client("large", 3 * LARGE)
    assert (small.closed, large.closed) == ("", "soon")
    assert crowd.unread.held_bytes == 2 * LARGE
