"""How many connections a node takes, and how fast; the clock stands still."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minibroker.broker.network import connection_limits
from minibroker.broker.network.connection import Connection
from minibroker.broker.network.connection_limits import ConnectionLimits
from minibroker.broker.network.framing import FrameBudget
from tests.broker.harness import Harness, KeptOutlet

QUOTA = "connection_creation_rate"


class Door:
    """Lets connections in: `closed` has those that were closed again. Each has had progress later than those before."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.limits = ConnectionLimits(harness.cluster, 1, harness.clock)
        harness.cluster.nodes[1].open_listeners = {"PLAINTEXT", "INTERNAL"}
        self.closed: list[Connection] = []
        self.opened = 0

    def open(self, host: str = "10.0.0.1", listener: str = "PLAINTEXT") -> Connection:
        outlet = KeptOutlet()
        self.opened += 1
        outlet.progress_ms = self.opened
        made = Connection(
            self.harness.cluster.nodes[1], listener, outlet, lambda *_: None, lambda _: None, FrameBudget(), 9,
            peer=f"{host}:1", host=host,
        )  # fmt: skip
        self.limits.admit_connection(made, lambda: self.closed.append(made))
        return made


def set_config(harness: Harness, name: str, value: str) -> None:
    harness.cluster.controller.change_config(4, "", {name: value})


@pytest.fixture
def door(harness: Harness) -> Iterator[Door]:
    return Door(harness)


def test_all_connections_are_accepted_without_limits(door: Door) -> None:
    assert [door.open().muted for _ in range(100)] == [False] * 100
    assert door.closed == []


def test_connections_above_the_connection_limit_of_their_address_are_closed(door: Door) -> None:
    set_config(door.harness, "max.connections.per.ip", "2")
    set_config(door.harness, "max.connections.per.ip.overrides", "10.0.0.2:1, ::1:0")
    kept = [door.open(), door.open()]
    third, other, another, sixth = door.open(), door.open("10.0.0.2"), door.open("10.0.0.2"), door.open("::1")
    assert door.closed == [third, another, sixth]
    for closed in door.closed:
        door.limits.release_connection(closed)
    door.limits.release_connection(kept[0])
    assert door.open() not in door.closed
    assert other not in door.closed


def test_connections_above_the_total_limit_wait_in_order(door: Door) -> None:
    leave_one_listener(door)
    set_config(door.harness, "max.connections", "2")
    first, _, third, fourth, fifth = (door.open(f"10.0.0.{number}") for number in range(5))
    assert [each.muted for each in (third, fourth, fifth)] == [True] * 3
    door.limits.release_connection(fourth)
    assert [each.muted for each in (third, fifth)] == [True] * 2
    door.limits.release_connection(first)
    assert [each.muted for each in (third, fifth)] == [False, True]
    set_config(door.harness, "max.connections", "3")
    door.limits.admit_waiting_connections()
    assert not fifth.muted


def test_connections_above_the_creation_rate_of_the_broker_wait(door: Door) -> None:
    set_config(door.harness, "max.connection.creation.rate", "1")
    assert [door.open().muted for _ in range(10)] == [False] * 10
    late = door.open()
    assert late.muted and not door.closed
    door.harness.clock.advance(1000)
    assert not late.muted


def test_waiting_connections_are_admitted_at_the_creation_rate(door: Door) -> None:
    set_config(door.harness, "max.connection.creation.rate", "1")
    opened = [door.open() for _ in range(30)]
    door.harness.clock.advance(1000)
    assert sum(each.muted for each in opened) == 19
    for _ in range(12):
        door.harness.clock.advance(1000)
    assert sum(each.muted for each in opened) < 19 - 8


def set_own_config(door: Door, name: str, value: str) -> None:
    door.harness.cluster.controller.change_config(4, "1", {name: value})


def test_a_listener_has_a_connection_limit_of_its_own(door: Door) -> None:
    set_own_config(door, "listener.name.x.max.connections", "2")
    first, _, third, other = (door.open(listener=name) for name in ("X", "X", "X", "PLAINTEXT"))
    assert (third.muted, other.muted) == (True, False)
    door.limits.release_connection(other)
    assert third.muted
    door.limits.release_connection(first)
    assert not third.muted


def test_a_listener_has_a_creation_rate_of_its_own(door: Door) -> None:
    set_own_config(door, "listener.name.x.max.connection.creation.rate", "1")
    opened = [door.open(listener="X") for _ in range(11)]
    assert [each.muted for each in opened] == [False] * 10 + [True]
    assert not door.open().muted
    door.harness.clock.advance(1000)
    assert not opened[-1].muted


def leave_one_listener(door: Door) -> None:
    door.harness.cluster.nodes[1].open_listeners = {"PLAINTEXT"}


def test_the_inter_broker_listener_is_exempt_from_the_connection_limits_of_the_broker(door: Door) -> None:
    set_config(door.harness, "max.connections", "2")
    opened = [door.open(listener=name) for name in ("INTERNAL", "INTERNAL", "INTERNAL", "PLAINTEXT")]
    assert [each.muted for each in opened] == [False, False, True, False]


def test_the_connection_rate_of_the_broker_does_not_limit_the_inter_broker_listener(door: Door) -> None:
    set_config(door.harness, "max.connection.creation.rate", "1")
    set_own_config(door, "listener.name.plaintext.max.connection.creation.rate", "5")
    assert not any(door.open().muted for _ in range(20))
    assert [door.open(listener="INTERNAL").muted for _ in range(11)] == [False] * 10 + [True]


def test_the_only_listener_is_not_exempt_from_the_connection_limits(door: Door) -> None:
    leave_one_listener(door)
    set_config(door.harness, "max.connections", "2")
    assert [door.open().muted for _ in range(3)] == [False, False, True]


def test_an_inter_broker_connection_above_the_limit_closes_the_longest_idle_one_of_another_listener(door: Door) -> None:
    set_config(door.harness, "max.connections", "3")
    opened = [door.open(listener=name) for name in ("PLAINTEXT", "INTERNAL", "INTERNAL", "PLAINTEXT")]
    assert door.closed == [opened[1]]
    door.limits.release_connection(opened[1])
    assert door.open(listener="INTERNAL").muted
    door.open()
    assert door.closed == opened[1:3]


def test_excess_connections_are_closed_when_the_limit_is_lowered(door: Door) -> None:
    leave_one_listener(door)
    opened = [door.open() for _ in range(5)]
    door.limits.close_excess_connections()
    assert door.closed == []
    set_config(door.harness, "max.connections", "3")
    door.limits.close_excess_connections()
    door.limits.close_excess_connections()
    assert door.closed == opened[:2]


def test_connections_above_the_rate_of_their_address_are_closed_after_a_delay(door: Door) -> None:
    door.harness.cluster.image.quotas |= {
        frozenset({("ip", None)}): {QUOTA: 1.0},
        frozenset({("ip", "10.0.0.2")}): {QUOTA: 2.0},
    }
    opened = [door.open() for _ in range(11)]
    assert [each.muted for each in opened] == [False] * 10 + [True]
    assert not any(door.open("10.0.0.2").muted for _ in range(20))
    assert door.closed == []
    door.harness.clock.advance(1000)
    assert door.closed == [opened[-1]]


def test_the_brokers_connection_rate_limit_holds_when_too_many_addresses_are_tracked(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "RATES_MAX", 4)
    leave_one_listener(door)
    door.harness.cluster.image.quotas |= {frozenset({("ip", None)}): {QUOTA: 1000.0}}
    set_config(door.harness, "max.connection.creation.rate", "1")
    assert [door.open(f"10.0.0.{number}").muted for number in range(11)] == [False] * 10 + [True]


@pytest.mark.parametrize("text", ["localhost:1", "10.0.0.1", "10.0.0.1:many", ":3"])
def test_a_malformed_list_of_connection_limit_overrides_is_rejected(door: Door, text: str) -> None:
    with pytest.raises(Exception, match="must be a list of address:number, and"):
        set_config(door.harness, "max.connections.per.ip.overrides", text)
