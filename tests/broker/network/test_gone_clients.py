"""The requests of a client that has gone: those that may change something run, in order, and nobody is answered."""

from __future__ import annotations

from struct import pack

from minibroker.protocol.apis import ApiKey
from tests.broker.network.test_connection import Conversation, frame


def read_frame() -> bytes:
    body = pack(">hxxxxxx", ApiKey.FETCH)
    return pack(">i", len(body)) + body


def test_requests_that_change_state_run_after_their_client_disconnects() -> None:
    talk = Conversation()
    talk.feed(frame("p", 1) + frame("a", 2) + read_frame() + frame("p", 3) + frame("d", 4) + frame("b", 5))
    talk.connection.drop_lost_client()
    talk.outlet.run()
    assert talk.ran == [b"p", b"a", b"p", b"d", b"b"]
    assert talk.outlet.sent == [], "nobody reads the answers"
    assert talk.connection.closed
    assert talk.budget.held_bytes == 0
    assert all(delaying.is_closed for _, delaying in talk.delayed), "nobody waits any more"


def test_a_change_in_progress_ends_before_the_next_request_of_a_disconnected_client() -> None:
    talk = Conversation()
    talk.feed(frame("l", 1) + frame("a", 2) + frame("l", 3) + frame("b", 4))
    gone: list[bool] = []
    talk.connection.call_when_lost("a share session", lambda: gone.append(True))
    talk.connection.drop_lost_client()
    talk.outlet.run()
    assert talk.ran == [b"l"]
    talk.complete()
    talk.outlet.run()
    assert talk.ran == [b"l", b"a", b"l"]
    assert gone == []
    talk.complete()
    talk.outlet.run()
    assert talk.ran == [b"l", b"a", b"l", b"b"]
    assert gone == [True], "only now it is over"
    assert talk.connection.closed and talk.outlet.sent == [] and talk.budget.held_bytes == 0


def test_requests_of_a_muted_disconnected_client_run_once_unmuted() -> None:
    talk = Conversation()
    talk.connection.mute()
    talk.feed(frame("a", 1) + frame("b", 2))
    talk.connection.drop_lost_client()
    talk.outlet.run()
    assert talk.ran == []
    talk.connection.unmute()
    talk.outlet.run()
    assert talk.ran == [b"a", b"b"]
    assert talk.connection.closed and talk.budget.held_bytes == 0


def test_requests_of_a_client_that_the_broker_disconnected_do_not_run() -> None:
    talk = Conversation()
    talk.feed(frame("p", 1) + frame("a", 2))
    talk.connection.close_after_failure()
    talk.connection.drop_lost_client()
    talk.outlet.run()
    assert talk.ran == [b"p"]
    assert talk.budget.held_bytes == 0
