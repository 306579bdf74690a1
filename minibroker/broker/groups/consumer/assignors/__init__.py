"""The broker's assignors (KIP-848): which member of a group gets which partition.

They are pure functions of the members' subscriptions and present targets. They are called in `updating`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minibroker.broker.groups.consumer.assignors import range, uniform
from minibroker.broker.groups.consumer.assignors.specification import Assignment, MemberSpecification

Assignor = Callable[[Mapping[str, MemberSpecification], Mapping[bytes, int]], Assignment]

ASSIGNORS: dict[str, Assignor] = {"uniform": uniform.assign_uniformly, "range": range.assign_ranges}
