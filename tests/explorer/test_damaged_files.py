"""Which files are damaged."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.explorer.files_view import find_damage
from minibroker.storage.inspection.inspected_files import InspectedFile
from minibroker.testing import Broker
from tests.explorer.asking import ask


def test_damaged_files_are_listed(explored: Broker) -> None:
    explored.produce("orders", "first")
    log = explored.directory / "orders-0" / f"{0:020d}.log"
    assert ask(explored, "files/damaged") == {"damaged": {}, "unknown": 0}
    data = bytearray(log.read_bytes())
    data[-2] ^= 1
    log.write_bytes(data)
    assert ask(explored, "files/damaged") == {"damaged": {"orders-0/00000000000000000000.log": 1}, "unknown": 0}


def test_a_file_that_has_not_changed_is_not_read_again(explored: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def watched(inspected: InspectedFile) -> list[dict[str, Any]] | None:
        read.append(inspected.path)
        return find_damage(inspected)

    explored.produce("orders", "first")
    ask(explored, "files/damaged")
    monkeypatch.setattr("minibroker.explorer.files_view.find_damage", watched)
    explored.produce("orders", "second")
    ask(explored, "files/damaged")
    assert [path.rpartition("/")[2] for path in read] == [f"{0:020d}.log"]


def test_files_that_were_not_checked_in_time_are_counted(explored: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    explored.produce("orders", "first")
    monkeypatch.setattr("minibroker.explorer.files_view.SECONDS", -1.0)
    assert ask(explored, "files/damaged")["unknown"] == len(ask(explored, "files")["files"])


def test_the_first_damage_of_a_file_is_shown(explored: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minibroker.explorer.files_view.MOST_DAMAGE", 2)
    for value in "abc":
        explored.produce("orders", value)
    log = explored.directory / "orders-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    size_bytes = len(data) // 3
    for end in range(size_bytes, len(data) + 1, size_bytes):
        data[end - 2] ^= 1
    log.write_bytes(data)
    found = ask(explored, f"files/damage?path=orders-0/{log.name}")
    assert [each["position"] for each in found] == [0, size_bytes]


def test_a_file_that_is_too_large_to_check_is_not_reported_as_undamaged(
    explored: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    explored.produce("orders", "first")
    path = f"files/damage?path=orders-0/{0:020d}.log"
    assert ask(explored, path) == []
    monkeypatch.setattr("minibroker.explorer.files_view.MOST_INSPECTED_BYTES", 10)
    assert ask(explored, path) is None


def test_a_large_file_is_checked_when_it_is_opened(explored: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minibroker.explorer.files_view.MOST_LISTED_BYTES", 100)
    explored.produce("orders", b"x" * 100)
    log = explored.directory / "orders-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[-2] ^= 1
    log.write_bytes(data)
    assert ask(explored, "files/damaged")["damaged"] == {}
    assert ask(explored, "files/damaged")["unknown"] >= 1
    assert len(ask(explored, f"files/damage?path=orders-0/{log.name}")) == 1
