"""What a thread would do is done before the caller goes on."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from minibroker.lab import threads


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in ((threading.Thread, "start"), (threading.Thread, "join"), (ThreadPoolExecutor, "submit")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    threads.run_threads_synchronously()


def test_a_thread_of_the_lab_runs_to_its_end_when_it_is_started() -> None:
    done: list[int] = []
    thread = threading.Thread(target=done.append, args=(threading.get_ident(),))
    thread.start()
    assert done == [threading.get_ident()]
    assert not thread.is_alive()
    thread.join()


def test_a_thread_pool_returns_results_and_raises_errors() -> None:
    with ThreadPoolExecutor() as pool:
        assert list(pool.map(abs, [-1, 2])) == [1, 2]
        assert isinstance(pool.submit(int, "x").exception(), ValueError)
