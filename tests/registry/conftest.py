"""A broker with a registry, emptied before each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minibroker.testing import Broker
from tests.registry.asking import Asking


@pytest.fixture(scope="module")
def module_broker() -> Iterator[Broker]:
    """Return a broker for all tests of a file."""
    with Broker(registry=True) as broker:
        yield broker


@pytest.fixture
def broker(module_broker: Broker) -> Broker:
    """Return an empty broker."""
    module_broker.reset()
    return module_broker


@pytest.fixture
def registry(broker: Broker) -> Asking:
    """Return a client of an empty registry."""
    return Asking(broker.registry_url)
