"""Counting for the metrics of a test kit's process, and the place of those who watch among the interceptors.

What is counted, and how it is served, is in `broker/measuring`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minibroker.broker.requests.interceptors import Interceptor

if TYPE_CHECKING:
    from minibroker.broker.monitoring.measuring import Measurements
    from minibroker.testing.embedded import Embedded


def count_into(broker: Embedded, measured: Measurements) -> None:
    """Count all lives of a broker; to be called before it is started."""
    broker.measured = measured
    broker.interceptors.insert(0, measured.requests)


def put_first(broker: Embedded, interceptor: Interceptor) -> None:
    """Let an interceptor see requests before all others, but for the metrics: those count every request."""
    broker.interceptors.insert(0 if broker.measured is None else 1, interceptor)
