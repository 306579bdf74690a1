"""Metered: a client is charged for the time in which its handler runs, and not for that in which others do."""

from __future__ import annotations

import pytest

from minibroker.broker.delayed_operations import ClusterReplaced, pause
from minibroker.broker.quotas import quota_manager
from minibroker.broker.quotas.quota_manager import MeteredCoroutine, RequestUsage


def test_only_the_time_in_which_a_handler_runs_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 0

    async def handle() -> str:
        nonlocal now_ns
        now_ns += 5
        await pause()
        now_ns += 7
        return "done"

    monkeypatch.setattr(quota_manager, "perf_counter_ns", lambda: now_ns)
    usage = RequestUsage(10)
    usage.stop_request_time()
    metered = MeteredCoroutine(usage, handle()).__await__()
    next(metered)
    now_ns += 100  # others run
    with pytest.raises(StopIteration) as end:
        next(metered)
    assert (end.value.value, usage.measure_request_time_ns()) == ("done", 12)


def test_a_metered_coroutine_passes_thrown_errors_and_its_close_to_the_handler() -> None:
    told: list[str] = []

    async def handle() -> None:
        try:
            await pause()
        except ClusterReplaced:
            told.append("replaced")
        try:
            await pause()
        finally:
            told.append("closed")

    handler = handle()  # which is kept here, so that only its end closes it
    metered = MeteredCoroutine(RequestUsage(10), handler).__await__()
    next(metered)
    metered.send(ClusterReplaced)
    metered.close()
    assert told == ["replaced", "closed"]
