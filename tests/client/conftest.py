"""What the tests of the client share: a broker of a test's own, of which nothing is left after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minibroker.testing import Broker


@pytest.fixture
def kafka() -> Iterator[Broker]:
    """A broker for one test."""
    with Broker() as broker:
        yield broker
