"""What kafka-python leaves to the garbage collector, collected by the test that used it; shared with conformance."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture
def leaves_sockets() -> Iterator[None]:
    """For tests whose client, kafka-python, leaves sockets to the garbage collector when a connection is cut.

    They are collected here, where that is known, and not in some later test, which would be blamed for them.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
