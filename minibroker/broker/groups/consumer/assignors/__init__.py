"""The assignors of the broker (KIP-848): who of a group is to have which partition.

Pure functions of what members want and have; what is done with the outcome is in `target`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minibroker.broker.groups.consumer.assignors import range, uniform
from minibroker.broker.groups.consumer.assignors.specification import Assignment, MemberSpecification

Assignor = Callable[[Mapping[str, MemberSpecification], Mapping[bytes, int]], Assignment]

ASSIGNORS: dict[str, Assignor] = {"uniform": uniform.assign, "range": range.assign}
