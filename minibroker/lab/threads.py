"""Threads where there are none: what one would do is done at once, before the caller goes on.

A caller that waits for a thread to end finds it ended. Nothing in the broker waits for a thread that waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


def run_threads_synchronously() -> None:
    """Make threads and thread pools of this process run their functions at once, in the caller's thread."""
    thread: Any = threading.Thread
    thread.start = lambda self: self.run()
    thread.join = lambda self, timeout=None: None
    pool: Any = ThreadPoolExecutor
    pool.submit = run_synchronously


def run_synchronously(_: object, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
    """Call a function; return a future with its result."""
    future: Future[Any] = Future()
    try:
        future.set_result(function(*args, **kwargs))
    except BaseException as error:
        future.set_exception(error)
    return future
