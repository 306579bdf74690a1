"""Metered: a client is charged for the time in which its handler runs, and not for that in which others do."""

from __future__ import annotations

import pytest

from minibroker.broker.delayed_operations import pause
from minibroker.broker.quotas import quota_manager
from minibroker.broker.quotas.quota_manager import Metered, Usage


def test_only_the_slices_of_a_handler_are_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 0

    async def handle() -> str:
        nonlocal now_ns
        now_ns += 5
        await pause()
        now_ns += 7
        return "done"

    monkeypatch.setattr(quota_manager, "perf_counter_ns", lambda: now_ns)
    usage = Usage(10)
    usage.stop_request_time()
    metered = Metered(usage, handle()).__await__()
    next(metered)
    now_ns += 100  # others run
    with pytest.raises(StopIteration) as end:
        next(metered)
    assert (end.value.value, usage.measure_request_time_ns()) == ("done", 12)
