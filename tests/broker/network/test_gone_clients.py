"""The requests of a client that has gone: those that may change something run, in order, and nobody is answered."""

from __future__ import annotations

from struct import pack

from minibroker.protocol.apis import ApiKey
from tests.broker.network.test_connection import Conversation, frame


def read_frame() -> bytes:
    body = pack(">hxxxxxx", ApiKey.FETCH)
    return pack(">i", len(body)) + body


def test_when_a_client_goes_the_requests_behind_a_waiting_one_run_if_they_change_something() -> None:
    talk = Conversation()
    talk.feed(frame("p", 1) + frame("a", 2) + read_frame() + frame("p", 3) + frame("d", 4) + frame("b", 5))
    talk.connection.lost()
    talk.outlet.run()
    assert talk.ran == [b"p", b"a", b"p", b"d", b"b"]
    assert talk.outlet.sent == [], "nobody reads the answers"
    assert talk.connection.closed
    assert talk.budget.held_bytes == 0
    assert all(delaying.is_closed for _, delaying in talk.delayed), "nobody waits any more"


def test_when_a_client_goes_a_change_under_way_ends_before_the_next_request_runs() -> None:
    talk = Conversation()
    talk.feed(frame("l", 1) + frame("a", 2) + frame("l", 3) + frame("b", 4))
    gone: list[bool] = []
    talk.connection.call_when_lost("a share session", lambda: gone.append(True))
    talk.connection.lost()
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


def test_when_a_muted_client_goes_its_requests_run_once_they_may() -> None:
    talk = Conversation()
    talk.connection.mute()
    talk.feed(frame("a", 1) + frame("b", 2))
    talk.connection.lost()
    talk.outlet.run()
    assert talk.ran == []
    talk.connection.unmute()
    talk.outlet.run()
    assert talk.ran == [b"a", b"b"]
    assert talk.connection.closed and talk.budget.held_bytes == 0


def test_when_a_client_goes_that_the_broker_has_closed_nothing_more_of_it_runs() -> None:
    talk = Conversation()
    talk.feed(frame("p", 1) + frame("a", 2))
    talk.connection.fail()
    talk.connection.lost()
    talk.outlet.run()
    assert talk.ran == [b"p"]
    assert talk.budget.held_bytes == 0
