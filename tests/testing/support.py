"""What the tests of the embedded broker share: the settings of a client of librdkafka's, and waiting for a state.

Nothing here tests anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from minibroker.testing import Broker

PATIENCE_S = 60


def settings(broker: Broker, **more: object) -> dict[str, object]:
    """Return settings for a client of librdkafka's that prints nothing."""
    return {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, **more}


def until(condition: Callable[[], object]) -> None:
    """Return once a condition is true that the broker has no wait for. Raises AssertionError after a while."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
