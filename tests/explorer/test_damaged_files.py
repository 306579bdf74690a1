"""Which files are damaged."""

from __future__ import annotations

import pytest

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


def test_files_that_there_was_no_time_to_look_at_are_counted(explored: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    explored.produce("orders", "first")
    monkeypatch.setattr("minibroker.explorer.damaged_files.SECONDS", -1.0)
    assert ask(explored, "files/damaged")["unknown"] == len(ask(explored, "files")["files"])
