"""What the tests of handlers share: a topic."""

from __future__ import annotations

import pytest

from tests.broker.harness import Harness


@pytest.fixture
def topic(harness: Harness) -> Harness:
    """Make a topic "t" without configs of its own."""
    harness.create_topic("t")
    return harness
