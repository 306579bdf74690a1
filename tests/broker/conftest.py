"""What the broker's tests share: a cluster of one node without sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.broker.network import pipelines
from tests.broker.harness import Harness


@pytest.fixture(autouse=True, scope="module")
def endless_turns() -> Iterator[None]:
    """Let a turn run all requests of a read, however long the machine takes for them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipelines, "TURN_SECONDS", 1000.0)
        yield


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    """One node, with Kafka's defaults."""
    with Harness(tmp_path) as made:
        yield made
