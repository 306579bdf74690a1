"""What the broker's tests share: a cluster of one node without sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.harness import Harness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    """One node, with Kafka's defaults."""
    with Harness(tmp_path) as made:
        yield made
