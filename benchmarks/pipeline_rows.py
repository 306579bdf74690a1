"""What the pipeline's benchmarks in one process share: rows to work on, and the CPU time that work takes.

What is measured, and beside what, is each benchmark's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from minibroker.pipeline.schemas import HEADERS

START_MS = 1_700_000_000_000


def json_rows(size_bytes: int, count: int) -> pa.RecordBatch:
    """Rows like JSON with keys: `size_bytes` of key and value each, a millisecond apart."""
    random = np.random.default_rng(1)
    keys = [b"key-%04d" % (number % 1000) for number in range(count)]
    values = []
    for number in range(count):
        head = b'{"id":%d,"customer":"customer-%d","amount":%d,"note":"' % (number, number % 977, number * 7 % 10007)
        rest = max(0, size_bytes - len(keys[number]) - len(head) - 2)
        values.append(head + random.integers(97, 123, rest, dtype=np.uint8).tobytes() + b'"}')
    return pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array(START_MS + np.arange(count)),
            "headers": pa.nulls(count, HEADERS),
        }
    )


def cpu_seconds(work: Callable[[], object], runs: int = 1) -> float:
    """The CPU seconds of this process that work takes, the best of some runs."""
    found = []
    for _ in range(runs):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)
