"""`Broker`, the whole test kit in one object: its life, and everything a test does to it or asks of it.

Each duty has a file and a class of its own; here they are put together, and nothing else is.
"""

from __future__ import annotations

from functools import cached_property

from minibroker.testing.clock import TestClock
from minibroker.testing.verbs_groups import GroupVerbs
from minibroker.testing.verbs_nodes import NodeVerbs


class Broker(GroupVerbs, NodeVerbs):
    """A broker on a real socket for `with` (a thread of its own) or `async with` (the caller's event loop)."""

    @cached_property
    def clock(self) -> TestClock:
        """The time that it goes by."""
        return TestClock(self)
