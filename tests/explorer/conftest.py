"""A broker with an explorer, which the tests of a file share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minibroker.testing import Broker


@pytest.fixture(scope="module")
def served() -> Iterator[Broker]:
    with Broker(explorer=True) as broker:
        yield broker


@pytest.fixture
def explored(served: Broker) -> Broker:
    """Return the broker after a reset."""
    served.reset()
    return served
