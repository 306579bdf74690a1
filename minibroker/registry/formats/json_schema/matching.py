"""Pairs up as many as possible of two groups of schemas, by those pairs that are compatible."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable


def find_maximum_matching(
    edges: Iterable[tuple[int, int]], left_part_count: int, spend_steps: Callable[[int], None]
) -> list[tuple[int, int]]:
    """Return a largest set of edges that share no end, by their left ends, which are below `left_part_count`.

    Each left end looks for a free right end; where there is none, for one whose partner can have another one (a
    breadth-first search of an augmenting path). `spend_steps` counts the steps.
    """
    rights_of: dict[int, list[int]] = defaultdict(list)
    for left, right in edges:
        rights_of[left].append(right)
    partner: dict[int, int] = {}  # of a right end
    for left in range(left_part_count):
        came_from: dict[int, int] = {}  # by right end: the left end that looked at it
        looking = deque([left])
        free = None
        while looking and free is None:
            current = looking.popleft()
            spend_steps(1 + len(rights_of[current]))
            for right in rights_of[current]:
                if right in came_from:
                    continue
                came_from[right] = current
                if right not in partner:
                    free = right
                    break
                looking.append(partner[right])
        while free is not None:
            current = came_from[free]
            spend_steps(len(partner))
            previous = next((right for right, left_end in partner.items() if left_end == current), None)
            partner[free] = current
            free = previous if current != left else None
    return sorted((left, right) for right, left in partner.items())
