"""`Broker`, the test kit's one object: a broker's life, its clock, and the verbs that tests call."""

from __future__ import annotations

from functools import cached_property

from minibroker.testing.group_verbs import GroupVerbs
from minibroker.testing.moving_clock import TestClock
from minibroker.testing.node_verbs import NodeVerbs
from minibroker.testing.record_verbs import RecordVerbs


class Broker(RecordVerbs, GroupVerbs, NodeVerbs):
    """A broker on a real socket for `with` (a thread of its own) or `async with` (the caller's event loop)."""

    @cached_property
    def clock(self) -> TestClock:
        """Return the broker's time: `advance` it, `freeze` it."""
        return TestClock(self)
