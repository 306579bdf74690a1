"""What the tests of consumer groups share: a topic for the members to divide.

What members do is in `driving.py`.
"""

from __future__ import annotations

import pytest

from tests.broker.harness import Harness


@pytest.fixture
def topic(harness: Harness) -> str:
    """Its name; it has four partitions."""
    harness.create_topic("t", 4)
    return "t"
